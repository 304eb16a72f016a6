//! Processes of a run: in a namespace, and not without the lab.
//!
//! Problem   A lab that is killed cannot end what it started; and one that is killed between a child's
//!           fork and the child's request to die with it leaves a process that nobody ends.
//! Approach  `setpriv --pdeathsig`, then a look whether the parent still is who started it: from then
//!           on the kernel sends the signal. The child leads a process group: Ctrl-C in a
//!           terminal is for the lab, which then ends its children in order.
//! Promises  A child that runs what it was started for has its parent, or ends with it.
//! Not here  Ending children of a lab that lives.
//! Source    PR_SET_PDEATHSIG(2const).

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Becomes what its arguments say, unless its parent is not the process named first.
const IF_PARENT_LIVES: &str =
    r#"[ "$PPID" = "$0" ] && exec "$@"; echo "the lab that started this is gone" >&2; exit 1"#;

/// A command that runs `program` in the network namespace at `namespace`, and gets the signal
/// `death` when the calling thread ends.
pub(crate) fn command(namespace: &Path, death: &str, program: impl AsRef<OsStr>) -> Command {
    let mut net = OsString::from("--net=");
    net.push(namespace);
    let mut command = Command::new("nsenter");
    command
        .arg(net)
        .args(["--", "setpriv", "--pdeathsig", death, "--", "/bin/sh", "-c", IF_PARENT_LIVES])
        .arg(std::process::id().to_string())
        .arg(program)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

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
