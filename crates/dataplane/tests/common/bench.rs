//! The programs without any interface, on a host with one VM: for tests of what they make of a
//! packet.

use std::net::IpAddr;
use weir_dataplane::intf::{self, Pair, Rx, Tx};
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};

pub(crate) const PASS: i32 = -1;
pub(crate) const MINE: &str = "10.0.0.1";
pub(crate) const MINE6: &str = "fd00::1";
pub(crate) const PEER: &str = "10.0.0.2";
pub(crate) const PEER6: &str = "fd00::2";
pub(crate) const NEIGHBOUR: &str = "10.0.0.4";
pub(crate) const UNKNOWN: &str = "192.0.2.1";
pub(crate) const TO_PEER: Pair = Pair { src: 1, dst: 2 };
pub(crate) const FROM_PEER: Pair = Pair { src: 2, dst: 1 };
/// A reorder window that does not end, and one that ends before the next packet.
pub(crate) const NEVER: u64 = 1 << 59;
pub(crate) const AT_ONCE: u64 = 0;

/// Row of the peer's host, where packets are timed.
pub(crate) const PEERS_ROW: u32 = 2;

/// A host with VM 1 on the loopback as its port; VM 2 elsewhere, VM 4 on this host too.
pub(crate) struct Bench(pub(crate) Programs);

impl Bench {
    pub(crate) fn new(flags: u32, reorder_ns: u64) -> Self {
        let programs =
            Programs::load(Sizes { pairs: 16, endpoints: 64, nodes: 1, queues: 1, hosts: 4 }, None)
                .expect("these tests load BPF programs: run them as root");
        let port = intf::Port { vm: 1, tenant: 1, max_pairs: 16, ..intf::Port::default() };
        programs.ports.put(1, port).unwrap();
        for (address, vm, flags, host) in [
            (MINE, 1, intf::LOCAL, 0),
            (MINE6, 1, intf::LOCAL, 0),
            (PEER, 2, 0, PEERS_ROW),
            (PEER6, 2, 0, PEERS_ROW),
            (NEIGHBOUR, 4, intf::LOCAL, 0),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let endpoint = intf::Endpoint { vm, tenant: 1, flags, host, ..Default::default() };
            programs.endpoints.put(address.into(), endpoint).unwrap();
        }
        programs.tx.put(TO_PEER, Tx::default()).unwrap();
        let bench = Self(programs);
        bench.set(flags, reorder_ns);
        bench
    }

    pub(crate) fn set(&self, flags: u32, reorder_ns: u64) {
        self.0.set(intf::Settings { reorder_ns, flags, ..intf::Settings::default() }).unwrap();
    }

    /// Runs a program on octets, as a super-packet of `segments` if there are several.
    pub(crate) fn run(&self, program: Program, octets: &[u8], segments: u32) -> Ran {
        let size = if segments > 1 { 100 } else { 0 };
        let told = if segments > 1 { segments } else { 0 };
        let frame = Frame { octets, gso_segs: told, gso_size: size, ..Frame::default() };
        let ran = self.0.run(program, &frame).unwrap();
        assert_eq!(ran.verdict, PASS);
        ran
    }

    pub(crate) fn rx(&self) -> Rx {
        self.0.rx.get(FROM_PEER).unwrap().unwrap_or_default()
    }
}
