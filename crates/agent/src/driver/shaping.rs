//! Windows by which VMs' connections keep to their pairs' rates: who asks for them, what they follow from, what is told.
//!
//! Problem   A pair's rate changes many times a second, and so does who lives on it.
//! Approach  The data plane counts connections and asks; the core makes a window of a rate, a time and a number. Rates
//!           that were just written are asked for at once, all others twenty times a second.
//!           A round trip that was said too short shows: windows are used up, less is sent than the rate (than the floor,
//!           where the uplink is full: others may have the rest), and nothing waits at the limiter. Then that pair's windows
//!           are lifted, for floors come first.
//! Promises  No wish is dropped without a word. Windows that hold a pair below its rate for two seconds, while nothing waits
//!           at its limiter, are lifted; and after one second if nobody looks. Then the limiter's queue alone shapes.
//! Not here  Counting, leases: `weir_dataplane`. From rates to windows: `weir_core::vcc::shaping`.

use super::Driver;
use crate::config::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::host::Desired;
use weir_core::vcc::shaping::window;
use weir_dataplane::{Shaped, ShapedPeer};
use weir_model::status;
use weir_units::{Bytes, PairId, Rate, Span, Time, VmId};

/// Who sends less than this part of its rate, percent, has less than it could. Above what partitioning takes for less
/// demand, or a pair's rate would fall with its windows, and never be missed.
const SHORT: u64 = 95;
/// Heartbeats in a row in which windows look too small before queues are asked whether they are,
const SUSPECTED: u32 = 4;
/// and that have to say so before windows are lifted.
const PROVEN: u32 = 8;
/// Of these a queue that is found not to be empty takes back so many: a standing one more than come.
const BURST: u32 = 2;
/// What may wait at a limiter of a pair that its windows hold back: less than a frame. Windows of two segments leave no
/// more than one waiting.
const EMPTY: Bytes = Bytes::new(1_400);

/// All window shaping that is asked for.
#[derive(Debug, Default)]
pub(super) struct Shaping {
    round_trips: BTreeMap<VmId, Span>,
    /// Pairs that have windows, as they were at the last heartbeat; what had left this host until then, and when it was.
    watched: BTreeMap<PairId, Watched>,
    left: Bytes,
    looked: Time,
    /// Pairs whose round trip is longer than what was said: no windows bound them.
    lifted: BTreeSet<PairId>,
    /// What is refused, as the log has it.
    refused: BTreeMap<VmId, String>,
}

/// One pair that has windows.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// What it had sent.
    octets: Bytes,
    /// Its rate.
    rate: Rate,
    /// For so many heartbeats its windows look too small.
    suspected: u32,
}

impl Shaping {
    pub(super) fn of(setup: &Setup) -> BTreeMap<VmId, Span> {
        let vms = setup.file.vms.iter();
        vms.filter_map(|vm| Some((setup.names.id(&vm.name)?, vm.window_shaping?.0))).collect()
    }

    /// What each of so many live connections of a pair may have; `None` where no rate of it is set, or windows do not
    /// carry it.
    pub(super) fn window(&self, desired: &Desired, pair: PairId, live: u32) -> Option<u32> {
        let (time, setting) = (self.round_trips.get(&pair.src)?, desired.get(pair)?);
        (!self.lifted.contains(&pair)).then(|| window(setting.ceiling, *time, live))
    }

    /// With every heartbeat: what each pair with windows has sent in all, what it should be able to, and whether any of its
    /// windows is used up. Says whose windows have looked too small for long enough to ask their queues.
    fn watch(&mut self, now: Time, pairs: &[(PairId, Bytes, Rate, bool)]) -> Vec<PairId> {
        let passed = now.since(self.looked);
        let before = std::mem::take(&mut self.watched);
        for (pair, octets, rate, is_used_up) in pairs {
            let was = before.get(pair);
            let is_short = was.is_some_and(|was| {
                let could = was.rate.min(*rate).mul_ratio(SHORT, 100).bytes_in(passed);
                *is_used_up && octets.saturating_sub(was.octets) < could
            });
            let suspected = was.filter(|_| is_short).map_or(0, |was| was.suspected + 1);
            self.watched.insert(*pair, Watched { octets: *octets, rate: *rate, suspected });
        }
        self.looked = now;
        let is_suspect =
            |(pair, one): (&PairId, &Watched)| (one.suspected >= SUSPECTED).then_some(*pair);
        self.watched.iter().filter_map(is_suspect).collect()
    }

    /// Whether the uplink was used up since the last heartbeat, if so much has left the host by now: then pairs may have
    /// less than their ceilings whatever their windows are, but for their floors.
    fn is_full(&mut self, now: Time, left: Bytes, uplink: Rate) -> bool {
        let since = left.saturating_sub(std::mem::replace(&mut self.left, left));
        since >= uplink.mul_ratio(SHORT, 100).bytes_in(now.since(self.looked))
    }

    /// What waits at their limiters. Says whose windows are lifted from now on.
    fn judge(&mut self, suspects: &[PairId], waiting: &BTreeMap<PairId, Bytes>) -> Vec<PairId> {
        let mut lifted = Vec::new();
        for pair in suspects {
            let (Some(one), Some(waiting)) = (self.watched.get_mut(pair), waiting.get(pair)) else {
                continue;
            };
            if *waiting >= EMPTY {
                // Others have the uplink, and there is enough in flight to fill whatever is left. Or it is what waits of a
                // burst for a part of each round trip.
                one.suspected = one.suspected.saturating_sub(BURST);
            } else if one.suspected >= PROVEN {
                self.watched.remove(pair);
                self.lifted.insert(*pair);
                lifted.push(*pair);
            }
        }
        lifted
    }
}

/// Whom it is asked for, of the VMs that are there.
pub(super) fn of(setup: &Setup, gone: &BTreeSet<VmId>) -> BTreeSet<VmId> {
    Shaping::of(setup).into_keys().filter(|vm| !gone.contains(vm)).collect()
}

impl Driver {
    /// Takes up what is asked for now.
    pub(super) fn take_up_shaping(&mut self) {
        let next = Shaping::of(&self.setup);
        let now = std::mem::replace(&mut self.shaping.round_trips, next);
        // Whoever writes another time has seen to what was too short.
        let (next, listed) = (&self.shaping.round_trips, &self.setup.host.directory);
        self.shaping.lifted.retain(|pair| {
            next.get(&pair.src) == now.get(&pair.src) && listed.contains_key(&pair.dst)
        });
        self.tell_of_shaping();
    }

    /// With every heartbeat: pairs whose round trip is too long for their windows get rid of them.
    pub(super) fn watch_windows(&mut self, now: Time) {
        let mut shaped = self.dataplane.shaped();
        // Windows that nobody sees to count no more, and sums that could not be read say nothing.
        shaped.retain(|one| one.refused.is_none());
        if shaped.is_empty() || self.failed_reads > 0 {
            self.shaping.watched.clear();
            return;
        }
        let sent: BTreeMap<PairId, Bytes> =
            self.counters.tx.iter().map(|(pair, c)| (*pair, c.octets)).collect();
        let left = self.counters.tx.iter().map(|(_, c)| c.numbered + c.unnumbered).sum();
        let is_full = self.shaping.is_full(now, left, self.setup.file.uplink.rate.0);
        let desired = self.agent.desired(now);
        let watched = |(vm, peer): (VmId, ShapedPeer)| {
            let pair = PairId::new(vm, peer.vm);
            let (octets, setting) = (*sent.get(&pair)?, desired.get(pair)?);
            let rate = if is_full { setting.floor } else { setting.ceiling };
            Some((pair, octets, rate, is_used_up(&peer)))
        };
        let peers = shaped.into_iter().flat_map(|one| {
            let vm = one.vm;
            one.peers.into_iter().map(move |peer| (vm, peer))
        });
        let pairs: Vec<_> = peers.filter_map(watched).collect();
        let suspects = self.shaping.watch(now, &pairs);
        if suspects.is_empty() {
            return;
        }
        let queues = match self.dataplane.queues() {
            Ok(queues) => queues,
            Err(e) => return tracing::debug!("queues could not be read: {e}"),
        };
        let waiting =
            queues.iter().filter_map(|queue| Some((queue.pair?, queue.backlog))).collect();
        for pair in self.shaping.judge(&suspects, &waiting) {
            let name = |vm: VmId| self.setup.names.name(vm);
            let time = self.shaping.round_trips.get(&pair.src).copied().unwrap_or_default();
            tracing::warn!(
                "the round trip from {} to {} is longer than the {} of `window_shaping`: windows held the pair below \
                 its rate, and are lifted until it says more",
                name(pair.src),
                name(pair.dst),
                time
            );
        }
    }

    /// What became of all wishes, for people.
    pub(super) fn told_shaping(&self) -> Vec<status::Shaping> {
        let name = |vm: VmId| self.setup.names.name(vm);
        let told = |one| told(one, &self.shaping, &name);
        self.dataplane.shaped().into_iter().map(told).collect()
    }

    /// Says once what is refused, and when it is not any more.
    pub(super) fn tell_of_shaping(&mut self) {
        let mut refused = BTreeMap::new();
        for one in self.dataplane.shaped() {
            let Some(why) = one.refused else { continue };
            if self.shaping.refused.get(&one.vm) != Some(&why) {
                let vm = self.setup.names.name(one.vm);
                tracing::error!("vm {vm} is not shaped by windows: {why}");
            }
            refused.insert(one.vm, why);
        }
        for vm in self.shaping.refused.keys().filter(|vm| !refused.contains_key(vm)) {
            tracing::info!(
                "no window shaping of vm {} is refused any more",
                self.setup.names.name(*vm)
            );
        }
        self.shaping.refused = refused;
    }

    /// How many are refused.
    pub(super) fn refused_shaping(&self) -> usize {
        self.shaping.refused.len()
    }

    /// What windows a pair's connections have, in one sentence, if they follow its rate.
    pub(super) fn explain_shaping(&self, from: &str, to: &str) -> Option<String> {
        let all = self.told_shaping();
        all.iter().find(|one| one.vm == from).and_then(|one| sentence(one, to))
    }
}

/// Whether its windows hold back any connection of a pair. One is enough: others may use little.
const fn is_used_up(peer: &ShapedPeer) -> bool {
    peer.window.is_some() && peer.used_up > 0
}

fn told(one: Shaped, shaping: &Shaping, name: &dyn Fn(VmId) -> String) -> status::Shaping {
    let c = one.counters.unwrap_or_default();
    let vm = one.vm;
    let pair = |peer: ShapedPeer| {
        let too_long = shaping.lifted.contains(&PairId::new(vm, peer.vm));
        let (live, window) = (peer.live, peer.window);
        status::ShapedPair { to: name(peer.vm), live, window, too_long }
    };
    status::Shaping {
        vm: name(one.vm),
        refused: one.refused,
        round_trip_ns: shaping.round_trips.get(&one.vm).copied().unwrap_or_default().as_nanos(),
        pairs: one.peers.into_iter().map(pair).collect(),
        lowered: c.lowered,
        no_place: c.full,
        unedited: c.unedited,
    }
}

fn sentence(one: &status::Shaping, to: &str) -> Option<String> {
    let vm = &one.vm;
    if let Some(why) = &one.refused {
        return Some(format!("{vm} asks to be shaped by windows, refused: {why}."));
    }
    let pair = one.pairs.iter().find(|pair| pair.to == to)?;
    let time = Span::from_nanos(one.round_trip_ns);
    if pair.too_long {
        return Some(format!(
            "The round trip of {vm} to {to} is longer than {time}: no windows follow the rate, its queue shapes."
        ));
    }
    let window = Bytes::new(pair.window?.into());
    let unshaped = match one.no_place {
        0 => String::new(),
        n => format!(
            " {n} connections found no place in its table (`flows_per_vm`): the queue shapes them."
        ),
    };
    Some(format!(
        "Windows follow the rate: {} connections of {vm} to {to} may have {window} each in flight (two segments at \
         least), together what it carries in {time}.{unshaped}",
        pair.live
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::host::Setting;
    use weir_dataplane::vcc::intf::Counters;
    use weir_units::Rate;

    #[test]
    fn windows_follow_a_pairs_ceiling_and_there_is_none_without_a_rate_or_a_wish() {
        let (a, b, c) = (VmId(1), VmId(2), VmId(3));
        let round_trips = [(a, Span::from_millis(2))].into();
        let shaping = Shaping { round_trips, ..Shaping::default() };
        let mut desired = Desired::default();
        let setting = Setting { floor: Rate::from_mbps(1), ceiling: Rate::from_mbps(40) };
        desired.set(PairId::new(a, b), setting);
        desired.set(PairId::new(c, b), setting);
        assert_eq!(shaping.window(&desired, PairId::new(a, b), 4), Some(3_960));
        assert_eq!(shaping.window(&desired, PairId::new(a, c), 4), None, "no rate is set");
        assert_eq!(shaping.window(&desired, PairId::new(c, b), 4), None, "nobody asks");
    }

    const HEARTBEAT: Span = Span::from_millis(250);

    /// Beats at 40 Mbit/s, 1.25 MB in each: what is sent in each, whether windows are full, and what waits. After which
    /// beat windows were lifted.
    fn lifted_after(sent: u64, used_up: u32, waiting: impl Fn(u32) -> u64) -> Option<u32> {
        let pair = PairId::new(VmId(1), VmId(2));
        let peer = ShapedPeer { vm: VmId(2), live: 4, used_up, window: Some(1) };
        let (mut shaping, mut now, mut octets) = (Shaping::default(), Time::ZERO, Bytes::ZERO);
        for beat in 1..=40 {
            (now, octets) = (now + HEARTBEAT, octets + Bytes::new(sent));
            let rate = Rate::from_mbps(40);
            let suspects = shaping.watch(now, &[(pair, octets, rate, is_used_up(&peer))]);
            if shaping.judge(&suspects, &[(pair, Bytes::new(waiting(beat)))].into()) == [pair] {
                return Some(beat);
            }
        }
        None
    }

    #[test]
    fn windows_that_hold_a_pair_below_its_rate_are_lifted_after_two_seconds_and_no_others() {
        // The first beat says nothing of what was sent.
        assert_eq!(lifted_after(900_000, 4, |_| 0), Some(1 + PROVEN));
        assert_eq!(lifted_after(900_000, 1, |_| 0), Some(1 + PROVEN), "others use little");
        assert_eq!(lifted_after(1_180_000, 4, |_| 1_399), Some(1 + PROVEN));
        let burst = |beat| if beat == 7 { 9_000 } else { 0 };
        assert_eq!(lifted_after(900_000, 4, burst), Some(1 + PROVEN + BURST), "a burst on its way");
        assert_eq!(lifted_after(900_000, 4, |_| 1_514), None, "others have the uplink");
        assert_eq!(lifted_after(900_000, 4, |beat| u64::from(beat % 2) * 1_514), None);
        assert_eq!(lifted_after(900_000, 0, |_| 0), None, "it wants no more, or nobody sends");
        assert_eq!(lifted_after(1_190_000, 4, |_| 0), None, "it has its rate");
    }

    #[test]
    fn a_rate_that_grows_is_not_missed_before_and_a_queue_that_nobody_knows_lifts_nothing() {
        let pair = PairId::new(VmId(1), VmId(2));
        let (mut shaping, mut now, mut octets) = (Shaping::default(), Time::ZERO, Bytes::ZERO);
        for beat in 1..=30u64 {
            (now, octets) =
                (now + HEARTBEAT, octets + Rate::from_mbps(10 * beat).bytes_in(HEARTBEAT));
            let suspects =
                shaping.watch(now, &[(pair, octets, Rate::from_mbps(10 * beat + 10), true)]);
            assert_eq!(suspects, [], "beat {beat}");
        }
        for _ in 0..30 {
            now += HEARTBEAT;
            let suspects = shaping.watch(now, &[(pair, octets, Rate::from_mbps(40), true)]);
            assert_eq!(shaping.judge(&suspects, &BTreeMap::new()), []);
        }
    }

    #[test]
    fn an_uplink_is_full_when_nearly_all_of_it_left_since_the_last_heartbeat() {
        let (mut shaping, uplink) = (Shaping::default(), Rate::from_mbps(40));
        let mut beat = |n: u64, left: u64| {
            let now = Time::ZERO + Span::from_millis(250 * n);
            let is_full = shaping.is_full(now, Bytes::new(left), uplink);
            assert_eq!(shaping.watch(now, &[]), []);
            is_full
        };
        assert!(beat(1, 1_250_000) && beat(2, 2_440_000));
        assert!(!beat(3, 3_600_000) && !beat(4, 3_600_000) && beat(5, 4_800_000));
    }

    #[test]
    fn who_was_lifted_has_no_window_until_it_is_asked_for_anew() {
        let pair = PairId::new(VmId(1), VmId(2));
        let round_trips = [(VmId(1), Span::from_millis(2))].into();
        let mut shaping = Shaping { round_trips, ..Shaping::default() };
        let mut desired = Desired::default();
        desired.set(pair, Setting { floor: Rate::ZERO, ceiling: Rate::from_mbps(40) });
        assert_eq!(shaping.window(&desired, pair, 1), Some(11_460));
        shaping.lifted.insert(pair);
        assert_eq!(shaping.window(&desired, pair, 1), None);
        let peer = ShapedPeer { vm: VmId(2), live: 1, used_up: 0, window: None };
        let one = Shaped { vm: VmId(1), refused: None, peers: vec![peer], counters: None };
        let all = told(one, &shaping, &|vm: VmId| format!("v{}", vm.0));
        let text = sentence(&all, "v2").expect("said");
        assert!(
            text.starts_with("The round trip of v1 to v2 is longer than 2 ms: no windows"),
            "{text}"
        );
    }

    #[test]
    fn each_outcome_of_a_wish_has_its_words() {
        let counters = Some(Counters { lowered: 9, full: 3, ..Counters::default() });
        let peer = |vm, live, window| ShapedPeer { vm: VmId(vm), live, used_up: 0, window };
        let peers = vec![peer(2, 4, Some(2_500)), peer(3, 1, None)];
        let one = Shaped { vm: VmId(1), refused: None, peers, counters };
        let round_trips = [(VmId(1), Span::from_millis(2))].into();
        let shaping = Shaping { round_trips, ..Shaping::default() };
        let name = |vm: VmId| format!("v{}", vm.0);
        let all = told(one.clone(), &shaping, &name);
        assert_eq!((all.lowered, all.no_place, all.round_trip_ns), (9, 3, 2_000_000));
        assert_eq!(
            sentence(&all, "v2").as_deref(),
            Some(
                "Windows follow the rate: 4 connections of v1 to v2 may have 2500 B each in flight (two segments at \
                 least), together what it carries in 2 ms. 3 connections found no place in its table (`flows_per_vm`): the \
                 queue shapes them."
            )
        );
        assert_eq!(sentence(&all, "v3"), None, "no rate is set");
        let refused = told(Shaped { refused: Some("no".into()), ..one }, &shaping, &name);
        let text = sentence(&refused, "v2");
        assert_eq!(text.as_deref(), Some("v1 asks to be shaped by windows, refused: no."));
    }
}
