//! The agent's Unix socket: questions come in on threads of their own, and are answered by the loop.
//!
//! A slow or silent client costs a thread for a second, never the loop a step.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use std::time::Duration;
use weir_model::status::{Reply, Request};

/// Clients at a time; more are turned away.
const MAX_CLIENTS: usize = 16;
/// A question is a short line.
const MAX_REQUEST: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(1);

/// A question that waits for the loop.
pub(crate) struct Question {
    pub(crate) request: Request,
    answer: SyncSender<Reply>,
}

impl Question {
    pub(crate) fn answer(self, reply: Reply) {
        // The client may be gone: that is its own affair.
        drop(self.answer.try_send(reply));
    }
}

/// The socket; removed from the file system when dropped.
pub(crate) struct Server {
    path: PathBuf,
    questions: Receiver<Question>,
    bell: OwnedFd,
}

impl Server {
    /// Listens at `path`; a file left by a dead agent is replaced (the instance's lock is held).
    pub(crate) fn listen(path: &Path) -> Result<Self> {
        if path.exists() {
            std::fs::remove_file(path).with_context(|| path.display().to_string())?;
        }
        let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
        let (sender, questions) = sync_channel(MAX_CLIENTS);
        let (bell, rope) = rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC,
        )?;
        let rope = Arc::new(rope);
        let clients = Arc::new(AtomicUsize::new(0));
        std::thread::Builder::new().name("socket".into()).spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Out of descriptors, most likely: not a reason to spin.
                    breathe();
                    continue;
                };
                if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (sender, rope) = (sender.clone(), Arc::clone(&rope));
                let done = Arc::clone(&clients);
                let spawned = std::thread::Builder::new().spawn(move || {
                    // A client that hangs up or never asks is no news.
                    drop(serve(&stream, &sender, &rope));
                    done.fetch_sub(1, Ordering::Relaxed);
                });
                if spawned.is_err() {
                    clients.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), questions, bell })
    }

    /// Readable when a question waits.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The questions that wait now.
    pub(crate) fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        let mut rings = [0u8; MAX_CLIENTS];
        // Empty or full, a ring is a ring.
        let _ = rustix::io::read(&self.bell, &mut rings);
        self.questions.try_iter()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

#[expect(clippy::disallowed_methods, reason = "a driver's thread that only waits for clients")]
fn breathe() {
    std::thread::sleep(Duration::from_millis(100));
}

fn serve(mut stream: &UnixStream, loop_: &SyncSender<Question>, rope: &OwnedFd) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.by_ref().take(MAX_REQUEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let reply = match serde_json::from_str(&line) {
            Ok(request) => {
                let (answer, answered) = sync_channel(1);
                loop_.send(Question { request, answer })?;
                rustix::io::write(rope, &[1])?;
                answered.recv_timeout(PATIENCE)?
            }
            Err(e) => Reply::Error { message: format!("not a request: {e}") },
        };
        serde_json::to_writer(&mut stream, &reply)?;
        stream.write_all(b"\n")?;
    }
}
