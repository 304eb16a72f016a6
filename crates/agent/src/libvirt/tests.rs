//! Domains as libvirt gives them, and as it never should.

use super::*;
use crate::handed::HandedVm;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const UUID: &str = "1e4ea45c-5c92-41eb-8177-b7a0d3f77e34";

/// A running domain with this metadata and these interfaces.
fn domain(metadata: &str, interfaces: &str) -> String {
    format!(
        "<domain type='qemu' id='1'>\n  <name>shop &amp; co</name>\n  <uuid>{UUID}</uuid>\n  \
         <metadata>\n    <other:app xmlns:other='http://example.org/'><other:vm floor_out='1'/>\
         </other:app>\n    {metadata}\n  </metadata>\n  <devices>\n    <disk type='file'>\
         <target dev='vda'/></disk>\n    {interfaces}\n  </devices>\n</domain>\n"
    )
}

/// An interface as a running domain has it.
fn tap(n: u8) -> String {
    format!(
        "<interface type='bridge'><mac address='52:54:00:00:00:0{n}'/><source bridge='br0'/>\
         <target dev='vnet{n}'/><model type='virtio'/></interface>"
    )
}

fn element(vms: &str) -> String {
    format!("<weir:vms xmlns:weir='urn:weir:libvirt:1'>{vms}</weir:vms>")
}

fn handed(metadata: &str, interfaces: &str) -> Result<Vec<HandedVm>, String> {
    Domain::parse(&domain(metadata, interfaces))?.handed()
}

/// A folder with an `agent.toml`, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-hook-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let config = format!(
            "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nrun_dir = {:?}\n\
             directory = \"/d\"\nkey_file = \"/k\"\n\
             uplink = {{ interface = \"up0\", rate = \"1Gbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\" }}\n",
            dir.join("run")
        );
        fs::write(dir.join("agent.toml"), config).expect("written");
        Self(dir)
    }

    fn hook(&self, operation: &str, xml: &str) -> Result<Vec<String>, String> {
        hook(&self.0.join("agent.toml"), operation, xml.as_bytes()).map_err(|e| format!("{e:#}"))
    }

    /// The file of the domain.
    fn file(&self) -> Option<String> {
        fs::read_to_string(self.0.join(format!("run/h0/vms.d/{UUID}.toml"))).ok()
    }

    /// Files that are there besides `agent.toml`.
    fn count(&self) -> usize {
        fs::read_dir(self.0.join("run/h0/vms.d")).map_or(0, Iterator::count)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_guest_is_handed_over_from_its_start_to_its_stop() {
    let place = Place::new();
    let xml = domain(&element("<weir:vm floor_out='5Mbit' floor_in='0.5Gbit'/>"), &tap(3));
    assert_eq!(place.hook("prepare", &xml), Ok(vec![]));
    assert_eq!(place.file(), None, "its port is not there yet");
    let said = place.hook("start", &xml).expect("sound");
    assert_eq!(said, ["domain `shop & co`: handed over VM `shop & co` on vnet3"]);
    let wanted = "# From libvirt's domain \"shop & co\", until it stops.\n\n[[vm]]\n\
                  name = \"shop & co\"\nport = \"vnet3\"\nfloor_out = \"5000000bit\"\n\
                  floor_in = \"500000000bit\"\n";
    assert_eq!(place.file().as_deref(), Some(wanted));
    assert_eq!(place.count(), 1, "nothing beside it");
    assert_eq!(place.hook("started", &xml), Ok(vec![]), "it is there already");
    for other in ["migrate", "restore", "prepare", "shutdown", ""] {
        assert_eq!(place.hook(other, &xml), Ok(vec![]));
        assert_eq!(place.file().as_deref(), Some(wanted), "{other}");
    }
    let took = Ok(vec!["domain `shop & co`: its VMs were taken back".to_owned()]);
    assert_eq!(place.hook("stopped", &xml), took);
    assert_eq!(place.count(), 0);
    assert_eq!(place.hook("release", &xml), Ok(vec![]), "it is gone already");
    place.hook("reconnect", &xml).expect("libvirt started anew");
    assert_eq!(place.file().as_deref(), Some(wanted));
    let without = domain("", &tap(3));
    assert_eq!(place.hook("reconnect", &without), took, "the element was removed");
    assert_eq!(place.count(), 0);
}

#[test]
fn a_domain_without_our_metadata_changes_nothing_and_needs_no_agent() {
    let place = Place::new();
    let bare = domain("", &tap(1));
    let foreign =
        domain("<weir:vms xmlns:weir='urn:weird'><vm floor_out='x'/></weir:vms>", &tap(1));
    let none = format!("<domain><name>a</name><uuid>{UUID}</uuid></domain>");
    for xml in [&bare, &foreign, &none] {
        for operation in ["start", "started", "reconnect", "stopped", "release"] {
            assert_eq!(place.hook(operation, xml), Ok(vec![]), "{operation}: {xml}");
        }
    }
    assert!(!place.0.join("run").exists(), "not even the folder");
    fs::remove_file(place.0.join("agent.toml")).expect("removed");
    assert_eq!(place.hook("start", &bare), Ok(vec![]));
    let ours = domain(&element("<weir:vm floor_out='1M' floor_in='1M'/>"), &tap(1));
    let error = place.hook("start", &ours).expect_err("no agent.toml");
    assert!(error.contains("domain `shop & co`") && error.contains("agent.toml"), "{error}");
}

#[test]
fn an_element_that_is_wrong_by_now_leaves_a_running_guest_as_it_was() {
    let place = Place::new();
    let xml = domain(&element("<weir:vm floor_out='5Mbit' floor_in='5Mbit'/>"), &tap(3));
    place.hook("start", &xml).expect("sound");
    let before = place.file();
    let error = place.hook("reconnect", &xml.replace("5Mbit", "5")).expect_err("no unit");
    assert!(
        error.contains("domain `shop & co`: metadata: vm[0]: floor_out: `5` has no"),
        "{error}"
    );
    assert_eq!(place.file(), before);
}

#[test]
fn an_element_that_is_wrong_when_a_guest_starts_gives_up_the_port_of_an_earlier_run() {
    let place = Place::new();
    let xml = domain(&element("<weir:vm floor_out='5Mbit' floor_in='5Mbit'/>"), &tap(3));
    place.hook("start", &xml).expect("sound");
    // Its end was missed: the hook was killed, or `agent.toml` was half edited.
    let wrong = domain(&element("<weir:vm floor_out='5' floor_in='5Mbit'/>"), &tap(9));
    let error = place.hook("start", &wrong).expect_err("no unit");
    assert!(error.contains("vm[0]: floor_out: `5` has no"), "{error}");
    assert_eq!(place.file(), None, "vnet3 may be another guest's");
}

#[test]
fn two_interfaces_are_told_apart_by_their_addresses() {
    let two = format!("{}{}", tap(1), tap(2));
    let vms = "<vm name='front' mac='52:54:00:00:00:02' floor_out='2M' floor_in='2M'/>\
               <weir:vm name='back' mac='52:54:00:00:00:01' cap_out='9M'/>";
    let handed_vms = handed(&element(vms), &two).expect("sound");
    let shown: Vec<_> = handed_vms.iter().map(|vm| (vm.name.as_str(), vm.port.as_str())).collect();
    assert_eq!(shown, [("front", "vnet2"), ("back", "vnet1")]);
    assert_eq!((handed_vms[1].floor_out, handed_vms[1].floor_in), (None, None));
    assert_eq!(handed_vms[1].cap_out.map(|cap| cap.0.as_bps()), Some(9_000_000));
    let one = "<weir:vm name='front' mac='52:54:00:00:00:02' floor_out='2M' floor_in='2M'/>";
    assert_eq!(handed(&element(one), &two).expect("the other is not guarded").len(), 1);
}

#[test]
fn a_wrong_element_says_what_is_wrong_and_where() {
    let floors = "floor_out='1M' floor_in='1M'";
    let vm = |more: &str| element(&format!("<weir:vm {more}/>"));
    let (one, two) = (tap(1), format!("{}{}", tap(1), tap(2)));
    let direct = "<interface type='direct'><target dev='macvtap0'/></interface>";
    let pool = "<interface type='network'><target dev='macvtap0'/></interface>";
    let user = "<interface type='user'><mac address='52:54:00:00:00:01'/></interface>";
    let long = format!("floor_out='{}'", "9".repeat(100_000));
    for (metadata, interfaces, wanted) in [
        (vm("floor_out='-5Mbit'"), &*one, "vm[0]: floor_out: `-5Mbit` is not a rate"),
        (vm("floor_out='5'"), &*one, "floor_out: `5` has no unit: write a rate as 450Mbit"),
        (vm("floor_in='5Mbps'"), &*one, "floor_in: `Mbps` is octets to tc and bits to people"),
        (vm("cap_out='5MB'"), &*one, "cap_out: `5MB` is a size, not a rate"),
        (vm("floor_out='99999999999Tbit'"), &*one, "is more than any rate"),
        (vm("floor_out=''"), &*one, "floor_out: `` is not a rate"),
        (vm(&long), &*one, "… (100002 octets) is not a rate"),
        (vm("floor='5Mbit'"), &*one, "vm[0]: there is no attribute `floor`; there are name, mac,"),
        (vm("mac='x'"), &*one, "mac: `x` is not a MAC address"),
        (vm("mac='52:54:00:00:00:09'"), &*one, "no interface of the domain has 52:54:00:00:00:09"),
        (vm("name=''"), &*one, "name: it is empty"),
        (vm(floors), &*two, "vm[0]: the domain has 2 interfaces: write `mac`"),
        (vm(floors), "", "the domain has 0 interfaces"),
        (vm(floors), direct, "an interface of type `direct` has no tap"),
        (vm(floors), pool, "packets of macvtap0 do not pass the host"),
        (vm(floors), user, "an interface of type `user` has no tap"),
        (element(""), &*one, "`vms` has no `vm`"),
        (element("<weir:tenant/>"), &*one, "`vms` has `tenant`: write `vm`"),
        (element("<o:vm xmlns:o='urn:o'/>"), &*one, "`vms` has `vm`: write `vm`"),
        (element("").replace("weir:vms", "weir:floors"), &*one, "no element `floors`: write `vms`"),
        (vm(floors).repeat(2), &*one, "2 elements of Weir"),
        (element(&format!("<vm {floors}/>").repeat(2)), &*one, "a `name`"),
        (element(&format!("<vm name='a' {floors}/>").repeat(2)), &*one, "another `vm` has vnet1"),
    ] {
        let error = handed(&metadata, interfaces).expect_err(wanted);
        assert!(error.contains(wanted) && error.len() < 400, "`{wanted}` in: {error}");
    }
}

#[test]
fn what_is_no_domain_is_refused_and_bounded() {
    let whole = domain(&element("<weir:vm floor_out='1M' floor_in='1M'/>"), &tap(1));
    for at in 0..whole.trim_end().len() {
        if whole.is_char_boundary(at) {
            assert!(Domain::parse(&whole[..at]).is_err(), "cut off at {at}");
        }
    }
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>\
                <!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;'>]>";
    let outside = "<!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>";
    for dtd in [bomb, outside] {
        let text = format!("{dtd}{}", whole.replace("shop", "&a;"));
        let error = Domain::parse(&text).expect_err("a DTD");
        assert!(error.contains("DTD"), "{error}");
    }
    let error = Domain::parse("<network><name>n</name></network>").expect_err("a network");
    assert_eq!(error, "not a domain of libvirt: it begins with `network`");
    for (from, to) in [(UUID, "../../etc/passwd"), (UUID, ""), ("shop &amp; co", " ")] {
        assert!(Domain::parse(&whole.replace(from, to)).is_err(), "{to}");
    }
    let deep = format!("{}{}", "<a>".repeat(200_000), "</a>".repeat(200_000));
    let deep = whole.replace("<devices>", &format!("{deep}<devices>"));
    // Its depth is no reason to fall over; whether it is read does not matter.
    drop(Domain::parse(&deep));
    let place = Place::new();
    let endless = std::io::repeat(b'<');
    let error = hook(&place.0.join("agent.toml"), "start", endless).expect_err("endless");
    assert_eq!(error.to_string(), "libvirt's XML is longer than 4194304 octets");
    let error = hook(&place.0.join("agent.toml"), "start", &b"\xff"[..]).expect_err("no text");
    assert_eq!(error.to_string(), "libvirt's XML is not UTF-8");
    assert_eq!(place.count(), 0);
}

#[test]
fn a_port_that_libvirt_shapes_too_is_named() {
    let place = Place::new();
    let shaped = tap(1).replace("<model", "<bandwidth><inbound average='5'/></bandwidth><model");
    let xml = domain(&element("<weir:vm floor_out='1M' floor_in='1M'/>"), &shaped);
    let said = place.hook("start", &xml).expect("handed over all the same");
    assert_eq!(said[1], "domain `shop & co`: libvirt shapes vnet1, too: remove its <bandwidth>");
    assert!(place.file().is_some());
}

#[test]
fn bandwidth_becomes_floors_and_what_is_lost_is_named() {
    let bandwidth = "<bandwidth><inbound average='1000' peak='5000' floor='200' burst='1024'/>\
                     <outbound average='125000' burst='2048'/></bandwidth><model";
    let one = tap(1).replace("<model", bandwidth);
    let imported = import(&domain("", &one)).expect("sound");
    let element = "<vms><vm floor_out=\"0bit\" floor_in=\"1.6Mbit\" cap_out=\"1Gbit\"/></vms>";
    assert_eq!(imported.element.as_deref(), Some(element), "a unit is 8000 bit/s");
    let at = "shop & co: interface[0]";
    assert_eq!(
        imported.notes,
        [
            format!(
                "{at}: inbound average=\"1000\": left out, Weir has no maximum of what a VM receives"
            ),
            format!("{at}: inbound peak=\"5000\": left out, Weir has nothing like it"),
            format!("{at}: inbound burst=\"1024\": left out, Weir has nothing like it"),
            format!("{at}: outbound burst=\"2048\": left out, Weir has nothing like it"),
            format!("{at}: libvirt has no floor of what a VM sends: choose floor_out"),
            format!("{at}: remove its <bandwidth>, or libvirt shapes the port, too"),
        ]
    );
    // What it prints is what the hook reads.
    let there = element.replacen("<vms>", "<weir:vms xmlns:weir='urn:weir:libvirt:1'>", 1);
    let there = there.replace("</vms>", "</weir:vms>");
    let vms = handed(&there, &tap(1)).expect("sound");
    assert_eq!(vms[0].floor_in.map(|floor| floor.0.as_bps()), Some(1_600_000));

    let two = format!("{}{one}", tap(2));
    let imported = import(&domain(&there, &two)).expect("sound");
    let element = imported.element.expect("one has limits");
    assert!(element.starts_with("<vms><vm name=\"shop &amp; co-1\" mac=\"52:54:00:00:00:01\" "));
    assert!(
        imported
            .notes
            .iter()
            .any(|note| note.ends_with("names of its VMs are made up: write the directory's"))
    );
    assert!(imported.notes.iter().any(|note| note.contains("has an element already")));

    assert_eq!(import(&domain("", &tap(1))).expect("sound").element, None);
    for wrong in ["-1", "1.5", "", "1000kB", "9999999999999999999"] {
        let error = import(&domain("", &one.replace("'200'", &format!("'{wrong}'"))));
        let error = error.expect_err("no number");
        assert!(error.contains("floor") && error.ends_with("kilobytes per second"), "{error}");
    }
}
