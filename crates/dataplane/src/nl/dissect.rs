//! A datagram of the kernel as values: for tests, fuzzing, and recorders of dumps.
//!
//! Problem   Every dump passes these parsers. Their behaviour on hostile or cut octets must be
//!           known without a kernel that sends such octets.
//! Approach  The same walk and the same parsers as in [`super::Socket`], over any octets.
//! Promises  They never panic, never read beyond the octets, and give at most one value per message
//!           header.

use super::htb::ClassEntry;
use super::link::Link;
use super::redirect::FilterEntry;
use super::tc::Qdisc;
use super::{codepoint, fq, htb, link, redirect, socket, tc};

/// One message of the kernel's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A network device.
    Link(Link),
    /// A qdisc.
    Qdisc(Qdisc),
    /// A root qdisc that is fq, and the index of its device.
    Fq(u32, fq::Entry),
    /// An HTB class.
    Class(ClassEntry),
    /// A filter, and what it is if it chooses a class by code point.
    Filter(FilterEntry, Option<codepoint::Entry>),
    /// The answer to a request, or the end of a dump: an error number, 0 for success.
    Verdict(i32),
    /// A kind that is not read here, or a message that its parser did not understand.
    Other(u16),
}

/// All messages in a datagram, up to the first one that does not fit into it.
pub fn dissect(octets: &[u8]) -> impl Iterator<Item = Answer> + '_ {
    socket::messages(octets).map(|message| {
        let payload = message.payload;
        let read = match message.kind {
            libc::RTM_NEWLINK => link::parse(payload).map(Answer::Link),
            libc::RTM_NEWQDISC => fq::parse(payload)
                .map(|(index, entry)| Answer::Fq(index, entry))
                .or_else(|| tc::parse_qdisc(payload).map(Answer::Qdisc)),
            libc::RTM_NEWTCLASS => htb::parse(payload).map(Answer::Class),
            libc::RTM_NEWTFILTER => {
                let by_codepoint = codepoint::parse(payload);
                redirect::parse(payload).map(|filter| Answer::Filter(filter, by_codepoint))
            }
            kind if kind == libc::NLMSG_ERROR as u16 || kind == libc::NLMSG_DONE as u16 => {
                socket::code(&message).map(Answer::Verdict)
            }
            _ => None,
        };
        read.unwrap_or(Answer::Other(message.kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nl::{Batch, Device, Verb};

    #[test]
    fn what_is_written_is_read_as_what_it_is() {
        let device = Device { name: "weir-x".into(), index: 7 };
        let mut batch = Batch::new();
        batch.set_bfifo(&device, tc::ROOT, 0x10000, weir_units::Bytes::new(9000));
        batch.add_redirect(&device, 9, [3; redirect::COOKIE]);
        let class = htb::Class { rate: 1000, ceil: 2000, ..htb::Class::default() };
        batch.set_class(&device, Verb::Create, 0x10001, 0x10002, &class);
        let horizon = weir_units::Span::from_secs(1);
        let slack = weir_units::Span::from_micros(7);
        let fq = fq::Fq { limit: 9, flow_limit: 8, slack, horizon };
        batch.set_fq(&device, Verb::Create, 0x20000, &fq);
        let all: Vec<Answer> = dissect(batch.octets()).collect();
        let [
            Answer::Qdisc(qdisc),
            Answer::Filter(filter, _),
            Answer::Class(entry),
            Answer::Fq(7, root),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        assert_eq!((root.handle, root.fq), (0x20000, fq));
        assert_eq!((qdisc.limit, entry.class), (Some(9000), class));
        assert_eq!(filter.redirect, Some((9, vec![3; redirect::COOKIE])));
    }
}
