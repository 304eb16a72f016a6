//! A controller in the place of files: the agents join it, and take VMs, directory and keys from it.
//!
//! Problem   What people run is a controller. A scenario that is played from files shows nothing of it.
//! Approach  The same binary as the agents', started as `weir controller` on the first host, with a
//!           store of its own. The lab does what an operator does, by the same commands: `init`,
//!           `apply`, a token and a join per host, `status --wait`. There all hosts hang at one
//!           switch, because the scenario's links have admitted the floors already.
//! Promises  When the agents have started, each enforces all of its VMs and has said so. The
//!           controller ends with the lab.
//! Not here  What a host's state cannot say (gateways, translations, budgets): see `check`.

use super::{Agents, relay, write};
use crate::world::World;
use crate::{Error, Options, child, plan};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::agent::{AgentConfig, Followed};
use weir_model::scenario::{IpVersion, Scenario, Vm};
use weir_model::text::show_rate;
use weir_units::Rate;

/// The port of the controller.
const PORT: u16 = 7443;
/// How long the controller may take to answer.
const READY: Duration = Duration::from_secs(40);
/// How long all hosts together may take to enforce all VMs, as `weir status` is told.
const APPLIED: &str = "60s";

/// A running controller.
pub(super) struct Controller {
    child: Child,
    log: PathBuf,
    weir: PathBuf,
    namespace: PathBuf,
    directory: PathBuf,
}

/// The address of the controller, as agents and commands name it.
fn address() -> String {
    format!("{}:{PORT}", plan::host_address(0))
}

/// An agent's configuration with the controller in the place of files.
pub(super) fn followed(config: AgentConfig, directory: &Path, host: usize) -> AgentConfig {
    let state_dir = directory.join(format!("h{host}.state"));
    AgentConfig {
        key_file: PathBuf::new(),
        directory: PathBuf::new(),
        controller: Some(Followed { address: address(), state_dir }),
        vms: Vec::new(),
        ..config
    }
}

impl Controller {
    /// Makes a controller, starts it, and gives it all objects of the scenario.
    pub(super) fn start(
        scenario: &Scenario,
        uplinks: &[Rate],
        options: &Options,
        world: &World,
        directory: &Path,
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
        let doing = || format!("start {}", options.agent.display());
        let weir = options.agent.canonicalize().map_err(Error::io(doing()))?;
        let namespace = world.host(0).path().to_owned();
        let log = directory.join("controller.log");
        let out = File::create(&log).map_err(Error::io(format!("write {}", log.display())))?;
        let err = out.try_clone().map_err(Error::io(doing()))?;
        let config = directory.join("controller.toml");
        let name = plan::host_address(0).to_string();
        let data = directory.join("controller");
        let mut init = child::command(&namespace, "KILL", &weir);
        init.args(["controller", "init", "--name", &name, "--listen", &address(), "--config"]);
        init.arg(&config).arg("--client").arg(directory.join("client.toml"));
        init.arg("--data").arg(&data);
        let made = init.output().map_err(Error::io(doing()))?;
        if !made.status.success() {
            let tail = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(Error::Controller { what: "cannot be made".into(), tail });
        }
        let mut command = child::command(&namespace, "TERM", &weir);
        command.args(["controller", "--config"]).arg(&config).stdout(out).stderr(err);
        let child = command.spawn().map_err(Error::io(doing()))?;
        let mut controller =
            Self { child, log, weir, namespace, directory: directory.to_path_buf() };
        controller.wait_until_ready(stop)?;
        let text: String =
            objects(scenario, uplinks).iter().map(|o| format!("---\n{o}\n")).collect();
        let file = directory.join("cloud.yaml");
        write(&file, &text)?;
        controller.ask(&["apply", "-f", &file.display().to_string()])?;
        Ok(controller)
    }

    /// Lets a host join, with a token of its own.
    pub(super) fn join(&self, host: &str, config: &Path, namespace: &Path) -> Result<(), Error> {
        let token = self.ask(&["host", "token", host])?;
        let ca = self.directory.join("controller").join("ca.crt");
        let mut command = child::command(namespace, "KILL", &self.weir);
        command.args(["agent", "join", "--token", token.trim(), "--config"]).arg(config);
        command.arg("--ca").arg(ca);
        self.run(command, &format!("does not let {host} join")).map(drop)
    }

    /// Waits until all hosts enforce all VMs.
    pub(super) fn wait_until_applied(&self) -> Result<(), Error> {
        self.ask(&["status", "--wait", "--timeout", APPLIED]).map(drop)
    }

    pub(super) fn stop(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        let _ = kill(pid, Signal::SIGTERM);
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }

    fn wait_until_ready(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let until = Instant::now() + READY;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.error(format!("ended ({status})")));
            }
            match self.ask(&["get", "hosts"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// What a command of the operator prints.
    fn ask(&self, args: &[&str]) -> Result<String, Error> {
        let mut command = child::command(&self.namespace, "KILL", &self.weir);
        command.args(args).arg("--client").arg(self.directory.join("client.toml"));
        self.run(command, &format!("refuses `weir {}`", args.join(" ")))
    }

    fn run(&self, mut command: std::process::Command, what: &str) -> Result<String, Error> {
        let done = command.output().map_err(Error::io(what.to_owned()))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = [&done.stdout[..], &done.stderr[..]].concat();
        let tail = String::from_utf8_lossy(&said).into_owned();
        Err(Error::Controller { what: what.into(), tail })
    }

    fn error(&self, what: String) -> Error {
        let text = std::fs::read(&self.log).unwrap_or_default();
        Error::Controller { what, tail: String::from_utf8_lossy(&text).into_owned() }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Agents {
    /// Waits until every agent has said that it enforces all of its VMs, if there is a controller.
    pub(super) fn wait_until_applied(&self) -> Result<(), Error> {
        self.controller.as_ref().map_or(Ok(()), Controller::wait_until_applied)
    }
}

/// What an operator would apply.
fn objects(scenario: &Scenario, uplinks: &[Rate]) -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mut all = vec![object("Topology", "default", json!({"headroomPercent": 0}))];
    for (host, name) in scenario.topology.hosts.iter().enumerate() {
        let control = SocketAddr::new(IpAddr::V4(plan::host_address(host)), relay::port(scenario));
        let slots = scenario.vms.iter().filter(|vm| vm.host == host).count().max(1);
        let spec = json!({"switch": "network", "rate": show_rate(uplinks[host]), "slots": slots,
            "control": control});
        all.push(object("Host", name, spec));
    }
    all.extend(scenario.tenants.iter().map(|name| object("Tenant", name, json!({}))));
    let vms = scenario.vms.iter().enumerate();
    all.extend(vms.map(|(number, vm)| object("VM", &vm.name, spec(scenario, number, vm))));
    all
}

fn spec(scenario: &Scenario, number: usize, vm: &Vm) -> Value {
    let floor = |out, into| json!({"out": show_rate(out), "in": show_rate(into)});
    let versions = [Some(IpVersion::V4), plan::has_ip6(scenario).then_some(IpVersion::V6)];
    let addresses: Vec<IpAddr> =
        versions.iter().flatten().map(|ip| plan::vm_ip(scenario, number, *ip)).collect();
    let hoses = vm.hoses.iter().map(|hose| {
        let name = &scenario.hoses[hose.hose].name;
        json!({"name": name, "floor": floor(hose.floor_out, hose.floor_in)})
    });
    let mac = weir_model::net::Mac(plan::vm_mac(number));
    let mut spec = json!({
        "tenant": scenario.tenants[vm.tenant],
        "host": scenario.topology.hosts[vm.host],
        "floor": floor(vm.floor_out, vm.floor_in),
        "hoses": hoses.collect::<Vec<_>>(),
        "network": {"port": plan::vm_port(number), "addresses": addresses, "mac": mac},
    });
    if let Some(cap) = vm.cap_out {
        spec["cap"] = show_rate(cap).into();
    }
    if let Some(external) = vm.external.floor {
        spec["external"] = json!({"out": show_rate(external)});
    }
    spec
}
