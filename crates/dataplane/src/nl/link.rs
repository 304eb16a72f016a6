//! Network devices: find, list, and make or remove the IFB devices that are our own.

use super::attr::Attrs;
use super::message::{Body, Verb};
use super::{Batch, Device, Error, Object, Socket};

const IFLA_IFNAME: u16 = libc::IFLA_IFNAME;
const IFLA_MASTER: u16 = libc::IFLA_MASTER;
const IFLA_TXQLEN: u16 = libc::IFLA_TXQLEN;
const IFLA_LINKINFO: u16 = libc::IFLA_LINKINFO;
const IFLA_IFALIAS: u16 = libc::IFLA_IFALIAS;
const IFLA_INFO_KIND: u16 = 1;
const NAME_OCTETS: std::ops::RangeInclusive<usize> = 1..=15;

/// A network device as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Name and index.
    pub device: Device,
    /// `ifb`, `veth`, …; empty for hardware.
    pub kind: String,
    /// A note that somebody left on it; ours on our own devices.
    pub alias: String,
    /// Whether it is set up.
    pub up: bool,
    /// How many packets a queue without a bound of its own takes.
    pub queue_length: u32,
    /// The index of the bridge, bond or switch that it is a port of; 0: of none.
    pub master: u32,
}

/// `ifinfomsg`: family, pad, type, index, flags, change mask.
fn info(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[4..8].copy_from_slice(&index.to_ne_bytes());
    octets[8..12].copy_from_slice(&flags.to_ne_bytes());
    octets[12..16].copy_from_slice(&change.to_ne_bytes());
    octets
}

pub(super) fn parse(payload: &[u8]) -> Option<Link> {
    let word = |at: usize| Some(u32::from_ne_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    let attrs = Attrs(payload.get(16..)?);
    let text = |kind| attrs.find(kind).map(super::attr::Value::text).unwrap_or_default();
    let kind = attrs.find(IFLA_LINKINFO).and_then(|v| v.nested().find(IFLA_INFO_KIND));
    Some(Link {
        device: Device { name: text(IFLA_IFNAME).into(), index: word(4)? },
        kind: kind.map(super::attr::Value::text).unwrap_or_default(),
        alias: text(IFLA_IFALIAS),
        up: word(8)? & libc::IFF_UP as u32 != 0,
        queue_length: attrs.find(IFLA_TXQLEN).and_then(|v| v.u32_at(0)).unwrap_or(0),
        master: attrs.find(IFLA_MASTER).and_then(|v| v.u32_at(0)).unwrap_or(0),
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
            body.put(IFLA_MASTER, &9u32.to_ne_bytes());
            body.nest(IFLA_LINKINFO, |body| body.text(IFLA_INFO_KIND, "ifb"));
        });
        let link = parse(&batch.octets()[16..]).unwrap();
        assert_eq!(link.device, Device { name: "weir-x".into(), index: 7 });
        assert_eq!((link.kind.as_str(), link.alias.as_str()), ("ifb", "note"));
        assert_eq!((link.up, link.queue_length, link.master), (true, 32, 9));
        assert_eq!(parse(&batch.octets()[16..30]), None);
    }
}
