//! `weir verify serve`: the sockets and threads around the server's state.

use super::desk::Desk;
use super::flow;
use super::keys::Greeter;
use super::note::PROBE;
use super::sockets::{self, BUFFER, Raw};
use super::wall;
use crate::config::Setup;
use crate::driver::now;
use crate::{client, control};
use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags};
use std::hash::RandomState;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::Span;

/// How soon the end is noticed.
const TURN: Span = Span::from_millis(50);
/// Datagrams of one socket before the other has its turn.
const AT_ONCE: usize = 256;

/// Answers `weir verify` of other hosts at `listen`, or where the configuration's agent listens, for a
/// while or until `stop`. `say` is told where.
///
/// # Errors
///
/// There is no such address here or it is taken, the configuration has a mistake, or the caller may not
/// have raw sockets.
pub fn serve(
    listen: Option<SocketAddr>,
    config: Option<&Path>,
    lasts: Span,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let setup = config.map(Setup::load).transpose()?;
    let greeter = setup.as_ref().map(Greeter::of).transpose()?;
    let listen = listen.or_else(|| setup.as_ref().map(|setup| setup.file.listen));
    let listen = listen.context("name an address of this host, or --config FILE")?;
    ensure!(
        !listen.ip().is_unspecified(),
        "{listen}: name one address of this host, the one that other hosts send to"
    );
    let socket = match sockets::bind(listen) {
        Ok(socket) => socket,
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "{listen}: the port is taken: by a running agent? Then name another port here and at the \
             other host, and open it between them"
        ),
        Err(error) => return Err(error).with_context(|| format!("{listen}: cannot be bound")),
    };
    let raw = Raw::open(listen.ip(), PROBE)?;
    let run_dir = setup.as_ref().map_or(Path::new(super::RUN_DIR), |setup| &setup.file.run_dir);
    let has_agent = !client::instances(run_dir).is_empty();
    let at = (listen.port(), sockets::device_mtu(listen.ip())?);
    let keys = if greeter.is_some() { "" } else { ", without keys: no --config" };
    say(&format!("answers at {listen} for {lasts}{keys}; Ctrl-C ends it"));
    let desk = Desk::new(RandomState::new(), at, has_agent, greeter);
    Server { desk, socket, raw, senders: Vec::new() }.turn_until(lasts, stop, say)
}

struct Server {
    desk: Desk,
    socket: UdpSocket,
    raw: Raw,
    senders: Vec<std::thread::JoinHandle<()>>,
}

impl Server {
    fn turn_until(
        mut self,
        lasts: Span,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let end = now() + lasts;
        let mut buffer = vec![0; BUFFER];
        while !stop.load(Ordering::Relaxed) && now() < end {
            let mut both = [self.socket.as_fd(), self.raw.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            sockets::wait(&mut both, TURN);
            self.probes(&mut buffer);
            self.datagrams(&mut buffer, say)?;
            self.desk.turn(now());
        }
        self.desk.stop();
        say(&format!("ended; datagrams without an answer: {}", self.desk.ignored()));
        // They notice within a burst.
        self.senders
            .into_iter()
            .try_for_each(|sender| sender.join())
            .ok()
            .context("a sender failed")
    }

    fn probes(&mut self, buffer: &mut [u8]) {
        for _ in 0..AT_ONCE {
            let Some((came, octets)) = self.raw.receive(buffer) else { break };
            if let Some((packet, to)) = self.desk.look(now(), wall(), &came, octets) {
                // Beyond the MTU of the device here, for instance: the prober misses it.
                let _ = self.raw.send(&packet, to);
            }
        }
    }

    fn datagrams(&mut self, buffer: &mut [u8], say: &mut dyn FnMut(&str)) -> Result<()> {
        for _ in 0..AT_ONCE {
            let got = match sockets::receive(self.socket.as_fd(), buffer) {
                Ok(got) => got,
                Err(Errno::EAGAIN) => break,
                // The host of an earlier prober refused an answer.
                Err(_) => continue,
            };
            let dropped = || control::dropped(&self.socket).unwrap_or(0);
            for datagram in buffer[..got.octets].chunks(got.segment) {
                let Some(answer) = self.desk.hear(now(), got.from, datagram, &dropped) else {
                    continue;
                };
                if let Some(address) = self.desk.newcomer() {
                    say(&format!("{address} asks"));
                }
                // A host without a way back does not hear it.
                let _ = self.socket.send_to(&answer.octets, got.from);
                if let Some((order, progress)) = answer.order {
                    let socket = self.socket.try_clone()?;
                    self.senders.retain(|sender| !sender.is_finished());
                    self.senders
                        .push(std::thread::spawn(move || flow::send(&socket, &order, &progress)));
                }
            }
        }
        Ok(())
    }
}
