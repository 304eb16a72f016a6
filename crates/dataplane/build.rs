//! Compiles `bpf/` into seven objects. The crate carries four of them inside it: the datapath, the marking
//! port of emulated switches, EyeQ, and vCC. The others are the laws of EyeQ and of vCC alone, and a guest that
//! is deaf, for tests.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

fn main() {
    let bpf =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../bpf");
    // The UAPI headers' <asm/types.h> lives in a directory per architecture on Debian.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let multiarch = format!("-I/usr/include/{arch}-linux-gnu");
    for name in ["weir", "mark", "eyeq", "vcc", "eyeq_law", "vcc_law", "deaf"] {
        let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
        SkeletonBuilder::new()
            .source(bpf.join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &multiarch])
            .build()
            .unwrap_or_else(|e| {
                panic!("bpf/ did not compile (clang 14 or newer is needed): {e:#}")
            });
    }
    println!("cargo::rerun-if-changed={}", bpf.display());
}
