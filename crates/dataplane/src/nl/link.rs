//! Network devices: find, list, and make or remove the IFB devices that are our own.

use super::attr::{Attrs, Value};
use super::message::{Body, Verb};
use super::{Batch, Device, Error, Object, Socket};

const IFLA_IFNAME: u16 = libc::IFLA_IFNAME;
const IFLA_MASTER: u16 = libc::IFLA_MASTER;
const IFLA_TXQLEN: u16 = libc::IFLA_TXQLEN;
const IFLA_LINKINFO: u16 = libc::IFLA_LINKINFO;
const IFLA_IFALIAS: u16 = libc::IFLA_IFALIAS;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_STATE: u16 = 1;
const NLA_F_NESTED: u16 = 0x8000;
const BR_STATE_FORWARDING: u8 = 3;
const IF_OPER_UP: u8 = 6;
/// Where `rtnl_link_stats64` has octets received, and packets dropped when sent.
const RX_BYTES: usize = 2 * 8;
const TX_DROPPED: usize = 7 * 8;
const NAME_OCTETS: std::ops::RangeInclusive<usize> = 1..=15;

/// A network device as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Name and index.
    pub device: Device,
    /// `ifb`, `veth`, …; empty for hardware.
    pub kind: String,
    /// Its alias: a note, which is ours on our own devices.
    pub alias: String,
    /// Its alternative names, ascending.
    pub alternatives: Vec<String>,
    /// Whether it is set up.
    pub up: bool,
    /// How many packets a queue without a bound of its own takes.
    pub queue_length: u32,
    /// Octets of the largest packet, without the link's header.
    pub mtu: u32,
    /// Index of the bridge, bond or switch of which it is a port; 0 for none.
    pub master: u32,
    /// Whether it carries packets: it runs, and if it is a bridge's port, the bridge forwards to
    /// it.
    pub carries: bool,
    /// Octets received since it was made, layer 2 without FCS.
    pub received: u64,
    /// Packets dropped instead of sent since it was made.
    pub unsent: u64,
}

/// `ifinfomsg`: family, pad, type, index (0: the kernel's choice), flags, change mask.
pub fn info(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[4..8].copy_from_slice(&index.to_ne_bytes());
    octets[8..12].copy_from_slice(&flags.to_ne_bytes());
    octets[12..16].copy_from_slice(&change.to_ne_bytes());
    octets
}

pub(super) fn parse(payload: &[u8]) -> Option<Link> {
    let word = |at: usize| Some(u32::from_ne_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    let attrs = Attrs(payload.get(16..)?);
    let text = |kind| attrs.find(kind).map(Value::text).unwrap_or_default();
    let info = attrs.find(IFLA_LINKINFO).map(Value::nested);
    let kind = info.and_then(|info| info.find(IFLA_INFO_KIND));
    let port = info.and_then(|info| info.find(IFLA_INFO_SLAVE_DATA));
    let state = port.and_then(|port| port.nested().find(IFLA_BRPORT_STATE));
    let runs = attrs.find(libc::IFLA_OPERSTATE).is_some_and(|v| v.0 == [IF_OPER_UP]);
    let names = attrs.find(IFLA_PROP_LIST).map(Value::nested).into_iter().flatten();
    let mut alternatives: Vec<String> =
        names.filter(|(kind, _)| *kind == IFLA_ALT_IFNAME).map(|(_, name)| name.text()).collect();
    alternatives.sort();
    let count = |at| attrs.find(libc::IFLA_STATS64).and_then(|v| v.u64_at(at)).unwrap_or(0);
    Some(Link {
        device: Device { name: text(IFLA_IFNAME).into(), index: word(4)? },
        kind: kind.map(Value::text).unwrap_or_default(),
        alias: text(IFLA_IFALIAS),
        alternatives,
        up: word(8)? & libc::IFF_UP as u32 != 0,
        queue_length: attrs.find(IFLA_TXQLEN).and_then(|v| v.u32_at(0)).unwrap_or(0),
        mtu: attrs.find(libc::IFLA_MTU).and_then(|v| v.u32_at(0)).unwrap_or(0),
        master: attrs.find(IFLA_MASTER).and_then(|v| v.u32_at(0)).unwrap_or(0),
        carries: runs && state.is_none_or(|v| v.0 == [BR_STATE_FORWARDING]),
        received: count(RX_BYTES),
        unsent: count(TX_DROPPED),
    })
}

fn checked(name: &str) -> Result<Object, Error> {
    let bad = |c: char| c == '/' || c.is_whitespace() || c == '\0';
    if !NAME_OCTETS.contains(&name.len()) || name.contains(bad) {
        return Err(Error::Name { name: name.to_owned() });
    }
    Ok(Object::Link(name.into()))
}

/// The device of this name; `None` if there is none.
pub fn get(socket: &mut Socket, name: &str) -> Result<Option<Link>, Error> {
    let mut batch = Batch::new();
    let object = checked(name)?;
    batch.push(libc::RTM_GETLINK, Verb::Read, object.clone(), &info(0, 0, 0), |body| {
        body.text(IFLA_IFNAME, name);
    });
    match socket.ask(&batch, parse) {
        Ok(links) => links.into_iter().next().map(Some).ok_or(Error::Answer {
            verb: Verb::Read,
            object,
            what: "was empty",
        }),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// All devices of the namespace.
pub fn list(socket: &mut Socket) -> Result<Vec<Link>, Error> {
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETLINK, Verb::List, Object::Links, &info(0, 0, 0), |_| {});
    socket.ask(&batch, parse)
}

/// Creates an IFB device, leaves `alias` on it, bounds its own queue to `queue_length` packets and
/// sets it up. Undoes itself if one of these fails.
pub fn create_ifb(
    socket: &mut Socket,
    name: &str,
    alias: &str,
    queue_length: u32,
) -> Result<Device, Error> {
    let object = checked(name)?;
    let mut batch = Batch::new();
    let kind = |body: &mut Body<'_>| body.text(IFLA_INFO_KIND, "ifb");
    batch.push(libc::RTM_NEWLINK, Verb::Create, object.clone(), &info(0, 0, 0), |body| {
        body.text(IFLA_IFNAME, name);
        body.nest(IFLA_LINKINFO, kind);
    });
    socket.send(&batch)?;

    let up = libc::IFF_UP as u32;
    let mut batch = Batch::new();
    // A message that creates a device ignores an alias: it needs a second one.
    batch.push(libc::RTM_NEWLINK, Verb::Change, object.clone(), &info(0, up, up), |body| {
        body.text(IFLA_IFNAME, name);
        body.text(IFLA_IFALIAS, alias);
        body.put(IFLA_TXQLEN, &queue_length.to_ne_bytes());
    });
    let made = socket.send(&batch).and_then(|()| get(socket, name));
    match made {
        Ok(Some(link)) => Ok(link.device),
        Ok(None) => Err(Error::Answer { verb: Verb::Create, object, what: "lost the device" }),
        Err(error) => {
            // The first error says more than one of the clean-up would.
            let _ = delete(socket, name);
            Err(error)
        }
    }
}

impl Batch {
    /// Appends: gives a device another name, which no device of the namespace has. Linux 5.5.
    pub fn add_alternative(&mut self, device: &Device, name: &str) {
        self.alternative(RTM_NEWLINKPROP, Verb::Create, device, name);
    }

    /// Appends: takes an alternative name from a device.
    pub fn delete_alternative(&mut self, device: &Device, name: &str) {
        self.alternative(RTM_DELLINKPROP, Verb::Delete, device, name);
    }

    fn alternative(&mut self, kind: u16, verb: Verb, device: &Device, name: &str) {
        let what = format!("alternative name {name} of {device}").into();
        let object = Object::Named { what, needs: Some("alternative names (Linux 5.5)") };
        self.push(kind, verb, object, &info(device.index, 0, 0), |body| {
            body.nest(IFLA_PROP_LIST | NLA_F_NESTED, |body| body.text(IFLA_ALT_IFNAME, name));
        });
    }
}

/// Sets a device up.
pub fn set_up(socket: &mut Socket, name: &str) -> Result<(), Error> {
    let up = libc::IFF_UP as u32;
    let mut batch = Batch::new();
    batch.push(libc::RTM_NEWLINK, Verb::Change, checked(name)?, &info(0, up, up), |body| {
        body.text(IFLA_IFNAME, name);
    });
    socket.send(&batch)
}

/// Deletes a device.
pub fn delete(socket: &mut Socket, name: &str) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.push(libc::RTM_DELLINK, Verb::Delete, checked(name)?, &info(0, 0, 0), |body| {
        body.text(IFLA_IFNAME, name);
    });
    socket.send(&batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_the_kernel_cannot_hold_is_refused_before_it_is_sent() {
        for name in ["", "sixteen-octets-x", "a b", "a/b"] {
            assert!(matches!(checked(name), Err(Error::Name { .. })), "{name:?}");
        }
        assert!(checked("fifteen-octets-").is_ok());
    }

    #[test]
    fn a_link_is_read_from_its_message() {
        let mut batch = Batch::new();
        let fixed = info(7, libc::IFF_UP as u32, 0);
        batch.push(libc::RTM_NEWLINK, Verb::Change, Object::Links, &fixed, |body| {
            body.text(IFLA_IFNAME, "weir-x");
            body.put(IFLA_TXQLEN, &32u32.to_ne_bytes());
            body.text(IFLA_IFALIAS, "note");
            body.nest(IFLA_PROP_LIST, |body| {
                body.text(IFLA_ALT_IFNAME, "two");
                body.text(IFLA_ALT_IFNAME, "one");
            });
            body.put(IFLA_MASTER, &9u32.to_ne_bytes());
            body.nest(IFLA_LINKINFO, |body| body.text(IFLA_INFO_KIND, "ifb"));
        });
        let link = parse(&batch.octets()[16..]).unwrap();
        assert_eq!(link.device, Device { name: "weir-x".into(), index: 7 });
        assert_eq!((link.kind.as_str(), link.alias.as_str()), ("ifb", "note"));
        assert_eq!((link.up, link.queue_length, link.master), (true, 32, 9));
        assert_eq!(link.alternatives, ["one", "two"]);
        assert_eq!((link.carries, link.received, link.unsent), (false, 0, 0));
        assert_eq!(parse(&batch.octets()[16..30]), None);
    }

    #[test]
    fn a_bridges_port_carries_packets_once_it_runs_and_the_bridge_forwards() {
        let link = |operation: u8, state: Option<u8>| {
            let mut batch = Batch::new();
            batch.push(libc::RTM_NEWLINK, Verb::Change, Object::Links, &info(7, 0, 0), |body| {
                body.put(libc::IFLA_OPERSTATE, &[operation]);
                let stats: Vec<u8> = (0..24u64).flat_map(|n| (n * 10).to_ne_bytes()).collect();
                body.put(libc::IFLA_STATS64, &stats);
                body.nest(IFLA_LINKINFO, |body| {
                    let state = |body: &mut Body<'_>| {
                        state.iter().for_each(|state| body.put(IFLA_BRPORT_STATE, &[*state]));
                    };
                    body.nest(IFLA_INFO_SLAVE_DATA, state);
                });
            });
            parse(&batch.octets()[16..]).unwrap()
        };
        let up = link(IF_OPER_UP, None);
        assert_eq!((up.carries, up.received, up.unsent), (true, 20, 70));
        assert!(link(IF_OPER_UP, Some(BR_STATE_FORWARDING)).carries);
        assert!(!link(IF_OPER_UP, Some(1)).carries && !link(2, Some(BR_STATE_FORWARDING)).carries);
    }
}
