//! Network files of the packet simulator.

use crate::{Target, by_hand};
use weir_sim::Network;

/// A network whose routes hang together, or an error that names a line of the file.
pub(crate) const TARGET: Target = Target {
    name: "network",
    run,
    reaches: crate::not_empty,
    words: &["until_ns ", "mtu ", "nodes ", "links ", "flows ", " 0 ", " 1500", "\n", "4294967295"],
    seeds: by_hand,
};

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match Network::parse(text) {
        Ok(network) => {
            for flow in network.flows() {
                let mut at = flow.src;
                for link in &flow.forward {
                    let link = &network.links()[*link as usize];
                    assert_eq!(link.from, at);
                    at = link.to;
                }
                assert_eq!(at, flow.dst);
            }
        }
        Err(error) => {
            let lines = text.lines().count();
            assert!((1..=lines + 1).contains(&error.line), "{error} in a file of {lines} lines");
            assert!(error.to_string().len() < 500, "{error}");
        }
    }
}
