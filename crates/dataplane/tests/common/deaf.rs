//! A Linux guest that ignores signals of its peers (`bpf/deaf.bpf.c`).

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, TC_INGRESS, TcHookBuilder};
use std::os::fd::AsFd;

/// The object, aligned as the ELF reader wants it.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/deaf.bpf.o")));

/// Windows that come are the largest ones.
pub(crate) const WINDOWS: u16 = 1;
/// Acknowledgements come without ECE.
pub(crate) const MARKS: u16 = 2;

/// From now on what the peer's `port` says comes to `interface` of this thread's namespace without
/// `what`, as long as the interface is there.
pub(crate) fn make_deaf(interface: u32, port: u16, what: u16) -> Object {
    let open = ObjectBuilder::default().open_memory(&OBJECT.0).unwrap();
    let object = open.load().expect("this test loads BPF programs: run it as root");
    let map = object.maps().find(|m| m.name() == "deaf_to").expect("the object has it");
    let to = [port.to_be_bytes(), what.to_ne_bytes()].concat();
    map.update(&0u32.to_ne_bytes(), &to, MapFlags::ANY).unwrap();
    let program = object.progs().next().expect("the object has one program");
    let mut builder = TcHookBuilder::new(program.as_fd());
    let mut hook = builder.ifindex(interface as i32).handle(1).priority(1).hook(TC_INGRESS);
    hook.create().unwrap();
    hook.attach().unwrap();
    object
}
