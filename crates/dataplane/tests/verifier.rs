//! What the verifier of this kernel had to look at, program by program: a kernel refuses a program
//! that takes it a million instructions, and counts differ from kernel to kernel. Needs root, and
//! fails without.

use crate::law::{Aligned, Law};
use libbpf_rs::query::ProgInfoIter;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use weir_dataplane::{eyeq, programs, vcc};

static EYEQ_LAW: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/eyeq_law.bpf.o")));
static VCC_LAW: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/vcc_law.bpf.o")));

/// Half of what kernels allow: room for kernels that look at more.
const MOST: u32 = 500_000;

/// The programs that this process holds, by their names in the kernel, and what each took.
fn verified() -> BTreeMap<String, u32> {
    let mut own = BTreeSet::new();
    for file in fs::read_dir("/proc/self/fdinfo").unwrap() {
        // The descriptor by which the folder is read is gone by now.
        let Ok(text) = fs::read_to_string(file.unwrap().path()) else { continue };
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        own.extend(id.map(|id| id.trim().parse::<u32>().expect("a number")));
    }
    let ours = ProgInfoIter::default().filter(|program| own.contains(&program.id));
    ours.map(|p| (p.name.to_string_lossy().into_owned(), p.verified_insns)).collect()
}

#[test]
fn no_program_takes_more_than_half_of_what_the_verifier_allows() {
    let sizes = programs::Sizes { pairs: 16, endpoints: 16, nodes: 1, queues: 1, hosts: 1 };
    let _datapath = programs::Programs::load(sizes, None)
        .expect("this test loads BPF programs: run it as root");
    let sizes = eyeq::Sizes { pairs: 16, endpoints: 16, hosts: 4 };
    let _eyeq = eyeq::Programs::load(sizes).unwrap();
    let _vcc = vcc::Programs::load().unwrap();
    let _laws = [Law::load(&EYEQ_LAW.0), Law::load(&VCC_LAW.0)];
    let counts = verified();
    println!("{counts:#?}");
    let datapath = programs::Program::ALL.map(programs::Program::name);
    let eyeq = eyeq::Program::ALL.map(eyeq::Program::name);
    let vcc = vcc::Program::ALL.map(vcc::Program::name);
    let all = datapath.into_iter().chain(eyeq).chain(vcc).chain(["eyeq_law", "vcc_law"]);
    for name in all {
        let count = *counts.get(name).unwrap_or_else(|| panic!("{name} is not among {counts:?}"));
        assert!((1..=MOST).contains(&count), "{name}: {count} instructions");
    }
}
