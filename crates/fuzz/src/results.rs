//! JSON: results that `weir report` reads, and what passes over the agent's socket.

use crate::{Target, by_hand};
use weir_model::results::Results;
use weir_model::status::{Reply, Request};

/// Results, or an error that names line and column.
pub(crate) const TARGET: Target = Target {
    name: "results",
    run,
    reaches: crate::not_empty,
    words: &["null", "true", "[]", "{}", "1e308", "-0.0", "\"runs\"", "\"series_bps\"", "\\u0000"],
    seeds: by_hand,
};

/// Questions and answers of an agent.
pub(crate) const SOCKET: Target = Target {
    name: "socket",
    run: socket,
    reaches: crate::not_empty,
    words: &["\"op\"", "\"top\"", "\"explain\"", "\"from\"", "\"to\"", "\"kind\"", "null"],
    seeds: by_hand,
};

fn run(octets: &[u8]) {
    match serde_json::from_slice::<Results>(octets) {
        Ok(results) => {
            let text = serde_json::to_string(&results).expect("plain data");
            let again: Results = serde_json::from_str(&text).expect("what is written is read");
            let shape = |r: &Results| {
                let runs = r.runs.iter().map(|run| (run.flows.len(), run.links.len()));
                (runs.collect::<Vec<_>>(), r.verdicts.len(), r.about.title.clone())
            };
            assert_eq!(shape(&again), shape(&results));
        }
        Err(error) => assert!(error.to_string().contains(" line "), "{error}"),
    }
}

fn socket(octets: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(octets) {
        let text = serde_json::to_string(&request).expect("plain data");
        let again: Request = serde_json::from_str(&text).expect("what is written is read");
        assert_eq!(format!("{again:?}"), format!("{request:?}"));
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(octets) {
        let text = serde_json::to_string(&reply).expect("plain data");
        assert!(serde_json::from_str::<Reply>(&text).is_ok(), "what is written is read: {text}");
    }
}
