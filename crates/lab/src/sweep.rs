//! What an earlier lab left behind when it was killed, and how this one names its things.
//!
//! Problem   A killed lab cannot clean up; its namespaces would stay for ever.
//! Approach  Names carry the process id of their lab. What carries an id that is not alive is dead.
//! Promises  Nothing of a living lab is touched, and nothing that does not bear the lab's prefix.
//! Not here  The ordinary end of a run: everything made is removed by its owner's `drop`.

use crate::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Starts the name of every namespace and directory of a lab.
const PREFIX: &str = "weir-";
/// Starts the name of an agent's instance, and with it of everything the agent pins.
const INSTANCE: &str = "lab";
/// Where agents pin what outlives them.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// Runs of this process, so that two of them do not collide.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The name of a new run: `weir-<pid>-<n>`.
pub(crate) fn new_run() -> String {
    format!("{PREFIX}{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// The name of a node's namespace in a run. The kind (`h`, `s`, `v`) and the index keep apart what
/// has the same name, or would have without its odd characters.
pub(crate) fn name(run: &str, kind: char, index: usize, node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("{run}-{kind}{index}-{}", node.chars().map(plain).take(100).collect::<String>())
}

/// The name of an agent's instance in a run: `lab<pid>-<n>-h<host>`. Short: it becomes part of
/// paths of Unix sockets, which have room for 107 octets.
pub(crate) fn instance(run: &str, host: usize) -> String {
    format!("{INSTANCE}{}-h{host}", &run[PREFIX.len()..])
}

/// The temporary directory of a run.
pub(crate) fn directory(run: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{run}.run"))
}

/// Removes namespaces, processes in them, directories and pins of labs whose process is gone.
/// Says what was removed, one sentence each; nothing if there was nothing.
pub fn sweep_stale() -> Vec<String> {
    let mut removed = Vec::new();
    let stale = stale_in(Path::new(netns::DIRECTORY), PREFIX);
    let killed = kill_all_in(&stale.iter().filter_map(|path| identity(path)).collect());
    if killed > 0 {
        removed.push(format!("ended {killed} processes of an earlier lab that was killed"));
    }
    let count = |paths: &[PathBuf], remove: &dyn Fn(&Path) -> bool| {
        paths.iter().filter(|path| remove(path)).count()
    };
    let mut say = |n: usize, what: &str| {
        if n > 0 {
            removed.push(format!("removed {n} {what} of an earlier lab that was killed"));
        }
    };
    say(count(&stale, &netns::remove), "namespaces");
    let whole = |path: &Path| fs::remove_dir_all(path).is_ok();
    say(count(&stale_in(&std::env::temp_dir(), PREFIX), &whole), "run directories");
    say(count(&stale_pins(), &whole), "directories of pinned BPF objects");
    removed
}

/// Removes what the agents of `run` pinned.
pub(crate) fn remove_pins(run: &str) {
    let instance = format!("{INSTANCE}{}-", &run[PREFIX.len()..]);
    for path in pins() {
        if file_name(&path).starts_with(&instance) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Directories that agents of labs may have pinned things in.
fn pins() -> Vec<PathBuf> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path).map_or(Vec::new(), |e| e.flatten().map(|e| e.path()).collect())
    };
    let bpffs = Path::new(BPFFS);
    let mut all = entries(bpffs);
    all.extend(entries(&bpffs.join("weir")));
    all.retain(|path| path.is_dir());
    all
}

fn stale_pins() -> Vec<PathBuf> {
    pins().into_iter().filter(|path| is_stale(file_name(path), INSTANCE)).collect()
}

fn stale_in(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|e| e.path()).filter(|path| is_stale(file_name(path), prefix)).collect()
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Whether `name` is `<prefix><pid>-<n>…` of a process that is gone.
fn is_stale(name: &str, prefix: &str) -> bool {
    let Some(mut parts) = name.strip_prefix(prefix).map(|rest| rest.split(['-', '.'])) else {
        return false;
    };
    let number = |part: Option<&str>| part.and_then(|p| p.parse::<u32>().ok());
    match (number(parts.next()), number(parts.next())) {
        (Some(pid), Some(_)) => !Path::new("/proc").join(pid.to_string()).exists(),
        _ => false,
    }
}

/// What tells a namespace from all others: device and inode.
pub(crate) type Identity = (u64, u64);

/// The identity of the namespace that `path` names.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Every process whose network namespace is one of these.
pub(crate) fn processes_in(namespaces: &BTreeSet<Identity>) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let in_there =
        |path: &Path| identity(&path.join("ns/net")).is_some_and(|id| namespaces.contains(&id));
    processes
        .flatten()
        .map(|e| e.path())
        .filter_map(|path| Some((file_name(&path).parse().ok()?, path)))
        .filter(|(_, path)| in_there(path))
        .map(|(pid, _)| pid)
        .collect()
}

/// Ends every process whose network namespace is one of these, at once; says how many.
pub(crate) fn kill_all_in(namespaces: &BTreeSet<Identity>) -> usize {
    let end = |pid: u32| kill(Pid::from_raw(pid as i32), Signal::SIGKILL).is_ok();
    processes_in(namespaces).into_iter().filter(|&pid| end(pid)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_labs_are_stale() {
        let gone = u32::MAX / 2; // beyond any pid_max
        assert!(is_stale(&format!("weir-{gone}-0-host 1"), PREFIX));
        assert!(is_stale(&format!("weir-{gone}-3.run"), PREFIX));
        assert!(is_stale(&format!("lab{gone}-0-h7"), INSTANCE));
        assert!(!is_stale(&format!("weir-{}-0-h1", std::process::id()), PREFIX));
        assert!(!is_stale("weir-controller", PREFIX));
        assert!(!is_stale(&format!("weir-{gone}-x"), PREFIX));
        assert!(!is_stale(&format!("other-{gone}-0"), PREFIX));
    }

    #[test]
    fn a_name_from_a_scenario_becomes_a_plain_file_name() {
        assert_eq!(name("weir-7-0", 'h', 2, "rack/1 a"), "weir-7-0-h2-rack_1_a");
        assert_eq!(instance("weir-7-2", 4), "lab7-2-h4");
    }
}
