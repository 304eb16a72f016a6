//! Which of the `budgets` in `agent.toml` a VM may name.
//!
//! Problem   A name that is wrong would leave a VM without the bound that was meant for it, and nobody would say so.
//! Not here  Whether a budget can be kept, and its division: `driver::budget`.

use crate::mistake::{Mistake, sound};
use weir_model::agent::AgentConfig;

/// Refuses a name that no budget has, and two budgets for one VM.
pub(crate) fn check(file: &AgentConfig) -> Result<(), Mistake> {
    for (i, vm) in file.vms.iter().enumerate() {
        let Some(name) = &vm.shared_budget else { continue };
        let wrong = |what: String| Mistake::config(format!("vm[{i}].shared_budget"), what);
        sound(file.budgets.contains_key(name), || {
            let known: Vec<&str> = file.budgets.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            wrong(format!("there is no budget `{name}`; of `budgets` there are: {known}"))
        })?;
        sound(vm.budget.is_none(), || {
            let name = &vm.name;
            wrong(format!("vm `{name}` has a `budget` of its own, too: leave one of them out"))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Setup;

    #[test]
    fn a_name_that_no_budget_has_and_two_budgets_are_refused_with_line_and_field() {
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}]\n\
                         vms: [{name: a, tenant: red, host: h0, addresses: [10.1.0.1]}]\n";
        let budget = "total = \"90kB\"\nflows_most = 5\nclass = [{ name = \"all\", weight = 1 }]\n";
        let loaded = |vm: &str, more: &str| {
            let text = format!(
                "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"key\"\n\
                 directory = \"directory.yaml\"\nmechanism = {{ name = \"elasticswitch\" }}\n\
                 uplink = {{ interface = \"up\", rate = \"1Gbit\" }}\n[[vm]]\nname = \"a\"\n\
                 port = \"p\"\nfloor_in = \"1Mbit\"\nfloor_out = \"1Mbit\"\n{vm}{more}"
            );
            Setup::parse(&text, directory).map(drop).map_err(|e| format!("{e:#}"))
        };
        let (named, there) = ("shared_budget = \"gold\"\n", format!("[budgets.gold]\n{budget}"));
        assert_eq!(loaded(named, &there), Ok(()));
        assert_eq!(loaded("", &there), Ok(()), "for VMs that come later");
        assert_eq!(
            loaded(named, &there.replace("gold", "bulk")),
            Err("agent.toml:13: vm[0].shared_budget: there is no budget `gold`; of `budgets` there are: bulk"
                .into())
        );
        let error = loaded(named, "").expect_err("none");
        assert!(error.ends_with("there are: none"), "{error}");
        let error = loaded(named, &format!("{there}[vm.budget]\n{budget}")).expect_err("two");
        assert!(error.contains("vm `a` has a `budget` of its own, too"), "{error}");
    }
}
