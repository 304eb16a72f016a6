//! Why EyeQ gives a pair its rate, in sentences: the receiver's message, and the sender's limit.

use super::view::{PairView, ReceiveView, SendView};
use crate::mechanism::explain::{Facts, Named, Side, Summary, plural};

/// One line about a pair.
pub(crate) fn summary(view: &PairView) -> Summary {
    let mut pair = Summary::default();
    if let Some(r) = &view.receive {
        // Of the VM: its meter does not know the senders.
        pair.floor = r.floor;
        pair.measured = r.received;
        pair.phase = "metered".into();
    }
    if let Some(s) = &view.send {
        pair.side = Side::of(true, s.is_local);
        pair.floor = s.setting.floor;
        pair.rate = s.setting.ceiling;
        pair.measured = s.measured;
        pair.phase = if s.limit.is_some() { "limited" } else { "unlimited" }.into();
    }
    pair
}

/// The chain of reasons, from the receiver's word to the kernel.
pub(crate) fn reasons(view: &PairView, named: Named<'_>, facts: &Facts) -> Vec<String> {
    let mut reasons = Vec::new();
    let Named { src, dst, .. } = named;
    if let Some(s) = &view.send {
        sending(s, src, dst, facts, &mut reasons);
    }
    if let Some(r) = &view.receive {
        receiving(r, dst, &mut reasons);
    }
    reasons
}

fn sending(s: &SendView, src: &str, dst: &str, facts: &Facts, reasons: &mut Vec<String>) {
    reasons.push(format!("{src} sent {} in the last period.", s.measured));
    reasons.push(match (s.is_local, s.limit, s.heard_at) {
        (true, ..) => format!("{dst} is on this host, too: no link is crossed, and nothing limited."),
        (false, None, _) => format!(
            "{dst}'s host has not said a rate yet: until it does there is no limit but the line, {}.",
            s.line
        ),
        (false, Some(limit), None) => format!(
            "{dst}'s host was not heard since this agent started: the {limit} that was found in force \
             is the limit."
        ),
        (false, Some(limit), Some(at)) => {
            format!("{dst}'s host spoke {}: the limit is {limit}.", facts.ago(at))
        }
    });
    let part = s.promised.split(s.peers);
    reasons.push(format!(
        "{src} is promised {} out, divided over {} active pair{}: {part} each, and no more than the \
         limit. So the floor is {}.",
        s.promised,
        s.peers,
        plural(s.peers),
        s.setting.floor
    ));
    let mut now = format!("Now it may send {}", s.setting.ceiling);
    if let Some(cap) = facts.cap {
        now += &format!("; all pairs of the VM together no more than its cap of {cap}");
    }
    reasons.push(now + "; the uplink is shared by floors.");
    facts.in_force(s.setting, reasons);
}

fn receiving(r: &ReceiveView, dst: &str, reasons: &mut Vec<String>) {
    reasons.push(format!(
        "{dst} is promised {} in. Its part of this host's link is {} by now, for all who send to it; \
         {} came in the last period.",
        r.floor, r.capacity, r.received
    ));
    reasons.push(if r.advertised.is_zero() {
        "Nothing came yet, so no rate is told.".into()
    } else {
        format!("Each sender is told {}, for every few packets that come.", r.advertised)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Setting;
    use weir_units::{PairId, Rate, Span, Time, VmId};

    const NAMED: Named<'_> = Named { src: "a", dst: "b", hose: None };

    fn mbps(m: u64) -> Rate {
        Rate::from_mbps(m)
    }

    fn facts(kernel: Setting) -> Facts {
        Facts {
            now: Time::ZERO + Span::from_secs(2),
            cap: None,
            kernel: Some(kernel),
            renewed: Time::ZERO,
            lease: Span::from_secs(1),
            overbooked: None,
            changed: None,
            next: None,
        }
    }

    #[test]
    fn a_limit_is_told_with_when_it_was_heard_and_what_is_made_of_it() {
        let setting = Setting { floor: mbps(10), ceiling: mbps(30) };
        let send = SendView {
            setting,
            promised: mbps(20),
            peers: 2,
            limit: Some(mbps(30)),
            heard_at: Some(Time::ZERO + Span::from_millis(1500)),
            measured: mbps(29),
            line: mbps(100),
            is_local: false,
        };
        let pair = PairId::new(VmId(0), VmId(1));
        let view = PairView { pair, send: Some(send), receive: None };
        let told = reasons(&view, NAMED, &facts(setting));
        let wanted = [
            "a sent 29 Mb/s in the last period.",
            "b's host spoke 0.50 s ago: the limit is 30 Mb/s.",
            "a is promised 20 Mb/s out, divided over 2 active pairs: 10 Mb/s each, and no more than the \
             limit. So the floor is 10 Mb/s.",
            "Now it may send 30 Mb/s; the uplink is shared by floors.",
            "The kernel has just that.",
        ];
        assert_eq!(told, wanted);
        let line = summary(&view);
        assert_eq!((line.side, line.phase.as_str()), (Side::Send, "limited"));
        assert_eq!((line.floor, line.rate), (mbps(10), mbps(30)));
    }

    #[test]
    fn a_receiver_tells_its_part_and_what_it_says() {
        let receive = ReceiveView {
            floor: mbps(20),
            capacity: mbps(60),
            advertised: mbps(30),
            received: mbps(59),
        };
        let pair = PairId::new(VmId(0), VmId(1));
        let view = PairView { pair, send: None, receive: Some(receive) };
        let told = reasons(&view, NAMED, &facts(Setting::default()));
        assert!(told[0].contains("Its part of this host's link is 60 Mb/s by now"));
        assert_eq!(told[1], "Each sender is told 30 Mb/s, for every few packets that come.");
        assert_eq!(summary(&view).side, Side::Receive);
    }
}
