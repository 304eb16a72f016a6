//! Speaks to the kernel: programs, maps, queues. The only crate with `unsafe`.
#![allow(unsafe_code)]

pub mod nl;
pub mod shaper;
