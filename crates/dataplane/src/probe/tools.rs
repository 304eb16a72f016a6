//! Programs beside Weir. Enforcement needs none of them, but each is useful.

use super::{Finding, State};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Name, Debian package, and what needs it.
const TOOLS: [(&str, &str, &str); 7] = [
    ("ip", "iproute2", "people cannot look at devices; `weir` does not need it"),
    ("tc", "iproute2", "people cannot look at queues; `weir` does not need it"),
    ("bpftool", "bpftool", "people cannot look at programs and maps; `weir` does not need it"),
    ("ethtool", "ethtool", "people cannot change a card's offloads; `weir` does not need it"),
    ("nsenter", "util-linux", "no `weir lab`: it starts agents in namespaces"),
    ("setpriv", "util-linux", "no `weir lab`: its agents could outlive it"),
    ("iperf3", "iperf3", "no scenario whose traffic is `exec: iperf3`"),
];

/// Which of them are on `path`, the value of `PATH`.
pub fn tools(path: Option<&OsStr>) -> Vec<Finding> {
    let mut folders: Vec<PathBuf> =
        path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    // Where they are for root, whatever an ordinary user's PATH says.
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let find = |name: &str| {
        let runs = |file: &PathBuf| {
            file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        folders.iter().map(|folder| folder.join(name)).find(runs)
    };
    TOOLS
        .iter()
        .map(|(name, package, without)| match find(name) {
            Some(file) => Finding::fine(*name, file.display().to_string()),
            None => {
                let remedy = format!("apt-get install {package}");
                Finding::new(*name, State::Costs, "not found", *without, remedy)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_costs_but_keeps_nobody_from_enforcing() {
        let folder = std::env::temp_dir().join(format!("weir-tools-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("iperf3"), "").expect("a file that does not run");
        std::fs::write(folder.join("bpftool"), "").expect("a file");
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join("bpftool"), runs).expect("made to run");
        let found = tools(Some(folder.as_os_str()));
        std::fs::remove_dir_all(&folder).expect("removed");
        let of = |name: &str| found.iter().find(|f| f.what == name).expect("looked for");
        assert_eq!(of("bpftool").state, State::Fine);
        assert_eq!(of("iperf3").state, State::Costs, "it does not run");
        assert_eq!(of("iperf3").remedy, "apt-get install iperf3");
        assert!(found.iter().all(|f| f.state.allows()));
    }
}
