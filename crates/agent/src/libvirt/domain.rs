//! A domain of libvirt: its interfaces, and what our element in its metadata says of them.
//!
//! Approach  A document with a DTD is refused, so that no entity stands for more than is written. All else that
//!           is not ours is passed over: libvirt has checked it.
//! Promises  All of an element is sound or an error says what is not. A VM's port is a tap of the host.

use crate::handed::HandedVm;
use crate::names::shortened;
use roxmltree::{Document, Node};
use weir_model::net::Mac;
use weir_model::text::{RateText, rate};

/// The namespace of the element `vms` in a domain's metadata.
pub const NAMESPACE: &str = "urn:weir:libvirt:1";

const ATTRIBUTES: [&str; 5] = ["name", "mac", "floor_out", "floor_in", "cap_out"];

/// A domain.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) interfaces: Vec<Interface>,
    /// Whether the element is there, sound or not.
    pub(super) has_element: bool,
    declared: Result<Vec<Declared>, String>,
}

/// One `<interface>`.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) kind: String,
    pub(super) mac: Option<Mac>,
    /// Its device on the host, while the guest runs.
    target: Option<String>,
    /// Attributes of `<bandwidth>`, if it is there: of `<inbound>`, and of `<outbound>`.
    pub(super) bandwidth: Option<[Vec<(String, String)>; 2]>,
}

/// One `<vm>` of the element.
#[derive(Debug, Default)]
struct Declared {
    name: Option<String>,
    mac: Option<Mac>,
    floor_out: Option<RateText>,
    floor_in: Option<RateText>,
    cap_out: Option<RateText>,
}

impl Domain {
    /// Reads a domain.
    ///
    /// # Errors
    ///
    /// It is no domain. A mistake in our element is not: see [`Domain::handed`].
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let document = Document::parse(text)
            .map_err(|e| format!("not XML of libvirt: {}", shortened(&e.to_string())))?;
        let root = document.root_element();
        if !root.has_tag_name("domain") {
            let found = shortened(root.tag_name().name());
            return Err(format!("not a domain of libvirt: it begins with `{found}`"));
        }
        let text_of = |name: &str| {
            let found = child(root, name).and_then(|node| node.text());
            found.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let name = text_of("name").ok_or("the domain has no name")?;
        let uuid = text_of("uuid").filter(|uuid| is_uuid(uuid)).ok_or("the domain has no UUID")?;
        let devices = child(root, "devices").into_iter().flat_map(|node| node.children());
        let interfaces = devices.filter(|node| node.has_tag_name("interface")).map(interface);
        let metadata = child(root, "metadata").into_iter().flat_map(|node| node.children());
        let ours: Vec<Node<'_, '_>> =
            metadata.filter(|node| node.tag_name().namespace() == Some(NAMESPACE)).collect();
        Ok(Self {
            name,
            uuid: uuid.to_ascii_lowercase(),
            interfaces: interfaces.collect(),
            has_element: !ours.is_empty(),
            declared: declared(&ours),
        })
    }

    /// What the agent is told of a running domain.
    ///
    /// # Errors
    ///
    /// The element is wrong, or a VM of it has no tap.
    pub(super) fn handed(&self) -> Result<Vec<HandedVm>, String> {
        let declared = self.declared.as_ref().map_err(Clone::clone)?;
        let mut taken: Vec<&str> = Vec::new();
        let mut handed = Vec::new();
        for (i, vm) in declared.iter().enumerate() {
            let wrong = |what: String| format!("metadata: vm[{i}]: {what}");
            let interface = self.interface(vm.mac).map_err(wrong)?;
            let port = interface.port().map_err(wrong)?;
            if taken.contains(&port) {
                return Err(wrong(format!("another `vm` has {port}, too: give each its `mac`")));
            }
            taken.push(port);
            let name = match &vm.name {
                Some(name) => name.clone(),
                None if declared.len() == 1 => self.name.clone(),
                None => return Err(wrong("of several VMs each needs a `name`".into())),
            };
            handed.push(HandedVm {
                name,
                port: port.to_owned(),
                floor_out: vm.floor_out,
                floor_in: vm.floor_in,
                cap_out: vm.cap_out,
            });
        }
        Ok(handed)
    }

    /// What may keep an agent from enforcing these floors.
    pub(super) fn warnings(&self, vms: &[HandedVm]) -> Vec<String> {
        let is_shaped = |vm: &&HandedVm| {
            let on = |one: &&Interface| one.target.as_deref() == Some(vm.port.as_str());
            self.interfaces.iter().find(on).is_some_and(|one| one.bandwidth.is_some())
        };
        let warning = |vm: &HandedVm| {
            let (name, port) = (shortened(&self.name), &vm.port);
            format!("domain `{name}`: libvirt shapes {port}, too: remove its <bandwidth>")
        };
        vms.iter().filter(is_shaped).map(warning).collect()
    }

    /// The interface with this address, or the only one.
    fn interface(&self, mac: Option<Mac>) -> Result<&Interface, String> {
        match (mac, &self.interfaces[..]) {
            (Some(mac), all) => all
                .iter()
                .find(|interface| interface.mac == Some(mac))
                .ok_or_else(|| format!("mac: no interface of the domain has {mac}")),
            (None, [only]) => Ok(only),
            (None, all) => Err(format!("the domain has {} interfaces: write `mac`", all.len())),
        }
    }
}

impl Interface {
    /// Its tap. Packets of other kinds of interfaces do not pass a device of the host that could shape them.
    fn port(&self) -> Result<&str, String> {
        let is_tap = matches!(self.kind.as_str(), "bridge" | "network" | "ethernet");
        let Some(target) = self.target.as_deref().filter(|_| is_tap) else {
            return Err(format!("an interface of type `{}` has no tap", shortened(&self.kind)));
        };
        // A network may hand these out.
        if target.starts_with("macvtap") {
            return Err(format!("packets of {target} do not pass the host: use a bridge"));
        }
        Ok(target)
    }
}

/// The first element of this name. Elements of libvirt's own have no namespace.
fn child<'a, 'input>(of: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    of.children().find(|node| node.has_tag_name(name) && node.tag_name().namespace().is_none())
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(i, c): (usize, char)| match i {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.chars().enumerate().all(is_right)
}

fn interface(node: Node<'_, '_>) -> Interface {
    let attribute = |of: &str, name: &str| child(node, of)?.attribute(name).map(str::to_owned);
    let all = |of: Option<Node<'_, '_>>| {
        let of = of.into_iter().flat_map(|node| node.attributes());
        of.map(|a| (a.name().to_owned(), a.value().to_owned())).collect()
    };
    let bandwidth = child(node, "bandwidth");
    Interface {
        kind: node.attribute("type").unwrap_or_default().to_owned(),
        mac: attribute("mac", "address").and_then(|mac| mac.parse().ok()),
        target: attribute("target", "dev"),
        bandwidth: bandwidth
            .map(|limits| ["inbound", "outbound"].map(|name| all(child(limits, name)))),
    }
}

/// The VMs of our element. Its children have its namespace, or none: `virsh metadata --set` gives it to the
/// outermost element alone.
fn declared(ours: &[Node<'_, '_>]) -> Result<Vec<Declared>, String> {
    let [element] = ours else {
        return match ours.len() {
            0 => Ok(Vec::new()),
            n => Err(format!("metadata: {n} elements of Weir: write one `vms`")),
        };
    };
    if element.tag_name().name() != "vms" {
        let found = shortened(element.tag_name().name());
        return Err(format!("metadata: there is no element `{found}`: write `vms`"));
    }
    let mut all = Vec::new();
    for node in element.children().filter(Node::is_element) {
        let tag = node.tag_name();
        if tag.name() != "vm" || tag.namespace().is_some_and(|other| other != NAMESPACE) {
            let found = shortened(tag.name());
            return Err(format!("metadata: `vms` has `{found}`: write `vm`"));
        }
        all.push(vm(node).map_err(|what| format!("metadata: vm[{}]: {what}", all.len()))?);
    }
    if all.is_empty() {
        return Err("metadata: `vms` has no `vm`".into());
    }
    Ok(all)
}

fn vm(node: Node<'_, '_>) -> Result<Declared, String> {
    let mut vm = Declared::default();
    for attribute in node.attributes().filter(|attribute| attribute.namespace().is_none()) {
        let (name, value) = (attribute.name(), attribute.value());
        let wrong = |what: String| format!("{name}: {}", shortened(&what));
        let a_rate = || rate(value).map(|rate| Some(RateText(rate))).map_err(wrong);
        match name {
            "name" if value.is_empty() => return Err("name: it is empty".into()),
            "name" => vm.name = Some(value.to_owned()),
            "mac" => vm.mac = Some(value.parse().map_err(wrong)?),
            "floor_out" => vm.floor_out = a_rate()?,
            "floor_in" => vm.floor_in = a_rate()?,
            "cap_out" => vm.cap_out = a_rate()?,
            _ => {
                let (name, known) = (shortened(name), ATTRIBUTES.join(", "));
                return Err(format!("there is no attribute `{name}`; there are {known}"));
            }
        }
    }
    Ok(vm)
}
