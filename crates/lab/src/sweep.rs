//! Remains of an earlier lab that was killed, and names of this lab's things.
//!
//! Problem   A killed lab cannot clean up, so its namespaces would stay for ever.
//! Approach  Names carry the process id of their lab and its start time, because process ids are
//!           used again. A name whose process does not live is dead.
//! Promises  Nothing of a living lab is touched, and nothing that does not bear the lab's prefix.
//! Not here  The ordinary end of a run: everything made is removed by its owner's `drop`.

use crate::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use weir_units::SortedSet;

/// Starts the name of every namespace and directory of a lab.
const PREFIX: &str = "weir-";
/// Starts the name of an agent's instance, and with it of everything the agent pins.
const INSTANCE: &str = "lab";
/// Where agents pin what outlives them.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// Runs of this process, so that two of them do not collide.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The name of a new run: `weir-<pid>-<n>s<start>`, the start in ticks since the machine's, in
/// hexadecimal.
pub(crate) fn new_run() -> String {
    let (pid, n) = (std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    format!("{PREFIX}{pid}-{n}s{:x}", started(pid).unwrap_or(0))
}

/// When a process started, in ticks since the machine's start; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // Its name comes first, in brackets, and may have anything in it. Then the third field.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Name of a node's namespace in a run. The kind (`h`, `s`, `v`) and the index distinguish nodes of
/// equal names, or of names that are equal without their special characters.
pub(crate) fn name(run: &str, kind: char, index: usize, node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("{run}-{kind}{index}-{}", node.chars().map(plain).take(100).collect::<String>())
}

/// The name of an agent's instance in a run: `lab<pid>-<n>s<start>-h<host>`. Short: it becomes part
/// of paths of Unix sockets, which have room for 107 octets.
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

/// Directories that may hold pins of labs' agents.
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

/// Whether `name` is `<prefix><pid>-<n>s<start>…` of a process that is gone, even if another
/// process has its id by now. Names of earlier versions have no start; then the id must be free.
fn is_stale(name: &str, prefix: &str) -> bool {
    let Some(mut parts) = name.strip_prefix(prefix).map(|rest| rest.split(['-', '.'])) else {
        return false;
    };
    let (pid, run) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (n, start) = run.split_once('s').map_or((run, None), |(n, start)| (n, Some(start)));
    let (Ok(pid), Ok(_)) = (pid.parse::<u32>(), n.parse::<u32>()) else { return false };
    let start = match start.map(|start| u64::from_str_radix(start, 16)) {
        Some(Err(_)) => return false,
        Some(Ok(start)) => Some(start),
        None => None,
    };
    if !Path::new("/proc").join(pid.to_string()).exists() {
        return true;
    }
    // A process whose start time cannot be read is taken for the lab, so that a live lab is never
    // touched.
    matches!((start, started(pid)), (Some(then), Some(now)) if then != 0 && then != now)
}

/// Device and inode, which identify a namespace.
pub(crate) type Identity = (u64, u64);

/// The identity of the namespace that `path` names.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Every process whose network namespace is one of these.
pub(crate) fn processes_in(namespaces: &SortedSet<Identity>) -> Vec<u32> {
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
pub(crate) fn kill_all_in(namespaces: &SortedSet<Identity>) -> usize {
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
        assert!(is_stale(&format!("weir-{gone}-0sff-h1"), PREFIX));
        assert!(!is_stale(&format!("weir-{gone}-0snow-h1"), PREFIX));
    }

    #[test]
    fn who_has_a_dead_labs_process_id_does_not_keep_what_it_left() {
        let (pid, run) = (std::process::id(), new_run());
        let start = started(pid).expect("we live");
        assert!(run.ends_with(&format!("s{start:x}")), "{run}");
        assert!(!is_stale(&name(&run, 'h', 1, "host1"), PREFIX), "{run} is ours");
        assert!(!is_stale(&instance(&run, 1), INSTANCE), "{run} is ours");
        for before in [1, start - 1, start + 1] {
            let dead = format!("weir-{pid}-0s{before:x}");
            assert!(is_stale(&name(&dead, 'h', 1, "host1"), PREFIX), "{dead} was another's");
            assert!(is_stale(&instance(&dead, 1), INSTANCE), "{dead} was another's");
            assert!(is_stale(&format!("{dead}.run"), PREFIX), "{dead} was another's");
        }
        assert_eq!(started(u32::MAX / 2), None);
        // Init started with the machine, also if its name has brackets and spaces.
        assert!(started(1).is_some_and(|first| first < start));
        let longest = instance(&format!("weir-{}-99s{:x}", 1 << 22, u32::MAX), 999);
        assert!(longest.len() <= 32, "{longest}: an agent's instance has no longer name");
    }

    #[test]
    fn a_name_from_a_scenario_becomes_a_plain_file_name() {
        assert_eq!(name("weir-7-0", 'h', 2, "rack/1 a"), "weir-7-0-h2-rack_1_a");
        assert_eq!(instance("weir-7-2", 4), "lab7-2-h4");
    }
}
