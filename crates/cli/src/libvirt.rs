//! `weir libvirt`: what libvirt's hook calls, and the import of `<bandwidth>`.
//!
//! Problem   libvirt ends a guest when its hook fails, and drops what a hook prints.
//! Approach  All that the hook has to say goes to the system's log and to stderr, for those who call it by hand.
//! Promises  The hook's exit status is 0, and its stdout is empty: libvirt would take that as the domain's XML.
//! Not here  What the hook does: see `weir_agent::libvirt`.

use crate::args;
use crate::input;
use crate::output::{errln, outln};
use anyhow::{Result, anyhow};
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Priorities of the system's log: a daemon's error, and its information (RFC 5424).
const ERROR: u8 = 3 << 3 | 3;
const INFO: u8 = 3 << 3 | 6;

/// `weir libvirt`.
pub(crate) fn libvirt(args: &args::Libvirt) -> Result<u8> {
    match args {
        args::Libvirt::Hook { domain, operation, config, more: _ } => {
            match weir_agent::libvirt::hook(config, operation, std::io::stdin().lock()) {
                Ok(said) => said.iter().for_each(|line| log(INFO, line)),
                Err(error) => log(
                    ERROR,
                    &format!("{operation} of `{domain}`: VMs were not handed over: {error:#}"),
                ),
            }
            Ok(0)
        }
        args::Libvirt::Import { file } => import(file),
    }
}

/// To stderr, and to the log as `weir-libvirt`. A log that is full or absent is not waited for.
fn log(priority: u8, line: &str) {
    errln!("weir: {line}");
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(format!("<{priority}>weir-libvirt: {line}").as_bytes(), "/dev/log")
    });
    // There is nothing else to tell it to.
    drop(sent);
}

fn import(file: &Path) -> Result<u8> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        text
    } else {
        input::read(file)?
    };
    let imported = weir_agent::libvirt::import(&text)
        .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    for note in imported.notes {
        errln!("{note}");
    }
    match imported.element {
        Some(element) => outln!("{element}")?,
        None => errln!("{}: no interface has <bandwidth>", imported.domain),
    }
    Ok(0)
}
