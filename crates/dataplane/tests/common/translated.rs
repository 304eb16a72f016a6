//! vCC's programs on a host's port, and what a socket's own kernel says of its connection.

use crate::net::World;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use weir_dataplane::vcc::intf::{Counters, Port};
use weir_dataplane::vcc::{Law, Program, Programs};

/// `tcpi_options` of a connection whose ends agreed on them.
pub(crate) const STAMPS: u8 = 1;
pub(crate) const SACK: u8 = 2;
pub(crate) const SCALE: u8 = 4;
pub(crate) const ECN: u8 = 8;

pub(crate) fn index(world: &World, ns: &str, name: &std::ffi::CStr) -> u32 {
    // SAFETY: a terminated string.
    world.inside(ns, || unsafe { libc::if_nametoindex(name.as_ptr()) })
}

/// vCC on a host's port, as long as this lives.
pub(crate) struct Translated {
    programs: Programs,
    interface: u32,
    _links: Vec<OwnedFd>,
}

impl Translated {
    /// Its programs are there, and translate nothing until a law is set.
    pub(crate) fn load(world: &World, host: &str) -> Self {
        let interface = index(world, host, c"port");
        world.inside(host, || {
            let programs = Programs::load().expect("as root");
            programs.make_table(0, 1024).unwrap();
            let attach = |program| programs.attach(program, interface).unwrap();
            let _links = Program::ALL.into_iter().filter_map(attach).collect();
            Self { programs, interface, _links }
        })
    }

    /// Policed by `slack`.
    pub(crate) fn new(world: &World, host: &str, law: Law, slack: u32) -> Self {
        let translated = Self::load(world, host);
        translated.put(Port::new(law, 0).policed(slack));
        translated
    }

    pub(crate) fn set(&self, law: Law) {
        self.put(Port::new(law, 0));
    }

    fn put(&self, port: Port) {
        self.programs.ports.put(self.interface, port).unwrap();
    }

    /// Frames of the port pass the programs unseen.
    pub(crate) fn unset(&self) {
        self.programs.ports.delete(self.interface).unwrap();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.programs.counters(0)
    }
}

pub(crate) fn info(socket: &TcpStream) -> libc::tcp_info {
    // SAFETY: the struct is plain integers; the kernel writes no more than it is told.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let to = (&raw mut info).cast();
        let fd = socket.as_raw_fd();
        let got = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length);
        assert_eq!(got, 0);
        info
    }
}
