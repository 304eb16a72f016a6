//! What stands around VMs' ports that takes their packets past the stamp, or may: tunnels without a
//! name in the configuration, Open vSwitch, netkit, devices that share a card.
//!
//! Problem   Losses show, and rates hold, only for packets that pass our programs and no others on
//!           their way. Where that is not so, or was never tried, floors must not seem to be kept.
//! Approach  One listing of the namespace's links says of what kind each is and in which bridge.
//!           What is known to go past, and what was never shown to work, is told with its reason
//!           and what to do.
//! Not here  Programs and filters of others: see `probe::datapath` and `Dataplane::tend`. Guests
//!           that have no port here: see `probe::bypass`.

use crate::nl::link::Link;

/// Why a port's VM is not enforced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    /// The port's interface.
    pub(crate) port: String,
    /// What was found.
    pub(crate) found: String,
    /// What to do.
    pub(crate) remedy: &'static str,
}

/// Kinds of devices that put an outer header before what enters them.
const TUNNELS: [&str; 8] =
    ["vxlan", "geneve", "gretap", "ip6gretap", "erspan", "ip6erspan", "bareudp", "batadv"];
/// Kinds that put frames onto the device below them by themselves.
const SHARING: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "ipvtap"];

/// All there is to say of these ports; `tunnels` are those that carry a stamp.
pub(crate) fn judge(links: &[Link], ports: &[&str], tunnels: &[String]) -> Vec<Trouble> {
    let named = |name: &str| links.iter().find(|link| &*link.device.name == name);
    let mut all = Vec::new();
    for port in ports {
        let Some(link) = named(port) else { continue };
        let mut tell = |found: String, remedy| {
            all.push(Trouble { port: (*port).to_owned(), found, remedy });
        };
        match link.kind.as_str() {
            "netkit" => tell(
                "a netkit: programs on its own hook run before ours and may send packets past them"
                    .into(),
                "give the VM a veth or a tap",
            ),
            kind if SHARING.contains(&kind) => tell(
                format!("a {kind}: frames enter the device below without passing this one"),
                "give the VM a veth or a tap in a bridge",
            ),
            _ => {}
        }
        let Some(master) = links.iter().find(|l| link.master != 0 && l.device.index == link.master)
        else {
            continue;
        };
        if master.kind == "openvswitch" {
            tell(
                "a port of Open vSwitch, which removes queues that it finds on its ports, and whose \
                 tunnels begin behind every stamp"
                    .into(),
                "put the port into a bridge of the kernel's",
            );
        }
        for beside in links.iter().filter(|l| l.master == link.master) {
            let (name, kind) = (&*beside.device.name, beside.kind.as_str());
            if TUNNELS.contains(&kind) && !tunnels.iter().any(|known| known == name) {
                tell(
                    format!(
                        "its bridge leads into the tunnel {name} ({kind}), where nothing is numbered"
                    ),
                    "name it in `uplink.tunnels`, and what its header adds in `uplink.tunnel_overhead`",
                );
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nl::Device;

    fn link(index: u32, name: &str, kind: &str, master: u32) -> Link {
        Link {
            device: Device { name: name.into(), index },
            kind: kind.into(),
            alias: String::new(),
            alternatives: Vec::new(),
            up: true,
            queue_length: 0,
            mtu: 0,
            master,
            carries: true,
            received: 0,
            unsent: 0,
        }
    }

    fn found(links: &[Link], tunnels: &[&str]) -> Vec<(String, String)> {
        let tunnels: Vec<String> = tunnels.iter().map(|name| (*name).to_owned()).collect();
        let all = judge(links, &["p", "q"], &tunnels);
        all.into_iter().map(|t| (t.port, t.found)).collect()
    }

    #[test]
    fn a_veth_in_a_bridge_and_a_tap_alone_are_no_trouble() {
        let links = [link(1, "br", "bridge", 0), link(2, "p", "veth", 1), link(3, "q", "tun", 0)];
        assert_eq!(found(&links, &[]), []);
        assert_eq!(found(&[], &[]), [], "a port that is gone is told elsewhere");
    }

    #[test]
    fn every_kind_of_tunnel_beside_a_port_is_told_unless_it_is_named() {
        for kind in TUNNELS {
            let links = [
                link(1, "br", "bridge", 0),
                link(2, "p", "veth", 1),
                link(3, "q", "veth", 9),
                link(4, "tun7", kind, 1),
                link(5, "other", kind, 0),
            ];
            let told = found(&links, &[]);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].0 == "p" && told[0].1.contains("tun7"), "{told:?}");
            assert_eq!(found(&links, &["tun7"]), []);
        }
    }

    #[test]
    fn open_vswitch_netkit_and_devices_that_share_a_card_are_told() {
        let links = [link(1, "ovs-system", "openvswitch", 0), link(2, "p", "veth", 1)];
        assert!(found(&links, &[])[0].1.contains("Open vSwitch"));
        for kind in SHARING.into_iter().chain(["netkit"]) {
            let told = found(&[link(2, "q", kind, 0)], &[]);
            assert!(told.len() == 1 && told[0].0 == "q" && told[0].1.contains(kind), "{told:?}");
        }
    }
}
