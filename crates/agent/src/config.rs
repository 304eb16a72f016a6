//! From `agent.toml` and the directory to what the machines need; errors name file, line and field.

use crate::handed::{self, Handed};
use crate::hoses::{self, Hoses};
use crate::mistake::{Mistake, Sources, sound};
use crate::names;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use weir_core::eyeq::EyeQ;
use weir_core::host::{Capabilities, Hose, Location, Policy};
use weir_model::agent::{AGENTS_CAN, AgentConfig, Directory, Mode, ShaperChoice, VmConfig};
use weir_model::whereabouts::line_in_toml;
use weir_rpc::kept::Kept;
use weir_units::{HostId, Rate, SortedMap, Span, TenantId, VmId};

/// The agent's configuration with all names resolved.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) file: AgentConfig,
    /// The VMs of `file` without what was handed over.
    own: Vec<VmConfig>,
    pub(crate) handed: Handed,
    pub(crate) directory: Directory,
    pub(crate) names: Names,
    pub(crate) tenants: BTreeMap<VmId, TenantId>,
    pub(crate) hosts: BTreeMap<HostId, (String, SocketAddr)>,
    /// What the machine is told.
    pub(crate) host: Policy,
}

/// Names of VMs, both ways, and of hoses.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_id: BTreeMap<VmId, String>,
    by_name: BTreeMap<String, VmId>,
    hoses: Hoses,
}

impl Names {
    fn new(directory: &Directory, former: Option<&Self>) -> Result<Self, Mistake> {
        let hoses = Hoses::of(directory, former.map(|former| &former.hoses));
        let mut names = Self { hoses, ..Self::default() };
        for (i, (id, vm)) in directory.numbered_vms().enumerate() {
            let twice = names.by_name.insert(vm.name.clone(), id).is_some();
            sound(!twice, || {
                let what = format!("`{}` is there twice; names are unique: rename one", vm.name);
                Mistake::directory(format!("vms[{i}].name"), what)
            })?;
            let other = names.by_id.insert(id, vm.name.clone());
            sound(other.is_none(), || {
                let (name, other) = (&vm.name, other.as_deref().unwrap_or_default());
                Mistake::directory(format!("vms[{i}].id"), twice_numbered(id.0, other, name))
            })?;
        }
        Ok(names)
    }

    pub(crate) fn id(&self, name: &str) -> Option<VmId> {
        self.by_name.get(name).copied()
    }

    pub(crate) const fn hoses(&self) -> &Hoses {
        &self.hoses
    }

    pub(crate) fn name(&self, id: VmId) -> String {
        self.by_id.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// Reads `agent.toml` alone.
pub(crate) fn read(path: &Path) -> Result<AgentConfig> {
    let (file, text) = read_with_text(path)?;
    let sources = Sources { config: (path, &text), directory: (path, "") };
    names::check(&file).map_err(|mistake| sources.tell(&mistake))?;
    Ok(file)
}

/// What is wrong with a text of TOML, without lines that are too long to read.
fn parsed(path: &Path, text: &str) -> Result<AgentConfig> {
    toml::from_str(text)
        .map_err(|e| anyhow::anyhow!(names::shortened(&e.to_string())))
        .with_context(|| format!("{}", path.display()))
}

pub(crate) fn read_with_text(path: &Path) -> Result<(AgentConfig, String)> {
    let octets =
        std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let text = names::text_of(path, octets)?;
    Ok((parsed(path, &text)?, text))
}

impl Setup {
    /// Reads all files that `path` names.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        Self::load_after(path, None)
    }

    /// Reads them again while `former` is in force; refuses what cannot change without a restart.
    pub(crate) fn reload(path: &Path, former: &Self) -> Result<Self> {
        Self::load_after(path, Some(former))
    }

    /// Reads `agent.toml` again beside what the controller said.
    pub(crate) fn reload_beside(path: &Path, kept: &Kept, former: &Self) -> Result<Self> {
        let (file, text) = read_with_text(path)?;
        let sources = Sources { config: (path, &text), directory: (path, "") };
        names::check(&file).map_err(|mistake| sources.tell(&mistake))?;
        Self::of_kept(file, (path, &text), kept, Some(former))
    }

    /// What is in force, with what is handed over now.
    ///
    /// # Errors
    ///
    /// As a reload.
    pub(crate) fn with_handed(&self, path: &Path) -> Result<Self> {
        let file = AgentConfig { vms: self.own.clone(), ..self.file.clone() };
        let (yaml, handed) = (file.directory.clone(), Handed::read(&handed_folder(&file))?);
        let sources = Sources { config: (path, ""), directory: (&yaml, "") };
        Self::of_parts(file, self.directory.clone(), handed, sources, Some(self))
    }

    /// Whether what a VM sends is to wait for all others: under EyeQ a VM without a floor has no
    /// other class (§3.5).
    pub(crate) fn is_best_effort(&self, vm: VmId) -> bool {
        let has_floor = |hose: &Hose| !hose.out.floor.is_zero();
        self.eyeq().is_some() && !self.host.hose(vm).is_some_and(has_floor)
    }

    fn load_after(path: &Path, former: Option<&Self>) -> Result<Self> {
        let (file, text) = read_with_text(path)?;
        // Before any path is made of them.
        let sources = Sources { config: (path, &text), directory: (path, "") };
        names::check(&file).map_err(|mistake| sources.tell(&mistake))?;
        if let Some(home) = crate::follow::home(&file) {
            let kept = home.kept().context(
                "this host has not joined its controller: `weir agent join` (docs/controller.md)",
            )?;
            return Self::of_kept(file, (path, &text), &kept, former);
        }
        let yaml = std::fs::read(&file.directory).with_context(|| {
            let line = line_in_toml(&text, "directory").unwrap_or(1);
            let (file, directory) = (path.display(), file.directory.display());
            format!("{directory}: the directory that {file}:{line} names cannot be read")
        })?;
        let yaml = names::text_of(&file.directory, yaml)?;
        let handed = Handed::read(&handed_folder(&file))?;
        Self::of_texts(file, (path, &text), &yaml, handed, former)
    }

    /// What the controller said, beside what `agent.toml` says: the same as if both had been read from
    /// files.
    ///
    /// # Errors
    ///
    /// As a reload.
    pub(crate) fn of_kept(
        mut file: AgentConfig,
        config: (&Path, &str),
        kept: &Kept,
        former: Option<&Self>,
    ) -> Result<Self> {
        ensure!(
            kept.host == file.host,
            "host: `{}` is not the host that joined, `{}`: join again or correct it",
            file.host,
            kept.host
        );
        let directory = kept.directory(file.listen).map_err(anyhow::Error::msg)?;
        file.vms = kept.vms().map_err(anyhow::Error::msg)?;
        file.tenants = kept.queues().map_err(anyhow::Error::msg)?;
        file.mode = kept.mode.unwrap_or(file.mode);
        if let Some(home) = crate::follow::home(&file) {
            file.key_file = home.keys();
            file.directory = home.path().join("state.json");
        }
        let (path, handed) = (file.directory.clone(), Handed::read(&handed_folder(&file))?);
        let sources = Sources { config, directory: (&path, "") };
        Self::of_parts(file, directory, handed, sources, former)
    }

    /// The same from texts, for what needs no file.
    pub(crate) fn parse(config: &str, directory: &str) -> Result<Self> {
        let path = Path::new("agent.toml");
        let file = parsed(path, config)?;
        let sources = Sources { config: (path, config), directory: (path, "") };
        names::check(&file).map_err(|mistake| sources.tell(&mistake))?;
        Self::of_texts(file, (path, config), directory, Handed::default(), None)
    }

    fn of_texts(
        file: AgentConfig,
        config: (&Path, &str),
        yaml: &str,
        handed: Handed,
        former: Option<&Self>,
    ) -> Result<Self> {
        let directory = weir_model::agent::parse_directory(yaml)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("{}", file.directory.display()))?;
        let path = file.directory.clone();
        let sources = Sources { config, directory: (&path, yaml) };
        Self::of_parts(file, directory, handed, sources, former)
    }

    fn of_parts(
        file: AgentConfig,
        directory: Directory,
        handed: Handed,
        sources: Sources<'_>,
        former: Option<&Self>,
    ) -> Result<Self> {
        let soundly = |setup: Self| {
            crate::promised::check(&setup)?;
            crate::policing::check(&setup.file)?;
            former.map_or(Ok(()), |former| crate::reload::check(former, &setup))?;
            former.map_or(Ok(()), |former| crate::queues::check(former, &setup))?;
            Ok(setup)
        };
        // First what cannot change: a mechanism that was meant is no mistake of the directory.
        let fixed = former.map_or(Ok(()), |former| crate::reload::check_file(&former.file, &file));
        let whole = |file| Self::resolve(file, directory.clone(), former).and_then(soundly);
        fixed
            .and_then(|()| handed.resolve(&file, &directory, whole))
            .map(|(setup, handed)| Self { own: file.vms, handed, ..setup })
            .map_err(|mistake| sources.tell(&mistake))
    }

    fn resolve(
        file: AgentConfig,
        directory: Directory,
        former: Option<&Self>,
    ) -> Result<Self, Mistake> {
        let names = Names::new(&directory, former.map(|former| &former.names))?;
        let mut host_ids: BTreeMap<&str, HostId> = BTreeMap::new();
        let mut hosts: BTreeMap<HostId, (String, SocketAddr)> = BTreeMap::new();
        for (i, (id, h)) in directory.numbered_hosts().enumerate() {
            let twice = host_ids.insert(&h.name, id).is_some();
            sound(!twice, || {
                let what =
                    format!("host `{}` is there twice; names are unique: rename one", h.name);
                Mistake::directory(format!("hosts[{i}].name"), what)
            })?;
            if let Some((other, _)) = hosts.insert(id, (h.name.clone(), h.control)) {
                let what = twice_numbered(id.0, &other, &h.name);
                return Err(Mistake::directory(format!("hosts[{i}].id"), what));
            }
        }
        let host = *host_ids.get(file.host.as_str()).ok_or_else(|| {
            let (host, there) = (&file.host, file.directory.display());
            let known = some_of(directory.hosts.iter().map(|h| h.name.as_str()));
            Mistake::config("host", format!("`{host}` is not in {there}; hosts there are {known}"))
        })?;

        let tenant_ids = crate::reload::tenants(&directory, former);
        let mut locations = SortedMap::new();
        let mut tenants = BTreeMap::new();
        for (i, (id, vm)) in directory.numbered_vms().enumerate() {
            let tenant = tenant_ids[vm.tenant.as_str()];
            let at = *host_ids.get(vm.host.as_str()).ok_or_else(|| {
                let what = format!(
                    "vm `{}` is on host `{}`, which is not listed; add it to `hosts`, or name one of \
                     them: {}",
                    vm.name,
                    vm.host,
                    some_of(directory.hosts.iter().map(|h| h.name.as_str()))
                );
                Mistake::directory(format!("vms[{i}].host"), what)
            })?;
            locations.insert(id, Location { tenant, host: at });
            tenants.insert(id, tenant);
        }

        crate::addresses::check(&file, &directory)?;

        let line = file.uplink.rate.0;
        sound(!line.is_zero(), || {
            Mistake::config("uplink.rate", "a rate of zero; write the NIC's, such as 10Gbit")
        })?;
        let vms = vms(&file, &names, &locations, host)?;
        let in_mechanism = |text: String| {
            // Each error there begins with the field that is wrong.
            let (field, what) = text.split_once(": ").unwrap_or(("name", &text));
            Mistake::config(format!("mechanism.{field}"), what)
        };
        // `auto` means HTB with EyeQ: its shares of an uplink are worth more than a millisecond.
        let limiter = file.shaper == ShaperChoice::DepartureTime;
        let can = Capabilities { limiter, ..AGENTS_CAN };
        let law = file.mechanism.on_host(line, can, &|name| names.id(name));
        let (law, fastest_line) = law.map_err(in_mechanism)?;
        let can = law.leaves(can);
        let host = Policy { fastest_line, can, ..Policy::new(host, line, law) };
        let mut host = host.with_vms(vms).with_directory(locations);
        host.ties = names.hoses().ties(&directory)?;
        host.further = hoses::further(&file, &directory, names.hoses())?;
        host.windows = crate::driver::sound_budgets(&file, &names);
        crate::queues::tag(&mut host, &file, &tenant_ids, former)?;
        let (own, handed) = (Vec::new(), Handed::default());
        let setup = Self { file, own, handed, directory, names, tenants, hosts, host };
        setup.check_metering()?;
        let checked = setup.host.law.check(&setup.host);
        checked.map_err(|refusal| Mistake::config("mechanism", refusal.to_string()))?;
        Ok(setup)
    }

    /// The folder in which this agent's VMs are handed over.
    pub(crate) fn handed_folder(&self) -> std::path::PathBuf {
        handed_folder(&self.file)
    }

    /// How this host's key file is read.
    pub(crate) fn key_reader(&self) -> crate::keys::Reader<'_> {
        crate::keys::Reader { own: &self.file.host, hosts: &self.hosts }
    }

    /// Whether nothing is to be enforced.
    pub(crate) fn observes(&self) -> bool {
        self.file.mode == Mode::Observe
    }

    /// What meters in the kernel ask of a host: they send feedback by themselves.
    fn check_metering(&self) -> Result<(), Mistake> {
        if self.eyeq().is_none() {
            return Ok(());
        }
        sound(!self.observes(), || {
            let what = "EyeQ's receivers send feedback through their VMs' ports, so it cannot only \
                        observe: enforce, or choose another mechanism";
            Mistake::config("mode", what)
        })?;
        sound(self.file.listen.is_ipv4(), || {
            Mistake::config("listen", "EyeQ's feedback goes over IPv4: write an address of that")
        })?;
        for (i, host) in self.directory.hosts.iter().enumerate() {
            sound(
                host.name != self.file.host || host.control.ip() == self.file.listen.ip(),
                || {
                    // Feedback leaves from the one, and peers know it by the other.
                    let what = "with EyeQ it has to be the address that `listen` of this host's agent.toml has";
                    Mistake::directory(format!("hosts[{i}].control"), what)
                },
            )?;
            sound(host.control.is_ipv4(), || {
                let what = "EyeQ's feedback goes over IPv4: write an address of that";
                Mistake::directory(format!("hosts[{i}].control"), what)
            })?;
        }
        Ok(())
    }

    /// EyeQ's constants, if that decides.
    pub(crate) fn eyeq(&self) -> Option<&EyeQ> {
        self.host.law.metering()
    }

    /// Whether packets have to leave ECN-capable. EyeQ's meters go by the marks of what is so
    /// anyway.
    pub(crate) fn needs_marks(&self) -> bool {
        self.eyeq().is_none() && self.host.law.needs_marks()
    }

    /// How long a gap may stay open before it is a loss.
    pub(crate) fn reorder_window(&self) -> Span {
        self.host.law.reorder_window()
    }

    /// What the default class of a VM gets: traffic without a floor.
    pub(crate) fn default_rate(&self) -> Rate {
        self.host.law.default_rate()
    }
}

/// Where this agent's VMs are handed over.
fn handed_folder(file: &AgentConfig) -> std::path::PathBuf {
    handed::folder(&file.run_dir, &file.instance)
}

/// Two of one number: one of them may have it by its place in the list.
fn twice_numbered(id: u32, one: &str, other: &str) -> String {
    format!(
        "`{one}` and `{other}` are both number {id} (what has no `id` has its place in the list as \
         such, from 0): write another `id`, best for all"
    )
}

/// The hoses of this host's VMs.
fn vms(
    file: &AgentConfig,
    names: &Names,
    locations: &SortedMap<VmId, Location>,
    host: HostId,
) -> Result<SortedMap<VmId, Hose>, Mistake> {
    let (mut vms, there) = (SortedMap::new(), &file.directory);
    for (i, vm) in file.vms.iter().enumerate() {
        let name = &vm.name;
        let wrong = |what: String| Mistake::config(format!("vm[{i}].name"), what);
        let id = names.id(name).ok_or_else(|| wrong(unlisted(name, there)))?;
        sound(locations[&id].host == host, || wrong(elsewhere(name, there)))?;
        let hose = Hose::of(vm.floor_out.0, vm.floor_in.0);
        let twice = vms.insert(id, hose).is_some();
        sound(!twice, || wrong(format!("vm `{name}` is listed twice; remove one")))?;
    }
    Ok(vms)
}

/// Why a VM of this host is none, if the directory `there` has no such VM.
pub(crate) fn unlisted(name: &str, there: &Path) -> String {
    format!("vm `{name}` is not in {}; add it there, or correct the name", there.display())
}

/// Why a VM of this host is none, if the directory `there` has it on another one.
pub(crate) fn elsewhere(name: &str, there: &Path) -> String {
    format!(
        "vm `{name}` is on another host according to {}; remove it here, or correct it there",
        there.display()
    )
}

/// The first names of a list, for advice.
fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.take(6).collect();
    if names.len() > 5 {
        names[5] = "…";
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::Addresses;
    use weir_core::elasticswitch::ElasticSwitch;
    use weir_core::elasticswitch::Promise;
    use weir_core::mechanism::Law;
    use weir_core::rate::{HoldForm, Signal};

    const DIRECTORY: &str = "
hosts:
  - {name: h0, control: 10.0.0.1:7001}
  - {name: h1, control: 10.0.0.2:7001}
vms:
  - {name: a, tenant: red, host: h0, addresses: [10.1.0.1]}
  - {name: b, tenant: red, host: h1, addresses: [10.1.0.2]}
  - {name: c, tenant: blue, host: h1, addresses: [10.1.0.3]}
";

    const CONFIG: &str = r#"
instance = "h0"
host = "h0"
listen = "10.0.0.1:7001"
key_file = "key"
directory = "directory.yaml"
uplink = { interface = "up0", rate = "1Gbit" }
mechanism = { name = "elasticswitch" }
[[vm]]
name = "a"
port = "p0"
floor_out = "450Mbit"
floor_in = "400Mbit"
"#;

    /// Loads both files, each with one text replaced by another.
    fn load(config: (&str, &str), directory: (&str, &str)) -> Result<Setup> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-agent-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let at = |name: &str| dir.join(name).display().to_string();
        let text = CONFIG
            .replace("\"key\"", &format!("{:?}", at("key")))
            .replace("\"directory.yaml\"", &format!("{:?}", at("directory.yaml")));
        assert!(text.contains(config.0) && DIRECTORY.contains(directory.0), "nothing to replace");
        std::fs::write(at("agent.toml"), text.replacen(config.0, config.1, 1))?;
        std::fs::write(at("directory.yaml"), DIRECTORY.replacen(directory.0, directory.1, 1))?;
        std::fs::write(at("key"), "000102030405060708090a0b0c0d0e0f\n")?;
        let loaded = Setup::load(Path::new(&at("agent.toml")));
        std::fs::remove_dir_all(&dir)?;
        loaded
    }

    fn error(config: (&str, &str), directory: (&str, &str)) -> String {
        format!("{:#}", load(config, directory).expect_err("a mistake"))
    }

    const AS_IT_IS: (&str, &str) = ("", "");

    #[test]
    fn a_sound_configuration_is_resolved_to_ids() {
        let setup = load(AS_IT_IS, AS_IT_IS).expect("sound");
        assert_eq!(setup.host.host, HostId(0));
        let hose = Hose::of(Rate::from_mbps(450), Rate::from_mbps(400));
        assert_eq!(setup.host.vms().collect::<Vec<_>>(), [(VmId(0), &hose)]);
        let location = setup.host.directory[&VmId(2)];
        assert_eq!(location, Location { tenant: TenantId(1), host: HostId(1) });
        let Law::ElasticSwitch(es) = setup.host.law else { panic!("elasticswitch") };
        let steady = ElasticSwitch::preset("steady").expect("known");
        assert_eq!(*es, steady, "what the promises are made for");
    }

    #[test]
    fn the_examples_that_an_operator_copies_are_sound() {
        let config = include_str!("../../../packaging/agent.toml");
        let directory = include_str!("../../../packaging/directory.yaml");
        let setup = Setup::parse(config, directory).expect("sound");
        assert_eq!(setup.host.vms().count(), 1);
        assert!(setup.observes(), "a new host looks before it enforces");
    }

    #[test]
    fn the_shaper_is_chosen_by_name() {
        assert_eq!(load(AS_IT_IS, AS_IT_IS).expect("sound").file.shaper, ShaperChoice::Auto);
        let with = |name| ("host = \"h0\"\n", format!("host = \"h0\"\nshaper = \"{name}\"\n"));
        for (name, choice) in
            [("htb", ShaperChoice::Htb), ("departure-time", ShaperChoice::DepartureTime)]
        {
            let (from, to) = with(name);
            let setup = load((from, &to), AS_IT_IS).expect("sound");
            assert_eq!(setup.file.shaper, choice);
        }
        let (from, to) = with("fq");
        let error = error((from, &to), AS_IT_IS);
        assert!(error.contains("unknown variant `fq`, expected one of `auto`, `htb`"), "{error}");
    }

    #[test]
    fn under_eyeq_who_has_no_floor_is_of_best_effort() {
        let of = |mechanism: &str, floor: &str| {
            let old = "mechanism = { name = \"elasticswitch\" }\n[[vm]]\nname = \"a\"\n\
                       port = \"p0\"\nfloor_out = \"450Mbit\"";
            let new = old.replace("elasticswitch", mechanism).replace("450Mbit", floor);
            load((old, &new), AS_IT_IS).expect("sound").is_best_effort(VmId(0))
        };
        assert!(of("eyeq", "0Mbit") && !of("eyeq", "1Mbit") && !of("elasticswitch", "0Mbit"));
    }

    #[test]
    fn eyeqs_limits_are_the_kernels_where_departure_times_are_and_the_agents_elsewhere() {
        let late = |shaper: &str| {
            let set = format!("{shaper}\nmechanism = {{ name = \"eyeq\" }}");
            let setup = load(("mechanism = { name = \"elasticswitch\" }", &set), AS_IT_IS);
            setup.expect("sound").eyeq().expect("it is eyeq").loop_delay.actuation
        };
        assert_eq!(late("shaper = \"departure-time\""), Span::ZERO);
        assert_eq!(late("shaper = \"htb\""), Span::from_millis(1));
        assert_eq!(late(""), Span::from_millis(1));
    }

    #[test]
    fn constants_scale_first_and_are_set_then() {
        let set = r#""elasticswitch", set = { scale = 0.2, a = "3Mbit", hold = "linear" } }"#;
        let setup = load(("\"elasticswitch\" }", set), AS_IT_IS).expect("sound");
        let Law::ElasticSwitch(es) = setup.host.law else { panic!("elasticswitch") };
        assert_eq!(es.rate.reference, Rate::from_mbps(90));
        assert_eq!(es.rate.a, Rate::from_mbps(3));
        assert_eq!(es.rate.hold, HoldForm::Linear);
        assert_eq!(es.default_floor, Rate::from_bps(200_000));
    }

    #[test]
    fn a_gateways_endpoint_stands_for_its_prefixes_and_addresses() {
        let directory = ("addresses: [10.1.0.1]", "addresses: [192.0.2.1], prefixes: ['::/0']");
        let setup = load(("host = \"h0\"", "host = \"h0\"\nrole = \"gateway\""), directory);
        let all = Addresses::of(&setup.expect("sound"));
        let outside: Vec<_> = all.outside.iter().map(|o| (o.address, o.length, o.vm.0)).collect();
        let address = |text: &str| text.parse().expect("an address");
        assert_eq!(outside, [(address("::"), 0, 0), (address("192.0.2.1"), 32, 0)]);
        assert_eq!(all.endpoints.iter().map(|e| e.vm.0).collect::<Vec<_>>(), [1, 2]);
        let controls: Vec<String> = all.controls.iter().map(ToString::to_string).collect();
        assert_eq!(controls, ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.1:7001"]);
    }

    #[test]
    fn the_signal_is_a_constant_and_ecn_presets_have_marks_for_it() {
        for (text, signal) in [
            ("\"elasticswitch\"", Signal::Loss),
            ("\"elasticswitch\", preset = \"steady-ecn\"", Signal::Ecn),
            ("\"elasticswitch\", set = { signal = \"ecn\" }", Signal::Ecn),
            ("\"seawall\"", Signal::Loss),
        ] {
            let setup = load(("\"elasticswitch\"", text), AS_IT_IS).expect("sound");
            let Law::ElasticSwitch(es) = setup.host.law else { panic!("{text}") };
            assert_eq!(es.rate.signal, signal, "{text}");
        }
    }

    #[test]
    fn seawall_has_weights_and_neither_hold_nor_caution() {
        let set = "\"seawall\", set = { scale = 0.2 }";
        let setup = load(("\"elasticswitch\"", set), AS_IT_IS).expect("sound");
        let Law::ElasticSwitch(es) = setup.host.law else { panic!("the law") };
        assert_eq!(es.promise, Promise::Weight(Rate::from_mbps(9)));
        assert_eq!((es.rate.hold, es.rate.caution), (HoldForm::None, 0.0));
    }

    #[test]
    fn each_mistake_is_named_with_its_file_and_field() {
        let mechanism = |m| error(("{ name = \"elasticswitch\" }", m), AS_IT_IS);
        for (got, wanted) in [
            (error(("host = \"h0\"", "host = \"h9\""), AS_IT_IS), "host: `h9` is not in"),
            (error(("1Gbit", "0bit"), AS_IT_IS), "uplink.rate: a rate of zero"),
            (error(("1Gbit", "1000"), AS_IT_IS), "has no unit"),
            (
                error(("instance = \"h0\"", "instance = \"../../etc/x\""), AS_IT_IS),
                "agent.toml:2: instance: \"../../etc/x\" is no name of an instance",
            ),
            (
                error(("\"up0\"", "\"sixteen-octets-x\""), AS_IT_IS),
                "agent.toml:7: uplink.interface: \"sixteen-octets-x\" is no name of a network",
            ),
            (
                error(("port = \"p0\"", &format!("port = \"{}\"", "x".repeat(70_000))), AS_IT_IS),
                "… (70002 octets)",
            ),
            (
                error(("instance =", "run_dir = \"/run/a\\u0000b\"\ninstance ="), AS_IT_IS),
                "agent.toml:2: run_dir: \"/run/a\\0b\" is no path",
            ),
            (error(("instance =", "instnce ="), AS_IT_IS), "unknown field `instnce`"),
            (error(("name = \"a\"", "name = \"z\""), AS_IT_IS), "vm `z` is not in"),
            (error(("name = \"a\"", "name = \"b\""), AS_IT_IS), "vm `b` is on another host"),
            (
                mechanism("{ name = \"magic\" }"),
                "there is no `magic`; there are reservation, seawall, elasticswitch, eyeq",
            ),
            (mechanism("{ name = \"elasticswitch\", preset = \"x\" }"), "there are paper, steady"),
            (
                mechanism("{ name = \"elasticswitch\", preset = \"steady-paths\" }"),
                "this agent's data plane has one",
            ),
            (mechanism("{ name = \"seawall\", preset = \"steady\" }"), "`seawall` has none"),
            (
                mechanism("{ name = \"elasticswitch\", set = { signal = \"marks\" } }"),
                "set.signal: `marks` is none of loss, ecn",
            ),
            (
                mechanism("{ name = \"elasticswitch\", set = { weight = \"1Mbit\" } }"),
                "set.weight: pairs have floors here",
            ),
            (
                mechanism("{ name = \"elasticswitch\", set = { reorder_window = \"1s\" } }"),
                "reorder_window in ms is 1000; it should lie between 0.01 and 20",
            ),
            (
                mechanism("{ name = \"elasticswitch\", set = { alpha = 2 } }"),
                "alpha is 2; it should lie between 0 and 1",
            ),
            (
                mechanism("{ name = \"elasticswitch\", set = { alhpa = 0.4 } }"),
                "set.alhpa: there is no such constant",
            ),
            (error(AS_IT_IS, ("name: h1", "name: h0")), "host `h0` is there twice"),
            (error(AS_IT_IS, ("name: b", "name: a")), "`a` is there twice"),
            (error(AS_IT_IS, ("10.1.0.2", "10.1.0.1")), "10.1.0.1 belongs to `a` and to `b`"),
            (error(AS_IT_IS, ("host: h1", "host: h7")), "on host `h7`, which is not listed"),
            (
                error(("listen = \"10.0.0.1", "listen = \"0.0.0.0"), AS_IT_IS),
                "listen: 0.0.0.0:7001 is",
            ),
            (error(("instance =", "pairs_per_vm = 0\ninstance ="), AS_IT_IS), "pairs_per_vm: 0"),
            (error(("port = \"p0\"", "port = \"p0\"\nmac = \"x\""), AS_IT_IS), "`x` is not a MAC"),
            (
                error(("instance =", "role = \"router\"\ninstance ="), AS_IT_IS),
                "unknown variant `router`, expected `host` or `gateway`",
            ),
            (error(AS_IT_IS, (", addresses: [10.1.0.2]", "")), "`b` has neither addresses nor"),
            (
                error(AS_IT_IS, ("addresses: [10.1.0.2]", "prefixes: [10.1.0.2/8]")),
                "`10.1.0.2/8` has bits behind its length",
            ),
            (
                error(AS_IT_IS, ("[10.1.0.2]", "[10.0.0.2]")),
                "10.0.0.2 belongs to vm `b` and to host `h1`",
            ),
            (
                error(AS_IT_IS, ("addresses: [10.1.0.1]", "prefixes: [0.0.0.0/0]")),
                "vm `a` has prefixes according to the directory, so its port leads outside",
            ),
            (
                error(AS_IT_IS, ("[10.1.0.2]}", "[10.1.0.2], prefixes: [10.1.0.2/32]}")),
                "`b` and `b` stand for 10.1.0.2/32 of `red`",
            ),
        ] {
            assert!(got.contains(wanted), "`{wanted}` in: {got}");
            assert!(got.contains("agent.toml") || got.contains("directory.yaml"), "no file: {got}");
        }
    }

    #[test]
    fn a_mistake_has_the_file_and_the_line_in_which_it_is() {
        let mechanism = |m| error(("{ name = \"elasticswitch\" }", m), AS_IT_IS);
        for (got, file, place) in [
            (error(("host = \"h0\"", "host = \"h9\""), AS_IT_IS), "agent.toml", "3: host: "),
            (error(("1Gbit", "0bit"), AS_IT_IS), "agent.toml", "7: uplink.rate: "),
            (error(("name = \"a\"", "name = \"z\""), AS_IT_IS), "agent.toml", "10: vm[0].name: "),
            (
                error(("listen = \"10.0.0.1", "listen = \"0.0.0.0"), AS_IT_IS),
                "agent.toml",
                "4: listen: ",
            ),
            (
                error(("instance =", "pairs_per_vm = 0\ninstance ="), AS_IT_IS),
                "agent.toml",
                "2: pairs_per_vm: ",
            ),
            (mechanism("{ name = \"magic\" }"), "agent.toml", "8: mechanism.name: "),
            (
                mechanism("{ name = \"elasticswitch\", set = { alhpa = 0.4 } }"),
                "agent.toml",
                "8: mechanism.set.alhpa: ",
            ),
            (
                mechanism("{ name = \"elasticswitch\", set = { alpha = 2 } }"),
                "agent.toml",
                "8: mechanism.set: ",
            ),
            (error(AS_IT_IS, ("name: h1", "name: h0")), "directory.yaml", "4: hosts[1].name: "),
            (error(AS_IT_IS, ("name: b", "name: a")), "directory.yaml", "7: vms[1].name: "),
            (error(AS_IT_IS, ("host: h1", "host: h7")), "directory.yaml", "7: vms[1].host: "),
            (
                error(AS_IT_IS, ("10.1.0.2", "10.1.0.1")),
                "directory.yaml",
                "7: vms[1].addresses[0]: ",
            ),
            (error(AS_IT_IS, (", addresses: [10.1.0.2]", "")), "directory.yaml", "7: vms[1]: "),
            (
                error(AS_IT_IS, ("[10.1.0.2]", "[10.0.0.2]")),
                "directory.yaml",
                "4: hosts[1].control: ",
            ),
            (
                error(AS_IT_IS, ("[10.1.0.2]}", "[10.1.0.2], prefixes: [10.1.0.2/32]}")),
                "directory.yaml",
                "7: vms[1].prefixes: ",
            ),
            (
                error(AS_IT_IS, ("addresses: [10.1.0.1]", "prefixes: [0.0.0.0/0]")),
                "agent.toml",
                "10: vm[0].name: ",
            ),
        ] {
            assert!(got.contains(&format!("/{file}:{place}")), "{file}:{place} in: {got}");
            let first = got.split(':').next().expect("a file");
            assert!(first.ends_with(file), "{file} first in: {got}");
        }
        let gone = error(("directory.yaml", "nowhere.yaml"), AS_IT_IS);
        assert!(gone.contains("nowhere.yaml: the directory that "), "{gone}");
        assert!(gone.contains("agent.toml:6 names cannot be read"), "{gone}");
    }

    #[test]
    fn a_host_that_is_not_listed_is_answered_with_those_that_are() {
        let got = error(("host = \"h0\"", "host = \"h9\""), AS_IT_IS);
        assert!(got.ends_with("hosts there are h0, h1"), "{got}");
        assert_eq!(some_of(["a", "b", "c", "d", "e", "f"].into_iter()), "a, b, c, d, e, …");
        assert_eq!(some_of([].into_iter()), "none");
    }
}
