//! Real programs in the VMs' namespaces, beside or in place of the built-in traffic.
//!
//! Problem   The built-in traffic should agree with real programs, and some behaviour only a real
//!           program has.
//! Approach  A server in the receiving VM before anything starts, and a client in the sending VM
//!           from start to stop. Of memcached only the server runs here; its client is
//!           `traffic::memcached`. The octets that arrive are read from the receiving VM's port,
//!           which only this traffic uses, and taken as full TCP segments: payload = 1448/1514 of
//!           the octets.
//! Promises  Programs and the processes that they started end with the run, each by its process id.
//!           A program that ends early or with an error is reported, with the last line that it
//!           wrote.
//! Not here  A program's output: it is kept in the run's directory and not interpreted. Several
//!           clients of one receiver are not distinguished: each is credited an equal part.

use crate::Error;
use crate::child;
use crate::plan;
use crate::sweep::{self, Identity};
use crate::traffic::{self, Tally, memcached};
use crate::world::World;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use weir_model::scenario::{Exec, Scenario, Traffic, TrafficKind};
use weir_units::{SortedMap, SortedSet, Span};

/// How long servers may take to listen.
const READY: Duration = Duration::from_millis(500);
/// How long programs may take to end when asked.
const END: Duration = Duration::from_millis(500);

/// The programs of a run.
pub(crate) struct Programs {
    directory: PathBuf,
    /// Clients by the time of their start, latest first.
    waiting: Vec<Client>,
    running: Vec<Program>,
    /// Namespaces of the VMs. Programs of the run started every process in them.
    inside: SortedSet<Identity>,
    /// Per receiving VM: the traffic entries that arrive there, and octets of its port at the
    /// start.
    receivers: SortedMap<usize, (Vec<usize>, Option<u64>)>,
    /// Notes about failures.
    pub(crate) notes: Vec<String>,
}

struct Client {
    start: Span,
    stop: Span,
    name: String,
    command: Vec<String>,
    namespace: PathBuf,
}

/// Rights of a program.
#[derive(Clone, Copy)]
enum Rights {
    /// All rights of the lab, because the user who plays the scenario chose the program.
    All,
    /// No special rights.
    None,
}

impl Rights {
    fn command(self, namespace: &Path, program: &str) -> Command {
        match self {
            Self::All => child::command(namespace, "KILL", program),
            Self::None => child::unprivileged(namespace, "KILL", program),
        }
    }
}

struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    stop: Span,
    /// Its end was reported already.
    ended: bool,
}

/// The programs in `scenario`, with the number of their traffic entry.
pub(crate) fn of(scenario: &Scenario) -> impl Iterator<Item = (usize, &Traffic, &Exec)> {
    scenario.traffic.iter().enumerate().filter_map(|(i, traffic)| match &traffic.kind {
        TrafficKind::Exec(exec) => Some((i, traffic, exec)),
        _ => None,
    })
}

impl Programs {
    /// Starts all servers and gives them time to listen.
    ///
    /// # Errors
    /// A program cannot be started.
    pub(crate) fn open(
        scenario: &Scenario,
        world: &World,
        directory: &Path,
    ) -> Result<Self, Error> {
        let mut programs = Self {
            directory: directory.into(),
            waiting: Vec::new(),
            running: Vec::new(),
            inside: SortedSet::new(),
            receivers: SortedMap::new(),
            notes: Vec::new(),
        };
        for (i, traffic, exec) in of(scenario) {
            let (from, to) = (world.vm(traffic.from).path(), world.vm(traffic.to).path());
            programs.inside.extend([from, to].into_iter().filter_map(sweep::identity));
            programs.receivers.entry(traffic.to).or_default().0.push(i);
            let name = |what: &str| format!("{what} of {} {i}", traffic.group);
            let server = words(&exec.server, scenario, i);
            programs.start(name("server"), &server, (to, Rights::All), traffic.stop)?;
            programs.waiting.push(Client {
                start: traffic.start,
                stop: traffic.stop,
                name: name("client"),
                command: words(&exec.client, scenario, i),
                namespace: from.into(),
            });
        }
        for (i, traffic, memcached) in memcached::of(scenario) {
            let to = world.vm(traffic.to).path();
            programs.inside.extend(sweep::identity(to));
            let server = memcached::server(scenario, i, memcached);
            let name = format!("memcached of {} {i}", traffic.group);
            programs.start(name, &server, (to, Rights::None), traffic.stop)?;
        }
        programs.waiting.sort_by_key(|client| std::cmp::Reverse(client.start));
        if !programs.running.is_empty() {
            std::thread::sleep(READY);
        }
        Ok(programs)
    }

    fn start(
        &mut self,
        name: String,
        command: &[String],
        (namespace, rights): (&Path, Rights),
        stop: Span,
    ) -> Result<(), Error> {
        let doing = || format!("start the {name}: {}", command.join(" "));
        let log = self.directory.join(format!("{}.log", name.replace(' ', "-")));
        let out = File::create(&log).map_err(Error::io(doing()))?;
        let err = out.try_clone().map_err(Error::io(doing()))?;
        let (program, arguments) = command.split_first().expect("a program, checked on reading");
        let child = rights
            .command(namespace, program)
            .args(arguments)
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Error::io(doing()))?;
        self.running.push(Program { name, child, log, stop, ended: false });
        Ok(())
    }

    /// Starts and ends the programs that are due `now`, and notes programs that ended by
    /// themselves.
    ///
    /// # Errors
    /// A client cannot be started.
    pub(crate) fn step(&mut self, now: Span) -> Result<(), Error> {
        while let Some(client) = self.waiting.pop_if(|client| client.start <= now) {
            let place = (client.namespace.as_path(), Rights::All);
            self.start(client.name, &client.command, place, client.stop)?;
        }
        for program in &mut self.running {
            if now >= program.stop {
                program.signal(Signal::SIGTERM);
                program.ended = true;
            } else if let Some(end) = program.has_ended() {
                self.notes.push(end);
            }
        }
        Ok(())
    }

    /// Credits the octets that arrived at the receivers' ports since the first call.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn count(&mut self, world: &mut World, tally: &Tally) -> Result<(), Error> {
        for (&vm, (entries, before)) in &mut self.receivers {
            let now = world.received_by(vm)?;
            let octets = now - *before.get_or_insert(now);
            let payload = (octets as f64 * 1448.0 / 1514.0) as u64;
            for &entry in entries.iter() {
                tally.set(entry, payload / entries.len() as u64);
            }
        }
        Ok(())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        self.running.iter().for_each(|program| program.signal(Signal::SIGTERM));
        let until = Instant::now() + END;
        for mut program in self.running.drain(..) {
            while Instant::now() < until && matches!(program.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if matches!(program.child.try_wait(), Ok(None)) {
                program.signal(Signal::SIGKILL);
            }
            let _ = program.child.wait();
        }
        sweep::kill_all_in(&self.inside);
    }
}

impl Program {
    fn signal(&self, signal: Signal) {
        // After the wait, the process id may belong to another process.
        if !self.ended {
            let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
        }
    }

    /// Reports its end once, if it is worth a report: a client may end early, a server may not.
    fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten().filter(|_| !self.ended)?;
        self.ended = true;
        if status.success() && self.name.starts_with("client") {
            return None;
        }
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        Some(format!("the {} ended early ({status}): {}", self.name, last.unwrap_or("no output")))
    }
}

/// The words of a command line, with the names in braces replaced.
fn words(command: &str, scenario: &Scenario, entry: usize) -> Vec<String> {
    let traffic = &scenario.traffic[entry];
    let seconds = (traffic.stop - traffic.start).as_secs_f64().ceil();
    let [from, to, port, time] = Exec::NAMES.map(|name| format!("{{{name}}}"));
    let fill = |word: &str| {
        word.replace(&from, &plan::vm_ip(scenario, traffic.from, traffic.ip).to_string())
            .replace(&to, &plan::vm_ip(scenario, traffic.to, traffic.ip).to_string())
            .replace(&port, &traffic::port(entry).to_string())
            .replace(&time, &seconds.to_string())
    };
    command.split_whitespace().map(fill).collect()
}
