//! The agent's Unix socket: questions come in on threads of their own, and are answered by the
//! loop.
//!
//! A slow or silent client costs a thread for a second, never the loop a step. There are few
//! threads: a client that finds none free is turned away, and counted.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_model::status::{Reply, Request};

/// Clients at a time; more are turned away.
const MAX_CLIENTS: usize = 16;
/// A question is a short line.
const MAX_REQUEST: usize = 4096;
/// How long a client may take for a question, however it trickles in, and for reading its answer.
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
    turned_away: Arc<AtomicU64>,
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
        let turned_away = Arc::new(AtomicU64::new(0));
        let away = Arc::clone(&turned_away);
        std::thread::Builder::new().name("socket".into()).spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Out of descriptors, most likely: not a reason to spin.
                    breathe();
                    continue;
                };
                if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    away.fetch_add(1, Ordering::Relaxed);
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
        Ok(Self { path: path.to_owned(), questions, bell, turned_away })
    }

    /// Clients that found no free thread.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
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
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let Some(line) = question(stream, &mut lines)? else { return Ok(()) };
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => {
                let (answer, answered) = sync_channel(1);
                loop_.send(Question { request, answer })?;
                rustix::io::write(rope, &[1])?;
                answered.recv_timeout(PATIENCE)?
            }
            Err(e) => Reply::Error { message: format!("not a request: {e}") },
        };
        // In one piece: a write per word would cost the host more than the answer.
        let mut line = serde_json::to_vec(&reply)?;
        drop(reply);
        line.push(b'\n');
        stream.write_all(&line)?;
    }
}

/// The next line, without its end; `None` once the client has hung up. What is longer than a
/// question can be, or takes too long, ends the conversation.
#[expect(
    clippy::disallowed_methods,
    reason = "a driver's thread: it waits for a client, not for long"
)]
fn question(stream: &UnixStream, lines: &mut BufReader<&UnixStream>) -> Result<Option<Vec<u8>>> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no question within {PATIENCE:?}");
        stream.set_read_timeout(Some(left))?;
        let some = lines.fill_buf()?;
        if some.is_empty() {
            return Ok((!line.is_empty()).then_some(line));
        }
        let end = some.iter().position(|c| *c == b'\n');
        let taken = end.map_or(some.len(), |end| end + 1);
        line.extend_from_slice(&some[..end.unwrap_or(some.len())]);
        lines.consume(taken);
        ensure!(line.len() <= MAX_REQUEST, "a question longer than {MAX_REQUEST} octets");
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("weir-server-{}-{name}.sock", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    /// What a client gets for `sent`, while the loop answers every question with an error.
    fn ask(server: &Server, place: &Place, sent: &[u8]) -> String {
        let mut client = UnixStream::connect(&place.0).expect("it listens");
        client.set_read_timeout(Some(3 * PATIENCE)).expect("a timeout");
        let mut answer = String::new();
        // A client that is turned away finds the other end closed.
        let told = client.write_all(sent).and_then(|()| client.shutdown(std::net::Shutdown::Write));
        if told.is_err() {
            return answer;
        }
        while !answer.ends_with('\n') {
            let bell = rustix::event::PollFd::new(&server.bell, rustix::event::PollFlags::IN);
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut [bell], Some(&wait));
            for question in server.questions() {
                question.answer(Reply::Error { message: "answered".into() });
            }
            let mut some = [0; 512];
            client.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            match client.read(&mut some) {
                Ok(0) => break,
                Ok(n) => answer.push_str(&String::from_utf8_lossy(&some[..n])),
                Err(_) => {}
            }
        }
        answer
    }

    #[test]
    fn a_question_is_answered_and_nonsense_is_told_so() {
        let place = Place::new("answers");
        let server = Server::listen(&place.0).expect("a socket");
        assert!(ask(&server, &place, b"{\"op\":\"top\"}\n").contains("answered"));
        assert!(ask(&server, &place, b"hello\n").contains("not a request"));
    }

    #[test]
    fn a_question_without_an_end_is_not_kept() {
        let place = Place::new("endless");
        let server = Server::listen(&place.0).expect("a socket");
        assert_eq!(ask(&server, &place, &vec![b'x'; 3 * MAX_REQUEST]), "");
    }

    #[test]
    fn clients_beyond_the_bound_are_turned_away_and_counted_and_the_silent_ones_leave() {
        let place = Place::new("many");
        let server = Server::listen(&place.0).expect("a socket");
        let start = crate::driver::now();
        let connect = || UnixStream::connect(&place.0).expect("it listens");
        let silent: Vec<UnixStream> = (0..MAX_CLIENTS + 4).map(|_| connect()).collect();
        let since = || crate::driver::now().since(start).as_secs_f64();
        while server.turned_away() < 4 {
            assert!(since() < 5.0, "{} were turned away", server.turned_away());
        }
        // After their second the silent ones make room.
        while !ask(&server, &place, b"{\"op\":\"top\"}\n").contains("answered") {
            assert!(since() < 10.0, "nobody left");
        }
        drop(silent);
    }
}
