//! Floors in the metadata of libvirt's domains: the hook that hands them over, and the import of `<bandwidth>`.
//!
//! Problem   Only libvirt knows on which port a guest is, and it waits for its hooks: a hook that fails ends
//!           the guest, one that asks libvirt something waits for itself.
//! Approach  The hook reads the domain that libvirt gives it, and writes or removes one file in the agent's
//!           folder. No agent is spoken to: a running one sees the file, a later one finds it.
//! Promises  Nothing but that file is touched, and no file is touched for a domain without the element.
//! Not here  What becomes of the file: see `handed`. Exit status 0 whatever happens: see the command.
//! Source    libvirt docs/hooks.rst, docs/formatdomain.rst ("General metadata", "Quality of service").

mod bandwidth;
mod domain;

pub use bandwidth::{Imported, import};
pub use domain::NAMESPACE;

use crate::handed::{self, GuestFile};
use crate::names::shortened;
use anyhow::{Context as _, Result, anyhow, ensure};
use domain::Domain;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Octets of a domain's XML that are read. A domain with long chains of disk images has a tenth of it.
const XML_MOST: u64 = 4 << 20;

/// What the hook does at an operation of libvirt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    HandOver,
    TakeBack,
}

/// The port is there from `start` on. `reconnect` comes for each running guest when libvirt itself starts,
/// `stopped` and `release` also when a start fails. A guest that migrates or is restored is started, too.
fn step(operation: &str) -> Option<Step> {
    match operation {
        "start" | "started" | "reconnect" | "attach" => Some(Step::HandOver),
        "stopped" | "release" => Some(Step::TakeBack),
        _ => None,
    }
}

/// What libvirt's hook for `operation` does with the domain in `xml`. Says what changed, and what may keep
/// floors of VMs from being enforced that are handed over.
///
/// # Errors
///
/// The domain has a wrong element, or the agent's folder cannot be written: the domain's VMs are not handed over.
pub fn hook(config: &Path, operation: &str, xml: impl Read) -> Result<Vec<String>> {
    let mut octets = Vec::new();
    xml.take(XML_MOST + 1).read_to_end(&mut octets).context("libvirt's XML cannot be read")?;
    let Some(step) = step(operation) else { return Ok(Vec::new()) };
    ensure!(octets.len() as u64 <= XML_MOST, "libvirt's XML is longer than {XML_MOST} octets");
    let text = String::from_utf8(octets).map_err(|_| anyhow!("libvirt's XML is not UTF-8"))?;
    let domain = Domain::parse(&text).map_err(anyhow::Error::msg)?;
    let name = shortened(&domain.name);
    // An element that was removed takes the VMs back. One that is wrong leaves what was handed over.
    let vms = match step {
        Step::HandOver => domain.handed().map_err(|e| anyhow!("domain `{name}`: {e}")),
        Step::TakeBack => Ok(Vec::new()),
    };
    let file = match crate::config::read(config) {
        Ok(file) => file,
        // A host without an agent may have other domains.
        Err(_) if !domain.has_element => return Ok(Vec::new()),
        // The domain's own mistake is the nearer one.
        Err(e) => return Err(vms.err().unwrap_or_else(|| e.context(format!("domain `{name}`")))),
    };
    let folder = handed::folder(&file.run_dir, &file.instance);
    let path = folder.join(format!("{}.toml", domain.uuid));
    if vms.is_err() && operation == "start" {
        // It is of an earlier run, and that one's end was missed: its port may be another guest's by now.
        take_back(&path)?;
    }
    let vms = vms?;
    if vms.is_empty() {
        let said = || format!("domain `{name}`: its VMs were taken back");
        return Ok(take_back(&path)?.then(said).into_iter().collect());
    }
    let mut said = domain.warnings(&vms);
    let ports: Vec<String> =
        vms.iter().map(|vm| format!("VM `{}` on {}", shortened(&vm.name), vm.port)).collect();
    let body = toml::to_string(&GuestFile { vms })?;
    let text = format!("# From libvirt's domain {:?}, until it stops.\n\n{body}", domain.name);
    if fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(said);
    }
    write(&folder, &path, &text).with_context(|| format!("{}: not written", path.display()))?;
    said.insert(0, format!("domain `{name}`: handed over {}", ports.join(", ")));
    Ok(said)
}

/// Whether the file was there.
fn take_back(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("{}: not removed", path.display())),
    }
}

/// A reader finds the old text or the new one, whole.
fn write(folder: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests;
