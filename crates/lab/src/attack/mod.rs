//! Attacks of a scenario: packets and control messages with false contents.
//!
//! Problem   The promise that no VM gains by forging needs attempts to forge.
//! Approach  One thread sends raw packets from the attackers' namespaces: packets with another VM's
//!           source, messages to the agents' control port, made up or recorded on their way there,
//!           and frames that belong to no pair of VMs. A socket of the victim counts forged packets
//!           that arrive. The agents' own counters tell what they dropped and refused.
//! Promises  A packet counts as delivered only if it was read from a socket. Without a mechanism
//!           the same attacks succeed, or the scenario shows nothing.
//! Not here  What counts as success: the judge decides.

mod packet;
mod record;

use crate::Error;
use crate::plan;
use crate::world::World;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, bind, recv, send,
    sendto, setsockopt, socket, sockopt,
};
use record::Recorder;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_model::scenario::{Attack, AttackKind, Attacker, ControlAttack, Scenario};
use weir_units::Span;

/// Port that forged packets of attack 0 go to; attack `i` has the `i`-th after it.
const FIRST_PORT: u16 = 4900;
/// Most attacks of one scenario. Each needs a port below those of traffic.
const MOST: usize = 100;
/// How often the thread wakes up.
const TICK: Duration = Duration::from_millis(5);
/// Buffer for packets that arrive between two polls.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Packets that attackers sent, and those that reached their victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Packets with another VM's source.
    pub(crate) forged: u64,
    /// The part of these that their victim read.
    pub(crate) delivered: u64,
    /// Control messages from VMs.
    pub(crate) control_of_vms: u64,
    /// Control messages from hosts.
    pub(crate) control_of_hosts: u64,
    /// Frames that belong to no pair of VMs.
    pub(crate) frames: u64,
    /// Packets that the attacker's own kernel refused.
    pub(crate) refused: u64,
    /// Control messages that could be replayed.
    pub(crate) recorded: u64,
}

#[derive(Default)]
struct Tally {
    forged: AtomicU64,
    delivered: AtomicU64,
    control_of_vms: AtomicU64,
    control_of_hosts: AtomicU64,
    frames: AtomicU64,
    refused: AtomicU64,
    recorded: AtomicU64,
    stop: AtomicBool,
}

/// One attack with its sockets.
struct Gun {
    attack: Attack,
    socket: OwnedFd,
    /// Socket of the victim, for forged packets.
    ear: Option<OwnedFd>,
    recorder: Option<Recorder>,
    to: SocketAddrV4,
    /// Claimed senders: addresses of VMs or hosts, taken in turn.
    names: Vec<Ipv4Addr>,
    /// Content of each packet, if it is a whole frame.
    frame: Option<Vec<u8>>,
    /// Whether it can forge its address. A host always can; a VM tries both.
    is_host: bool,
    fired: u64,
}

/// All attackers of a scenario. Dropping it ends them.
pub(crate) struct Attackers {
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
}

impl Attackers {
    /// Opens all sockets and begins. `origin` is time zero of the scenario. Without attacks it does
    /// nothing.
    pub(crate) fn start(
        scenario: &Scenario,
        world: &World,
        origin: Instant,
    ) -> Result<Self, Error> {
        let tally = Arc::new(Tally::default());
        if scenario.attacks.is_empty() {
            return Ok(Self { thread: None, tally });
        }
        if scenario.attacks.len() > MOST {
            return Err(Error::Unsupported {
                what: format!("{} attacks", scenario.attacks.len()),
                instead: format!("at most {MOST} have a port"),
            });
        }
        // A thread of its own, because it changes its namespace.
        let guns = std::thread::scope(|scope| {
            scope
                .spawn(|| arm(scenario, world))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let shared = Arc::clone(&tally);
        let thread = std::thread::Builder::new()
            .name("attack".into())
            .spawn(move || run(guns, origin, &shared))
            .map_err(Error::io("start the attacking thread"))?;
        Ok(Self { thread: Some(thread), tally })
    }

    /// Counters so far.
    pub(crate) fn sent(&self) -> Sent {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let t = &self.tally;
        Sent {
            forged: read(&t.forged),
            delivered: read(&t.delivered),
            control_of_vms: read(&t.control_of_vms),
            control_of_hosts: read(&t.control_of_hosts),
            frames: read(&t.frames),
            refused: read(&t.refused),
            recorded: read(&t.recorded),
        }
    }

    /// Notes for a reader of the results.
    pub(crate) fn notes(&self) -> Vec<String> {
        let sent = self.sent();
        let mut notes = Vec::new();
        if sent.refused > 0 {
            notes.push(format!("{} packets of attackers did not leave them", sent.refused));
        }
        notes
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.tally.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the sockets of all attacks. **The calling thread ends up in some namespace.**
fn arm(scenario: &Scenario, world: &World) -> Result<Vec<Gun>, Error> {
    let doing = |attack: &Attack, what: &str| format!("{what} of attack {}", attack.name);
    let one = |(i, attack): (usize, &Attack)| {
        let port = FIRST_PORT + i as u16;
        let mut frame = None;
        let (to, ear, recorder, names) = match attack.kind {
            AttackKind::Frames { kind, to, addressed, size } => {
                let Attacker::Vm(from) = attack.from else { unreachable!("the file says a VM") };
                let own = plan::vm_address(scenario, from);
                let macs = (plan::vm_mac(from), plan::vm_mac(to));
                let ends = (own, plan::vm_address(scenario, addressed.unwrap_or(to)));
                frame = Some(packet::frame(kind, macs, ends, size.get() as usize));
                (SocketAddrV4::new(own, port), None, None, vec![own])
            }
            AttackKind::Forge { source, to, .. } => {
                let at = SocketAddrV4::new(plan::vm_address(scenario, to), port);
                world.vm(to).enter()?;
                let ear = ear(at).map_err(Error::kernel(doing(attack, "open the victim")))?;
                (at, Some(ear), None, vec![plan::vm_address(scenario, source)])
            }
            AttackKind::Control { how, to } => {
                let at = SocketAddrV4::new(plan::host_address(to), plan::CONTROL_PORT);
                let recorder = match how {
                    ControlAttack::Garbage | ControlAttack::Forged => None,
                    ControlAttack::Replayed => {
                        world.host(to).enter()?;
                        let doing = doing(attack, "open the recorder");
                        Some(Recorder::open(at).map_err(Error::kernel(doing))?)
                    }
                };
                (at, None, recorder, peers(scenario, attack.from, to))
            }
        };
        match attack.from {
            Attacker::Vm(vm) => world.vm(vm).enter()?,
            Attacker::Host(host) => world.host(host).enter()?,
        }
        let socket = match &frame {
            Some(_) => weir_dataplane::frames::open(plan::UPLINK).map_err(Error::Dataplane)?,
            None => raw().map_err(Error::kernel(doing(attack, "open the raw socket")))?,
        };
        let is_host = matches!(attack.from, Attacker::Host(_));
        let attack = attack.clone();
        Ok(Gun { attack, socket, ear, recorder, to, names, frame, is_host, fired: 0 })
    };
    scenario.attacks.iter().enumerate().map(one).collect()
}

/// Claimed senders of control messages: all hosts but the victim and the attacker's own. If the
/// attacker is a VM, its own address is one of them, too.
fn peers(scenario: &Scenario, from: Attacker, victim: usize) -> Vec<Ipv4Addr> {
    let own = match from {
        Attacker::Vm(vm) => scenario.vms[vm].host,
        Attacker::Host(host) => host,
    };
    let hosts = 0..scenario.topology.hosts.len();
    let mut names: Vec<Ipv4Addr> =
        hosts.filter(|h| *h != victim && *h != own).map(plan::host_address).collect();
    if let Attacker::Vm(vm) = from {
        names.push(plan::vm_address(scenario, vm));
    }
    names
}

/// Sends whole IP packets, headers included: the kernel fills in length and checksum alone.
fn raw() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw)
}

fn ear(at: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(at))?;
    Ok(fd)
}

fn run(mut guns: Vec<Gun>, origin: Instant, tally: &Tally) {
    let mut buffer = vec![0; 2048];
    while !tally.stop.load(Ordering::Relaxed) {
        let now = Span::from(origin.elapsed());
        for gun in &mut guns {
            gun.listen(&mut buffer, tally);
            gun.fire(now, tally);
        }
        std::thread::sleep(TICK);
    }
    // Packets that were still under way.
    for gun in &mut guns {
        gun.listen(&mut buffer, tally);
    }
}

impl Gun {
    fn listen(&mut self, buffer: &mut [u8], tally: &Tally) {
        if let Some(recorder) = &mut self.recorder {
            let new = recorder.listen(buffer);
            tally.recorded.fetch_add(new as u64, Ordering::Relaxed);
        }
        let Some(ear) = &self.ear else { return };
        while recv(ear.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT).is_ok() {
            tally.delivered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn fire(&mut self, now: Span, tally: &Tally) {
        let attack = &self.attack;
        if now < attack.start || now >= attack.stop {
            return;
        }
        let passed = (now - attack.start).as_secs_f64();
        let due = (passed * f64::from(attack.per_second)) as u64;
        // After a pause of the machine, packets are not sent all at once.
        let most = u64::from(attack.per_second).div_ceil(20);
        for _ in 0..due.saturating_sub(self.fired).min(most) {
            let sent = if let Some(frame) = &self.frame {
                send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT)
            } else {
                let Some(packet) = self.packet() else { return };
                let to = SockaddrIn::from(SocketAddrV4::new(*self.to.ip(), 0));
                sendto(self.socket.as_raw_fd(), &packet, &to, MsgFlags::MSG_DONTWAIT)
            };
            self.fired += 1;
            let counter = match (&sent, &self.attack.kind, self.is_host) {
                (Err(_), ..) => &tally.refused,
                (_, AttackKind::Frames { .. }, _) => &tally.frames,
                (_, AttackKind::Forge { .. }, _) => &tally.forged,
                (_, AttackKind::Control { .. }, false) => &tally.control_of_vms,
                (_, AttackKind::Control { .. }, true) => &tally.control_of_hosts,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next packet; `None` while there is nothing to replay yet.
    fn packet(&self) -> Option<Vec<u8>> {
        let n = self.fired;
        let name = self.names[n as usize % self.names.len()];
        match (&self.attack.kind, &self.recorder) {
            (AttackKind::Frames { .. }, _) => None,
            (AttackKind::Forge { payload, .. }, _) => {
                let from = SocketAddrV4::new(name, self.to.port());
                Some(packet::udp(from, self.to, &vec![0; payload.get() as usize]))
            }
            (AttackKind::Control { .. }, Some(recorder)) => recorder.replay(n).map(<[u8]>::to_vec),
            (AttackKind::Control { to, how }, None) => {
                let from = SocketAddrV4::new(name, plan::CONTROL_PORT);
                let payload = match how {
                    ControlAttack::Garbage => packet::garbage(n),
                    _ => packet::forged_offer(n, *to as u32),
                };
                Some(packet::udp(from, self.to, &payload))
            }
        }
    }
}
