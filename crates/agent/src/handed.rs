//! VMs that the program that runs guests hands over: a file for each guest, in a folder of the agent.
//!
//! Problem   The name of a guest's port is known when the guest starts (`vnet7`), to the program that starts
//!           it. That program must not wait for an agent, which may be dead.
//! Approach  A file of TOML for each guest with a `[[vm]]` for each of its ports, moved into place whole and
//!           removed when the guest stops. The agent reads the folder when it starts, at each reload, and
//!           when an entry of the folder changes. A VM that `agent.toml` or the controller describes takes
//!           its port from there. Other VMs are added to those of `agent.toml`.
//! Promises  A file never keeps an agent from starting, nor another VM from its floors: what cannot be used
//!           is left out, with the reason. The controller's floors are never replaced.
//! Not here  The hook that writes the files: see `libvirt`. How a change gets into force: see `driver::handed`.

use crate::config;
use crate::mistake::Mistake;
use crate::names;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use weir_model::agent::{AgentConfig, Directory, GuestDscp, VmConfig};
use weir_model::text::RateText;

/// Octets of a file. A guest with a hundred ports needs a tenth of it.
const OCTETS_MOST: u64 = 64 << 10;
/// Files that are read: more than the guests of any host. Of more, the oldest are left out.
const FILES_MOST: usize = 4096;

/// The folder of an instance.
pub(crate) fn folder(run_dir: &Path, instance: &str) -> PathBuf {
    run_dir.join(instance).join("vms.d")
}

/// One file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestFile {
    /// One for each port.
    #[serde(default, rename = "vm")]
    pub(crate) vms: Vec<HandedVm>,
}

/// One port of a guest. Fields are as in `agent.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandedVm {
    pub(crate) name: String,
    pub(crate) port: String,
    /// Both floors, or none for a VM that is described elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor_out: Option<RateText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor_in: Option<RateText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cap_out: Option<RateText>,
}

/// What tells two states of the folder apart: inode and time of each file.
pub(crate) type Stamps = BTreeMap<OsString, (u64, i64, i64)>;

/// A VM, or a whole file, that is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub(crate) file: PathBuf,
    /// The VM's name; of a file that cannot be read, the file's.
    pub(crate) vm: String,
    pub(crate) port: String,
    pub(crate) why: String,
}

/// What the folder says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handed {
    /// Each VM with its file, the newest file first.
    vms: Vec<(HandedVm, PathBuf)>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) stamps: Stamps,
}

/// The files of the folder as they are now. A folder that is not there is empty.
///
/// # Errors
///
/// The system does not say. That is no reason to give up VMs.
pub(crate) fn stamps(folder: &Path) -> io::Result<Stamps> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Stamps::new()),
        entries => entries?,
    };
    let mut found = Stamps::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if Path::new(&name).extension().is_none_or(|end| end != "toml") {
            continue;
        }
        match entry.metadata() {
            // Of a link this is the link, so that no file elsewhere is read.
            Ok(meta) if meta.is_file() => {
                found.insert(name, (meta.ino(), meta.mtime(), meta.mtime_nsec()));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

impl Handed {
    /// Reads the folder.
    ///
    /// # Errors
    ///
    /// As [`stamps`].
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let unread = || format!("{}: cannot be read", folder.display());
        let mut handed = Self { stamps: stamps(folder).with_context(unread)?, ..Self::default() };
        let mut newest: Vec<_> = handed.stamps.iter().collect();
        newest.sort_by_key(|(name, (_, s, ns))| (Reverse((*s, *ns)), *name));
        let mut files: Vec<PathBuf> = newest.iter().map(|(name, _)| folder.join(name)).collect();
        let beyond = files.split_off(files.len().min(FILES_MOST));
        let mut refuse = |file: PathBuf, why: String| {
            let vm = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            handed.refused.push(Refused { file, vm, port: String::new(), why });
        };
        for file in files {
            match text(&file) {
                Ok(None) => {}
                Ok(Some(octets)) => match parse(&file, octets) {
                    Ok(vms) => handed.vms.extend(vms.into_iter().map(|vm| (vm, file.clone()))),
                    Err(why) => refuse(file, why),
                },
                // Root without CAP_DAC_OVERRIDE, as in the unit, may not read what others keep to themselves.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    refuse(file, format!("{e}: make root its owner, and write it anew"));
                }
                // What the system refuses for a moment is no reason to give up VMs.
                Err(e) => return Err(e).with_context(unread),
            }
        }
        for file in beyond {
            refuse(file, format!("no more than {FILES_MOST} files are read, the newest ones"));
        }
        Ok(handed)
    }

    /// Whether the VM's port is from a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.vms.iter().any(|(vm, _)| vm.name == name)
    }

    /// Leaves this VM out.
    fn refuse(&mut self, at: usize, why: String) {
        let (HandedVm { name: vm, port, .. }, file) = self.vms.remove(at);
        self.refused.push(Refused { file, vm, port, why });
    }

    /// Leaves out what is wrong by itself or by the directory: cheaply, for that may be all guests of a host,
    /// where to resolve a host's VMs without each of them takes as long as the directory is.
    fn sift(&mut self, file: &AgentConfig, directory: &Directory) {
        let (own, follows) = (&file.vms, file.controller.is_some());
        let hosts: BTreeMap<&str, &str> =
            directory.vms.iter().map(|vm| (vm.name.as_str(), vm.host.as_str())).collect();
        let (mut names, mut ports) = (BTreeSet::new(), BTreeSet::new());
        let mut at = 0;
        while let Some((vm, _)) = self.vms.get(at) {
            let is_described = own.iter().any(|own| own.name == vm.name);
            let why = if !names::is_interface(&vm.port) {
                Some(names::no_interface(&vm.port))
            } else if names.contains(&vm.name) {
                // libvirt calls the hook for each stop, so the older one may be of a dead guest.
                Some("a newer file has this VM, too: name each VM in one guest only".to_owned())
            } else if ports.contains(&vm.port) {
                Some("a newer file has this port, so it is another guest's by now".to_owned())
            } else if follows && !is_described {
                Some("the controller has no such VM on this host: see `weir get vms`".to_owned())
            } else if !hosts.contains_key(vm.name.as_str()) {
                Some(config::unlisted(&vm.name, &file.directory))
            } else if hosts.get(vm.name.as_str()) != Some(&file.host.as_str()) {
                Some(config::elsewhere(&vm.name, &file.directory))
            } else if !is_described && (vm.floor_out.is_none() || vm.floor_in.is_none()) {
                Some("its floors are not said: write floor_out and floor_in".to_owned())
            } else {
                None
            };
            match why {
                Some(why) => self.refuse(at, why),
                None => {
                    names.insert(vm.name.clone());
                    ports.insert(vm.port.clone());
                    at += 1;
                }
            }
        }
    }

    /// All VMs of this host; where each handed one is among them.
    fn beside(&self, own: &[VmConfig]) -> (Vec<VmConfig>, BTreeMap<usize, usize>) {
        let (mut vms, mut places) = (own.to_vec(), BTreeMap::new());
        for (n, (vm, _)) in self.vms.iter().enumerate() {
            let at = match own.iter().position(|own| own.name == vm.name) {
                Some(at) => {
                    vms[at].port.clone_from(&vm.port);
                    at
                }
                None => {
                    vms.push(alone(vm));
                    vms.len() - 1
                }
            };
            places.insert(at, n);
        }
        (vms, places)
    }

    /// Resolves this host's VMs with what was handed over, and without what `resolve` refuses of it. `file`
    /// has the VMs of `agent.toml` or of the controller.
    ///
    /// # Errors
    ///
    /// What is wrong without any handed VM.
    pub(crate) fn resolve<T>(
        mut self,
        file: &AgentConfig,
        directory: &Directory,
        resolve: impl Fn(AgentConfig) -> Result<T, Mistake>,
    ) -> Result<(T, Self), Mistake> {
        self.sift(file, directory);
        // Each round leaves one out, at least.
        loop {
            let (vms, places) = self.beside(&file.vms);
            let mistake = match resolve(AgentConfig { vms, ..file.clone() }) {
                Ok(resolved) => return Ok((resolved, self)),
                Err(mistake) if self.vms.is_empty() => return Err(mistake),
                Err(mistake) => mistake,
            };
            let why = mistake.what().to_owned();
            match mistake.vm().and_then(|at| places.get(&at)) {
                Some(n) => self.refuse(*n, why),
                // It may be that all of them together are too much: floors of the others come first.
                None => (0..self.vms.len()).rev().for_each(|n| self.refuse(n, why.clone())),
            }
        }
    }
}

/// A VM that no other file describes.
fn alone(vm: &HandedVm) -> VmConfig {
    VmConfig {
        name: vm.name.clone(),
        port: vm.port.clone(),
        mac: None,
        floor_out: vm.floor_out.unwrap_or_default(),
        floor_in: vm.floor_in.unwrap_or_default(),
        cap_out: vm.cap_out,
        external_floor: None,
        external_ceiling: None,
        translation: Default::default(),
        policing: None,
        budget: None,
        dscp: GuestDscp::default(),
        hoses: Vec::new(),
    }
}

/// The octets of a file, one more than may be at most; nothing if it was removed meanwhile.
fn text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match std::fs::File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut octets = Vec::new();
    file.take(OCTETS_MOST + 1).read_to_end(&mut octets)?;
    Ok(Some(octets))
}

fn parse(path: &Path, octets: Vec<u8>) -> Result<Vec<HandedVm>, String> {
    if octets.len() as u64 > OCTETS_MOST {
        return Err(format!("the file is longer than {OCTETS_MOST} octets"));
    }
    let text = names::text_of(path, octets).map_err(|e| e.to_string())?;
    let file: GuestFile = toml::from_str(&text).map_err(|e| names::shortened(e.message()))?;
    Ok(file.vms)
}

#[cfg(test)]
mod tests;
