//! Why an agent cannot run here: for lack of a privilege, or of something in the kernel.
//!
//! Problem   "Permission denied" and "Invalid argument" do not say what to do.
//! Approach  Privileges are looked at before anything is touched. What the kernel lacks is looked for
//!           when it has refused something, as `weir doctor` does: a sound start pays nothing for it.

use anyhow::{Error, Result, bail};
use std::io::ErrorKind;
use std::path::Path;
use weir_dataplane::probe::{self, Finding, Roots, State};

/// Refuses a process that may not do what an agent does.
pub(crate) fn privileges() -> Result<()> {
    let finding = probe::privileges(&Roots::default());
    if finding.state == State::Cannot {
        bail!("not privileged enough, {}: {}", finding.found, finding.remedy);
    }
    Ok(())
}

/// What could not be read for lack of a privilege is said to be so.
pub(crate) fn or_unprivileged(error: Error) -> Error {
    let denied = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    if !error.chain().any(denied) {
        return error;
    }
    privileges().err().unwrap_or(error)
}

/// What the kernel lacks comes first, if that is why the data plane was not set up.
pub(crate) fn or_unfit(error: weir_dataplane::Error, bpffs: &Path) -> Error {
    use weir_dataplane::Error as E;
    match error {
        E::System { .. } | E::Load(_) | E::Shaper(_) | E::Netlink(_) => {
            unfit(error.into(), &probe::kernel(&Roots::default(), bpffs))
        }
        // These say themselves what to do.
        error => error.into(),
    }
}

fn unfit(error: Error, findings: &[Finding]) -> Error {
    let lacks: Vec<String> = findings
        .iter()
        .filter(|finding| finding.state == State::Cannot)
        .map(|f| format!("{}: {} ({}); what helps: {}", f.what, f.found, f.costs, f.remedy))
        .collect();
    if lacks.is_empty() {
        return error;
    }
    error.context(format!(
        "this host cannot enforce floors: {}; `weir doctor` shows all there is to know; what failed",
        lacks.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(what: &str, state: State) -> Finding {
        Finding {
            what: what.into(),
            state,
            found: "absent".into(),
            costs: "no pair has a queue".into(),
            remedy: "modprobe sch_htb, or a kernel with CONFIG_NET_SCH_HTB".into(),
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_named_with_what_helps_before_what_failed() {
        let failed = || anyhow::anyhow!("class 1:1 of weir-x: Invalid argument (os error 22)");
        let lacking = [
            finding("HTB", State::Cannot),
            finding("BTF", State::Costs),
            finding("IFB", State::Cannot),
        ];
        let said = format!("{:#}", unfit(failed(), &lacking));
        assert_eq!(
            said,
            "this host cannot enforce floors: HTB: absent (no pair has a queue); what helps: modprobe \
             sch_htb, or a kernel with CONFIG_NET_SCH_HTB; IFB: absent (no pair has a queue); what \
             helps: modprobe sch_htb, or a kernel with CONFIG_NET_SCH_HTB; `weir doctor` shows all \
             there is to know; what failed: class 1:1 of weir-x: Invalid argument (os error 22)"
        );
        let said = format!("{:#}", unfit(failed(), &lacking[1..2]));
        assert!(said.starts_with("class 1:1"), "nothing that is missing explains it: {said}");
    }

    #[test]
    fn an_error_with_advice_of_its_own_is_left_as_it_is() {
        let error = weir_dataplane::Error::NoInterface("up9".into());
        assert_eq!(
            format!("{:#}", or_unfit(error, Path::new("/nowhere"))),
            "no interface \"up9\" in this network namespace"
        );
    }
}
