//! Whether code points survive the way to other hosts and back.
//!
//! Problem   A tenant's queue is known by its code point. A switch or a tunnel on the way that writes
//!           another one puts its packets into the shared queue, where nothing limits them.
//! Approach  Echo requests (ICMP) with each code point: Linux answers with the code point that it got. So
//!           one that comes back as it left survived both ways, and nothing has to run at the other end.
//! Promises  Ends within [`ROUNDS`] waits. A host that does not answer is not said to be fine.
//! Not here  Which direction it was, IPv6, and ways that a tunnel's packets take: see `verify`, which needs a
//!           server at the other end.

use crate::config::Setup;
use crate::driver::now;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recvfrom, sendto,
    socket_with, sockopt,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use weir_units::Span;

/// Requests that are not answered are sent again so often.
const ROUNDS: u32 = 3;
/// Wait for the answers of a round.
const ROUND: Span = Span::from_millis(300);
/// Hosts that are asked at most.
const HOSTS: usize = 8;
const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// What became of code points on the way to one host and back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// The host's name.
    pub host: String,
    /// Code points that came back as they left.
    pub survived: BTreeSet<u8>,
    /// Those that came back as others, and as which.
    pub changed: BTreeMap<u8, u8>,
    /// Those without an answer.
    pub silent: BTreeSet<u8>,
}

/// Tries all of `code_points` of this configuration on the ways to the first few other hosts. Nothing if
/// there are none of either.
///
/// # Errors
///
/// Bad configuration, or no right to raw sockets.
pub fn try_ways(config: &Path) -> Result<Vec<Way>> {
    let setup = Setup::load(config)?;
    let points: BTreeSet<u8> = setup.file.code_points.iter().copied().collect();
    let others = setup.directory.hosts.iter().filter(|host| host.name != setup.file.host);
    let address = |host: &weir_model::agent::DirectoryHost| match host.control.ip() {
        IpAddr::V4(at) => Some((host.name.clone(), at)),
        IpAddr::V6(_) => None,
    };
    let hosts: Vec<(String, Ipv4Addr)> = others.filter_map(address).take(HOSTS).collect();
    if points.is_empty() || hosts.is_empty() {
        return Ok(Vec::new());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let icmp = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP));
    let icmp = icmp.context("a raw socket for echo requests: it needs CAP_NET_RAW")?;
    let asking = Asking { icmp, id: std::process::id() as u16, hosts, points };
    asking.ask()
}

struct Asking {
    icmp: OwnedFd,
    /// Tells our requests from those of others.
    id: u16,
    hosts: Vec<(String, Ipv4Addr)>,
    points: BTreeSet<u8>,
}

impl Asking {
    fn ask(self) -> Result<Vec<Way>> {
        // The code point that came back, by host and the one that left.
        let mut answers: BTreeMap<(usize, u8), u8> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let all =
                (0..self.hosts.len()).flat_map(|n| self.points.iter().map(move |at| (n, *at)));
            let missing: Vec<(usize, u8)> = all.filter(|at| !answers.contains_key(at)).collect();
            if missing.is_empty() {
                break;
            }
            for (host, point) in missing {
                self.send(host, point)?;
            }
            self.hear(&mut answers)?;
        }
        let way = |(n, (host, _)): (usize, &(String, Ipv4Addr))| {
            let got = |at: &u8| answers.get(&(n, *at)).copied();
            let points = || self.points.iter().copied();
            Way {
                host: host.clone(),
                survived: points().filter(|at| got(at) == Some(*at)).collect(),
                changed: points()
                    .filter_map(|at| Some((at, got(&at)?)))
                    .filter(|(a, b)| a != b)
                    .collect(),
                silent: points().filter(|at| got(at).is_none()).collect(),
            }
        };
        Ok(self.hosts.iter().enumerate().map(way).collect())
    }

    fn send(&self, host: usize, point: u8) -> Result<()> {
        sockopt::set_ip_tos(&self.icmp, point << 2)?;
        let request = request(self.id, sequence(host, point));
        let to = SocketAddr::V4(SocketAddrV4::new(self.hosts[host].1, 0));
        // A host without a route to it does not answer.
        let _ = sendto(&self.icmp, &request, SendFlags::empty(), &to);
        Ok(())
    }

    /// Takes answers for a while.
    fn hear(&self, answers: &mut BTreeMap<(usize, u8), u8>) -> Result<()> {
        let until = now() + ROUND;
        let wanted = self.hosts.len() * self.points.len();
        while answers.len() < wanted {
            let left = until.since(now());
            if left == Span::ZERO {
                break;
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
            let mut fds = [PollFd::new(&self.icmp, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let mut octets = [0; 256];
            while let Ok((got, _, _)) = recvfrom(&self.icmp, &mut octets[..], RecvFlags::empty()) {
                if let Some((host, point, came)) = self.read(&octets[..got]) {
                    answers.insert((host, point), came);
                }
            }
        }
        Ok(())
    }

    /// An answer to one of our requests: the host, the code point that left, and the one that came.
    fn read(&self, packet: &[u8]) -> Option<(usize, u8, u8)> {
        let reply = reply(packet).filter(|reply| reply.id == self.id)?;
        let (host, point) = (usize::from(reply.sequence >> 6), (reply.sequence & 63) as u8);
        let (_, from) = self.hosts.get(host)?;
        (*from == reply.from && self.points.contains(&point)).then_some((host, point, reply.point))
    }
}

fn sequence(host: usize, point: u8) -> u16 {
    (host as u16) << 6 | u16::from(point)
}

fn request(id: u16, sequence: u16) -> [u8; 8] {
    let mut packet = [REQUEST, 0, 0, 0, 0, 0, 0, 0];
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    let words = packet.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reply {
    from: Ipv4Addr,
    point: u8,
    id: u16,
    sequence: u16,
}

/// An echo reply, with its IP header.
fn reply(packet: &[u8]) -> Option<Reply> {
    let first = *packet.first()?;
    let (version, header) = (first >> 4, usize::from(first & 15) * 4);
    let icmp = packet.get(header..header + 8).filter(|_| version == 4 && header >= 20)?;
    let from = <[u8; 4]>::try_from(packet.get(12..16)?).ok()?;
    let word = |at: usize| u16::from_be_bytes([icmp[at], icmp[at + 1]]);
    (icmp[0] == REPLY).then(|| Reply {
        from: from.into(),
        point: packet[1] >> 2,
        id: word(4),
        sequence: word(6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_checksum_and_a_reply_says_who_sent_it_with_which_code_point() {
        let packet = request(0x1234, sequence(3, 46));
        let words =
            packet.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
        let sum = words.sum::<u32>();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        let mut came = vec![0x46, 10 << 2 | 3, 0, 32];
        came.extend([0; 8]);
        came.extend([10, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0]);
        came.extend([REPLY, 0, 0, 0, 0x12, 0x34]);
        came.extend(sequence(3, 46).to_be_bytes());
        let read = reply(&came).expect("whole");
        assert_eq!(
            (read.from, read.point),
            (Ipv4Addr::new(10, 0, 0, 2), 10),
            "ECN is no part of it"
        );
        assert_eq!((read.id, read.sequence), (0x1234, 3 << 6 | 46));
        (0..came.len()).for_each(|end| assert_eq!(reply(&came[..end]), None, "cut off at {end}"));
        came[24] = REQUEST;
        assert_eq!(reply(&came), None, "another host asks");
    }
}
