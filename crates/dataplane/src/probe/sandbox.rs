//! Tries features of the kernel where they disturb nothing.
//!
//! Approach  A thread moves to a network namespace of its own and tries them there. When the thread
//!           ends, the namespace goes with every device and queue in it.

use super::{Finding, State};
use crate::attach::{self, Interface};
use crate::nl::{self, Batch, Device, Socket, Verb, htb, link, tc};
use crate::programs::{Programs, Sizes};
use std::io;
use weir_units::Bytes;

/// Runs `f` in a fresh network namespace, which is gone when this returns.
pub(super) fn in_namespace<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no pointers; only this thread's namespace changes.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(f())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Results of the tries.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) programs: Result<(), String>,
    pub(super) tcx: bool,
    pub(super) clsact: Result<(), String>,
    pub(super) ifb: Result<(), String>,
    pub(super) redirect: Result<(), String>,
    pub(super) htb: Result<(), String>,
    pub(super) fq: Result<(), String>,
}

const NAME: &str = "weir-probe";

impl Tried {
    /// Tries everything. Call it in a namespace of its own.
    pub(super) fn here() -> Result<Self, nl::Error> {
        attach::quiet();
        let sizes = Sizes { pairs: 16, endpoints: 64, nodes: 1, queues: 1, hosts: 1 };
        let programs = Programs::load(sizes, None).map(drop).map_err(|e| e.to_string());
        let mut socket = Socket::open()?;
        let tcx = attach::has_tcx(&Interface { name: "lo".into(), index: 1 });
        let lo = Device { name: "lo".into(), index: 1 };
        let made = link::create_ifb(&mut socket, NAME, "weir doctor", 32);
        let ifb = made.as_ref().map(drop).map_err(ToString::to_string);
        // Queues can be tried on the loopback as well.
        let device = made.unwrap_or_else(|_| lo.clone());
        let clsact = send(&mut socket, |batch| batch.add_clsact(&lo));
        let redirect = match &ifb {
            Ok(()) => send(&mut socket, |b| {
                b.add_redirect(&lo, device.index, [0; nl::redirect::COOKIE]);
            }),
            Err(_) => Err("not tried: there is no IFB".into()),
        };
        let htb = send(&mut socket, |batch| tree(batch, &device));
        let cleared = send(&mut socket, |batch| batch.delete_qdisc(&device, tc::ROOT));
        let fq = cleared
            .or(Ok(()))
            .and_then(|()| send(&mut socket, |batch| batch.add_plain_root(&device, "fq")));
        Ok(Self { programs, tcx, clsact, ifb, redirect, htb, fq })
    }
}

fn send(socket: &mut Socket, fill: impl FnOnce(&mut Batch)) -> Result<(), String> {
    let mut batch = Batch::new();
    fill(&mut batch);
    socket.send(&batch).map_err(|e| e.to_string())
}

/// A small HTB tree, as the shaper builds a large one.
fn tree(batch: &mut Batch, device: &Device) {
    let class = htb::Class {
        rate: 125_000,
        ceil: 1_250_000,
        burst: 1 << 16,
        cburst: 1 << 16,
        quantum: 3000,
        prio: 0,
        overhead: 0,
    };
    batch.add_htb(device, 0x1_0000, 0);
    batch.set_class(device, Verb::Create, 0x1_0000, 0x1_0001, &class);
    batch.set_class(device, Verb::Create, 0x1_0001, 0x1_0002, &class);
    batch.set_bfifo(device, 0x1_0002, 0, Bytes::new(64_000));
}

/// The findings about what was tried.
pub(super) fn findings() -> Vec<Finding> {
    let tried = match in_namespace(Tried::here) {
        Ok(Ok(tried)) => tried,
        Ok(Err(e)) => return vec![unknown(&e.to_string())],
        Err(e) => return vec![unknown(&format!("no network namespace to try in: {e}"))],
    };
    let cannot = |what: &str, result: &Result<(), String>, costs: &str, remedy: &str| match result {
        Ok(()) => Finding::fine(what, "works"),
        Err(why) => Finding::new(what, State::Cannot, why.as_str(), costs, remedy),
    };
    vec![
        cannot(
            "BPF programs",
            &tried.programs,
            "no pair can be told from another",
            "a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_NET_CLS_ACT, 6.1 or newer",
        ),
        if tried.tcx {
            Finding::fine("TCX", "works")
        } else {
            Finding::new(
                "TCX",
                State::Costs,
                "absent: clsact is used",
                "programs that others attach by clsact may end before ours or after, as they choose",
                "Linux 6.6 or newer",
            )
        },
        cannot(
            "clsact",
            &tried.clsact,
            "no packet can be sent to the shaper",
            "a kernel with CONFIG_NET_SCH_INGRESS (module sch_ingress)",
        ),
        cannot(
            "IFB devices",
            &tried.ifb,
            "no queue for what VMs send",
            "a kernel with CONFIG_IFB: modprobe ifb",
        ),
        cannot(
            "redirection (u32, mirred)",
            &tried.redirect,
            "no packet can be sent to the shaper",
            "a kernel with CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED: modprobe cls_u32 act_mirred",
        ),
        cannot(
            "HTB and bfifo",
            &tried.htb,
            "no rate can be guaranteed",
            "a kernel with CONFIG_NET_SCH_HTB and CONFIG_NET_SCH_FIFO: modprobe sch_htb",
        ),
        fq(&tried.fq),
    ]
}

fn fq(tried: &Result<(), String>) -> Finding {
    match tried {
        Ok(()) => Finding::fine("fq (departure times)", "works"),
        Err(why) => Finding::new(
            "fq (departure times)",
            State::Costs,
            why.as_str(),
            "HTB delays packets: about 10 µs of CPU for each that waits",
            "a kernel with CONFIG_NET_SCH_FQ: modprobe sch_fq",
        ),
    }
}

fn unknown(why: &str) -> Finding {
    Finding::new(
        "BPF and queues",
        State::Unknown,
        why,
        "nothing could be tried",
        "run it as root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fails: &str) -> Tried {
        let result = |name: &str| if name == fails { Err("EOPNOTSUPP".into()) } else { Ok(()) };
        Tried {
            programs: result("programs"),
            tcx: true,
            clsact: result("clsact"),
            ifb: result("ifb"),
            redirect: result("redirect"),
            htb: result("htb"),
            fq: result("fq"),
        }
    }

    #[test]
    fn a_missing_fq_costs_and_keeps_nobody_from_enforcing() {
        assert_eq!(fq(&tried("fq").fq).state, State::Costs);
        assert_eq!(fq(&tried("").fq).state, State::Fine);
    }

    /// Devices of this thread's namespace, and modules' worth of nothing else: what a probe could
    /// leave behind.
    fn traces() -> Vec<String> {
        let mut socket = Socket::open().expect("a socket");
        let links = link::list(&mut socket).expect("a list");
        let queues = tc::qdiscs(&mut socket, None).expect("a list");
        let links = links.iter().map(|l| l.device.name.to_string());
        links.chain(queues.iter().map(|q| format!("{} on {}", q.kind, q.index))).collect()
    }

    #[test]
    fn a_kernel_is_tried_and_left_as_it_was() {
        let (before, found, after) = in_namespace(|| (traces(), findings(), traces()))
            .expect("these tests make network namespaces: run them as root");
        assert_eq!(before, after);
        let of = |what: &str| found.iter().find(|f| f.what == what).expect("looked at").state;
        // What all other tests of this crate need.
        for what in ["BPF programs", "clsact", "IFB devices", "redirection (u32, mirred)"] {
            assert_eq!(of(what), State::Fine, "{what}: {found:?}");
        }
        assert_eq!(of("HTB and bfifo"), State::Fine, "{found:?}");
        assert!(found.iter().all(|f| f.state.allows()), "{found:?}");
    }
}
