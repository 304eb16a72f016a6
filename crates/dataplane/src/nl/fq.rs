//! fq: the root qdisc that holds every packet until its departure time.

use super::message::Verb;
use super::tc::{Fixed, ROOT, Stats, TCA_KIND, TCA_OPTIONS};
use super::{Batch, Device, Error, Object, Socket};
use weir_units::Span;

const TCA_FQ_PLIMIT: u16 = 1;
const TCA_FQ_FLOW_PLIMIT: u16 = 2;
const TCA_FQ_RATE_ENABLE: u16 = 5;
const TCA_FQ_TIMER_SLACK: u16 = 13;
const TCA_FQ_HORIZON: u16 = 14;
const TCA_FQ_HORIZON_DROP: u16 = 15;

/// Parameters of fq that matter for packets with departure times; the kernel chooses the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fq {
    /// Most packets that it holds.
    pub limit: u32,
    /// Most packets of one flow that it holds.
    pub flow_limit: u32,
    /// Slack of its timer: packets due within it leave together. In ns, less than 4.3 s.
    pub slack: Span,
    /// Horizon: a departure further ahead is brought down to it, in whole microseconds.
    pub horizon: Span,
}

/// fq as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its handle.
    pub handle: u32,
    /// Its parameters; those that an older kernel does not tell are zero.
    pub fq: Fq,
    /// Counters.
    pub stats: Stats,
}

pub(super) fn parse(payload: &[u8]) -> Option<(u32, Entry)> {
    let (fixed, attrs) = Fixed::parse(payload)?;
    if fixed.parent != ROOT || attrs.find(TCA_KIND)?.text() != "fq" {
        return None;
    }
    let options = attrs.find(TCA_OPTIONS)?.nested();
    let word = |kind| options.find(kind).and_then(|v| v.u32_at(0)).unwrap_or(0);
    let fq = Fq {
        limit: word(TCA_FQ_PLIMIT),
        flow_limit: word(TCA_FQ_FLOW_PLIMIT),
        slack: Span::from_nanos(word(TCA_FQ_TIMER_SLACK).into()),
        horizon: Span::from_micros(word(TCA_FQ_HORIZON).into()),
    };
    Some((fixed.index, Entry { handle: fixed.handle, fq, stats: Stats::parse(attrs) }))
}

/// The device's root qdisc, if it is fq.
pub fn root(socket: &mut Socket, device: &Device) -> Result<Option<Entry>, Error> {
    let fixed = Fixed { index: device.index, ..Fixed::default() };
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETQDISC, Verb::List, Object::Qdiscs, &fixed.octets(), |_| {});
    let found = socket.ask(&batch, parse)?;
    Ok(found.into_iter().find(|(index, _)| *index == device.index).map(|(_, entry)| entry))
}

impl Batch {
    /// Appends: fq as the root qdisc of `device`, made or changed as `verb` says. It delays by
    /// departure times only, not by what it knows of a socket's pace.
    pub fn set_fq(&mut self, device: &Device, verb: Verb, handle: u32, fq: &Fq) {
        let fixed = Fixed { index: device.index, handle, parent: ROOT, info: 0 };
        let object = Object::Qdisc { device: device.clone(), parent: ROOT };
        let horizon = u32::try_from(fq.horizon.as_nanos() / 1000).unwrap_or(u32::MAX);
        let slack = u32::try_from(fq.slack.as_nanos()).unwrap_or(u32::MAX);
        self.push(libc::RTM_NEWQDISC, verb, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "fq");
            body.nest(TCA_OPTIONS, |body| {
                body.put(TCA_FQ_PLIMIT, &fq.limit.to_ne_bytes());
                body.put(TCA_FQ_FLOW_PLIMIT, &fq.flow_limit.to_ne_bytes());
                body.put(TCA_FQ_RATE_ENABLE, &0u32.to_ne_bytes());
                body.put(TCA_FQ_TIMER_SLACK, &slack.to_ne_bytes());
                body.put(TCA_FQ_HORIZON, &horizon.to_ne_bytes());
                // What is beyond the horizon is brought down to it: a drop behind the sequence
                // stamp would look like the network's.
                body.put(TCA_FQ_HORIZON_DROP, &[0]);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FQ: Fq = Fq {
        limit: 65_536,
        flow_limit: 65_536,
        slack: Span::from_micros(50),
        horizon: Span::from_secs(10),
    };

    /// `tc qdisc add dev lo root handle 3e1: fq limit 65536 flow_limit 65536 nopacing timer_slack 50us horizon 10s horizon_cap`
    /// (iproute2 6.1), from the header's flags on, but for the sequence number.
    const TC: [u8; 76] = [
        1, 0, 0, 0, 0, 0, 0xe1, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, //
        7, 0, 1, 0, b'f', b'q', 0, 0, 0x34, 0, 2, 0, //
        8, 0, 1, 0, 0, 0, 1, 0, 8, 0, 2, 0, 0, 0, 1, 0, 8, 0, 5, 0, 0, 0, 0, 0, //
        8, 0, 13, 0, 0x50, 0xc3, 0, 0, 8, 0, 14, 0, 0x80, 0x96, 0x98, 0, 5, 0, 15, 0, 0, 0, 0, 0,
    ];

    fn batch(verb: Verb) -> Batch {
        let mut batch = Batch::new();
        batch.set_fq(&Device { name: "lo".into(), index: 1 }, verb, 0x3e1_0000, &FQ);
        batch
    }

    #[test]
    fn fq_is_written_as_tc_writes_it() {
        let batch = batch(Verb::Create);
        let octets = batch.octets();
        assert_eq!(octets[..8], [96, 0, 0, 0, 0x24, 0, 5, 6]);
        assert_eq!(octets[16..20], [0; 4]);
        assert_eq!(octets[20..], TC);
    }

    #[test]
    fn fq_is_read_from_its_message_and_other_roots_are_not_fq() {
        let written = batch(Verb::Create);
        let (index, entry) = parse(&written.octets()[16..]).unwrap();
        assert_eq!((index, entry.handle, entry.fq), (1, 0x3e1_0000, FQ));
        let mut other = written.octets()[16..].to_vec();
        other[24] = b'p';
        assert_eq!(parse(&other), None, "a pq is none");
        for length in 0..other.len() {
            let _ = parse(&other[..length]);
        }
    }
}
