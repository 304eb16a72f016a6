//! Traces of one agent on the machine: files, locks, and a journal for undoing.
//!
//! Problem   A failed start, a clean end and a dead agent all leave a host that must be restored,
//!           and two agents of one name must not run.
//! Approach  Everything carries the instance's name. A lock is held while an agent lives. A change
//!           that cannot be found again by name is written to a journal before it is made. Undoing
//!           reads the journal backwards, whichever agent wrote it.
//! Promises  Undoing touches nothing that the journal or the name does not claim. It goes on after
//!           an error and returns the first one.
//! Not here  The shaper's objects, which it finds by the instance's name.

use crate::attach::{self, Hook, Interface};
use crate::error::{Context, Error};
use crate::programs::Program;
use crate::shaper;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Layout of the pinned maps, a hash of their types (see build.rs). State of another layout is
/// removed, not adopted.
pub const LAYOUT: &str = env!("WEIR_LAYOUT");

const BPF_FS_MAGIC: u32 = 0xcafe_4a11;

/// Places of one instance's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Its name.
    pub name: String,
    pins: PathBuf,
    run: PathBuf,
}

impl Instance {
    /// Checks the name and the bpffs; touches nothing.
    pub fn new(name: &str, bpffs: &Path, run_dir: &Path) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(allowed) {
            return Err(Error::Config(format!(
                "instance name {name:?}: letters, digits and hyphens, 1 to 32 of them"
            )));
        }
        if !is_bpffs(bpffs) {
            return Err(Error::NotBpffs(bpffs.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            pins: bpffs.join("weir").join(name),
            run: run_dir.join(name),
        })
    }

    /// Where maps are pinned.
    pub fn maps(&self) -> PathBuf {
        self.pins.join(format!("maps-{LAYOUT}"))
    }

    /// Where TCX links are pinned.
    pub fn links(&self) -> PathBuf {
        self.pins.join("links")
    }

    /// The heartbeat.
    pub fn lease(&self) -> PathBuf {
        self.run.join("lease")
    }

    /// The guardian's lock.
    pub fn guardian_lock(&self) -> PathBuf {
        self.run.join("guardian.lock")
    }

    /// Makes the directories and takes the lock: an error if another agent holds it.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        fs::create_dir_all(&self.run).during(|| format!("making {}", self.run.display()))?;
        own(self.run.clone())?;
        let path = self.run.join("lock");
        lock_file(&path)?.map_err(|holder| Error::Locked {
            instance: self.name.clone(),
            holder,
            lock: path,
        })
    }

    /// Makes the directories for pins.
    pub fn make_pin_dirs(&self) -> Result<(), Error> {
        for dir in [self.maps(), self.links()] {
            fs::create_dir_all(&dir).during(|| format!("making {}", dir.display()))?;
        }
        let above = self.pins.parent().map(Path::to_owned);
        above.into_iter().chain([self.pins.clone(), self.maps(), self.links()]).try_for_each(own)
    }

    /// Whether an earlier agent of this name left something.
    pub fn has_traces(&self) -> bool {
        self.pins.exists() || self.journal().exists() || self.lease().exists()
    }

    fn journal(&self) -> PathBuf {
        self.run.join("journal")
    }

    /// Path of a shorter journal before it replaces the other.
    fn journal_beside(&self) -> PathBuf {
        self.run.join("journal.new")
    }

    /// Removes pins (which detaches TCX links) and files. The lock stays, because another process
    /// may wait for it.
    pub fn remove_files(&self) -> Result<(), Error> {
        let mut result = Ok(());
        let mut links = list(&self.links())?;
        // In the order of names: EyeQ's meters go before `tell`, without which their clones are
        // VMs' packets.
        links.sort_unstable();
        for pin in links {
            result = result.and(attach::detach_tcx(&pin));
        }
        for dir in [self.links(), self.maps(), self.pins.clone()] {
            result = result.and(remove_tree(&dir));
        }
        let files = [self.journal(), self.journal_beside(), self.lease(), self.guardian_lock()];
        for file in files {
            result = result.and(remove(&file));
        }
        result
    }
}

/// A lock held until dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave it locked while a child that is being forked has a copy.
        let _ = self.0.unlock();
    }
}

/// Takes a lock file. `Err` in the `Ok` names its owner.
pub(crate) fn lock_file(path: &Path) -> Result<Result<Lock, String>, Error> {
    let action = || format!("locking {}", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .during(action)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).and_then(|()| file.rewind()).during(action)?;
            // The lock holds also without an owner's name in it, so a full file system is no reason
            // to fail.
            let _ = write!(file, "{}", std::process::id());
            Ok(Ok(Lock(file)))
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder).during(action)?;
            Ok(Err(if holder.is_empty() { "?".to_owned() } else { holder }))
        }
        Err(TryLockError::Error(e)) => Err(e).during(action),
    }
}

/// A change of the host that cannot be found again by the instance's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A clsact qdisc was made.
    Clsact(Interface),
    /// A program was attached under clsact.
    Filter(Hook),
    /// fq took the root of the uplink.
    Fq(Interface),
    /// HTB took it, because the host's own traffic has a floor.
    Htb(Interface),
}

impl Deed {
    /// The uplink whose root was taken.
    pub const fn rooted(&self) -> Option<&Interface> {
        match self {
            Self::Fq(uplink) | Self::Htb(uplink) => Some(uplink),
            Self::Clsact(_) | Self::Filter(_) => None,
        }
    }
}

/// The list of changes (deeds), written to disk before they are made.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Changes in the order in which they were made.
    pub deeds: Vec<Deed>,
    /// The network namespace that they were done in, by inode.
    netns: u64,
}

/// One line of the journal.
fn deed_line(deed: &Deed) -> String {
    match deed {
        Deed::Clsact(i) => format!("clsact {} {}", i.index, i.name),
        Deed::Filter(h) => {
            let i = &h.interface;
            format!("filter {} {} {}", h.program.name(), i.index, i.name)
        }
        Deed::Fq(i) => format!("fq {} {}", i.index, i.name),
        Deed::Htb(i) => format!("htb {} {}", i.index, i.name),
    }
}

impl Journal {
    /// Opens the journal of an instance, with what is in it.
    pub fn open(instance: &Instance) -> Result<Self, Error> {
        let path = instance.journal();
        let action = || format!("reading {}", path.display());
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&path).during(action)?;
        let mut octets = Vec::new();
        file.read_to_end(&mut octets).during(action)?;
        let here = netns()?;
        if octets.is_empty() {
            writeln!(file, "netns {here}").during(action)?;
            return Ok(Self { file, netns: here, deeds: Vec::new(), path });
        }
        let (netns, deeds) = parse_journal(&octets);
        Ok(Self { file, netns: netns.unwrap_or(0), deeds, path })
    }

    /// The deeds of an earlier agent, if they were done in this thread's network namespace.
    pub fn left(instance: &Instance) -> Vec<Deed> {
        let (before, deeds) = parse_journal(&fs::read(instance.journal()).unwrap_or_default());
        if before.is_some() && before == netns().ok() { deeds } else { Vec::new() }
    }

    /// Whether the deeds are of this thread's network namespace.
    pub fn is_here(&self) -> bool {
        netns().is_ok_and(|here| here == self.netns)
    }

    /// Whether this was done (by this agent or an earlier one).
    pub fn has(&self, deed: &Deed) -> bool {
        self.deeds.contains(deed)
    }

    /// Records a deed that is about to be done.
    pub fn record(&mut self, deed: Deed) -> Result<(), Error> {
        let line = deed_line(&deed);
        writeln!(self.file, "{line}").during(|| format!("writing {}", self.path.display()))?;
        self.deeds.push(deed);
        Ok(())
    }

    /// Removes changes that were undone, so that a journal is as long as the list of changes in
    /// force. The old journal stands until the new one is complete.
    pub fn strike(&mut self, undone: impl Fn(&Deed) -> bool) -> Result<(), Error> {
        let before = self.deeds.len();
        self.deeds.retain(|deed| !undone(deed));
        if self.deeds.len() == before {
            return Ok(());
        }
        let action = || format!("writing {}", self.path.display());
        let beside = self.path.with_extension("new");
        let mut text = format!("netns {}\n", self.netns);
        for deed in &self.deeds {
            text += &deed_line(deed);
            text.push('\n');
        }
        fs::write(&beside, text).during(action)?;
        fs::rename(&beside, &self.path).during(action)?;
        self.file = OpenOptions::new().append(true).open(&self.path).during(action)?;
        Ok(())
    }

    /// Undoes all deeds, last first. Interfaces that are gone took theirs with them; those of
    /// another network namespace cannot be reached from here.
    pub fn undo(self) -> Result<(), Error> {
        let mut result = Ok(());
        if !self.is_here() {
            return result;
        }
        for deed in self.deeds.iter().rev() {
            result = result.and(match deed {
                Deed::Clsact(i) if i.is_there() => attach::remove_clsact(i),
                Deed::Filter(h) if h.interface.is_there() => attach::detach_clsact(h),
                Deed::Fq(i) | Deed::Htb(i) if i.is_there() => {
                    shaper::release(&i.device()).map(drop).map_err(Error::from)
                }
                _ => Ok(()),
            });
        }
        result
    }
}

/// The network namespace of a journal's deeds, if it can be read, and the deeds.
fn parse_journal(octets: &[u8]) -> (Option<u64>, Vec<Deed>) {
    let text = String::from_utf8_lossy(octets);
    let mut lines = text.lines();
    let netns = lines.next().and_then(|line| line.strip_prefix("netns ")?.parse().ok());
    // A line cut short by a crash was written before its deed: there is nothing to undo.
    (netns, lines.filter_map(parse_deed).collect())
}

/// The changes that a journal lists, whatever its octets are, each as written. For tests of the
/// parser.
pub fn journal_lines(octets: &[u8]) -> Vec<String> {
    parse_journal(octets).1.iter().map(deed_line).collect()
}

fn parse_deed(line: &str) -> Option<Deed> {
    let words: Vec<&str> = line.split(' ').collect();
    let interface = |index: &str, name: &str| {
        // Names follow the kernel's rules; no other name was ever written.
        let is_name = (1..libc::IFNAMSIZ).contains(&name.len())
            && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0');
        let index = index.parse().ok().filter(|index| *index > 0)?;
        is_name.then(|| Interface { index, name: name.to_owned() })
    };
    match words[..] {
        ["clsact", index, name] => Some(Deed::Clsact(interface(index, name)?)),
        ["fq", index, name] => Some(Deed::Fq(interface(index, name)?)),
        ["htb", index, name] => Some(Deed::Htb(interface(index, name)?)),
        ["filter", program, index, name] => {
            let program = Program::named(program)?;
            Some(Deed::Filter(Hook { interface: interface(index, name)?, program }))
        }
        _ => None,
    }
}

/// Refuses a directory in which other users could replace our files.
fn own(dir: PathBuf) -> Result<(), Error> {
    let found = fs::metadata(&dir).during(|| format!("reading {}", dir.display()))?;
    // SAFETY: no pointers; it cannot fail.
    let us = unsafe { libc::geteuid() };
    let (owner, mode) = (found.st_uid(), found.st_mode() & 0o7777);
    if ![0, us].contains(&owner) || mode & 0o022 != 0 {
        return Err(Error::Config(format!(
            "{} belongs to user {owner} with mode {mode:o}, so others could change what the agent \
             keeps there: chown root and chmod go-w",
            dir.display()
        )));
    }
    Ok(())
}

/// This thread's network namespace.
fn netns() -> Result<u64, Error> {
    let path = "/proc/thread-self/ns/net";
    Ok(fs::metadata(path).during(|| format!("reading {path}"))?.st_ino())
}

pub(crate) fn is_bpffs(path: &Path) -> bool {
    let Ok(text) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: zero is a valid value of a struct of integers.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string, and a struct of the kernel's size that outlives the call.
    let ret = unsafe { libc::statfs(text.as_ptr(), &raw mut stat) };
    ret == 0 && stat.f_type as u32 == BPF_FS_MAGIC
}

/// The files in a directory; none if it is not there.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let action = || format!("listing {}", dir.display());
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.during(action)?,
    };
    entries.map(|entry| Ok(entry.during(action)?.path())).collect()
}

fn remove(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).during(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a directory of pins and all in it.
fn remove_tree(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).during(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_journal_says_is_what_was_done() {
        let interface = Interface { name: "tap7.100".into(), index: 12 };
        let mut deeds = vec![Deed::Clsact(interface.clone()), Deed::Fq(interface.clone())];
        deeds.push(Deed::Htb(interface.clone()));
        deeds.extend(
            Program::ALL
                .into_iter()
                .chain(crate::eyeq::Program::ALL.map(Program::EyeQ))
                .chain(crate::vcc::Program::ALL.map(Program::Vcc))
                .map(|program| Deed::Filter(Hook { interface: interface.clone(), program })),
        );
        for deed in deeds {
            assert_eq!(parse_deed(&deed_line(&deed)), Some(deed));
        }
    }

    #[test]
    fn a_line_cut_short_is_no_deed() {
        for line in
            ["", "clsact", "clsact 12", "fq", "clsact x eth0", "filter weir_st 12 eth0", "filter"]
        {
            assert_eq!(parse_deed(line), None, "{line:?}");
        }
    }

    #[test]
    fn what_no_interface_is_called_is_no_deed() {
        let long = format!("fq 12 {}", "x".repeat(16));
        for line in ["fq 12 ", "fq 12 a/b", "fq 12 a:b", "fq 0 eth0", "fq -1 eth0", &long] {
            assert_eq!(parse_deed(line), None, "{line:?}");
        }
        assert!(parse_deed(&long[..long.len() - 1]).is_some());
    }

    #[test]
    fn a_journal_with_a_damaged_line_keeps_the_others() {
        let octets = b"netns 7\nclsact 12 eth0\nfq 12 \xff\xfe\nfq 12 et\0h\nfq 3 up\nfilter";
        assert_eq!(parse_journal(octets).0, Some(7));
        // What is no text has another name by then, which no interface has.
        assert_eq!(journal_lines(octets), ["clsact 12 eth0", "fq 12 \u{fffd}\u{fffd}", "fq 3 up"]);
        assert_eq!(parse_journal(b"fq 3 up\n"), (None, Vec::new()), "the first line is not a deed");
    }

    #[test]
    fn a_name_that_could_leave_its_directory_is_refused() {
        for name in ["", "..", "a/b", "a b", "ä", &"x".repeat(33)] {
            let error = Instance::new(name, Path::new("/"), Path::new("/")).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{name:?}: {error}");
        }
    }
}
