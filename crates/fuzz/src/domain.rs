//! Domains of libvirt: metadata is written by people, and limits are numbers of any size.

use crate::{Target, by_hand};
use std::path::Path;
use weir_agent::libvirt::{NAMESPACE, hook, import};

/// A hook that says what is wrong, and an import that the hook reads again.
pub(crate) const TARGET: Target = Target {
    name: "domain",
    run,
    reaches: crate::not_empty,
    words: &[
        "<vm ",
        "/>",
        " mac='",
        " floor_in='",
        "5Mbit'",
        "urn:weir:libvirt:1",
        "<!ENTITY a 'b'>",
        "&a;",
    ],
    seeds: by_hand,
};

/// There is no agent, so that nothing is written.
const NOWHERE: &str = "/nonexistent/agent.toml";

fn run(octets: &[u8]) {
    for operation in ["start", "release"] {
        match hook(Path::new(NOWHERE), operation, octets) {
            Ok(said) => assert!(said.is_empty(), "handed over to no agent: {said:?}"),
            Err(error) => assert!(!format!("{error:#}").is_empty()),
        }
    }
    let Some(imported) = std::str::from_utf8(octets).ok().and_then(|text| import(text).ok()) else {
        return;
    };
    let Some(element) = imported.element else { return };
    let element = element.replacen("<vms>", &format!("<vms xmlns='{NAMESPACE}'>"), 1);
    let domain = format!(
        "<domain><name>a</name><uuid>1e4ea45c-5c92-41eb-8177-b7a0d3f77e34</uuid><metadata>{element}\
         </metadata></domain>"
    );
    let error = hook(Path::new(NOWHERE), "start", domain.as_bytes()).expect_err("no interface");
    let error = format!("{error:#}");
    let is_sound =
        error.contains("the domain has 0 interfaces") || error.contains("no interface of the");
    assert!(is_sound, "what is imported is read: {error}");
}
