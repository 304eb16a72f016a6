//! The datacenter: namespaces for hosts, switches and VMs, joined by veths and bridges.
//!
//! Problem   Hundreds of namespaces and devices, ready within seconds, gone without a trace.
//! Approach  One thread walks through the nodes: it makes a namespace, stays in it for what must be
//!           made there, and sends all settings in batches over the routing socket. Forwarding and
//!           neighbour entries are written in, so nothing has to be flooded or asked for.
//! Promises  Dropping a world removes it, also a half-built one.
//! Not here  Which names and addresses: see `plan`. Rates and queues: see `ports`.

mod ways;

use crate::linkbox::LinkBox;
use crate::netlink::{self, Batch, Socket, Verb, link_header};
use crate::netns::{self, Namespace};
use crate::plan::{self, BRIDGE, Plan, UPLINK};
use crate::ports::{self, Counters, Passed, PortList};
use crate::{Error, sweep};
use nix::errno::Errno;
use nix::libc;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_dataplane::mark::{Marker, MarkingPort};
use weir_dataplane::nl::Body;
use weir_dataplane::spread::Spread;
use weir_model::scenario::{IpVersion, PortPart, Scenario};

/// A datacenter that exists.
pub(crate) struct World {
    /// Links that a thread carries. They are dropped first, since their TAPs belong to them.
    boxes: Vec<Carried>,
    /// Per switch that marks: its marking ports, and the direction each of them sends in.
    markers: Vec<(Marker, Vec<usize>)>,
    /// Of switches that have equal paths.
    spreads: Vec<Spread>,
    /// Hosts first, then switches: indexed like the scenario's nodes.
    nodes: Vec<Namespace>,
    vms: Vec<Namespace>,
    /// Per node: the ports that have a queue of the kernel's.
    ports: Vec<PortList>,
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A link that is carried by a thread.
struct Carried {
    link: usize,
    carrier: LinkBox,
    /// Its TAPs, as (node, interface).
    taps: [(usize, u32); 2],
}

const MTU: u32 = 1500;
/// Frames that a TAP holds while its box is busy: some 100 ms at 200 Mb/s. The box's own queue is
/// the one that should be full.
const TAP_QUEUE: u32 = 2048;
/// How long the kernel may take to notice that all devices are connected.
const UP: Duration = Duration::from_secs(10);

impl World {
    /// Builds the world of `scenario`. **The calling thread ends up in some namespace of it**: call
    /// this from a thread made for it. Where tenants are bound to queues, switches' ports have none yet. `done` counts nodes; `stop` ends the work early.
    pub(crate) fn build(
        scenario: &Scenario,
        plan: &Plan,
        (run, is_bound): (&str, bool),
        done: &AtomicUsize,
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
        netns::prepare()?;
        let mut world = Self {
            boxes: Vec::new(),
            markers: Vec::new(),
            spreads: Vec::new(),
            nodes: Vec::new(),
            vms: Vec::new(),
            ports: Vec::new(),
        };
        let hosts = scenario.topology.hosts.len();
        for (node, name) in
            scenario.topology.hosts.iter().chain(&scenario.topology.switches).enumerate()
        {
            go_on(stop)?;
            let (kind, index) = if node < hosts { ('h', node) } else { ('s', node - hosts) };
            let mut namespace = Namespace::create(&sweep::name(run, kind, index, name))?;
            let mut batch = Batch::default();
            bridge(&mut batch, (node < hosts).then_some(node));
            if node < hosts {
                // An agent may talk to itself: two of its VMs may be a pair.
                set(&mut batch, "lo", 1, |_| {});
                address(&mut batch, BRIDGE, plan::host_address(node).into());
            }
            netlink::send(&mut namespace.netlink, &batch)?;
            world.nodes.push(namespace);
            done.fetch_add(1, Ordering::Relaxed);
        }
        for link in 0..scenario.topology.links.len() {
            go_on(stop)?;
            if scenario.topology.links[link].is_more_than_a_queue() {
                world.connect_by_box(scenario, plan, link)?;
            } else {
                world.connect(scenario, plan, link, is_bound)?;
            }
        }
        for vm in 0..scenario.vms.len() {
            go_on(stop)?;
            world.add_vm(scenario, plan, vm, &sweep::name(run, 'v', vm, &scenario.vms[vm].name))?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        world.write_in_where_everybody_is(scenario, plan, is_bound)?;
        world.ports = ports_of(scenario);
        world.let_switches_mark(scenario)?;
        world.wait_until_up(scenario, stop)?;
        Ok(world)
    }

    /// Waits until every device carries packets. The kernel notices a carrier some time after the
    /// far end was set up; what is sent before is lost, and a lost SYN costs a second.
    fn wait_until_up(&mut self, scenario: &Scenario, stop: &AtomicBool) -> Result<(), Error> {
        let mut devices: Vec<Vec<u32>> = self
            .ports
            .iter()
            .map(|ports| ports.iter().map(|&(index, _)| index).collect())
            .collect();
        devices.iter_mut().for_each(|devices| devices.push(BRIDGE));
        for (vm, placed) in scenario.vms.iter().enumerate() {
            devices[placed.host].push(plan::vm_port_index(vm));
        }
        devices.extend(std::iter::repeat_n(vec![UPLINK], self.vms.len()));
        let until = Instant::now() + UP;
        for (namespace, devices) in self.nodes.iter_mut().chain(&mut self.vms).zip(devices) {
            let socket = &mut namespace.netlink;
            while netlink::devices(socket, &devices, |one| one.carries)?.contains(&false) {
                go_on(stop)?;
                if Instant::now() >= until {
                    return Err(Error::Kernel {
                        doing: format!("get all devices of {} up", namespace.path().display()),
                        errno: Errno::ETIMEDOUT,
                    });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// A veth between two nodes, shaped at both ends; but for ends at switches where others do that.
    fn connect(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        index: usize,
        is_bound: bool,
    ) -> Result<(), Error> {
        let link = &scenario.topology.links[index];
        let is_switch = |node: usize| node >= scenario.topology.hosts.len();
        let (a_name, a_port) = plan::link_port(scenario, link.a, index);
        let (b_name, b_port) = plan::link_port(scenario, link.b, index);
        let far = self.nodes[link.b].file().as_raw_fd();
        let mut batch = Batch::default();
        let end = |body: &mut Body<'_>| {
            body.raw(&link_header(b_port, false));
            body.text(libc::IFLA_IFNAME, &b_name);
            body.word(libc::IFLA_MTU, MTU);
            body.word(libc::IFLA_NET_NS_FD, far as u32);
        };
        veth(&mut batch, &format!("link {}", link.name), (a_port, &a_name), end);
        bridge_port(&mut batch, a_port, ways::floods(scenario, plan, link.a));
        if !(is_bound && is_switch(link.a)) {
            ports::shape(&mut batch, a_port, link, is_switch(link.a));
        }
        netlink::send(&mut self.nodes[link.a].netlink, &batch)?;

        let mut batch = Batch::default();
        let what = format!("end of link {}", link.name);
        set(&mut batch, &what, b_port, |body| body.word(libc::IFLA_MASTER, BRIDGE));
        bridge_port(&mut batch, b_port, ways::floods(scenario, plan, link.b));
        if !(is_bound && is_switch(link.b)) {
            ports::shape(&mut batch, b_port, link, is_switch(link.b));
        }
        netlink::send(&mut self.nodes[link.b].netlink, &batch)
    }

    /// A TAP at each of two nodes, and a thread that carries frames between them.
    fn connect_by_box(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        index: usize,
    ) -> Result<(), Error> {
        let link = &scenario.topology.links[index];
        let mut end = |node: usize| {
            let (name, port) = plan::link_port(scenario, node, index);
            self.nodes[node].enter()?;
            let file = weir_dataplane::tap::open(&name, port).map_err(Error::Dataplane)?;
            let mut batch = Batch::default();
            let what = format!("box of link {}", link.name);
            set(&mut batch, &what, port, |body| {
                body.word(libc::IFLA_MASTER, BRIDGE);
                body.word(libc::IFLA_TXQLEN, TAP_QUEUE);
            });
            bridge_port(&mut batch, port, ways::floods(scenario, plan, node));
            netlink::send(&mut self.nodes[node].netlink, &batch)?;
            Ok::<_, Error>((file, (node, port)))
        };
        let [(a, tap_a), (b, tap_b)] = [end(link.a)?, end(link.b)?];
        let hosts = scenario.topology.hosts.len();
        let by_switch = [link.a >= hosts, link.b >= hosts];
        let carrier = LinkBox::start(link, [a, b], by_switch)?;
        self.boxes.push(Carried { link: index, carrier, taps: [tap_a, tap_b] });
        Ok(())
    }

    /// Puts the marking program on the switches' ports of links that ask for it.
    fn let_switches_mark(&mut self, scenario: &Scenario) -> Result<(), Error> {
        let hosts = scenario.topology.hosts.len();
        for node in hosts..self.nodes.len() {
            let marks = |&(interface, direction): &(u32, usize)| {
                let link = &scenario.topology.links[direction / 2];
                let threshold = link.queueing.ecn?;
                Some((MarkingPort { interface, rate: link.rate, threshold }, direction))
            };
            let (ports, directions): (Vec<_>, Vec<_>) =
                self.ports[node].iter().filter_map(marks).unzip();
            if !ports.is_empty() {
                self.nodes[node].enter()?;
                let marker = Marker::open(&ports).map_err(Error::Dataplane)?;
                self.markers.push((marker, directions));
            }
        }
        Ok(())
    }

    /// A VM: a namespace with `eth0`, and its port on its host.
    fn add_vm(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        vm: usize,
        name: &str,
    ) -> Result<(), Error> {
        let mut namespace = Namespace::create(name)?;
        if let Some(ecn) = scenario.vms[vm].ecn {
            netns::speak_ecn(ecn)?;
        }
        if !scenario.vms[vm].rack {
            netns::forget_rack();
        }
        let inside = namespace.file().as_raw_fd();
        self.plug(scenario, plan, vm, (inside, &mut namespace.netlink))?;
        self.vms.push(namespace);
        Ok(())
    }

    /// Runs `work` in a host's namespace, on a thread of its own.
    pub(crate) fn on_host<T: Send>(
        &self,
        host: usize,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| self.nodes[host].enter().and_then(|()| work()));
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Removes a VM's port, as if the VM had died. Its sockets stay, without a network.
    pub(crate) fn stop_vm(&mut self, scenario: &Scenario, vm: usize) -> Result<(), Error> {
        let port = plan::vm_port_index(vm);
        let mut batch = Batch::default();
        let what = format!("port of VM {}", scenario.vms[vm].name);
        let (request, header) = ((libc::RTM_DELLINK, Verb::Delete), link_header(port, false));
        netlink::push(&mut batch, request, (&what, None), &header, |_| {});
        netlink::send(&mut self.nodes[scenario.vms[vm].host].netlink, &batch)
    }

    /// A VM that was stopped gets a new port. On a thread of its own, which enters the VM's
    /// namespace.
    pub(crate) fn start_vm(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        vm: usize,
    ) -> Result<(), Error> {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                self.vms[vm].enter()?;
                let inside = self.vms[vm].file().as_raw_fd();
                let mut socket = Socket::open().map_err(|e| Error::Dataplane(e.into()))?;
                self.plug(scenario, plan, vm, (inside, &mut socket))
            });
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Breaks a part of a VM's plumbing, with an operator's tools.
    pub(crate) fn break_port(
        &self,
        scenario: &Scenario,
        vm: usize,
        part: PortPart,
    ) -> Result<(), Error> {
        let (host, port) = (&self.nodes[scenario.vms[vm].host], plan::vm_port(vm));
        let name = &scenario.vms[vm].name;
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                host.enter()?;
                let shapers = run(name, part, "ip -o link show type ifb")?;
                let shaper = shapers.split(": ").nth(1).unwrap_or("none").to_owned();
                let line = match part {
                    PortPart::Redirection => format!("tc filter del dev {port} ingress"),
                    PortPart::ForeignFilter => format!(
                        "tc filter add dev {port} ingress pref 1 protocol all u32 match u32 0 0 flowid 1:1"
                    ),
                    PortPart::ShaperDown => format!("ip link set {shaper} down"),
                    PortPart::ShaperGone => format!("ip link del {shaper}"),
                    PortPart::RootQdisc => format!("tc qdisc del dev {shaper} root"),
                    PortPart::Name => format!("ip link set {port} name moved{vm}"),
                };
                run(name, part, &line).map(drop)
            });
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Gives a VM `eth0`, and its port on its host. The calling thread is in the VM's namespace.
    fn plug(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        vm: usize,
        (inside, socket): (RawFd, &mut Socket),
    ) -> Result<(), Error> {
        let name = &scenario.vms[vm].name;
        let port = plan::vm_port_index(vm);
        let mac = plan::vm_mac(vm);
        let mut batch = Batch::default();
        let end = |body: &mut Body<'_>| {
            body.raw(&link_header(UPLINK, false));
            body.text(libc::IFLA_IFNAME, "eth0");
            body.word(libc::IFLA_MTU, MTU);
            body.put(libc::IFLA_ADDRESS, &mac);
            // Packets of at most one segment: a queue of octets then holds what a real
            // port would hold, and drops what it would drop.
            body.word(libc::IFLA_GSO_MAX_SEGS, 1);
            body.word(libc::IFLA_NET_NS_FD, inside as u32);
        };
        veth(&mut batch, &format!("port of VM {name}"), (port, &plan::vm_port(vm)), end);
        bridge_port(&mut batch, port, Floods::Groups);
        forward(&mut batch, port, mac);
        netlink::send(&mut self.nodes[scenario.vms[vm].host].netlink, &batch)?;

        let versions = [Some(IpVersion::V4), plan::has_ip6(scenario).then_some(IpVersion::V6)];
        if plan::has_ip6(scenario) {
            // Still in the namespace of the VM.
            netns::allow_ipv6("eth0");
        }
        let mut batch = Batch::default();
        set(&mut batch, "eth0", UPLINK, |_| {});
        for ip in versions.into_iter().flatten() {
            address(&mut batch, UPLINK, plan::vm_ip(scenario, vm, ip));
            if plan::has_outside(scenario) {
                everybody_is_a_neighbour(&mut batch, UPLINK, ip);
            }
            for &peer in &plan.peers[vm] {
                let mac = plan::vm_mac(peer);
                neighbour(&mut batch, UPLINK, plan::vm_ip(scenario, peer, ip), mac);
            }
        }
        for &host in &plan.attacked[vm] {
            let address = plan::host_address(host).into();
            neighbour(&mut batch, UPLINK, address, plan::host_mac(host));
        }
        ports::detach_from_sockets(&mut batch, UPLINK, "eth0");
        netlink::send(socket, &batch)
    }

    /// A host's namespace.
    pub(crate) fn host(&self, host: usize) -> &Namespace {
        &self.nodes[host]
    }

    /// A VM's namespace.
    pub(crate) fn vm(&self, vm: usize) -> &Namespace {
        &self.vms[vm]
    }

    /// Octets that reached a VM, layer 2 without FCS.
    pub(crate) fn received_by(&mut self, vm: usize) -> Result<u64, Error> {
        Ok(netlink::devices(&mut self.vms[vm].netlink, &[UPLINK], |one| one.received)?[0])
    }

    /// What passed since the last call, by link direction.
    pub(crate) fn read(&mut self, counters: &mut Counters) -> Result<Vec<Passed>, Error> {
        let mut passed = vec![Passed::default(); counters.directions()];
        let netlinks = self.nodes.iter_mut().map(|node| &mut node.netlink);
        ports::read_queues(netlinks.zip(&self.ports), &mut passed)?;
        for (marker, directions) in &self.markers {
            for (port, &direction) in directions.iter().enumerate() {
                passed[direction].marks = marker.marks(port).map_err(Error::Dataplane)?.marked;
            }
        }
        for Carried { link, carrier, taps } in &mut self.boxes {
            let both = carrier.passed()?;
            for ((direction, so_far), (node, tap)) in (2 * *link..).zip(both).zip(*taps) {
                // What a TAP had no room for never came to its box.
                let socket = &mut self.nodes[node].netlink;
                let unsent = netlink::devices(socket, &[tap], |one| one.unsent)?[0];
                passed[direction] = Passed { drops: so_far.drops + unsent, ..so_far };
            }
        }
        Ok(counters.step(passed))
    }

    /// What a reader of the results should know.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.boxes.iter().filter_map(|carried| carried.carrier.note())
    }
}

fn go_on(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

/// The ports of each node that have a queue of the kernel's, and the direction each of them sends
/// in.
fn ports_of(scenario: &Scenario) -> Vec<PortList> {
    let topology = &scenario.topology;
    let mut ports = vec![PortList::new(); topology.hosts.len() + topology.switches.len()];
    for (l, link) in topology.links.iter().enumerate().filter(|(_, l)| !l.is_more_than_a_queue()) {
        ports[link.a].push((plan::link_port(scenario, link.a, l).1, 2 * l));
        ports[link.b].push((plan::link_port(scenario, link.b, l).1, 2 * l + 1));
    }
    ports
}

/// A bridge without spanning tree or multicast snooping; a host's bridge is also its interface.
fn bridge(batch: &mut Batch, host: Option<usize>) {
    let what = ("bridge", Some("bridges (CONFIG_BRIDGE, module bridge)"));
    make(batch, what, (BRIDGE, "br0"), |body| {
        host.iter().for_each(|host| body.put(libc::IFLA_ADDRESS, &plan::host_mac(*host)));
        body.nest(libc::IFLA_LINKINFO, |body| {
            let (stp_state, multicast_snooping) = (5, 23);
            body.text(1, "bridge");
            body.nest(2, |body| {
                body.word(stp_state, 0);
                body.put(multicast_snooping, &[0]);
            });
        });
    });
}

/// A device that is up.
fn make(
    batch: &mut Batch,
    what: (&str, Option<&'static str>),
    (index, name): (u32, &str),
    fill: impl FnOnce(&mut Body<'_>),
) {
    let request = (libc::RTM_NEWLINK, Verb::Create);
    netlink::push(batch, request, what, &link_header(index, true), |body| {
        body.text(libc::IFLA_IFNAME, name);
        fill(body);
    });
}

/// Changes a device, and sets it up.
fn set(batch: &mut Batch, what: &str, index: u32, fill: impl FnOnce(&mut Body<'_>)) {
    let (request, header) = ((libc::RTM_NEWLINK, Verb::Change), link_header(index, true));
    netlink::push(batch, request, (what, None), &header, fill);
}

/// A veth whose far end is described by `peer`. The far end cannot be set up in the same breath:
/// the kernel ties the two together last.
fn veth(batch: &mut Batch, what: &str, near: (u32, &str), far: impl FnOnce(&mut Body<'_>)) {
    make(batch, (what, Some("veth (CONFIG_VETH, module veth)")), near, |body| {
        body.word(libc::IFLA_MTU, MTU);
        body.nest(libc::IFLA_LINKINFO, |body| {
            body.text(1, "veth");
            body.nest(2, |body| body.nest(1, far));
        });
        body.word(libc::IFLA_MASTER, BRIDGE);
    });
}

/// What a bridge sends to a port without an entry for it: unknown destinations and groups (also all),
/// groups alone, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floods {
    All,
    Groups,
    Nothing,
}

/// A bridge's port learns nothing.
fn bridge_port(batch: &mut Batch, index: u32, floods: Floods) {
    let (learning, unicast_flood, multicast_flood, broadcast_flood) = (8, 9, 27, 30);
    set(batch, "port of a bridge", index, |body| {
        body.nest(libc::IFLA_LINKINFO, |body| {
            body.text(4, "bridge");
            body.nest(5, |body| {
                body.put(learning, &[0]);
                body.put(unicast_flood, &[u8::from(floods == Floods::All)]);
                if floods == Floods::Nothing {
                    body.put(multicast_flood, &[0]);
                    body.put(broadcast_flood, &[0]);
                }
            });
        });
    });
}

/// A fixed forwarding entry of the bridge to which port `index` belongs.
fn forward(batch: &mut Batch, index: u32, mac: [u8; 6]) {
    const PF_BRIDGE: u8 = 7;
    const NUD_NOARP: u16 = 0x40;
    const NTF_MASTER: u8 = 0x04;
    let header = neighbour_header(PF_BRIDGE, index, NUD_NOARP, NTF_MASTER);
    let request = (libc::RTM_NEWNEIGH, Verb::Create);
    netlink::push(batch, request, ("forwarding entry", None), &header, |body| body.put(2, &mac));
}

/// A fixed neighbour, so that no start is spoilt by an ARP request lost in a full queue. Packets of
/// a VM that returns may have made an entry of their own.
fn neighbour(batch: &mut Batch, index: u32, address: IpAddr, mac: [u8; 6]) {
    const NUD_PERMANENT: u16 = 0x80;
    let (family, octets) = family(address);
    let header = neighbour_header(family, index, NUD_PERMANENT, 0);
    let request = (libc::RTM_NEWNEIGH, Verb::Replace);
    netlink::push(batch, request, ("neighbour", None), &header, |body| {
        body.put(1, &octets);
        body.put(2, &mac);
    });
}

/// The kernel's number of an address's family, and its octets.
fn family(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(a) => (AF_INET, a.octets().to_vec()),
        IpAddr::V6(a) => (AF_INET6, a.octets().to_vec()),
    }
}

/// `struct ndmsg`.
fn neighbour_header(family: u8, index: u32, state: u16, flags: u8) -> [u8; 12] {
    let mut header = [0; 12];
    header[0] = family;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = flags;
    header
}

/// An address in the one network of all VMs and hosts, 10.0.0.0/8, and of all VMs, fd57::/16.
/// Nothing checks whether it is in use elsewhere.
fn address(batch: &mut Batch, index: u32, address: IpAddr) {
    const IFA_F_NODAD: u8 = 2;
    let (family, octets) = family(address);
    let (length, flags) = if family == AF_INET { (8, 0) } else { (16, IFA_F_NODAD) };
    let mut header = [family, length, flags, 0, 0, 0, 0, 0]; // struct ifaddrmsg
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    let what = ("address", Some("IPv6 (CONFIG_IPV6)"));
    netlink::push(batch, (libc::RTM_NEWADDR, Verb::Create), what, &header, |body| {
        body.put(2, &octets);
        body.put(1, &octets);
    });
}

/// A route that makes all addresses reachable without a router: the outside has any.
fn everybody_is_a_neighbour(batch: &mut Batch, index: u32, ip: IpVersion) {
    const TABLE_MAIN: u8 = 254;
    const PROTOCOL_BOOT: u8 = 3;
    const SCOPE_LINK: u8 = 253;
    const UNICAST: u8 = 1;
    const RTA_OIF: u16 = 4;
    let family = if ip == IpVersion::V4 { AF_INET } else { AF_INET6 };
    // struct rtmsg: family, lengths of destination and source, type of service, …, flags
    let mut header = [0; 12];
    header[0] = family;
    header[4..8].copy_from_slice(&[TABLE_MAIN, PROTOCOL_BOOT, SCOPE_LINK, UNICAST]);
    let request = (libc::RTM_NEWROUTE, Verb::Create);
    netlink::push(batch, request, ("route", None), &header, |body| body.word(RTA_OIF, index));
}

/// Runs a command that breaks a part of a VM's port; returns its output.
fn run(vm: &str, part: PortPart, line: &str) -> Result<String, Error> {
    let mut words = line.split(' ');
    let program = words.next().expect("a line has a first word");
    let output = Command::new(program).args(words).output();
    let failed = |why: String| Error::Fault { part: part.name(), vm: vm.to_owned(), why };
    let output = output.map_err(|e| failed(format!("`{program}`: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
