//! What `window_shaping` of a VM in `agent.toml` may say.
//!
//! Problem   Windows for no time hold every connection to two segments, and such as last longer than the limiter's queue
//!           shape nothing: neither is what somebody meant.
//! Not here  Whether it is as long as the round trip, which nobody knows beforehand: `docs/algorithms/vcc.md`, Window
//!           shaping. From rates to windows: `weir_core::vcc::shaping`.

use crate::mistake::{Mistake, sound};
use weir_model::agent::{AgentConfig, WINDOW_SHAPING_MOST};
use weir_units::Span;

/// Refuses windows for no time, and for longer than a limiter's queue lasts.
pub(crate) fn check(file: &AgentConfig) -> Result<(), Mistake> {
    for (i, vm) in file.vms.iter().enumerate() {
        let Some(time) = vm.window_shaping else { continue };
        let wrong = |what: String| Mistake::config(format!("vm[{i}].window_shaping"), what);
        let advice = "write the round trip between hosts and what may wait, such as 2ms";
        sound(time.0 > Span::ZERO, || {
            wrong(format!(
                "windows for no time would hold every connection to two segments: {advice}"
            ))
        })?;
        sound(time.0 <= WINDOW_SHAPING_MOST, || {
            let (time, most) = (time.0, WINDOW_SHAPING_MOST);
            wrong(format!("{time} is longer than the {most} of a limiter's queue: {advice}"))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Setup;

    #[test]
    fn windows_for_no_time_or_for_more_than_a_queue_are_refused_with_line_and_field() {
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}]\n\
                         vms: [{name: a, tenant: red, host: h0, addresses: [10.1.0.1]}]\n";
        let loaded = |time: &str| {
            let text = format!(
                "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"key\"\n\
                 directory = \"directory.yaml\"\nmechanism = {{ name = \"elasticswitch\" }}\n\
                 uplink = {{ interface = \"up\", rate = \"1Gbit\" }}\n[[vm]]\nname = \"a\"\n\
                 port = \"p\"\nfloor_in = \"1Mbit\"\nfloor_out = \"1Mbit\"\nwindow_shaping = \"{time}\"\n"
            );
            Setup::parse(&text, directory).map(drop).map_err(|e| format!("{e:#}"))
        };
        assert_eq!((loaded("200us"), loaded("250ms")), (Ok(()), Ok(())));
        let error = loaded("0ms").expect_err("no time");
        assert!(
            error.starts_with("agent.toml:13: vm[0].window_shaping: windows for no time would"),
            "{error}"
        );
        let error = loaded("251ms").expect_err("a queue");
        assert!(error.contains("251 ms is longer than the 250 ms of a limiter's queue"), "{error}");
        let error = loaded("2kB").expect_err("no time");
        assert!(error.contains("write a time as 30s, 15ms or 50us"), "{error}");
    }
}
