//! u32 filters that choose a class by words of a packet's network header.

use super::message::Verb;
use super::tc::{Fixed, TCA_KIND, TCA_OPTIONS};
use super::{Batch, Object};

pub(super) const TCA_U32_CLASSID: u16 = 1;
pub(super) const TCA_U32_SEL: u16 = 5;
const TC_U32_TERMINAL: u8 = 1;
const ETH_P_ALL: u16 = 3;

/// A word of a packet, from this octet of the network header on: what it is under a mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) at: u32,
    pub(super) mask: u32,
    pub(super) is: u32,
}

impl Key {
    /// Every packet has it.
    pub(super) const ANY: Self = Self { at: 0, mask: 0, is: 0 };
}

/// The packets that a filter looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Ip4,
    Ip6,
    All,
}

/// `tcm_info` of a filter: preference, and protocol in network order.
pub(super) const fn info(preference: u16, protocol: Protocol) -> u32 {
    let protocol = match protocol {
        Protocol::Ip4 => libc::ETH_P_IP as u16,
        Protocol::Ip6 => libc::ETH_P_IPV6 as u16,
        Protocol::All => ETH_P_ALL,
    };
    (preference as u32) << 16 | protocol.to_be() as u32
}

/// `tc_u32_sel` with these keys: a packet that has all of them matches.
pub(super) fn selector(keys: &[Key]) -> Vec<u8> {
    let mut octets = vec![TC_U32_TERMINAL, 0, keys.len() as u8, 0];
    octets.extend([0; 12]);
    for key in keys {
        octets.extend(key.mask.to_be_bytes());
        octets.extend(key.is.to_be_bytes());
        octets.extend(key.at.to_ne_bytes());
        octets.extend([0; 4]);
    }
    octets
}

impl Batch {
    /// Appends: packets with these keys go to `class`.
    pub(super) fn set_filter(
        &mut self,
        verb: Verb,
        object: Object,
        fixed: &Fixed,
        class: u32,
        keys: &[Key],
    ) {
        self.push(libc::RTM_NEWTFILTER, verb, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "u32");
            body.nest(TCA_OPTIONS, |body| {
                body.word(TCA_U32_CLASSID, class);
                body.put(TCA_U32_SEL, &selector(keys));
            });
        });
    }
}
