//! Sends all packets that enter a port through another device: a u32 filter that matches
//! everything, with a mirred action, on the port's clsact hook.
//!
//! The action carries a cookie of 16 octets that the kernel keeps and shows. The cookie names the
//! filter's owner and says whether the owner also made the clsact qdisc. So a later process can
//! undo exactly what a dead one did, without a file that could be lost or wrong.

use super::attr::{Attrs, Value};
use super::keys::{Key, Protocol, TCA_U32_SEL, info, selector};
use super::message::Verb;
use super::tc::{Fixed, TCA_KIND, TCA_OPTIONS};
use super::{Batch, Device, Error, Object, Socket};

/// The filter's preference: behind classifiers, which ordinarily take small numbers.
pub const PREFERENCE: u16 = 4000;
/// Where filters for what enters a device hang.
pub const INGRESS: u32 = 0xffff_fff2;
/// Where filters for what leaves a device hang.
pub const EGRESS: u32 = 0xffff_fff3;

const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_COOKIE: u16 = 6;
const NLA_F_NESTED: u16 = 0x8000;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_GACT_PARMS: u16 = 2;
const TCA_BPF_ID: u16 = 11;
const TC_ACT_UNSPEC: u32 = u32::MAX;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
/// The position of the only action in its list.
const FIRST_ACTION: u16 = 1;

/// Octets of the note on an action.
pub const COOKIE: usize = 16;

/// A filter as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterEntry {
    /// Its preference.
    pub preference: u16,
    /// Its classifier: `u32`, `bpf`, …
    pub kind: String,
    /// If it redirects: the index of the device to which, and the note that its owner left.
    pub redirect: Option<(u32, Vec<u8>)>,
    /// Its handle.
    pub handle: u32,
    /// The kernel's number of the program that it runs, if it runs one.
    pub program: Option<u32>,
    /// Whether it may let a packet pass without the filters behind it. A filter that only drops,
    /// only continues, or is a table of other filters does not.
    pub may_pass: bool,
}

/// `tc_mirred`: index, capabilities, verdict, two counters, what to do, to which device.
fn mirred(target: u32) -> Vec<u8> {
    [0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, target].map(u32::to_ne_bytes).concat()
}

/// The attribute that holds the actions of a classifier's filter.
fn actions_of(kind: &str) -> Option<u16> {
    match kind {
        "u32" => Some(TCA_U32_ACT),
        "flower" | "basic" => Some(3),
        "matchall" => Some(2),
        _ => None,
    }
}

/// Whether a filter with these options may let a packet pass without the filters behind it.
fn may_pass(kind: &str, options: Attrs<'_>) -> bool {
    if kind == "u32" && options.find(TCA_U32_SEL).is_none() {
        return false;
    }
    let action = actions_of(kind)
        .and_then(|at| options.find(at))
        .and_then(|v| v.nested().find(FIRST_ACTION))
        .map(Value::nested);
    let Some(action) = action else { return true };
    let verdict = action
        .find(TCA_ACT_KIND)
        .filter(|kind| kind.text() == "gact")
        .and_then(|_| action.find(TCA_ACT_OPTIONS)?.nested().find(TCA_GACT_PARMS)?.u32_at(8));
    !matches!(verdict, Some(TC_ACT_SHOT | TC_ACT_UNSPEC))
}

pub(super) fn parse(payload: &[u8]) -> Option<FilterEntry> {
    let (fixed, attrs) = Fixed::parse(payload)?;
    let action = attrs
        .find(TCA_OPTIONS)
        .and_then(|v| v.nested().find(TCA_U32_ACT))
        .and_then(|v| v.nested().find(FIRST_ACTION))
        .map(Value::nested)
        .filter(|a| a.find(TCA_ACT_KIND).is_some_and(|kind| kind.text() == "mirred"));
    let redirect = action.and_then(|action| {
        let parameters = action.find(TCA_ACT_OPTIONS)?.nested().find(TCA_MIRRED_PARMS)?;
        let cookie = action.find(TCA_ACT_COOKIE).map(|v| v.0.to_vec()).unwrap_or_default();
        let redirects = parameters.u32_at(20)? == TCA_EGRESS_REDIR;
        redirects.then_some((parameters.u32_at(24)?, cookie))
    });
    let preference = (fixed.info >> 16) as u16;
    let kind = attrs.find(TCA_KIND)?.text();
    let options = attrs.find(TCA_OPTIONS).map(Value::nested);
    let program = options.filter(|_| kind == "bpf").and_then(|o| o.find(TCA_BPF_ID)?.u32_at(0));
    // A classifier itself is listed beside its filters, without options.
    let may_pass = options.is_some_and(|options| may_pass(&kind, options));
    Some(FilterEntry { preference, kind, redirect, handle: fixed.handle, program, may_pass })
}

/// All filters on one hook ([`INGRESS`] or [`EGRESS`]) of a device; none without clsact.
/// A u32 filter shows as several entries, of which one redirects.
pub fn filters(socket: &mut Socket, device: &Device, hook: u32) -> Result<Vec<FilterEntry>, Error> {
    let fixed = Fixed { index: device.index, parent: hook, ..Fixed::default() };
    let object = Object::Redirect(device.clone());
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETTFILTER, Verb::List, object, &fixed.octets(), |_| {});
    match socket.ask(&batch, parse) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        other => other,
    }
}

impl Batch {
    /// Appends: all that enters `port` goes to `target`'s queues, and comes back from there.
    pub fn add_redirect(&mut self, port: &Device, target: u32, cookie: [u8; COOKIE]) {
        let fixed = Fixed {
            index: port.index,
            handle: 0,
            parent: INGRESS,
            info: info(PREFERENCE, Protocol::All),
        };
        let object = Object::Redirect(port.clone());
        self.push(libc::RTM_NEWTFILTER, Verb::Create, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "u32");
            body.nest(TCA_OPTIONS, |body| {
                body.nest(TCA_U32_ACT, |body| {
                    body.nest(FIRST_ACTION, |body| {
                        body.text(TCA_ACT_KIND, "mirred");
                        body.nest(TCA_ACT_OPTIONS | NLA_F_NESTED, |body| {
                            body.put(TCA_MIRRED_PARMS, &mirred(target));
                        });
                        body.put(TCA_ACT_COOKIE, &cookie);
                    });
                });
                body.put(TCA_U32_SEL, &selector(&[Key::ANY]));
            });
        });
    }

    /// Appends: removes what [`add_redirect`](Self::add_redirect) made.
    pub fn delete_redirect(&mut self, port: &Device) {
        let fixed = Fixed {
            index: port.index,
            handle: 0,
            parent: INGRESS,
            info: info(PREFERENCE, Protocol::All),
        };
        let object = Object::Redirect(port.clone());
        self.push(libc::RTM_DELTFILTER, Verb::Delete, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "u32");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A u32 filter with `gact` of this verdict, or none.
    fn filter(verdict: Option<u32>) -> FilterEntry {
        let mut batch = Batch::new();
        let fixed = Fixed { index: 2, handle: 1, parent: INGRESS, info: info(10, Protocol::All) };
        let object = Object::Links;
        batch.push(libc::RTM_NEWTFILTER, Verb::Change, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "u32");
            body.nest(TCA_OPTIONS, |body| {
                body.put(TCA_U32_SEL, &selector(&[Key::ANY]));
                let Some(verdict) = verdict else { return };
                body.nest(TCA_U32_ACT, |body| {
                    body.nest(FIRST_ACTION, |body| {
                        body.text(TCA_ACT_KIND, "gact");
                        body.nest(TCA_ACT_OPTIONS, |body| {
                            let parameters = [1, 0, verdict, 1, 1].map(u32::to_ne_bytes).concat();
                            body.put(TCA_GACT_PARMS, &parameters);
                        });
                    });
                });
            });
        });
        parse(&batch.octets()[16..]).unwrap()
    }

    #[test]
    fn what_only_drops_or_only_goes_on_lets_nothing_pass_and_all_else_may() {
        assert!(filter(None).may_pass, "u32 with a class only ends the way");
        assert!(!filter(Some(TC_ACT_SHOT)).may_pass);
        assert!(!filter(Some(TC_ACT_UNSPEC)).may_pass, "continue");
        for verdict in [0, 1, 3, 4, 5, 6, 7, 8] {
            assert!(filter(Some(verdict)).may_pass, "{verdict}");
        }
    }

    #[test]
    fn a_redirection_is_written_as_tc_writes_it_and_read_back() {
        // tc filter add dev pb ingress prio 4000 protocol all u32 match u32 0 0
        //   action mirred egress redirect dev lo cookie 0011…ff (iproute2 6.1)
        let cookie: [u8; COOKIE] = std::array::from_fn(|i| i as u8 * 0x11);
        let expected: Vec<u8> = [
            &[8, 0, 1, 0, b'u', b'3', b'2', 0, 116, 0, 2, 0, 76, 0, 7, 0, 72, 0, 1, 0][..],
            &[11, 0, 1, 0],
            b"mirred\0\0",
            &[0x24, 0, 2, 0x80, 0x20, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 20, 0, 6, 0],
            &cookie,
            &[0x24, 0, 5, 0, 1, 0, 1, 0],
            &[0; 28],
        ]
        .concat();
        let mut batch = Batch::new();
        batch.add_redirect(&Device { name: "pb".into(), index: 2 }, 1, cookie);
        let octets = batch.octets();
        assert_eq!(octets[16 + 20..], expected);
        assert_eq!(octets[32..36], 262_144_768u32.to_ne_bytes());
        let entry = parse(&octets[16..]).unwrap();
        assert_eq!(entry.redirect, Some((1, cookie.to_vec())));
        assert_eq!((entry.preference, entry.kind.as_str()), (PREFERENCE, "u32"));
    }
}
