//! Filters that choose a class of a root qdisc by the code point (DSCP) of a packet's outermost IP
//! header.
//!
//! One u32 filter per code point and protocol (IPv4, IPv6), and one for all other packets. A filter
//! that exists is replaced in one step: each packet meets the old one or the new one.

use super::attr::Value;
use super::keys::{Key, Protocol, TCA_U32_CLASSID, TCA_U32_SEL, info, selector};
use super::message::Verb;
use super::tc::{Fixed, TCA_KIND, TCA_OPTIONS};
use super::{Batch, Device, Error, Object, Socket};

/// Preference of the IPv4 filters.
const IP4: u16 = 10;
/// Preference of the IPv6 filters.
const IP6: u16 = 11;
/// Preference of the filter for all other packets: behind filters of others.
const REST: u16 = 99;
/// A preference before all of these filters.
pub const BEFORE: u16 = 5;
/// A preference between those of code points and the one for all other packets: a filter there meets
/// only packets that no filter of a code point matched.
pub const BETWEEN: u16 = 50;
/// A filter's number within its preference: this and the code point. Zero is no number.
const NUMBER: u32 = 0x100;

/// What a filter matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Match {
    /// IPv4 packets with this code point.
    Ip4(u8),
    /// IPv6 packets with this code point.
    Ip6(u8),
    /// All packets that no other filter matches.
    Rest,
}

impl Match {
    /// Its preference and protocol.
    const fn info(self) -> u32 {
        match self {
            Self::Ip4(_) => info(IP4, Protocol::Ip4),
            Self::Ip6(_) => info(IP6, Protocol::Ip6),
            Self::Rest => info(REST, Protocol::All),
        }
    }

    /// What the first word of the network header is.
    const fn key(self) -> Key {
        match self {
            Self::Ip4(codepoint) => Key { at: 0, mask: 0x00fc_0000, is: (codepoint as u32) << 18 },
            Self::Ip6(codepoint) => Key { at: 0, mask: 0x0fc0_0000, is: (codepoint as u32) << 22 },
            Self::Rest => Key::ANY,
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Ip4(codepoint) | Self::Ip6(codepoint) => NUMBER + codepoint as u32,
            Self::Rest => NUMBER,
        }
    }
}

/// A filter as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it matches; `None` if it is none of these filters.
    pub matches: Option<Match>,
    /// Its preference.
    pub preference: u16,
    /// Its handle.
    pub handle: u32,
    /// The class that it chooses, if it chooses one.
    pub class: Option<u32>,
}

/// `None` for what is no single filter: a classifier, or a table of filters.
pub(super) fn parse(payload: &[u8]) -> Option<Entry> {
    let (fixed, attrs) = Fixed::parse(payload)?;
    let kind = attrs.find(TCA_KIND)?.text();
    let options = attrs.find(TCA_OPTIONS)?.nested();
    let preference = (fixed.info >> 16) as u16;
    let class = options.find(TCA_U32_CLASSID).and_then(|v| v.u32_at(0));
    let other = Some(Entry { matches: None, preference, handle: fixed.handle, class });
    if kind != "u32" {
        return other;
    }
    let found: Value<'_> = options.find(TCA_U32_SEL)?;
    let number = fixed.handle & 0xfff;
    let matches = number.checked_sub(NUMBER).filter(|n| *n < 64).and_then(|codepoint| {
        let codepoint = codepoint as u8;
        let all = [Match::Ip4(codepoint), Match::Ip6(codepoint), Match::Rest];
        let is_it = |m: &Match| {
            // The kernel counts hits in the same attribute: only the key is ours.
            let fits = found.0.get(16..24).is_some_and(|key| key == &selector(&[m.key()])[16..24]);
            m.info() == fixed.info && m.number() == number && fits
        };
        all.into_iter().find(is_it)
    });
    if matches.is_some() { Some(Entry { matches, ..other? }) } else { other }
}

/// All filters of the device's qdisc with this handle.
pub fn filters(socket: &mut Socket, device: &Device, qdisc: u32) -> Result<Vec<Entry>, Error> {
    let fixed = Fixed { index: device.index, parent: qdisc, ..Fixed::default() };
    let object = Object::Filters(device.clone());
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETTFILTER, Verb::List, object, &fixed.octets(), |_| {});
    match socket.ask(&batch, parse) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        other => other,
    }
}

impl Batch {
    /// Appends: packets that match go to `class`. `found` is the handle of the filter that already
    /// matches them, which is replaced; `None` makes one.
    pub fn set_codepoint(
        &mut self,
        device: &Device,
        qdisc: u32,
        matches: Match,
        found: Option<u32>,
        class: u32,
    ) {
        let handle = found.unwrap_or(matches.number());
        let fixed = Fixed { index: device.index, handle, parent: qdisc, info: matches.info() };
        let verb = if found.is_some() { Verb::Replace } else { Verb::Create };
        let object = Object::Filters(device.clone());
        self.set_filter(verb, object, &fixed, class, &[matches.key()]);
    }

    /// Appends: removes the filter with this handle.
    pub fn delete_codepoint(&mut self, device: &Device, qdisc: u32, matches: Match, handle: u32) {
        let fixed = Fixed { index: device.index, handle, parent: qdisc, info: matches.info() };
        let object = Object::Filters(device.clone());
        self.push(libc::RTM_DELTFILTER, Verb::Delete, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "u32");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_written_as_tc_writes_it_and_read_back() {
        // tc filter add dev pb parent 5745: prio 11 protocol ipv6 handle ::10a u32
        //   match u32 0x02800000 0x0fc00000 at 0 classid 5745:13 (iproute2 6.1)
        let expected: Vec<u8> = [
            &[8, 0, 1, 0, b'u', b'3', b'2', 0, 48, 0, 2, 0, 8, 0, 1, 0, 0x13, 0, 0x45, 0x57][..],
            &[0x24, 0, 5, 0, 1, 0, 1, 0],
            &[0; 12],
            &[0x0f, 0xc0, 0, 0, 0x02, 0x80, 0, 0],
            &[0; 8],
        ]
        .concat();
        let mut batch = Batch::new();
        let device = Device { name: "pb".into(), index: 2 };
        batch.set_codepoint(&device, 0x5745_0000, Match::Ip6(10), None, 0x5745_0013);
        assert_eq!(batch.octets()[16 + 20..], expected);
        for matches in [Match::Ip6(10), Match::Ip4(63), Match::Ip4(0), Match::Rest] {
            let mut batch = Batch::new();
            let handle = 0x8010_0000 | matches.number();
            batch.set_codepoint(&device, 0x5745_0000, matches, Some(handle), 0x5745_0013);
            let found = parse(&batch.octets()[16..]).unwrap();
            let expected = (Some(matches), handle, Some(0x5745_0013));
            assert_eq!((found.matches, found.handle, found.class), expected);
        }
    }
}
