//! Processes of a run, in a namespace. They end with the lab.
//!
//! Problem   A killed lab cannot end the processes that it started. If it is killed between a
//!           child's fork and the child's request to die with it, a process without a parent stays.
//! Approach  `setpriv --pdeathsig`, then a check that the parent still is the process that started
//!           the child. From then on the kernel sends the signal. The child leads a process group:
//!           Ctrl-C in a terminal is for the lab, which then ends its children in order.
//!           terminal is for the lab, which then ends its children in order.
//! Promises  A child that runs its program has its parent, or ends with it.
//! Not here  Ending children while the lab lives.
//! Source    PR_SET_PDEATHSIG(2const).

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Executes its arguments, unless its parent is not the process named first.
const IF_PARENT_LIVES: &str =
    r#"[ "$PPID" = "$0" ] && exec "$@"; echo "the lab that started this is gone" >&2; exit 1"#;

/// A command that runs `program` in the network namespace at `namespace`, and gets the signal
/// `death` when the calling thread ends.
pub(crate) fn command(namespace: &Path, death: &str, program: impl AsRef<OsStr>) -> Command {
    build(namespace, death, &[], program)
}

/// The same for a program that needs no rights. It runs as the user `nobody` and cannot become
/// another user. It loses its rights before it asks the kernel for the signal, because a change of
/// rights cancels the request.
pub(crate) fn unprivileged(namespace: &Path, death: &str, program: impl AsRef<OsStr>) -> Command {
    const NOBODY: [&str; 5] =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--no-new-privs"];
    build(namespace, death, &NOBODY, program)
}

fn build(namespace: &Path, death: &str, rights: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut net = OsString::from("--net=");
    net.push(namespace);
    let mut command = Command::new("nsenter");
    command
        .arg(net)
        .args(["--", "setpriv"])
        .args(rights)
        .args(["--pdeathsig", death, "--", "/bin/sh", "-c", IF_PARENT_LIVES])
        .arg(std::process::id().to_string())
        .arg(program)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_without_rights_ends_with_whoever_started_it() {
        // Its parent in the kernel is a thread.
        let start = || {
            let child = unprivileged(Path::new("/proc/self/ns/net"), "KILL", "sleep")
                .arg("30")
                .spawn()
                .expect("starts; needs root");
            let name = Path::new("/proc").join(child.id().to_string()).join("comm");
            let until = Instant::now() + Duration::from_secs(5);
            while std::fs::read_to_string(&name).is_ok_and(|name| name != "sleep\n") {
                assert!(Instant::now() < until, "it does not become what it is to be");
                std::thread::sleep(Duration::from_millis(1));
            }
            child
        };
        let mut child = std::thread::spawn(start).join().expect("no panic");
        let begun = Instant::now();
        let status = child.wait().expect("ours");
        assert_eq!(status.signal(), Some(9), "{status}");
        assert!(begun.elapsed() < Duration::from_secs(10), "it was not the end of its time");
    }

    #[test]
    fn a_child_that_was_left_alone_does_not_start() {
        let played = |parent: u32| {
            let output = Command::new("/bin/sh")
                .args(["-c", IF_PARENT_LIVES, &parent.to_string(), "echo", "runs"])
                .output()
                .expect("a shell");
            String::from_utf8(output.stdout).expect("text")
        };
        assert_eq!(played(std::process::id()), "runs\n");
        assert_eq!(played(1), "");
    }
}
