//! Tags between two hosts: a switch's queue sees them, guests do not. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::frame::{packet, udp};
use crate::net::{VM2, World, modes};
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use weir_dataplane::attach::Interface;
use weir_dataplane::{Config, Dataplane, GuestDscp, Mode};
use weir_units::{TenantId, VmId};

const TENANT: TenantId = TenantId(1);
/// The tenant's tag, another tenant's, and a code point that nobody may have as a tag.
const OWN: u8 = 10;
const OTHER: u8 = 12;
const FREE: u8 = 34;
const EACH: usize = 20;

fn open(world: &World, n: u32, mode: Mode, dscp: GuestDscp) -> Dataplane {
    let mut config: Config = world.config(n, mode);
    config.ports[0].dscp = dscp;
    world.inside(&format!("host{n}"), || Dataplane::open(config)).unwrap()
}

/// Queues by code point at the switch's port toward host 2, as a driver of Linux makes them: class
/// 1:1 is the shared one.
fn queues(world: &World) {
    world.tc("switch", "qdisc add dev sw2 root handle 1: htb default 1");
    for class in [1, OWN, OTHER] {
        let class =
            format!("class add dev sw2 parent 1: classid 1:{class} htb rate 100mbit burst 64k");
        world.tc("switch", &class);
    }
    for point in [OWN, OTHER] {
        let dsfield = format!("match ip dsfield {:#x} 0xfc flowid 1:{point}", point << 2);
        world.tc("switch", &format!("filter add dev sw2 parent 1: protocol ip u32 {dsfield}"));
    }
}

/// Datagrams that passed each of the two tenants' queues.
fn passed(world: &World) -> [u64; 2] {
    let text = world.tc("switch", "-s class show dev sw2");
    [OWN, OTHER].map(|point| {
        let name = format!("class htb 1:{point} ");
        let of = text.lines().skip_while(|line| !line.starts_with(&name)).nth(1);
        let words: Vec<&str> = of.expect("a class").split_whitespace().collect();
        words[3].parse().expect("packets")
    })
}

fn option(socket: &UdpSocket, name: i32, value: i32) {
    let (size, level) = (size_of::<i32>() as u32, libc::IPPROTO_IP);
    // SAFETY: a live socket; the value is as long as it is said to be.
    let ret = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    assert_eq!(ret, 0, "an option of IP");
}

/// Octets and the first control message of what comes next, if it is of this length or longer.
fn receive<T: Copy>(fd: i32, octets: &mut [u8]) -> (usize, Option<T>) {
    let mut room = [0u64; 16];
    let mut part = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    // SAFETY: zero is a valid value of a struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&room) as _;
    // SAFETY: all that the message points to outlives the call, with the lengths that it says.
    let got = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    assert!(got >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel filled the message's room; the first header is in it, or null.
    let told = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (!head.is_null() && (*head).cmsg_len >= libc::CMSG_LEN(size_of::<T>() as u32) as usize)
            .then(|| libc::CMSG_DATA(head).cast::<T>().read_unaligned())
    };
    (got as usize, told)
}

/// The code points of the next datagrams, as the guest's kernel sees them.
fn seen(socket: &UdpSocket) -> Vec<u8> {
    let next =
        |_| receive::<u8>(socket.as_raw_fd(), &mut [0; 64]).1.expect("it tells the octet") >> 2;
    (0..EACH).map(next).collect()
}

fn send(socket: &UdpSocket, point: u8) {
    option(socket, libc::IP_TOS, i32::from(point) << 2);
    for _ in 0..EACH {
        socket.send_to(&[7; 32], (VM2, 9000)).unwrap();
    }
}

fn close(world: &World, hosts: [Dataplane; 2]) {
    for (n, host) in [1, 2].into_iter().zip(hosts) {
        world.inside(&format!("host{n}"), || host.close()).unwrap();
    }
}

#[test]
fn a_switchs_queue_sees_the_tag_whatever_the_guest_wrote_and_the_receiver_does_not() {
    for (mode, policy) in modes().into_iter().zip([GuestDscp::Clear, GuestDscp::Keep]) {
        let world = World::beside_others();
        queues(&world);
        let mut hosts = [open(&world, 1, mode, policy), open(&world, 2, mode, policy)];
        let (from, to) = (world.udp(1), world.udp(2));
        option(&to, libc::IP_RECVTOS, 1);
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let each = EACH as u64;

        let kept = |point| if policy == GuestDscp::Clear { 0 } else { point };
        send(&from, OTHER);
        assert_eq!(seen(&to), [0; EACH], "no tag yet, and no code point of another tenant's");
        send(&from, FREE);
        assert_eq!(seen(&to), [kept(FREE); EACH], "{policy:?}");
        assert_eq!(passed(&world), [0, 0]);

        hosts[0].set_tags(&[(TENANT, Some(OWN))]).unwrap();
        for (n, point) in (1..).zip([0, OTHER, FREE, OWN]) {
            send(&from, point);
            assert_eq!(seen(&to), [0; EACH], "{point}");
            assert_eq!(passed(&world), [n * each, 0], "{point}");
        }

        hosts[0].set_tags(&[(TENANT, Some(OTHER))]).unwrap();
        send(&from, OWN);
        assert_eq!((seen(&to), passed(&world)), (vec![0; EACH], [4 * each, each]));
        let wrong = hosts[0].set_tags(&[(TENANT, Some(FREE)), (TenantId(9), Some(OWN))]);
        let (tenants, why) = wrong.expect_err("no tag");
        assert_eq!(tenants, [TENANT]);
        assert!(why.to_string().contains("code point 34, which is none of"), "{why}");

        // A successor finds the tag in force.
        let [one, two] = hosts;
        drop(one);
        let mut one = open(&world, 1, mode, policy);
        let tags = one.tags().unwrap();
        assert_eq!(tags.into_iter().collect::<Vec<_>>(), [(TENANT, OTHER), (TenantId(9), OWN)]);
        one.set_tags(&[(TENANT, None), (TenantId(9), Some(0))]).unwrap();
        assert!(one.tags().unwrap().is_empty());
        send(&from, OTHER);
        assert_eq!((seen(&to), passed(&world)), (vec![0; EACH], [4 * each, each]));
        close(&world, [one, two]);
    }
}

/// A socket that hears all frames of a VM's interface.
fn ear(world: &World) -> OwnedFd {
    world.inside("vm2", || {
        use std::os::fd::FromRawFd;
        // SAFETY: no pointers; the descriptor was just made and has no other owner.
        let fd = unsafe {
            let all = i32::from((libc::ETH_P_ALL as u16).to_be());
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all);
            assert!(fd >= 0, "hearing frames needs root");
            OwnedFd::from_raw_fd(fd)
        };
        let (on, size) = (1i32, size_of::<i32>() as u32);
        // SAFETY: a live socket; the value is as long as it is said to be.
        let ret = unsafe {
            let (level, name) = (libc::SOL_PACKET, libc::PACKET_AUXDATA);
            libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const on).cast(), size)
        };
        assert_eq!(ret, 0, "packet(7)");
        let wait = libc::timeval { tv_sec: 10, tv_usec: 0 };
        // SAFETY: the same.
        let ret = unsafe {
            let size = size_of::<libc::timeval>() as u32;
            let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
            libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const wait).cast(), size)
        };
        assert_eq!(ret, 0, "socket(7)");
        fd
    })
}

/// The outer tag of the frame with this payload, if it has any, and the octets behind the addresses.
fn heard(ear: &OwnedFd, payload: u8) -> (Option<u16>, Vec<u8>) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        assert!(Instant::now() < end, "the frame does not arrive");
        let mut octets = [0; 256];
        let (got, told) = receive::<libc::tpacket_auxdata>(ear.as_raw_fd(), &mut octets);
        assert_ne!(octets[got - 1], 0, "a frame that is to be dropped");
        if octets[got - 1] == payload {
            let told = told.expect("packet(7) tells it");
            let has_tag = told.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return (has_tag.then_some(told.tp_vlan_tci), octets[12..got].to_vec());
        }
    }
}

#[test]
fn no_priority_of_a_guests_vlan_tag_leaves_its_port() {
    const VOICE: u16 = 5 << 13;
    for mode in modes() {
        let world = World::beside_others();
        let hosts = [1, 2].map(|n| open(&world, n, mode, GuestDscp::Keep));
        let ear = ear(&world);
        let mouth = world.inside("vm1", || {
            weir_dataplane::frames::open(Interface::find("eth0").unwrap().index).unwrap()
        });
        let send = |tags: Vec<u16>, payload: u8| {
            let mut p = packet("10.0.0.1", "10.0.0.2", 17, udp(9, 32));
            (p.tags, *p.body.last_mut().unwrap()) = (tags, payload);
            let octets = p.octets();
            // SAFETY: octets that outlive the call.
            let sent =
                unsafe { libc::send(mouth.as_raw_fd(), octets.as_ptr().cast(), octets.len(), 0) };
            assert_eq!(sent, octets.len() as isize);
            p
        };
        // A third one in the place of the first is dropped: nothing that comes later is before it.
        send(vec![VOICE, VOICE, VOICE | 8], 0);
        send(vec![VOICE, VOICE, VOICE], 0);
        for (payload, tags, outer, inner) in [
            (1, vec![VOICE | 7], Some(7), vec![]),
            (2, vec![VOICE], None, vec![]),
            (3, vec![7], Some(7), vec![]),
            (4, vec![], None, vec![]),
            // A second tag is the guest's own, but for one that takes the first one's place.
            (5, vec![VOICE | 7, VOICE | 8], Some(7), vec![VOICE | 8]),
            (6, vec![VOICE, VOICE | 8], Some(8), vec![]),
            (7, vec![VOICE, VOICE], None, vec![]),
        ] {
            let mut p = send(tags, payload);
            let (tag, behind) = heard(&ear, payload);
            // What `stamp` wrote.
            let at = 6 + 4 * inner.len();
            (p.tags, p.id) = (inner, u16::from_be_bytes([behind[at], behind[at + 1]]));
            assert_eq!((tag, behind), (outer, p.octets()[12..].to_vec()), "{payload}");
        }
        close(&world, hosts);
    }
}

#[test]
fn vms_of_the_config_have_the_policy_that_it_says() {
    let world = World::beside_others();
    let mut host = open(&world, 1, modes()[0], GuestDscp::Keep);
    let mut config = world.config(1, modes()[0]);
    config.code_points = Default::default();
    let error = world.inside("host1", || host.apply(config, &Default::default())).unwrap_err();
    assert!(error.to_string().contains("code_points cannot change"), "{error}");
    // The policy of a VM can.
    let config = world.config(1, modes()[0]);
    assert_eq!((config.ports[0].vm, config.ports[0].dscp), (VmId(1), GuestDscp::Clear));
    world.inside("host1", || host.apply(config, &Default::default())).unwrap();
    let (from, to) = (world.udp(1), world.udp(2));
    option(&to, libc::IP_RECVTOS, 1);
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    send(&from, FREE);
    assert_eq!(seen(&to), [0; EACH]);
    world.inside("host1", || host.close()).unwrap();
}
