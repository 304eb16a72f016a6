//! Checks the setting `policing` of each VM in `agent.toml`.
//!
//! Problem   Policing holds a guest to a window that its port keeps for it. A port without a translation or a
//!           budget keeps none, and would silently ignore the setting.
//! Not here  Dropping: `bpf/vcc.bpf.c`.
//! Source    AC/DC, enforcement.

use crate::mistake::{Mistake, sound};
use weir_model::agent::{AgentConfig, POLICING_MOST};
use weir_model::text::show_size;
use weir_units::Bytes;

/// Refuses policing of a VM whose connections have no window of their port's, and a slack that no window reaches.
pub(crate) fn check(file: &AgentConfig) -> Result<(), Mistake> {
    for (i, vm) in file.vms.iter().enumerate() {
        let Some(slack) = vm.policing else { continue };
        let wrong = |what: String| Mistake::config(format!("vm[{i}].policing"), what);
        sound(!vm.translation.is_none(), || {
            wrong(format!(
                "vm `{}` has no translation, so its port keeps no window that it could be held to: give it a \
                 `translation`, or leave policing out",
                vm.name
            ))
        })?;
        sound(slack.0 <= Bytes::new(POLICING_MOST.into()), || {
            let slack = show_size(slack.0);
            wrong(format!("{slack} is more than any window: write some segments, such as 15kB"))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Setup;

    #[test]
    fn policing_without_a_window_or_beyond_any_is_refused_with_line_and_field() {
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}]\n\
                         vms: [{name: a, tenant: red, host: h0, addresses: [10.1.0.1]}]\n";
        let loaded = |more: &str| {
            let text = format!(
                "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"key\"\n\
                 directory = \"directory.yaml\"\nmechanism = {{ name = \"elasticswitch\" }}\n\
                 uplink = {{ interface = \"up\", rate = \"1Gbit\" }}\n[[vm]]\nname = \"a\"\n\
                 port = \"p\"\nfloor_in = \"1Mbit\"\nfloor_out = \"1Mbit\"\n{more}"
            );
            Setup::parse(&text, directory).map(drop).map_err(|e| format!("{e:#}"))
        };
        let translated = "translation = \"dctcp\"\npolicing = ";
        assert_eq!(loaded(&format!("{translated}\"15kB\"\n")), Ok(()));
        assert_eq!(loaded(&format!("{translated}\"1GiB\"\n")), Ok(()));
        assert_eq!(
            loaded(&format!("{translated}\"2GB\"\n")),
            Err("agent.toml:14: vm[0].policing: 2GB is more than any window: write some segments, such \
                 as 15kB"
                .into())
        );
        let error = loaded("policing = \"15kB\"\n").expect_err("no window");
        assert!(
            error.starts_with("agent.toml:13: vm[0].policing: vm `a` has no translation"),
            "{error}"
        );
        let error = loaded(&format!("{translated}\"many\"\n")).expect_err("no size");
        assert!(error.contains("write a size as 128kB"), "{error}");
    }
}
