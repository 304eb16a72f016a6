//! Compiles `bpf/` into twelve objects. The crate carries six of them inside it: the datapath, EyeQ,
//! vCC, and of emulated switches the marking port, equal paths and counters of what goes astray. The
//! others are the laws of queues, of EyeQ, of its meter, of marks and of vCC alone, and a guest that
//! is deaf, for tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const OBJECTS: [&str; 12] = [
    "weir",
    "mark",
    "spread",
    "astray",
    "eyeq",
    "vcc",
    "backlog_law",
    "eyeq_law",
    "eyeq_count_law",
    "marks_law",
    "vcc_law",
    "deaf",
];

fn main() {
    let bpf =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../bpf");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    // The headers of the libbpf that loads the objects.
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells it");
    // The UAPI headers' <asm/types.h> lives in a directory per architecture on Debian.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let includes = [format!("-I{libbpf}"), format!("-I/usr/include/{arch}-linux-gnu")];
    for name in OBJECTS {
        let status = Command::new("clang")
            .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
            .args(&includes)
            .arg("-c")
            .arg(bpf.join(format!("{name}.bpf.c")))
            .arg("-o")
            .arg(out.join(format!("{name}.bpf.o")))
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => panic!("bpf/{name}.bpf.c did not compile (clang 14 or newer is needed)"),
            Err(e) => panic!("clang, which compiles bpf/, cannot be started: {e}"),
        }
    }
    println!("cargo::rustc-env=WEIR_LAYOUT={:016x}", layout(&bpf));
    println!("cargo::rerun-if-changed={}", bpf.display());
}

/// The headers that say what is in pinned maps.
const STATE: [&str; 4] = ["intf.h", "vcc.h", "vcc_law.h", "vcc_budget.h"];

/// A hash (FNV-1a) of the types in pinned maps, and of the constants that size them: their text
/// without comments and spaces. Two versions with the same hash understand each other's maps.
fn layout(bpf: &Path) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for name in STATE {
        let text = std::fs::read_to_string(bpf.join(name)).expect("the headers are there");
        let mut inside = false;
        for line in without_comments(&text).lines().map(str::trim) {
            inside |= line.starts_with("struct ") && line.ends_with('{');
            if inside || line.starts_with("#define WEIR_") {
                let octets = line.bytes().filter(|octet| !octet.is_ascii_whitespace());
                hash = octets.fold(hash, |h, o| (h ^ u64::from(o)).wrapping_mul(0x0100_0000_01b3));
            }
            inside &= !line.starts_with('}');
        }
    }
    hash
}

fn without_comments(text: &str) -> String {
    let mut pieces = text.split("/*");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.split_once("*/").map_or("", |(_, rest)| rest))
}
