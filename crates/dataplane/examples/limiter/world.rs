//! Two hosts whose uplinks are one cable, with one VM each, and what limits the first one's:
//!
//! ```text
//! vm1 eth0 -- port [h1 br] up ------ up [h2 br] port -- eth0 vm2
//! ```
//!
//! No switch: what all kinds pay alike would hide what one of them costs. What host 1 does happens
//! on CPU 0, what host 2 does on CPU 1: packets change over at `up` (RPS). All is removed when
//! dropped, also after a failure.

use crate::Result;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_dataplane::shaper::SendsByBursts;

/// What limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing.
    Bare,
    /// One class of HTB on the uplink.
    Htb,
    /// The same class on an IFB that the VM's port is redirected to, where Weir has its own.
    HtbOnIfb,
    /// There, too, in classes as Weir has them: uplink, VM, and the pair, which borrows beyond its
    /// floor.
    HtbTree,
    /// An agent on each host, EyeQ and HTB.
    Weir,
    /// `Htb` and `Weir` where HTB sends by bursts (`htb_hysteresis`).
    HtbByBursts,
    WeirByBursts,
    /// `Weir` whose shaper is departure times: where the kernel has fq.
    WeirByDepartures,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Bare,
        Self::Htb,
        Self::HtbOnIfb,
        Self::HtbTree,
        Self::Weir,
        Self::HtbByBursts,
        Self::WeirByBursts,
        Self::WeirByDepartures,
    ];

    pub(crate) const fn is_weir(self) -> bool {
        matches!(self, Self::Weir | Self::WeirByBursts | Self::WeirByDepartures)
    }

    pub(crate) const fn is_by_bursts(self) -> bool {
        matches!(self, Self::HtbByBursts | Self::WeirByBursts)
    }

    pub(crate) fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What its agents' names begin with.
    fn instance(self) -> &'static str {
        match self {
            Self::WeirByBursts => "wb",
            Self::WeirByDepartures => "we",
            _ => "wl",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Htb => "htb",
            Self::HtbOnIfb => "htb-ifb",
            Self::HtbTree => "htb-tree",
            Self::Weir => "weir",
            Self::HtbByBursts => "htb-b",
            Self::WeirByBursts => "weir-b",
            Self::WeirByDepartures => "weir-edt",
        }
    }
}

/// What a world is made for. Rates in kbit/s.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The limit: the class's in HTB, what the receiver's host tells with EyeQ.
    pub(crate) limit: u64,
    /// Host 1's uplink; with many destinations it is this that limits.
    pub(crate) line: u64,
    /// VMs in the directory, all but the first on host 2, and all but two of them there in name
    /// only.
    pub(crate) destinations: u32,
    /// How late fq's timer may be, as tc reads it, if not as the agent has it.
    pub(crate) slack: Option<&'a str>,
    /// The daemon.
    pub(crate) weir: &'a Path,
}

/// One kind's namespaces, and its agents.
pub(crate) struct World {
    pub(crate) kind: Kind,
    prefix: String,
    dir: PathBuf,
    agents: Vec<Child>,
}

const NAMES: [&str; 4] = ["vm1", "h1", "h2", "vm2"];
/// EyeQ's periods grow as links are slower, and none may be longer than a second: on links slower
/// than this (kbit/s) these do, which hold the twenty packets that they must.
const SLOW: u64 = 10_500;
const LONGEST: &str = ", period = \"250ms\", outer_period = \"1s\"";
/// Part of the receivers' link that EyeQ leaves unused: the limit is nine tenths.
const OF_LIMIT: (u64, u64) = (10, 9);

/// Whether the kernel has fq, which departure times need.
pub(crate) fn has_fq() -> Result<bool> {
    let ns = format!("wl{}-fq", std::process::id());
    sh(&format!("ip netns add {ns}"))?;
    let has = sh(&format!("tc -n {ns} qdisc add dev lo root fq")).is_ok();
    sh(&format!("ip netns del {ns}"))?;
    Ok(has)
}

/// Runs a command line (words without spaces); says it if it fails.
pub(crate) fn sh(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default()).args(words).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{line}: {said} (this bench needs root)").into())
}

impl World {
    pub(crate) fn new(kind: Kind, wanted: &Wanted<'_>) -> Result<Self> {
        let prefix = format!("wl{}-{}-", std::process::id(), kind.name());
        let dir = std::env::temp_dir().join(format!("{prefix}dir"));
        let mut world = Self { kind, prefix, dir, agents: Vec::new() };
        world.build()?;
        match kind {
            Kind::Bare => {}
            Kind::Htb | Kind::HtbByBursts => {
                for host in ["h1", "h2"] {
                    world.limit(host, "up", &[wanted.limit])?;
                }
            }
            Kind::HtbOnIfb | Kind::HtbTree => {
                let inner = [wanted.line, wanted.line, wanted.limit];
                let ceilings = if kind == Kind::HtbTree { &inner[..] } else { &inner[2..] };
                for host in ["h1", "h2"] {
                    world.detour(host)?;
                    world.limit(host, "ifb", ceilings)?;
                }
            }
            Kind::Weir | Kind::WeirByBursts | Kind::WeirByDepartures => {
                let _sends = SendsByBursts::set(kind.is_by_bursts())?;
                world.start_agents(wanted)?;
            }
        }
        Ok(world)
    }

    fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn ip(&self, ns: &str, line: &str) -> Result<String> {
        sh(&format!("ip -n {} {line}", self.ns(ns)))
    }

    fn tc(&self, ns: &str, line: &str) -> Result<String> {
        sh(&format!("tc -n {} {line}", self.ns(ns)))
    }

    fn veth(&self, (ns1, name1): (&str, &str), (ns2, name2): (&str, &str)) -> Result<()> {
        let there = self.ns(ns2);
        self.ip(ns1, &format!("link add name {name1} type veth peer name {name2} netns {there}"))?;
        self.ip(ns1, &format!("link set dev {name1} up"))?;
        self.ip(ns2, &format!("link set dev {name2} up")).map(drop)
    }

    fn build(&self) -> Result<()> {
        for name in NAMES {
            sh(&format!("ip netns add {}", self.ns(name)))?;
            self.ip(name, "link set lo up")?;
        }
        self.veth(("vm1", "eth0"), ("h1", "port"))?;
        self.veth(("h1", "up"), ("h2", "up"))?;
        self.veth(("vm2", "eth0"), ("h2", "port"))?;
        for n in [1, 2] {
            let host = format!("h{n}");
            self.ip(&host, "link add name br type bridge mcast_snooping 0")?;
            for port in ["port", "up"] {
                self.ip(&host, &format!("link set dev {port} master br"))?;
            }
            self.ip(&host, &format!("link set dev br address 02:57:00:00:00:0{n}"))?;
            self.ip(&host, "link set dev br up")?;
            self.ip(&host, &format!("addr add 10.255.0.{n}/24 dev br"))?;
            self.ip(&format!("vm{n}"), &format!("addr add 10.0.0.{n}/24 dev eth0"))?;
            // What comes by the cable is host n's, and so its CPU's.
            let cpus = format!("echo {n} > /sys/class/net/up/queues/rx-0/rps_cpus");
            let ns = self.ns(&host);
            let status =
                Command::new("ip").args(["netns", "exec", &ns, "sh", "-c", &cpus]).status()?;
            if !status.success() {
                return Err(format!("{ns}: receiving on a CPU of choice needs RPS").into());
            }
        }
        // All destinations are vm2, by one neighbour.
        self.ip("vm1", "route add 10.1.0.0/16 via 10.0.0.2")?;
        self.ip("vm2", "route add local 10.1.0.0/16 dev lo")?;
        until("the bridges carry", || {
            Ok(["h1", "h2"].iter().all(|host| {
                self.ip(host, "-d link show master br")
                    .is_ok_and(|said| said.matches("state forwarding").count() == 2)
            }))
        })
    }

    /// Classes with these ceilings one under the other, with the bursts and the queue that Weir
    /// would give them. The last is the only leaf; below another one its floor is half of its
    /// ceiling.
    fn limit(&self, host: &str, device: &str, ceilings: &[u64]) -> Result<()> {
        let leaf = ceilings.len();
        self.tc(host, &format!("qdisc add dev {device} root handle 1: htb default {leaf}"))?;
        for (n, ceiling) in ceilings.iter().enumerate() {
            let is_borrowing = n > 0 && n + 1 == leaf;
            let rate = if is_borrowing { ceiling / 2 } else { *ceiling };
            let burst = |kbits: u64| (kbits / 8).clamp(3028, 256 * 1024);
            let parent = if n == 0 { String::new() } else { n.to_string() };
            self.tc(
                host,
                &format!(
                    "class add dev {device} parent 1:{parent} classid 1:{} htb rate {rate}kbit ceil \
                     {ceiling}kbit burst {} cburst {} quantum 60000",
                    n + 1,
                    burst(rate),
                    burst(*ceiling),
                ),
            )?;
        }
        let queue = format!("qdisc add dev {device} parent 1:{leaf} handle 10: bfifo limit 131072");
        self.tc(host, &queue).map(drop)
    }

    fn detour(&self, host: &str) -> Result<()> {
        self.ip(host, "link add name ifb txqueuelen 32 type ifb")?;
        self.ip(host, "link set dev ifb up")?;
        self.tc(host, "qdisc add dev port clsact")?;
        self.tc(
            host,
            "filter add dev port ingress protocol all u32 match u32 0 0 action mirred egress \
             redirect dev ifb",
        )
        .map(drop)
    }

    fn start_agents(&mut self, wanted: &Wanted<'_>) -> Result<()> {
        let dir = self.dir.clone();
        let at = |name: &str| dir.join(name);
        fs::create_dir_all(at("bpf"))?;
        sh(&format!("mount -t bpf bpf {}", at("bpf").display()))?;
        fs::write(at("key"), "000102030405060708090a0b0c0d0e0f\n")?;
        let mut directory = "hosts:\n  - {name: h1, control: '10.255.0.1:7001'}\n  \
                             - {name: h2, control: '10.255.0.2:7001'}\nvms:\n  \
                             - {name: a, tenant: t, host: h1, addresses: [10.0.0.1]}\n  \
                             - {name: b, tenant: t, host: h2, addresses: [10.0.0.2]}\n"
            .to_owned();
        for n in 0..wanted.destinations {
            let address = crate::traffic::destination(n);
            directory +=
                &format!("  - {{name: d{n}, tenant: t, host: h2, addresses: [{address}]}}\n");
        }
        fs::write(at("directory.yaml"), directory)?;
        let receiving = wanted.limit * OF_LIMIT.0 / OF_LIMIT.1;
        let fastest = wanted.line.max(receiving);
        let floor = wanted.line.min(receiving) / 2;
        let departs = self.kind == Kind::WeirByDepartures;
        let shaper = if departs { "departure-time" } else { "htb" };
        for (n, vm, line) in [(1, "a", wanted.line), (2, "b", receiving)] {
            let text = format!(
                "instance = \"{}h{n}\"\nhost = \"h{n}\"\nlisten = \"10.255.0.{n}:7001\"\n\
                 key_file = {:?}\ndirectory = {:?}\nrun_dir = {:?}\nbpffs = {:?}\n\
                 pairs_per_vm = 1500\nuplink = {{ interface = \"up\", rate = \"{line}kbit\" }}\n\
                 shaper = {shaper:?}\n\
                 mechanism = {{ name = \"eyeq\", preset = \"final\", set = {{ feedback_unit = \
                 \"{}kbit\", fastest_line = \"{fastest}kbit\"{} }} }}\n[[vm]]\nname = {vm:?}\n\
                 port = \"port\"\nfloor_out = \"{floor}kbit\"\nfloor_in = \"{floor}kbit\"\n",
                self.kind.instance(),
                at("key"),
                at("directory.yaml"),
                at("run"),
                at("bpf"),
                (fastest / 10_000).max(1),
                if line < SLOW { LONGEST } else { "" },
            );
            fs::write(at(&format!("h{n}.toml")), text)?;
            let log = at(&format!("h{n}.log"));
            let child = Command::new("nsenter")
                .arg(format!("--net=/run/netns/{}", self.ns(&format!("h{n}"))))
                .args(["--", "taskset", "-c", &format!("{}", n - 1)])
                .arg(wanted.weir)
                .args(["agent", "--config"])
                .arg(at(&format!("h{n}.toml")))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(&log)?)
                .spawn()?;
            self.agents.push(child);
            let ns = format!("h{n}");
            until("an agent shapes", || {
                let agent = self.agents.last_mut().ok_or("no agent")?;
                if let Some(status) = agent.try_wait()? {
                    let said = fs::read_to_string(&log).unwrap_or_default();
                    return Err(format!("agent {n} ended ({status}): {said}").into());
                }
                if departs {
                    return Ok(self.tc(&ns, "qdisc show dev up")?.contains("qdisc fq"));
                }
                Ok(!self.ip(&ns, "-o link show type ifb")?.is_empty())
            })?;
        }
        if let Some(slack) = wanted.slack.filter(|_| departs) {
            let change = format!("qdisc change dev up root handle 3e1: fq timer_slack {slack}");
            self.tc("h1", &change)?;
        }
        // They greet each other, and keys are exchanged.
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    }

    /// Host 1's classes that may send, word by word, to see why a rate is what it is.
    pub(crate) fn classes(&self) -> String {
        let link = self.ip("h1", "-o link show type ifb").unwrap_or_default();
        let device = link.split(": ").nth(1).unwrap_or("up").to_owned();
        self.tc("h1", &format!("-s class show dev {device}")).unwrap_or_default()
    }

    /// Seconds that the agents have had of each CPU: exact, unlike the ticks of /proc/PID/stat.
    pub(crate) fn agents_seconds(&self) -> [f64; 2] {
        let nanos = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        let of = |agent: &Child| {
            let threads = fs::read_dir(format!("/proc/{}/task", agent.id()));
            threads.into_iter().flatten().flatten().filter_map(nanos).sum::<f64>() / 1e9
        };
        [0, 1].map(|cpu| self.agents.get(cpu).map_or(0.0, of))
    }

    /// Runs `f` in a namespace, on a thread of its own.
    pub(crate) fn inside<T: Send>(
        &self,
        ns: &str,
        f: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let file = File::open(format!("/run/netns/{}", self.ns(ns)))?;
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                // SAFETY: a live descriptor of a namespace; concerns this thread alone.
                if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                    return Err(std::io::Error::last_os_error().into());
                }
                f()
            });
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Everything is tried, whatever failed.
        for agent in &mut self.agents {
            // SAFETY: a process that was started here and not waited for yet.
            unsafe { libc::kill(agent.id() as i32, libc::SIGTERM) };
            let end = Instant::now() + Duration::from_secs(5);
            while Instant::now() < end && matches!(agent.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = agent.kill();
            let _ = agent.wait();
        }
        for name in NAMES {
            let _ = Command::new("ip").args(["netns", "del", &self.ns(name)]).status();
        }
        if self.dir.exists() {
            let _ = Command::new("umount").arg(self.dir.join("bpf")).status();
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Looks again and again, for at most twenty seconds.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds()? {
        if Instant::now() > end {
            return Err(format!("{what}: not within 20 s").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
