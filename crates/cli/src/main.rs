//! The `weir` command: plays scenarios, judges them, shows what was found, and is the host daemon.
//!
//! Problem   One binary has to be the experimenter's tool and the operator's daemon, and its exit
//!           status has to be worth something in a script.
//! Approach  Arguments, commands, signals and the terminal are here. What worlds play is judged and drawn
//!           in `weir-study`; daemons live in their own crates.
//! Promises  Results go to stdout, everything else to stderr; 0 means that everything held.
//! Not here  Any algorithm: see `weir-core`. Any namespace: see `weir-lab`.

mod args;
mod ask;
mod bundle;
mod cloud;
mod commands;
mod constants;
mod demo;
mod doctor;
mod input;
mod lab;
mod libvirt;
mod live;
mod metrics;
mod output;
mod reproduce;
mod sim;
mod swarm;
mod switch;
mod verify;
mod worlds;

use anyhow::Result;
use args::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use output::{errln, outln};
use std::process::ExitCode;

/// Bad usage, bad input, or a machine that lacks something.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            errln!("weir: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn run(command: &Command) -> Result<u8> {
    match command {
        Command::Demo { out } => demo::demo(out),
        Command::Lab(args) => commands::lab(args),
        Command::Sim(args) => sim::sim(args),
        Command::Swarm(args) => swarm::swarm(args),
        Command::Worlds(args) => worlds::worlds(args),
        Command::Reproduce(args) => reproduce::reproduce(args),
        Command::Report { dir } => {
            outln!("{}", weir_study::report::write(dir)?.display())?;
            Ok(0)
        }
        Command::Agent(agent) => commands::agent(agent),
        Command::Replay { path } => commands::replay(path),
        Command::Controller(controller) => cloud::daemon::controller(controller),
        Command::Apply(args) => cloud::change::apply(args),
        Command::Import(args) => cloud::import::import(args),
        Command::Libvirt(args) => libvirt::libvirt(args),
        Command::Get(args) => cloud::show::get(args),
        Command::Describe(args) => cloud::show::describe(args),
        Command::Delete(args) => cloud::change::delete(args),
        Command::Plan(args::Plan { switch: Some(name), switches, wanted, .. }) => {
            switch::plan(name, switches, wanted.as_deref())
        }
        Command::Plan(args) => cloud::change::plan(args),
        Command::Switch(args) => switch::switch(args),
        Command::Status(args) => cloud::show::status(args),
        Command::Slo(args::Slo::Report(args)) => cloud::slo::report(args),
        Command::Confirm(args) => cloud::change::end(args, "confirm"),
        Command::Release(args) => cloud::change::end(args, "release"),
        Command::Host(host) => cloud::daemon::host(host),
        Command::Token(token) => cloud::daemon::token(token),
        Command::Backup { file, connection } => cloud::daemon::backup(file, connection),
        Command::Restore { file, config } => cloud::daemon::restore(file, config),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "weir", &mut text);
            output::out!("{}", String::from_utf8_lossy(&text))?;
            Ok(0)
        }
        Command::Man { dir } => {
            input::make_folder(dir)?;
            clap_mangen::generate_to(Cli::command(), dir)?;
            Ok(0)
        }
        Command::Top { once, socket } => ask::top(socket, *once),
        Command::Mode { mode, config } => {
            let mode = match mode {
                args::ModeName::Enforce => weir_model::agent::Mode::Enforce,
                args::ModeName::Observe => weir_model::agent::Mode::Observe,
            };
            outln!("{}", weir_agent::set_mode(config, mode)?)?;
            Ok(0)
        }
        Command::Keys(args::Keys::Draw { master }) => {
            let id = weir_agent::draw_master_key(master)?;
            outln!("key {id} is the last line of {}", master.display())?;
            Ok(0)
        }
        Command::Keys(args::Keys::Make { master, directory, out }) => {
            let hosts = weir_agent::make_key_files(master, directory, out)?;
            outln!(
                "{} files in {}: copy HOST.keys to the `key_file` of each HOST, and to no other host",
                hosts.len(),
                out.display()
            )?;
            Ok(0)
        }
        Command::Explain { a, b, socket } => ask::explain(socket, a, b),
        Command::Observe { tenant, vms, what, history, socket } => {
            let wanted = ask::observe::Wanted { tenant: tenant.as_deref(), vms, what };
            ask::observe::run(socket, &wanted, *history)
        }
        Command::Metrics(args) => metrics::metrics(args),
        Command::SupportBundle(args) => bundle::bundle(args),
        Command::Remove { config } => commands::remove(config),
        Command::Clean => commands::clean(),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Verify(args) => verify::verify(args),
        Command::Reclaim { config } => {
            log_to_stderr();
            let borrowed = weir_agent::reclaim(config)?;
            errln!("took back what {borrowed} pairs had borrowed");
            Ok(0)
        }
        Command::Guardian { instance, bpffs, run_dir } => {
            log_to_stderr();
            let stop = commands::stop_flag()?;
            weir_dataplane::guardian::run(instance, bpffs, run_dir, &stop)?;
            Ok(0)
        }
    }
}

/// Daemons log to stderr, where systemd and the lab find it. `WEIR_LOG` chooses what, as in
/// `WEIR_LOG=weir_agent=debug`.
pub(crate) fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
