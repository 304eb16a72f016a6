//! EyeQ's programs without any interface, on a host with one VM: for tests of what they make of a
//! packet.

use std::net::{IpAddr, Ipv4Addr};
use weir_core::eyeq::RcpInput;
use weir_dataplane::eyeq::intf::{self as eyeq, Ear, Meter, Mouth, Settings, Share, Vm, Voice};
use weir_dataplane::eyeq::{Program, Programs, Sizes};
use weir_dataplane::intf;
use weir_dataplane::programs::{Frame, Ran};
use weir_units::{HostId, PairId, VmId};
use weir_wire::{FeedbackKey, Incarnation, Key, KeyId, Lives};

pub(crate) const PASS: i32 = -1;
pub(crate) const DROP: i32 = 2;
pub(crate) const REDIRECT: i32 = 7;
pub(crate) const MINE: &str = "10.0.0.1";
pub(crate) const MINE6: &str = "fd00::1";
pub(crate) const PEER: &str = "10.0.0.2";
pub(crate) const PEER6: &str = "fd00::2";
pub(crate) const NEIGHBOUR: &str = "10.0.0.4";
pub(crate) const HOMELESS: &str = "10.0.0.5";
/// This host's address, and that of the host with VM 2.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Where VM 1's share and meter are.
pub(crate) const SLOT: u32 = 3;
/// From the VM of the other host to that of this one.
pub(crate) const FROM_PEER: PairId = PairId::new(VmId(2), VmId(1));
pub(crate) const TO_PEER: PairId = PairId::new(VmId(1), VmId(2));
/// Longer than a test takes between two looks at the clock, and no longer than the law knows.
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const UNIT: u64 = 1_000_000;
pub(crate) const MOST_UNITS: u64 = 10_000;

/// The key of one host's feedback to another, by one of the fleet's keys; hosts are numbered by
/// their last octet.
pub(crate) fn key(from: Ipv4Addr, to: Ipv4Addr, id: u8) -> FeedbackKey {
    let fleet = Key::from_hex(&format!("000102030405060708090a0b0c0d0e{id:02x}")).unwrap();
    let life = |host: Ipv4Addr| {
        let number = host.octets()[3].into();
        (HostId(number), Incarnation::new(0x1000 + u64::from(number)).unwrap())
    };
    FeedbackKey::derive(KeyId(id), &fleet, Lives { from: life(from), to: life(to) })
}

pub(crate) fn settings() -> Settings {
    Settings {
        period_ns: SECOND,
        feedback_octets: 10_000,
        unit_bps: UNIT,
        most_units: MOST_UNITS,
        alpha: 32_768,
        least_factor: 6_554,
        queue_octets: 0,
        via: 0,
        address: eyeq::address(HERE),
        told_part: 0,
    }
}

/// VM 1 on the loopback as its port, VM 4 on this host too, VM 2 elsewhere, VM 5 in no known
/// place.
pub(crate) struct Bench(pub(crate) Programs);

impl Bench {
    pub(crate) fn new() -> Self {
        let programs = Programs::load(Sizes { pairs: 16, endpoints: 64, hosts: 16 })
            .expect("these tests load BPF programs: run them as root");
        let port = intf::Port { vm: 1, tenant: 1, slot: SLOT, ..intf::Port::default() };
        programs.ports.put(1, port).unwrap();
        let directory = [
            (MINE, 1, intf::LOCAL),
            (MINE6, 1, intf::LOCAL),
            (PEER, 2, 0),
            (PEER6, 2, 0),
            (NEIGHBOUR, 4, intf::LOCAL),
            (HOMELESS, 5, 0),
        ];
        for (address, vm, flags) in directory {
            let address: IpAddr = address.parse().unwrap();
            let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
            programs.endpoints.put(address.into(), endpoint).unwrap();
        }
        for (vm, host, slot) in [(1, HERE, SLOT), (2, THERE, 0)] {
            programs.vms.put(vm, Vm { host: eyeq::address(host), slot }).unwrap();
        }
        let mouth = key(HERE, THERE, 0);
        let mouth = Mouth::new(mouth.id().0, mouth.halves());
        programs.mouths.put(eyeq::address(THERE), mouth).unwrap();
        let bench = Self(programs);
        bench.believe(THERE, 0);
        bench.0.tx.put(TO_PEER.into(), intf::Tx::default()).unwrap();
        bench.0.set(settings()).unwrap();
        bench.share(1_000 * UNIT);
        bench
    }

    /// Feedback of `host` by this key is believed.
    pub(crate) fn believe(&self, host: Ipv4Addr, id: u8) {
        let voice = Voice { address: eyeq::address(host), key_id: id.into() };
        self.0.ears.put(voice, Ear::new(key(host, HERE, id).halves())).unwrap();
    }

    pub(crate) fn share(&self, capacity_bps: u64) {
        let share = Share { capacity_bps, floor_bps: capacity_bps / 10_000 };
        self.0.shares.put(SLOT as usize, share);
    }

    pub(crate) fn meter(&self) -> Meter {
        self.0.meters.get(SLOT).unwrap().expect("an array has all entries")
    }

    /// That of VMs of other tenants.
    pub(crate) fn meter_of_strangers(&self) -> Meter {
        self.0.meters.get(SLOT + eyeq::STRANGERS).unwrap().expect("an array has all entries")
    }

    /// Gives a program a frame, as a super-packet of `segments` if there are several.
    pub(crate) fn run(&self, program: Program, octets: &[u8], segments: u32) -> Ran {
        let size = if segments > 1 { 100 } else { 0 };
        let told = if segments > 1 { segments } else { 0 };
        let frame = Frame { octets, gso_segs: told, gso_size: size, ..Frame::default() };
        self.0.run(program, &frame).unwrap()
    }

    /// Gives VM 1's port a frame, which must pass as it is.
    pub(crate) fn receive(&self, octets: &[u8], segments: u32) {
        let ran = self.run(Program::Meter, octets, segments);
        assert_eq!((ran.verdict, &ran.octets[..]), (PASS, octets));
    }
}

/// What the kernel gives the law at the end of a period.
pub(crate) fn input(meter: &Meter, settings: &Settings, capacity_bps: u64) -> RcpInput {
    RcpInput {
        rate_bps: meter.rate_bps,
        capacity_bps,
        floor_bps: capacity_bps / 10_000,
        elapsed_ns: settings.period_ns,
        received_octets: meter.arrived,
        segments: meter.segments,
        marked: meter.marked,
        alpha: settings.alpha,
        least_factor: settings.least_factor,
        queue_octets: settings.queue_octets,
        spare: 0,
    }
}

/// Runs `test` in a network namespace that is gone afterwards, with its loopback up.
pub(crate) fn alone(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: changes this thread's own namespace only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "these tests need root");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

/// The kernel's monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let ret = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    assert_eq!(ret, 0, "every Linux has this clock");
    t.tv_sec as u64 * SECOND + t.tv_nsec as u64
}

/// The clock, once so much has passed since the machine was started: before, there is no such past.
#[allow(clippy::disallowed_methods, reason = "the programs read the kernel's clock")]
pub(crate) fn now_after(ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now > ns {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_nanos(ns - now));
    }
}
