//! One real `weir agent` per host.
//!
//! Problem   An agent is the daemon of one host. Here one machine has twenty, and they must not
//!           outlive the lab.
//! Approach  Each gets its own configuration, instance name and log, and joins its host's network
//!           namespace only (`nsenter --net`), so that the bpffs stays visible. It dies with the
//!           thread that called [`crate::play`] (see `child`).
//! Promises  An agent that does not come up is an error with the end of its log. All agents have
//!           ended when [`Agents`] is dropped, gently if possible.
//! Not here  What an agent does.

mod controlled;
mod counts;
mod desk;
mod population;
mod translation;
mod usage;

use crate::plan::{self, Plan};
use crate::relay;
use crate::sweep::{self, Identity};
use crate::world::World;
use crate::{Error, Options, budget, child, failure, machine};
use controlled::Controller;
pub(crate) use desk::{Desk, TenantOrder};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_core::host::Ties;
use weir_model::agent::{
    AgentConfig, Directory, DirectoryHoses, DirectoryHost, DirectoryVm, FLOWS_PER_VM, GuestDscp,
    HoseConfig, MechanismConfig, PAIRS_PER_VM, Reserve, Role, Uplink, VmConfig,
};
use weir_model::net::Mac;
use weir_model::record::Failure;
use weir_model::scenario::{IpVersion, Mechanism, Scenario, Translation, Vm, VmHose};
use weir_model::text::{RateText, SizeText, show_rate};
use weir_units::{HoseId, Rate, SortedSet, Span};
use weir_wire::{Keyring, host_file};

/// How long an agent may take to open its socket. Twenty agents with thirty VMs each wait for one
/// another in the kernel, which changes one interface at a time.
const READY: Duration = Duration::from_secs(40);
/// How long an agent may take to end when asked. Agents wait for one another as at the start.
const END: Duration = Duration::from_secs(30);
/// How long agents have for a new list before they are asked whether they took it.
const TAKE: Duration = Duration::from_secs(1);
/// How long what an ended agent left may take to notice.
const LEAVE: Duration = Duration::from_millis(500);

/// The agents of a run.
pub(crate) struct Agents {
    run: String,
    /// Path of the directory.
    place: PathBuf,
    agents: Vec<Agent>,
    /// Namespaces of the hosts. Agents started every process in them.
    hosts: SortedSet<Identity>,
    /// When running agents are asked whether they took the newest lists.
    ask_at: Option<Instant>,
    /// The first refusal of a list.
    refusal: Option<Failure>,
    /// The controller that they follow, if the scenario has one.
    controller: Option<Controller>,
    /// What had to be done to end them.
    pub(crate) notes: Vec<String>,
}

struct Agent {
    host: String,
    child: Child,
    life: Life,
    log: PathBuf,
    socket: PathBuf,
    /// Its configuration and its host's namespace, which a start needs.
    config: PathBuf,
    setup: AgentConfig,
    /// The lists have changed since the agent was started, and it could not be told.
    is_stale: bool,
    namespace: PathBuf,
    /// User and system CPU time of its earlier processes.
    spent: (Span, Span),
}

/// State that an agent should be in at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The agent answers.
    Runs,
    /// The agent was started and should answer by this time.
    Starts(Instant),
    /// The agent was asked to stop, should have ended by this time, and will be started again.
    Ends(Instant),
    /// The scenario killed the agent, and its process has been waited for.
    Dead,
}

impl Agents {
    /// No agents at all.
    pub(crate) fn none(run: &str) -> Self {
        Self {
            run: run.into(),
            place: PathBuf::new(),
            agents: Vec::new(),
            hosts: SortedSet::new(),
            ask_at: None,
            refusal: None,
            controller: None,
            notes: Vec::new(),
        }
    }

    /// Starts one agent per host and waits until all answer. `wait` is called now and then.
    pub(crate) fn start(
        scenario: &Scenario,
        mechanism: &Mechanism,
        options: &Options,
        plan: &Plan,
        world: &World,
        place: (&str, &Path),
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
        let (run, directory) = place;
        mount_bpffs()?;
        let mut agents = Self::none(run);
        agents.place = directory.to_path_buf();
        let is_followed = scenario.lab.controller;
        if is_followed {
            let uplinks: Vec<Rate> =
                plan.uplink.iter().map(|link| scenario.topology.links[*link].rate).collect();
            let controller =
                Controller::start(scenario, &uplinks, options, world, directory, stop)?;
            agents.controller = Some(controller);
        } else {
            write_shared_files(scenario, directory)?;
        }
        for (host, name) in scenario.topology.hosts.iter().enumerate() {
            let mut config = configuration(scenario, mechanism, options, plan, host, place);
            if is_followed {
                config = controlled::followed(config, directory, host);
            }
            let file = directory.join(format!("h{host}.toml"));
            let text = toml::to_string(&config).expect("a configuration is plain data");
            write(&file, &text)?;
            if let Some(controller) = &agents.controller {
                controller.join(name, &file, world.host(host).path())?;
            }
            let log = directory.join(format!("h{host}.log"));
            let namespace = world.host(host).path();
            agents.hosts.extend(sweep::identity(namespace));
            write(&log, "")?;
            agents.agents.push(Agent {
                host: name.clone(),
                child: spawn(options, name, &file, namespace, &log)?,
                life: Life::Runs,
                log,
                socket: config.run_dir.join(&config.instance).join("agent.sock"),
                config: file,
                setup: config,
                is_stale: false,
                namespace: namespace.to_owned(),
                spent: (Span::ZERO, Span::ZERO),
            });
        }
        let until = Instant::now() + READY;
        for agent in &mut agents.agents {
            agent.wait_until_ready(until, stop)?;
        }
        agents.wait_until_applied()?;
        Ok(agents)
    }

    /// Fails if an agent has ended by itself, or is late. Call it now and then: an agent that is to
    /// be started again is started here once it has ended. `now` is the time since the start of traffic.
    pub(crate) fn check(
        &mut self,
        options: &Options,
        now: Span,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        self.agents.iter_mut().try_for_each(|agent| agent.live(options, stop))?;
        if self.ask_at.is_some_and(|at| Instant::now() >= at) {
            self.ask_at = None;
            // The rest of the run is measured all the same.
            if let (None, Err(error)) = (&self.refusal, self.check_reloads()) {
                self.refusal = Some(failure(now, error));
            }
        }
        Ok(())
    }

    /// The first list of VMs that an agent refused, if there is one that was seen so far.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        self.refusal.clone()
    }

    /// Kills an agent with SIGKILL, and its guardian in the same moment if asked.
    pub(crate) fn kill(&mut self, host: usize, guardian: bool) {
        let agent = &mut self.agents[host];
        agent.spent = agent.cpu();
        if guardian {
            sweep::kill_all_in(&sweep::identity(&agent.namespace).into_iter().collect());
        }
        agent.signal(Signal::SIGKILL);
        let _ = agent.child.wait();
        agent.life = Life::Dead;
    }

    /// Starts a dead agent again, without waiting for it.
    pub(crate) fn start_again(&mut self, host: usize, options: &Options) -> Result<(), Error> {
        self.agents[host].start_again(options)
    }

    /// Asks an agent to stop. It is started again once it has ended.
    pub(crate) fn restart(&mut self, host: usize) {
        let agent = &mut self.agents[host];
        agent.spent = agent.cpu();
        agent.signal(Signal::SIGTERM);
        agent.life = Life::Ends(Instant::now() + READY);
    }

    /// User and system CPU time of all agents together so far.
    pub(crate) fn cpu(&self) -> (Span, Span) {
        self.agents
            .iter()
            .map(Agent::cpu)
            .fold((Span::ZERO, Span::ZERO), |(user, system), (u, s)| (user + u, system + s))
    }

    /// Ends all agents: asks, waits, then kills. Then it ends the processes that agents left and
    /// removes their pins. Guardians and programs outlive an agent by design.
    pub(crate) fn stop(&mut self) {
        // The guardian of an agent that the scenario killed stays, as it should.
        let is_broken = self.agents.iter().any(|agent| agent.life != Life::Runs);
        self.agents.retain(|agent| agent.life != Life::Dead);
        for agent in &self.agents {
            agent.signal(Signal::SIGTERM);
        }
        let until = Instant::now() + END;
        for mut agent in self.agents.drain(..) {
            while Instant::now() < until && matches!(agent.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if matches!(agent.child.try_wait(), Ok(None)) {
                self.notes.push(format!(
                    "the agent of {} did not end within {} s and was killed",
                    agent.host,
                    END.as_secs()
                ));
                agent.signal(Signal::SIGKILL);
            }
            let _ = agent.child.wait();
        }
        // It may have been killed with the guardian of its host.
        self.controller = None;
        let until = Instant::now() + if is_broken { Duration::ZERO } else { LEAVE };
        while Instant::now() < until && !sweep::processes_in(&self.hosts).is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = sweep::kill_all_in(&self.hosts);
        if left > 0 && !is_broken {
            self.notes.push(format!("agents left {left} processes running; they were killed"));
        }
        sweep::remove_pins(&self.run);
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        if !self.agents.is_empty() {
            self.stop();
        }
    }
}

impl Agent {
    fn signal(&self, signal: Signal) {
        // The child has not been waited for, so its id is still its own.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    fn wait_until_ready(&mut self, until: Instant, stop: &AtomicBool) -> Result<(), Error> {
        while UnixStream::connect(&self.socket).is_err() {
            self.check(stop)?;
            if Instant::now() >= until {
                return Err(self.error(format!("did not answer within {} s", READY.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// User and system CPU time so far, earlier processes included.
    fn cpu(&self) -> (Span, Span) {
        let (user, system) = self.spent;
        if self.life == Life::Dead {
            return (user, system);
        }
        let now = machine::cpu_of(self.child.id());
        (user + now.0, system + now.1)
    }

    fn start_again(&mut self, options: &Options) -> Result<(), Error> {
        self.child = spawn(options, &self.host, &self.config, &self.namespace, &self.log)?;
        self.life = Life::Starts(Instant::now() + READY);
        Ok(())
    }

    /// Checks the agent once.
    fn live(&mut self, options: &Options, stop: &AtomicBool) -> Result<(), Error> {
        let now = Instant::now();
        match self.life {
            Life::Dead => Ok(()),
            Life::Runs => self.check(stop),
            Life::Starts(until) => {
                self.check(stop)?;
                if UnixStream::connect(&self.socket).is_ok() {
                    self.life = Life::Runs;
                    self.tell_if_stale();
                } else if now >= until {
                    return Err(self.error("did not answer when started again".into()));
                }
                Ok(())
            }
            Life::Ends(until) => match self.child.try_wait() {
                Ok(Some(_)) => self.start_again(options),
                _ if now >= until => Err(self.error("did not end when asked to".into())),
                _ => Ok(()),
            },
        }
    }

    /// Once `stop` is set, the reason of an agent's end does not matter: the signal that stopped
    /// the lab may have stopped the agent, too.
    fn check(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let ended = self.child.try_wait();
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        match ended {
            Ok(Some(status)) => {
                self.life = Life::Dead;
                Err(self
                    .error(format!("ended ({status}), and no fault of the scenario asks for it")))
            }
            _ => Ok(()),
        }
    }

    fn error(&self, what: String) -> Error {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        let tail = if tail.is_empty() { "(the log is empty)".into() } else { tail };
        Error::Agent { host: self.host.clone(), what, log: self.log.clone(), tail }
    }
}

fn spawn(
    options: &Options,
    host: &str,
    config: &Path,
    namespace: &Path,
    log: &Path,
) -> Result<Child, Error> {
    let agent = &options.agent;
    let doing = || format!("start {}", agent.display());
    let out = File::options().append(true).open(log).map_err(Error::io(doing()))?;
    let err = out.try_clone().map_err(Error::io(doing()))?;
    // The path is absolute, because `nsenter` would look a bare name up in PATH.
    let agent = agent.canonicalize().map_err(Error::io(doing()))?;
    let mut command = child::command(namespace, "TERM", agent);
    command.args(["agent", "--config"]).arg(config);
    if let Some(journal) = &options.journal {
        command.arg("--journal").arg(journal.join(host));
    }
    command.stdout(out).stderr(err).spawn().map_err(Error::io(doing()))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// The directory of VMs and hosts, the same for all agents, and the keys of each.
fn write_shared_files(scenario: &Scenario, directory: &Path) -> Result<(), Error> {
    let entries = directory_of(scenario);
    // JSON is YAML.
    let text = serde_json::to_string_pretty(&entries).expect("a directory is plain data");
    write(&directory.join("directory.yaml"), &text)?;
    let mut random = [0u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random))
        .map_err(Error::io("draw a key".to_owned()))?;
    let digits: String = random.iter().map(|octet| format!("{octet:02x}")).collect();
    let master: Keyring = digits.parse().expect("32 digits, not all of them zero");
    for host in &scenario.topology.hosts {
        let path = key_file(directory, host);
        write(
            &path,
            &host_file(&master, host, scenario.topology.hosts.iter().map(String::as_str)),
        )?;
        let doing = || format!("hide {}", path.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .map_err(Error::io(doing()))?;
    }
    Ok(())
}

fn key_file(directory: &Path, host: &str) -> PathBuf {
    directory.join(format!("{host}.keys"))
}

fn directory_of(scenario: &Scenario) -> Directory {
    let host = |(host, name): (usize, &String)| DirectoryHost {
        name: name.clone(),
        control: SocketAddr::new(IpAddr::V4(plan::host_address(host)), relay::port(scenario)),
        id: None,
    };
    let versions = [Some(IpVersion::V4), plan::has_ip6(scenario).then_some(IpVersion::V6)];
    let addresses =
        |vm| versions.iter().flatten().map(|ip| plan::vm_ip(scenario, vm, *ip)).collect();
    let vm = |(vm, v): (usize, &weir_model::scenario::Vm)| DirectoryVm {
        name: v.name.clone(),
        tenant: scenario.tenants[v.tenant].clone(),
        hoses: directory_hoses(scenario, v),
        host: scenario.topology.hosts[v.host].clone(),
        id: Some(vm as u32),
        addresses: if v.outside.is_empty() { addresses(vm) } else { Vec::new() },
        mac: v.outside.is_empty().then(|| Mac(plan::vm_mac(vm))),
        prefixes: v.outside.clone(),
    };
    Directory {
        hosts: scenario.topology.hosts.iter().enumerate().map(host).collect(),
        vms: scenario.vms.iter().enumerate().map(vm).collect(),
    }
}

/// The hoses in which a VM sends and receives, if it has further ones.
fn directory_hoses(scenario: &Scenario, vm: &Vm) -> Option<DirectoryHoses> {
    let names = |ids: Vec<HoseId>| {
        ids.into_iter().map(|id| scenario.hoses[id.0 as usize].name.clone()).collect()
    };
    let Ties { out, in_, tenant_out, tenant_in } = vm.ties()?;
    Some(DirectoryHoses { out: names(out), in_: names(in_), tenant_out, tenant_in })
}

/// Translation of a VM's congestion control at its port. The outside has none.
fn translation(mechanism: &Mechanism, vm: &Vm) -> Option<Translation> {
    mechanism.translation.filter(|_| vm.translated && vm.outside.is_empty())
}

fn configuration(
    scenario: &Scenario,
    mechanism: &Mechanism,
    options: &Options,
    plan: &Plan,
    host: usize,
    (run, directory): (&str, &Path),
) -> AgentConfig {
    let topology = &scenario.topology;
    let name = |vm: usize| scenario.vms[vm].name.clone();
    let reserve = |&(from, to, rate): &(usize, usize, Rate)| Reserve {
        from: name(from),
        to: name(to),
        rate: RateText(rate),
    };
    let hose = |hose: &VmHose| HoseConfig {
        name: scenario.hoses[hose.hose].name.clone(),
        floor_out: RateText(hose.floor_out),
        floor_in: RateText(hose.floor_in),
    };
    let vm = |(vm, v): (usize, &Vm)| VmConfig {
        name: v.name.clone(),
        port: plan::vm_port(vm),
        mac: Some(Mac(plan::vm_mac(vm))),
        floor_out: RateText(v.floor_out),
        floor_in: RateText(v.floor_in),
        cap_out: v.cap_out.map(RateText),
        external_floor: v.external.floor.map(RateText),
        external_ceiling: v.external.ceiling.map(RateText),
        translation: translation(mechanism, v).unwrap_or_default(),
        policing: v.policing.filter(|_| translation(mechanism, v).is_some()).map(SizeText),
        budget: budget::of_agent(scenario, vm),
        hoses: v.hoses.iter().map(hose).collect(),
        dscp: GuestDscp::default(),
    };
    AgentConfig {
        instance: sweep::instance(run, host),
        host: topology.hosts[host].clone(),
        role: if scenario.vms.iter().any(|v| v.host == host && !v.outside.is_empty()) {
            Role::Gateway
        } else {
            Role::Host
        },
        listen: SocketAddr::new(IpAddr::V4(plan::host_address(host)), plan::CONTROL_PORT),
        key_file: key_file(directory, &topology.hosts[host]),
        directory: directory.join("directory.yaml"),
        controller: None,
        run_dir: directory.to_path_buf(),
        bpffs: sweep::BPFFS.into(),
        uplink: Uplink {
            interface: "up0".into(),
            rate: RateText(topology.links[plan.uplink[host]].rate),
            tunnels: Vec::new(),
            tunnel_overhead: None,
            host_floor: None,
        },
        mode: weir_model::agent::Mode::default(),
        // The ports that the lab makes of uplinks have an HTB of their own at their root.
        shaper: weir_model::agent::ShaperChoice::Htb,
        mechanism: MechanismConfig {
            reserve: options
                .reserve
                .iter()
                .filter(|(from, ..)| scenario.vms[*from].host == host)
                .map(reserve)
                .collect(),
            ..fleet_wide(
                scenario,
                mechanism,
                plan,
                mechanism_config(scenario, mechanism, &options.mechanism_set),
            )
        },
        pairs_per_vm: PAIRS_PER_VM,
        flows_per_vm: FLOWS_PER_VM,
        code_points: mechanism.bound.map_or_else(Vec::new, |_| scenario.code_points()),
        tenants: Vec::new(),
        vms: scenario.vms.iter().enumerate().filter(|(_, v)| v.host == host).map(vm).collect(),
    }
}

/// Feedback in units that follow a host's link: where links differ, all must know the fastest, if
/// the mechanism asks for it.
fn fleet_wide(
    scenario: &Scenario,
    mechanism: &Mechanism,
    plan: &Plan,
    mut config: MechanismConfig,
) -> MechanismConfig {
    if !mechanism.row.is_some_and(|row| row.agents_own.contains(&"fastest_line")) {
        return config;
    }
    let lines = plan.uplink.iter().map(|link| scenario.topology.links[*link].rate);
    let fastest = lines.max().unwrap_or_default();
    let unit = fastest.split(10_000).max(Rate::from_bps(1_000));
    for (key, rate) in [("fastest_line", fastest), ("feedback_unit", unit)] {
        let text = toml::Value::String(show_rate(rate));
        config.set.entry(key.into()).or_insert(text);
    }
    config
}

/// Settings of a mechanism that all agents share, without reservations. Constants that are rates
/// scale with the links (ElasticSwitch §7 gives them for links of 1 Gb/s). Constants in `set` take
/// precedence.
pub fn mechanism_config(
    scenario: &Scenario,
    mechanism: &Mechanism,
    set: &BTreeMap<String, toml::Value>,
) -> MechanismConfig {
    let mut all = BTreeMap::from([("scale".into(), toml::Value::Float(scenario.scale))]);
    all.extend(set.clone());
    MechanismConfig {
        name: mechanism.name().into(),
        preset: Some(mechanism.preset.clone()),
        set: all,
        reserve: Vec::new(),
    }
}

/// Agents pin their programs and maps in a bpffs; systemd mounts one, a bare machine may not.
fn mount_bpffs() -> Result<(), Error> {
    if statfs(sweep::BPFFS).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
        return Ok(());
    }
    let none: Option<&str> = None;
    mount(Some("bpf"), sweep::BPFFS, Some("bpf"), MsFlags::empty(), none).map_err(|errno| {
        match errno {
            Errno::ENODEV | Errno::ENOENT => Error::Missing {
                what: format!("the BPF file system at {} ({errno})", sweep::BPFFS),
                remedy: "use a kernel with CONFIG_BPF_SYSCALL, with sysfs mounted".into(),
            },
            _ => Error::Kernel { doing: format!("mount a bpffs at {}", sweep::BPFFS), errno },
        }
    })
}
