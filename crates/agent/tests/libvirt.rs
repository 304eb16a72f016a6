//! A real domain of libvirt, emulated, with its floors in its metadata. Needs root, libvirtd and QEMU, which
//! `scripts/setup long` installs. The command is the one that cargo built beside the tests.
//!
//! libvirtd runs in a host's network namespace, so that its taps are there, and in a mount namespace with
//! configuration, state and sockets of its own: what is on this machine otherwise is left alone.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{C_HERE, reload};
use crate::common::{Agent, World, daemon, send, sh, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What a distribution's package would do, within one mount namespace: folders, and users of libvirt.
const INSIDE: &str = "
set -e
mount --make-rprivate /
for folder in etc/libvirt run/libvirt var/lib/libvirt var/log/libvirt var/cache/libvirt; do
	mkdir -p \"/$folder\" \"$1/$folder\"
	mount --bind \"$1/$folder\" \"/$folder\"
done
(grep -v '^libvirt-qemu:' /etc/passwd; echo libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin) >\"$1/passwd\"
(grep -v -e '^libvirt-qemu:' -e '^kvm:' /etc/group; echo libvirt-qemu:x:64055:; echo kvm:x:64056:) >\"$1/group\"
mount --bind \"$1/passwd\" /etc/passwd
mount --bind \"$1/group\" /etc/group
exec libvirtd --pid-file \"$1/pid\"
";

const DOMAIN: &str =
    "<domain type='qemu'><name>c</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<metadata><weir:vms xmlns:weir='urn:weir:libvirt:1'><weir:vm floor_out='8Mbit' floor_in='6Mbit'/>
</weir:vms></metadata><os><type arch='x86_64'>hvm</type></os><devices>
<emulator>/usr/bin/qemu-system-x86_64</emulator><interface type='bridge'>
<mac address='52:54:00:00:00:03'/><source bridge='br'/><model type='virtio'/></interface>
</devices></domain>";

/// libvirtd on a host; it and its guests are ended when dropped.
struct Libvirt<'a> {
    world: &'a World,
    n: u32,
    dir: PathBuf,
    daemon: Child,
}

impl<'a> Libvirt<'a> {
    fn new(world: &'a World, n: u32) -> Self {
        let dir = world.dir.join(format!("libvirt{n}"));
        let hooks = dir.join("etc/libvirt/hooks/qemu.d");
        fs::create_dir_all(&hooks).unwrap();
        let settings = "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\n\
                        cgroup_controllers = []\nnamespaces = []\nstdio_handler = \"file\"\n";
        fs::write(dir.join("etc/libvirt/qemu.conf"), settings).unwrap();
        // Two of one machine would refuse to migrate to each other.
        let settings = format!(
            "auth_unix_rw = \"none\"\nhost_uuid = \"4c4c4544-0050-4810-8051-b4c04f30313{n}\"\n"
        );
        fs::write(dir.join("etc/libvirt/libvirtd.conf"), settings).unwrap();
        // The hook of the package, with this world's command and configuration.
        let hook = include_str!("../../../packaging/libvirt-hook");
        let weir = daemon().with_file_name("../weir");
        assert!(weir.exists(), "{}: build the command: cargo build -p weir", weir.display());
        let config =
            format!("\"$@\" --config {}", world.dir.join(format!("host{n}.toml")).display());
        let text = hook
            .replace("${WEIR:-/usr/bin/weir}", &weir.display().to_string())
            .replace("\"$@\"", &config);
        assert_ne!(text, hook, "the hook has other words");
        fs::write(hooks.join("weir"), text).unwrap();
        fs::set_permissions(hooks.join("weir"), fs::Permissions::from_mode(0o755)).unwrap();
        let daemon = Self::start(world, n, &dir);
        let libvirt = Self { world, n, dir, daemon };
        libvirt.wait();
        libvirt
    }

    fn start(world: &World, n: u32, dir: &std::path::Path) -> Child {
        let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        world
            .command(n, "unshare".as_ref(), &[])
            .args(["--mount", "sh", "-c", INSIDE, "sh"])
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    #[track_caller]
    fn wait(&self) {
        until("libvirtd answers", 30, || Self::ask(&self.dir, &["list"]).is_ok());
    }

    fn uri(dir: &std::path::Path) -> String {
        format!("qemu+unix:///system?socket={}", dir.join("run/libvirt/libvirt-sock").display())
    }

    fn ask(dir: &std::path::Path, line: &[&str]) -> Result<String, String> {
        let output = Command::new("virsh").args(["-q", "-c", &Self::uri(dir)]).args(line).output();
        let output = output.expect("scripts/setup long installs libvirt-clients");
        let text = |octets: Vec<u8>| String::from_utf8_lossy(&octets).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    #[track_caller]
    fn virsh(&self, line: &[&str]) -> String {
        Self::ask(&self.dir, line).unwrap_or_else(|error| {
            panic!(
                "{line:?}: {error}\n{}",
                fs::read_to_string(self.dir.join("log")).unwrap_or_default()
            )
        })
    }

    /// Starts a guest; the name of its tap.
    #[track_caller]
    fn create(&self, domain: &str) -> String {
        let file = self.dir.join("domain.xml");
        fs::write(&file, domain).unwrap();
        self.virsh(&["create", file.to_str().unwrap()]);
        self.tap()
    }

    fn tap(&self) -> String {
        let list = self.virsh(&["domiflist", "c"]);
        list.split_whitespace().find(|word| word.starts_with("vnet")).expect("a tap").to_owned()
    }

    /// Ends the daemon alone, as an upgrade of it does.
    fn end(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }

    /// Processes of guests.
    fn guests(&self) -> Vec<i32> {
        self.world.processes(self.n, "guest=c,debug-threads=on")
    }
}

impl Drop for Libvirt<'_> {
    fn drop(&mut self) {
        self.end();
        self.guests().into_iter().for_each(|pid| send(pid, Signal::KILL));
    }
}

/// What is handed over on a host.
fn handed(world: &World, n: u32) -> Vec<String> {
    let folder = world.dir.join(format!("run/host{n}/vms.d"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
}

/// Whether the agent guards `c`.
fn is_guarded(agent: &Agent<'_>) -> bool {
    let top = agent.top();
    top.gone.is_empty() && top.counters.iter().any(|(name, _)| name == "port.c.rx_octets")
}

/// The floor of what `b` sends to `c`, while it sends, Mbit/s. `c` need not answer.
fn floor(world: &World, agent: &Agent<'_>) -> f64 {
    let socket = world.inside("vm2", || std::net::UdpSocket::bind("0.0.0.0:0").unwrap());
    for _ in 0..200 {
        let _ = socket.send_to(&[0; 1472], "10.0.0.3:9000");
    }
    let pairs = agent.top().pairs;
    let found = pairs.iter().find(|pair| (pair.from.as_str(), pair.to.as_str()) == ("b", "c"));
    found.map_or(0.0, |pair| pair.floor_bps as f64 / 1e6)
}

#[test]
fn a_domains_floors_are_in_force_from_its_start_to_its_stop() {
    let world = World::new();
    let directory = world.dir.join("directory.yaml");
    let text = fs::read_to_string(&directory).unwrap();
    fs::write(&directory, text + C_HERE).unwrap();
    // The guest has no system that would answer.
    world.ip("vm2", "neigh add 10.0.0.3 lladdr 52:54:00:00:00:03 dev eth0");
    let (one, two) = (world.start(1), world.start(2));
    let mut libvirt = Libvirt::new(&world, 1);

    let bare = DOMAIN.replace("urn:weir:libvirt:1", "urn:other");
    libvirt.create(&bare);
    assert_eq!(handed(&world, 1), [""; 0], "no element of ours");
    libvirt.virsh(&["destroy", "c"]);

    let tap = libvirt.create(DOMAIN);
    let text = handed(&world, 1).concat();
    assert!(text.contains(&format!("port = \"{tap}\"")), "{text}");
    until("it is guarded", 3, || is_guarded(&one));
    until("the sender has the floor of its metadata", 20, || {
        (5.9..6.1).contains(&floor(&world, &two))
    });
    until("its firmware asks for an address", 30, || {
        let top = one.top();
        top.counters.iter().any(|(name, n)| name == "port.c.tx_octets" && *n > 0)
    });

    // As libvirt's own restart, with a folder that was lost meanwhile.
    libvirt.end();
    fs::remove_dir_all(world.dir.join("run/host1/vms.d")).unwrap();
    until("it is taken back", 3, || !is_guarded(&one));
    libvirt.daemon = Libvirt::start(&world, 1, &libvirt.dir);
    libvirt.wait();
    until("it is handed over again", 10, || is_guarded(&one));
    assert_eq!(libvirt.tap(), tap);

    // Other floors, by the command of docs/libvirt.md.
    let element = "<vms><vm floor_out=\"8Mbit\" floor_in=\"4Mbit\"/></vms>";
    let set = ["metadata", "c", "--uri", "urn:weir:libvirt:1", "--key", "weir", "--live", "--set"];
    libvirt.virsh(&[&set[..], &[element]].concat());
    let xml = libvirt.dir.join("live.xml");
    fs::write(&xml, libvirt.virsh(&["dumpxml", "c"])).unwrap();
    let hook = libvirt.dir.join("etc/libvirt/hooks/qemu.d/weir");
    sh(&format!("sh {} {}", call(&libvirt.dir), hook.display()));
    until("the sender has the new floor", 20, || (3.9..4.1).contains(&floor(&world, &two)));

    // A guest that dies by itself.
    libvirt.guests().into_iter().for_each(|pid| send(pid, Signal::KILL));
    until("it is taken back", 10, || handed(&world, 1).is_empty() && one.top().gone.is_empty());
    assert!(!is_guarded(&one), "{}", one.log());

    // Without an agent a guest starts all the same, and with a wrong element, too.
    one.stop();
    libvirt.create(&DOMAIN.replace("6Mbit", "6"));
    assert_eq!(handed(&world, 1), [""; 0]);
    libvirt.virsh(&["destroy", "c"]);
    libvirt.create(DOMAIN);
    assert_eq!(handed(&world, 1).len(), 1);
    let one = world.start(1);
    until("the agent finds it at its start", 3, || is_guarded(&one));
    libvirt.virsh(&["destroy", "c"]);
    until("it went", 5, || !is_guarded(&one));
    assert_eq!(handed(&world, 1), [""; 0]);
    one.stop();
    two.stop();
}

/// A script that calls the hook as docs/libvirt.md says for a guest that runs.
fn call(dir: &std::path::Path) -> String {
    let script = dir.join("call");
    fs::write(&script, format!("\"$1\" c reconnect begin - <{}/live.xml\n", dir.display()))
        .unwrap();
    script.display().to_string()
}

#[test]
fn a_guest_that_migrates_is_guarded_where_the_directory_says_that_it_is() {
    let world = World::new();
    let directory = world.dir.join("directory.yaml");
    let text = fs::read_to_string(&directory).unwrap();
    fs::write(&directory, text.clone() + C_HERE).unwrap();
    let (one, two) = (world.start(1), world.start(2));
    let (from, to) = (Libvirt::new(&world, 1), Libvirt::new(&world, 2));
    from.create(DOMAIN);
    until("it is guarded", 3, || is_guarded(&one));
    let there = Libvirt::uri(&to.dir);
    from.virsh(&["migrate", "--live", "c", &there, "--migrateuri", "tcp://10.255.0.2"]);
    assert_eq!((handed(&world, 1).len(), handed(&world, 2).len()), (0, 1));
    until("host 1 took it back", 3, || !is_guarded(&one) && one.top().gone.is_empty());
    let why = |agent: &Agent<'_>| agent.top().gone.pop().and_then(|gone| gone.why);
    until("host 2 waits for the directory", 3, || {
        why(&two).is_some_and(|why| why.contains("vm `c` is on another host according to"))
    });
    fs::write(&directory, text + &C_HERE.replace("host1", "host2")).unwrap();
    reload(&one);
    reload(&two);
    until("it is guarded there", 3, || is_guarded(&two));
    to.virsh(&["destroy", "c"]);
    until("it is taken back", 3, || !is_guarded(&two));
    one.stop();
    two.stop();
}
