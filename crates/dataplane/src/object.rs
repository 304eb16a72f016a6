//! The BPF objects that the build has made.

/// An object, aligned as the ELF reader wants it.
#[repr(align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// The object of `bpf/NAME.bpf.c`.
macro_rules! object {
    ($name:literal) => {
        &$crate::object::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
    };
}
pub(crate) use object;
