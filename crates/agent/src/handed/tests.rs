//! What a folder of handed VMs may do to a configuration, and what it may not.

use super::*;
use crate::config::Setup;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_rpc::kept::Kept;
use weir_rpc::messages::{Local, Tenant, Vm};

const DIRECTORY: &str = "
hosts:
  - {name: h0, control: 10.0.0.1:7001}
  - {name: h1, control: 10.0.0.2:7001}
vms:
  - {name: a, tenant: red, host: h0, addresses: [10.1.0.1]}
  - {name: web, tenant: red, host: h0, addresses: [10.1.0.2]}
  - {name: db, tenant: red, host: h0, addresses: [10.1.0.3]}
  - {name: far, tenant: red, host: h1, addresses: [10.1.0.4]}
";

const WEB: &str = "[[vm]]\nname = \"web\"\nport = \"vnet0\"\nfloor_out = \"5Mbit\"\n\
                   floor_in = \"7Mbit\"\ncap_out = \"50Mbit\"\n";

/// The files of one agent, removed when dropped.
struct Host(PathBuf);

impl Host {
    fn new(controller: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-handed-{}-{n}", std::process::id()));
        let host = Self(dir);
        fs::create_dir_all(host.folder()).expect("a folder");
        let at = |name: &str| host.0.join(name).display().to_string();
        let source = match controller {
            true => {
                format!("controller = {{ address = \"c:7443\", state_dir = {:?} }}\n", at("state"))
            }
            false => format!("directory = {:?}\nkey_file = {:?}\n", at("directory"), at("key")),
        };
        let vm = match controller {
            true => "",
            false => {
                "[[vm]]\nname = \"a\"\nport = \"p0\"\nfloor_out = \"3Mbit\"\nfloor_in = \"3Mbit\"\n"
            }
        };
        let config = format!(
            "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nrun_dir = {:?}\n{source}\
             uplink = {{ interface = \"up0\", rate = \"1Gbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\" }}\n{vm}",
            at("run")
        );
        fs::write(at("agent.toml"), config).expect("written");
        fs::write(at("directory"), DIRECTORY).expect("written");
        host
    }

    fn folder(&self) -> PathBuf {
        folder(&self.0.join("run"), "h0")
    }

    fn hand(&self, file: &str, text: &str) {
        fs::write(self.folder().join(file), text).expect("written");
    }

    fn config(&self) -> PathBuf {
        self.0.join("agent.toml")
    }

    #[track_caller]
    fn load(&self) -> Setup {
        Setup::load(&self.config()).unwrap_or_else(|e| panic!("an agent would not start: {e:#}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Name and port of each VM that is in force.
fn ports(setup: &Setup) -> Vec<(&str, &str)> {
    setup.file.vms.iter().map(|vm| (vm.name.as_str(), vm.port.as_str())).collect()
}

/// What is left out, without its folder.
fn refused(setup: &Setup) -> Vec<(&str, &str)> {
    let refused = setup.handed.refused.iter();
    refused.map(|refused| (refused.vm.as_str(), refused.why.as_str())).collect()
}

#[test]
fn a_handed_vm_is_one_of_the_hosts_and_goes_with_its_file() {
    let host = Host::new(false);
    assert_eq!(ports(&host.load()), [("a", "p0")]);
    host.hand("1.toml", WEB);
    let setup = host.load();
    assert_eq!(ports(&setup), [("a", "p0"), ("web", "vnet0")]);
    let web = &setup.file.vms[1];
    let rates = [web.floor_out, web.floor_in, web.cap_out.expect("a cap")];
    assert_eq!(rates.map(|rate| rate.0.as_bps()), [5_000_000, 7_000_000, 50_000_000]);
    assert!(setup.host.hose(setup.names.id("web").expect("known")).is_some());
    assert_eq!(refused(&setup), []);
    fs::remove_file(host.folder().join("1.toml")).expect("removed");
    assert_eq!(ports(&setup.with_handed(&host.config()).expect("sound")), [("a", "p0")]);
    assert_eq!(ports(&Setup::reload(&host.config(), &setup).expect("sound")), [("a", "p0")]);
}

#[test]
fn what_was_handed_over_is_taken_up_beside_files_that_are_half_edited() {
    let host = Host::new(false);
    let setup = host.load();
    fs::write(host.config(), "instance = ").expect("written");
    fs::write(host.0.join("directory"), "hosts: [").expect("written");
    host.hand("1.toml", WEB);
    let next = setup.with_handed(&host.config()).expect("the configuration in force");
    assert_eq!(ports(&next), [("a", "p0"), ("web", "vnet0")]);
    assert_ne!(next.handed.stamps, setup.handed.stamps);
    assert_eq!(next.handed.stamps, stamps(&host.folder()).expect("readable"));
}

#[test]
fn a_vm_of_agent_toml_takes_its_port_and_nothing_else() {
    let host = Host::new(false);
    host.hand("1.toml", &WEB.replace("web", "a"));
    let setup = host.load();
    assert_eq!(ports(&setup), [("a", "vnet0")]);
    let a = &setup.file.vms[0];
    assert_eq!((a.floor_out.0.as_bps(), a.floor_in.0.as_bps()), (3_000_000, 3_000_000));
    assert_eq!(a.cap_out, None);
    assert!(setup.handed.has("a"));
}

#[test]
fn what_cannot_be_used_is_left_out_alone_with_its_reason() {
    let long = format!("{WEB}#{}", "x".repeat(OCTETS_MOST as usize));
    let vm = |from: &str, to: &str| {
        assert!(WEB.contains(from), "nothing to replace");
        WEB.replace(from, to)
    };
    for (text, wanted) in [
        (vm("web", "nowhere"), "vm `nowhere` is not in"),
        (vm("web", "far"), "vm `far` is on another host according to"),
        (vm("\"vnet0\"", "\"../vnet0\""), "is no name of a network interface"),
        (vm("\"vnet0\"", "\"\""), "is no name of a network interface"),
        (vm("floor_in = \"7Mbit\"\n", ""), "write floor_out and floor_in"),
        (vm("7Mbit", "-7Mbit"), "`-7Mbit` is not a rate"),
        (vm("7Mbit", "7"), "`7` has no unit"),
        (vm("7Mbit", "7Mbps"), "`Mbps` is octets to tc"),
        (vm("5Mbit", "2Gbit"), "and the uplink carries 1 Gb/s"),
        (vm("50Mbit", "5Mbit"), "vm `web` may send 5 Mb/s, and is promised"),
        (vm("cap_out", "cap_in"), "unknown field `cap_in`"),
        (vm("[[vm]]", "host = \"x\"\n[[vm]]"), "unknown field `host`"),
        (WEB[..40].to_owned(), ""),
        (vm("web", "w\0b"), "there is a NUL"),
        (long, "the file is longer than 65536 octets"),
    ] {
        let host = Host::new(false);
        host.hand("bad.toml", &text);
        host.hand("good.toml", &WEB.replace("web", "db").replace("vnet0", "vnet9"));
        let setup = host.load();
        assert_eq!(ports(&setup), [("a", "p0"), ("db", "vnet9")], "{wanted}");
        let [(_, why)] = refused(&setup)[..] else { panic!("{:?}", setup.handed.refused) };
        assert!(why.contains(wanted) && !why.is_empty(), "`{wanted}` in: {why}");
    }
}

#[test]
fn handed_vms_that_are_too_much_together_leave_the_others_as_they_were() {
    let file = AgentConfig { vms: vec![alone(&one("a", "p0"))], ..host_file() };
    let mut handed = Handed::default();
    for (name, port) in [("web", "vnet0"), ("db", "vnet1")] {
        handed.vms.push((one(name, port), "x.toml".into()));
    }
    let two_at_most = |file: AgentConfig| match file.vms.len() {
        0..=2 => Ok(file.vms.len()),
        _ => Err(Mistake::config("mechanism", "too many")),
    };
    let listed = weir_model::agent::parse_directory(DIRECTORY).expect("sound");
    let (left, handed) =
        handed.resolve(&file, &listed, two_at_most).expect("without them it is sound");
    let why: Vec<&str> = handed.refused.iter().map(|refused| refused.why.as_str()).collect();
    assert_eq!((left, &why[..]), (1, &["too many", "too many"][..]));
    let refused = |_| Err::<(), _>(Mistake::config("vm[0].port", "bad without any"));
    let mistake = handed.resolve(&file, &listed, refused).expect_err("not because of them");
    assert_eq!(mistake.what(), "bad without any");
}

#[test]
fn guests_that_the_directory_does_not_have_cost_no_look_at_the_whole_of_it() {
    let file = host_file();
    let mut handed = Handed::default();
    for n in 0..100 {
        let name = if n % 2 == 0 { format!("x{n}") } else { "far".into() };
        handed.vms.push((one(&name, &format!("vnet{n}")), "x.toml".into()));
    }
    let listed = weir_model::agent::parse_directory(DIRECTORY).expect("sound");
    let looks = std::cell::Cell::new(0);
    let resolve = |file: AgentConfig| {
        looks.set(looks.get() + 1);
        Ok(file.vms.len())
    };
    let (left, handed) = handed.resolve(&file, &listed, resolve).expect("without them");
    assert_eq!((left, handed.refused.len(), looks.get()), (1, 100, 1));
}

fn one(name: &str, port: &str) -> HandedVm {
    let floor = Some(RateText::default());
    let (name, port) = (name.to_owned(), port.to_owned());
    HandedVm { name, port, floor_out: floor, floor_in: floor, cap_out: None }
}

fn host_file() -> AgentConfig {
    let host = Host::new(false);
    crate::config::read(&host.config()).expect("sound")
}

#[test]
fn of_two_files_with_one_vm_or_one_port_the_newer_one_counts() {
    let host = Host::new(false);
    let hand = |file: &str, text: &str, second: u64| {
        host.hand(file, text);
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let opened = fs::File::options().write(true).open(host.folder().join(file));
        opened.and_then(|file| file.set_modified(at)).expect("its time is set");
    };
    hand("1.toml", WEB, 1000);
    hand("2.toml", &WEB.replace("web", "db"), 2000);
    let setup = host.load();
    assert_eq!(ports(&setup), [("a", "p0"), ("db", "vnet0")]);
    assert_eq!(
        refused(&setup),
        [("web", "a newer file has this port, so it is another guest's by now")]
    );
    hand("2.toml", &WEB.replace("vnet0", "vnet1"), 2000);
    let setup = host.load();
    assert_eq!(ports(&setup), [("a", "p0"), ("web", "vnet1")]);
    assert_eq!(
        refused(&setup),
        [("web", "a newer file has this VM, too: name each VM in one guest only")]
    );
}

#[test]
fn only_whole_files_of_the_folder_are_read() {
    let host = Host::new(false);
    host.hand("1.new", WEB);
    fs::create_dir(host.folder().join("2.toml")).expect("made");
    let elsewhere = host.0.join("elsewhere");
    fs::write(&elsewhere, WEB).expect("written");
    std::os::unix::fs::symlink(&elsewhere, host.folder().join("3.toml")).expect("linked");
    let setup = host.load();
    assert_eq!((ports(&setup), refused(&setup)), (vec![("a", "p0")], vec![]));
    fs::rename(host.folder().join("1.new"), host.folder().join("1.toml")).expect("renamed");
    assert_ne!(stamps(&host.folder()).expect("readable"), setup.handed.stamps);
    assert_eq!(ports(&host.load()), [("a", "p0"), ("web", "vnet0")]);
}

#[test]
fn a_folder_that_cannot_be_read_is_not_an_empty_one() {
    let host = Host::new(false);
    host.hand("1.toml", WEB);
    let setup = host.load();
    let folder = host.folder();
    fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(stamps(&folder).expect("it is not there"), Stamps::new());
    fs::write(&folder, "no folder").expect("written");
    assert!(stamps(&folder).is_err());
    let error = setup.with_handed(&host.config()).expect_err("the configuration in use stays");
    assert!(format!("{error:#}").contains("vms.d: cannot be read"), "{error:#}");
}

#[test]
fn a_file_that_may_not_be_read_is_left_out_alone() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt as _;
    let host = Host::new(false);
    host.hand("1.toml", WEB);
    host.hand("2.toml", &WEB.replace("web", "db").replace("vnet0", "vnet9"));
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(host.folder().join("1.toml"), closed).expect("its mode is set");
    // As in the agent's unit. Privileges are a thread's.
    let without = |host: &Host| {
        let mut sets = capabilities(None).expect("its own");
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).expect("fewer");
        host.load()
    };
    let setup = std::thread::scope(|scope| scope.spawn(|| without(&host)).join().expect("read"));
    assert_eq!(ports(&setup), [("a", "p0"), ("db", "vnet9")]);
    let [("1", why)] = refused(&setup)[..] else { panic!("{:?}", setup.handed.refused) };
    assert!(why.starts_with("Permission denied"), "{why}");
}

/// What a controller said of `a`, without a port, and of `db`.
fn kept() -> Kept {
    let vm = |name: &str, number, port: &str| Vm {
        name: name.into(),
        number,
        host: "h0".into(),
        addresses: vec![format!("10.1.0.{number}")],
        local: Some(Local {
            port: port.into(),
            floor_out: 3_000_000,
            floor_in: 4_000_000,
            ..Local::default()
        }),
        ..Vm::default()
    };
    let vms = vec![vm("a", 1, ""), vm("db", 3, "tap3")];
    let red = Tenant { name: "red".into(), version: 1, vms, hosts: Vec::new(), queue: None };
    Kept { host: "h0".into(), ..Kept::default() }.with([&red])
}

#[test]
fn the_controllers_vms_take_ports_and_keep_their_floors_and_no_other_vm_comes() {
    let host = Host::new(true);
    host.hand("1.toml", &WEB.replace("web", "a"));
    host.hand("2.toml", &WEB.replace("vnet0", "vnet2"));
    let file = crate::config::read(&host.config()).expect("sound");
    let setup = Setup::of_kept(file, (&host.config(), ""), &kept(), None).expect("sound");
    assert_eq!(ports(&setup), [("a", "vnet0"), ("db", "tap3")]);
    assert_eq!(setup.file.vms[0].floor_out.0.as_bps(), 3_000_000);
    let no_such = "the controller has no such VM on this host: see `weir get vms`";
    assert_eq!(refused(&setup), [("web", no_such)]);
    // Its guest stops: the VM stays known, without a port.
    fs::remove_file(host.folder().join("1.toml")).expect("removed");
    let next = setup.with_handed(&host.config()).expect("sound");
    assert_eq!(ports(&next), [("a", ""), ("db", "tap3")]);
}
