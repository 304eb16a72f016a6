//! Traffic that bypasses the host's kernel: virtual functions, passthrough, vhost-user, macvtap.
//!
//! Problem   A guest's packets that reach the card without this kernel have no floor, and take
//!           others' bandwidth unseen.
//! Approach  sysfs shows virtual functions, their owners, and the kinds of devices. The command
//!           lines of running machines show the rest.
//! Source    Linux Documentation/PCI/pci-iov-howto, Documentation/networking/representors;
//!           QEMU `-netdev vhost-user`, `-netdev vhost-vdpa`, `-device vfio-pci`.

use super::{Finding, Roots, State, link_name, names, text};
use std::path::Path;

/// Whether a device's packets pass this kernel's hooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// They do; the kind of the device.
    Through(String),
    /// They do not; the reason.
    Past(String),
}

const ARPHRD_ETHER: &str = "1";
const IFF_TUN: u32 = 1;
const IFF_TAP: u32 = 2;

/// Judges a device by its folder in sysfs (`…/class/net/NAME`).
pub(super) fn way_of(device: &Path) -> Way {
    if device.join("device/physfn").exists() {
        return Way::Past(
            "an SR-IOV virtual function: packets go between guest and card without this kernel"
                .into(),
        );
    }
    if text(&device.join("phys_port_name")).is_some_and(|name| is_representor(&name)) {
        return Way::Past(
            "the representor of a virtual function: the card forwards what it has learned by itself"
                .into(),
        );
    }
    if device.join("macvtap").exists() {
        return Way::Past(
            "a macvtap: frames enter the device below without passing this one".into(),
        );
    }
    let flags = text(&device.join("tun_flags"));
    let flags = flags.and_then(|t| u32::from_str_radix(t.trim_start_matches("0x"), 16).ok());
    match flags {
        Some(flags) if flags & IFF_TUN != 0 => {
            return Way::Past("a tun device: it carries no Ethernet frames".into());
        }
        Some(flags) if flags & IFF_TAP != 0 => return Way::Through("a tap".into()),
        _ => {}
    }
    match text(&device.join("type")).as_deref() {
        Some(ARPHRD_ETHER) => {}
        Some(other) => return Way::Past(format!("no Ethernet device (its type is {other})")),
        None => return Way::Past("a device that does not say what it is".into()),
    }
    let uevent = text(&device.join("uevent")).unwrap_or_default();
    match uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")) {
        Some(kind @ ("macvlan" | "ipvlan" | "ipvtap" | "macvtap")) => {
            Way::Past(format!("a {kind}: frames enter the device below without passing a port"))
        }
        Some(kind) => Way::Through(format!("a {kind}")),
        None if device.join("device").exists() => Way::Through("a card".into()),
        None => Way::Through("a virtual Ethernet device".into()),
    }
}

/// `pf0vf3`, `c1pf0sf88`.
fn is_representor(name: &str) -> bool {
    let digits = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
    let rest = name.strip_prefix('c').map_or_else(|| name.to_owned(), digits);
    let Some(rest) = rest.strip_prefix("pf").map(digits) else { return false };
    let Some(last) = rest.strip_prefix("vf").or(rest.strip_prefix("sf")) else { return false };
    !last.is_empty() && last.bytes().all(|c| c.is_ascii_digit())
}

/// Everything on this host that bypasses its kernel: at the uplink (if named), and in the command
/// lines of running machines.
pub fn bypasses(roots: &Roots, uplink: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = uplink {
        findings.extend(virtual_functions(roots, name));
    }
    findings.extend(passed_through(roots));
    findings.extend(machines(roots));
    if findings.is_empty() {
        findings.push(Finding::fine("ways past the kernel", "none seen"));
    }
    findings
}

/// Virtual functions of the uplink, and their owners.
fn virtual_functions(roots: &Roots, uplink: &str) -> Option<Finding> {
    let card = roots.device(uplink).join("device");
    let functions: Vec<String> =
        names(&card).into_iter().filter(|name| name.starts_with("virtfn")).collect();
    let count = text(&card.join("sriov_numvfs"))
        .and_then(|n| n.parse::<usize>().ok())
        .unwrap_or(0)
        .max(functions.len());
    if count == 0 {
        return None;
    }
    let driver = |name: &String| link_name(&card.join(name).join("driver"));
    let given: Vec<&String> =
        functions.iter().filter(|f| driver(f).is_some_and(|d| is_for_guests(&d))).collect();
    let what = format!("virtual functions of {uplink}");
    let switch = card.join("sriov_numvfs");
    let remedy =
        format!("give guests taps, and the card no functions: echo 0 > {}", switch.display());
    if given.is_empty() {
        let costs = "a guest that is given one sends past every floor";
        return Some(Finding::new(
            what,
            State::Costs,
            format!("{count}, held by the host"),
            costs,
            remedy,
        ));
    }
    Some(Finding::new(
        what,
        State::Unenforced,
        format!("{count}, of which guests hold {}", given.len()),
        "their traffic shares the line unseen: no floor on this uplink is safe from it",
        remedy,
    ))
}

fn is_for_guests(driver: &str) -> bool {
    driver == "vfio-pci" || driver.ends_with("_vfio_pci") || driver.ends_with("-vfio-pci")
}

/// Network devices whose driver is one for guests. Class 02 of PCI is "network".
fn passed_through(roots: &Roots) -> Option<Finding> {
    let drivers = roots.sys.join("bus/pci/drivers");
    let mut found = Vec::new();
    for driver in names(&drivers).into_iter().filter(|name| is_for_guests(name)) {
        let folder = drivers.join(&driver);
        found.extend(names(&folder).into_iter().filter(|name| {
            text(&folder.join(name).join("class")).is_some_and(|class| class.starts_with("0x02"))
        }));
    }
    let vdpa = names(&roots.sys.join("bus/vdpa/devices"));
    found.extend(vdpa);
    if found.is_empty() {
        return None;
    }
    Some(Finding::new(
        "network devices of guests",
        State::Unenforced,
        found.join(", "),
        "what guests send by them passes no program and no queue of this host",
        "give guests taps; or let these have a line of their own",
    ))
}

/// Running machines whose command line names a way around the kernel.
fn machines(roots: &Roots) -> Vec<Finding> {
    let mut findings = Vec::new();
    for process in names(&roots.proc) {
        if !process.bytes().all(|c| c.is_ascii_digit()) {
            continue;
        }
        // A process may end while it is looked at.
        let Ok(octets) = std::fs::read(roots.proc.join(&process).join("cmdline")) else { continue };
        let arguments: Vec<String> =
            octets.split(|c| *c == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        if let Some(why) = past_the_kernel(&arguments) {
            findings.push(Finding::new(
                format!("machine {}", machine_name(&arguments, &process)),
                State::Unenforced,
                why,
                "its traffic passes no program and no queue of this host: it has no floor, and may \
                 take others'",
                "give it a tap (libvirt: interface type='bridge' or 'ethernet')",
            ));
        }
    }
    findings
}

/// The reason why a machine with these arguments is not seen, if so.
fn past_the_kernel(arguments: &[String]) -> Option<String> {
    let program = Path::new(arguments.first()?).file_name()?.to_string_lossy().into_owned();
    let is_machine = ["qemu", "cloud-hypervisor", "crosvm"].iter().any(|m| program.starts_with(m));
    if !is_machine {
        return None;
    }
    let has = |word: &str| arguments.iter().any(|a| a.contains(word));
    if has("vhost-user,") && arguments.iter().any(|a| a.starts_with("vhost-user,")) {
        return Some(
            "vhost-user: packets go by shared memory to a switch outside the kernel".into(),
        );
    }
    // QEMU's newer form of the same.
    if has("\"type\":\"vhost-user\"") || has("vhost_user=true") || has("vhost-user-net") {
        return Some(
            "vhost-user: packets go by shared memory to a switch outside the kernel".into(),
        );
    }
    if has("vhost-vdpa") {
        return Some("vDPA: packets go between guest and card without this kernel".into());
    }
    None
}

/// QEMU's name of the machine, or its process.
fn machine_name(arguments: &[String], process: &str) -> String {
    let after = arguments.iter().skip_while(|a| *a != "-name").nth(1);
    let name = after.map(|n| n.split(',').next().unwrap_or_default());
    match name.map(|n| n.trim_start_matches("guest=")).filter(|n| !n.is_empty()) {
        Some(name) => format!("{name} (process {process})"),
        None => format!("of process {process}"),
    }
}

/// A sysfs and a procfs of our own.
#[cfg(test)]
pub(super) mod testing {
    use super::super::Roots;
    use std::fs;
    use std::path::PathBuf;

    /// Removed when dropped.
    pub(in super::super) struct Sysfs(PathBuf);

    impl Sysfs {
        pub(in super::super) fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-sysfs-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        pub(in super::super) fn roots(&self) -> Roots {
            Roots { sys: self.0.clone(), proc: self.0.join("proc") }
        }

        pub(in super::super) fn file(&self, name: &str, content: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, content).expect("written");
        }

        pub(in super::super) fn link(&self, name: &str, to: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            // What it leads to must exist, as in sysfs.
            let target = path.parent().expect("below the root").join(to);
            fs::create_dir_all(&target).expect("a folder");
            std::os::unix::fs::symlink(to, path).expect("linked");
        }

        pub(in super::super) fn ethernet(&self, name: &str) {
            self.file(&format!("class/net/{name}/type"), "1\n");
            self.file(&format!("class/net/{name}/uevent"), "INTERFACE=x\nIFINDEX=3\n");
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Sysfs;
    use super::*;

    fn way(sysfs: &Sysfs, name: &str) -> Way {
        way_of(&sysfs.roots().device(name))
    }

    #[test]
    fn taps_veths_bridges_and_cards_are_seen() {
        let sysfs = Sysfs::new("through");
        for name in ["tap0", "veth0", "br0", "eth0"] {
            sysfs.ethernet(name);
        }
        sysfs.file("class/net/tap0/tun_flags", "0x1002\n");
        sysfs.file("class/net/br0/uevent", "DEVTYPE=bridge\nINTERFACE=br0\n");
        sysfs.file("class/net/eth0/device/vendor", "0x8086\n");
        let through = |name: &str| Way::Through(name.into());
        assert_eq!(way(&sysfs, "tap0"), through("a tap"));
        assert_eq!(way(&sysfs, "veth0"), through("a virtual Ethernet device"));
        assert_eq!(way(&sysfs, "br0"), through("a bridge"));
        assert_eq!(way(&sysfs, "eth0"), through("a card"));
    }

    #[test]
    fn what_passes_the_kernel_is_told_with_its_reason() {
        let sysfs = Sysfs::new("past");
        for name in ["vf", "rep", "mvt", "mvl", "tun", "ib"] {
            sysfs.ethernet(name);
        }
        sysfs.link("class/net/vf/device/physfn", "../pf");
        sysfs.file("class/net/rep/phys_port_name", "c1pf0vf12\n");
        sysfs.file("class/net/mvt/macvtap/tap3/dev", "240:1\n");
        sysfs.file("class/net/mvl/uevent", "DEVTYPE=macvlan\n");
        sysfs.file("class/net/tun/tun_flags", "0x1001\n");
        sysfs.file("class/net/ib/type", "32\n");
        for (name, reason) in [
            ("vf", "SR-IOV"),
            ("rep", "representor"),
            ("mvt", "macvtap"),
            ("mvl", "macvlan"),
            ("tun", "no Ethernet frames"),
            ("ib", "its type is 32"),
            ("absent", "does not say what it is"),
        ] {
            let Way::Past(why) = way(&sysfs, name) else { panic!("{name} is seen") };
            assert!(why.contains(reason), "{name}: {why}");
        }
        assert!(!is_representor("p0") && !is_representor("pf0") && is_representor("pf0sf1"));
    }

    #[test]
    fn virtual_functions_count_and_those_of_guests_are_unenforced() {
        let sysfs = Sysfs::new("numvfs");
        assert_eq!(virtual_functions(&sysfs.roots(), "eth0"), None);
        sysfs.file("class/net/eth0/device/sriov_numvfs", "2\n");
        sysfs.link("class/net/eth0/device/virtfn0", "../../../devices/vf0");
        sysfs.link("class/net/eth0/device/virtfn1", "../../../devices/vf1");
        let held = virtual_functions(&sysfs.roots(), "eth0").expect("two");
        assert_eq!((held.state, held.found.as_str()), (State::Costs, "2, held by the host"));
        sysfs.link("class/devices/vf1/driver", "../../../bus/vfio-pci");
        let given = virtual_functions(&sysfs.roots(), "eth0").expect("two");
        assert_eq!(given.state, State::Unenforced);
        assert_eq!(given.found, "2, of which guests hold 1");
    }

    #[test]
    fn a_card_in_the_hands_of_a_guest_is_named_and_a_disk_is_not() {
        let sysfs = Sysfs::new("vfio");
        let device = |address: &str, class: &str| {
            sysfs.file(&format!("bus/pci/drivers/vfio-pci/{address}/class"), class);
        };
        device("0000:3b:02.1", "0x020000\n");
        device("0000:01:00.0", "0x010802\n");
        let found = passed_through(&sysfs.roots()).expect("one");
        assert_eq!((found.state, found.found.as_str()), (State::Unenforced, "0000:3b:02.1"));
    }

    #[test]
    fn machines_by_vhost_user_are_named_and_others_are_not() {
        let sysfs = Sysfs::new("machines");
        let run = |id: u32, arguments: &[&str]| {
            sysfs.file(&format!("proc/{id}/cmdline"), &(arguments.join("\0") + "\0"));
        };
        run(
            7,
            &[
                "/usr/bin/qemu-system-x86_64",
                "-name",
                "guest=db,debug-threads=on",
                "-netdev",
                "vhost-user,chardev=c0,id=n0",
            ],
        );
        run(8, &["qemu-system-x86_64", "-netdev", "tap,fd=3,id=n0,vhost=on"]);
        run(9, &["qemu-system-x86_64", "-netdev", "{\"type\":\"vhost-vdpa\",\"id\":\"n\"}"]);
        run(10, &["vi", "vhost-user,notes"]);
        let found = bypasses(&sysfs.roots(), None);
        let names: Vec<&str> = found.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(names, ["machine db (process 7)", "machine of process 9"]);
        assert!(found.iter().all(|f| f.state == State::Unenforced));
    }

    #[test]
    fn a_host_without_such_ways_says_so() {
        let sysfs = Sysfs::new("nothing");
        let found = bypasses(&sysfs.roots(), Some("eth0"));
        assert_eq!((found.len(), found[0].state), (1, State::Fine));
    }
}
