//! The agent and its guardian as processes of their own, for the survival tests: what `weir agent`,
//! `weir guardian`, `weir mode` and `weir reclaim` do, without the rest of `weir`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_model::agent::Mode;

fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name).expect("a known call");
        Path::new(&arguments[at + 1])
    };
    let result = match arguments[1].as_str() {
        "agent" => {
            let journal = arguments.iter().any(|a| a == "--journal").then(|| value("--journal"));
            weir_agent::run(value("--config"), journal)
        }
        "remove" => weir_agent::remove(value("--config")).map(|told| {
            println!("{} {:?}", told.had_state, told.left);
        }),
        "reclaim" => weir_agent::reclaim(value("--config")).map(|n| println!("{n}")),
        "observe" | "enforce" => {
            let observes = arguments[1] == "observe";
            let mode = if observes { Mode::Observe } else { Mode::Enforce };
            weir_agent::set_mode(value("--config"), mode).map(|said| println!("{said}"))
        }
        "guardian" => {
            let stop = Arc::new(AtomicBool::new(false));
            let instance = value("--instance").to_str().expect("a plain name");
            weir_dataplane::guardian::run(instance, value("--bpffs"), value("--run-dir"), &stop)
                .map(drop)
                .map_err(Into::into)
        }
        other => panic!("no command {other}"),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error:#}");
            std::process::ExitCode::from(2)
        }
    }
}
