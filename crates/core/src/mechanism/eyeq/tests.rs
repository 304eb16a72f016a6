use super::*;
use crate::host::{ReceiveCount, SendCount};
use crate::mechanism::Law;
use weir_units::{SortedMap, Span, TenantId};

/// Host 0 with a 10 Gb/s link has VMs 0 (tenant 0) and 1 (tenant 1); VMs from 10 on are on hosts of
/// the same number, of tenants 0 and 1 in turn.
const HERE: HostId = HostId(0);
pub(super) const PERIOD: Span = Span::from_micros(200);

pub(super) fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

fn tenant_of(vm: u32) -> TenantId {
    TenantId(vm % 2)
}

pub(super) fn config(eyeq: EyeQ, floors: [u64; 2]) -> Policy {
    let place = |vm: u32| {
        let host = if vm < 10 { HERE } else { HostId(vm) };
        (VmId(vm), Location { tenant: tenant_of(vm), host })
    };
    let mut policy = Policy::new(HERE, mbps(10_000), Law::EyeQ(Box::new(eyeq)))
        .with_vms((0..).map(VmId).zip(floors.map(|f| Hose::both(mbps(f)))))
        .with_directory((0..2).chain(10..60).map(place));
    policy.fastest_line = mbps(40_000);
    policy
}

/// The host that a policy makes.
pub(super) fn host(policy: &Policy) -> Result<Host, Refusal> {
    let Law::EyeQ(eyeq) = policy.law.clone() else { panic!("another law") };
    Host::new(policy, *eyeq, Time::ZERO)
}

/// What a VM may do, as hoses.
pub(super) fn set(policy: &mut Policy, vm: VmId, bounds: &VmBounds) {
    policy.hoses.insert(vm, bounds.hose());
}

/// What its peers are told.
pub(super) fn feedback(out: &mut Outbox) -> Vec<(HostId, Feedback)> {
    let only = |(to, message)| match message {
        Message::Feedback(feedback) => (to, feedback),
        other => panic!("{other:?}"),
    };
    out.take().into_iter().map(only).collect()
}

/// A host, its clock, and peers that do at once as they are told.
pub(super) struct Played {
    pub(super) host: Host,
    now: Time,
    out: Outbox,
    /// What each source sends, and the most it would.
    pub(super) sending: SortedMap<PairId, (Rate, Rate)>,
    arrived: SortedMap<PairId, ReceiveCount>,
    /// Messages to each.
    told: SortedMap<PairId, u64>,
}

impl Played {
    pub(super) fn new(config: Policy) -> Self {
        let host = host(&config).expect("a good configuration");
        let (sending, arrived) = (SortedMap::new(), SortedMap::new());
        let told = SortedMap::new();
        Self { host, now: Time::ZERO, out: Outbox::default(), sending, arrived, told }
    }

    /// `count` sources from `first` on begin to send to `vm`, of the tenant of `first`.
    pub(super) fn send(mut self, first: u32, count: u32, vm: u32, wants: Rate) -> Self {
        for src in (0..count).map(|i| first + 2 * i) {
            let pair = PairId::new(VmId(src), VmId(vm));
            self.sending.insert(pair, (wants, wants));
            self.arrived.insert(pair, ReceiveCount::default());
        }
        self.sample();
        self
    }

    fn sample(&mut self) {
        let receive = self.arrived.iter().map(|(pair, count)| (*pair, *count)).collect();
        let sample = Observed { receive, ..Observed::default() };
        self.host.handle(self.now, Input::Observed(&sample), &mut self.out);
    }

    pub(super) fn play(&mut self, periods: u64) {
        for _ in 0..periods {
            self.now += PERIOD;
            for (pair, (rate, _)) in &self.sending {
                let count = self.arrived.get_mut(pair).unwrap();
                count.octets += rate.bytes_in(PERIOD).get();
                count.segments += rate.bytes_in(PERIOD).get().div_ceil(1514);
            }
            self.sample();
            self.host.handle(self.now, Input::Tick, &mut self.out);
            for (_, feedback) in feedback(&mut self.out) {
                *self.told.entry(feedback.pair).or_default() += 1;
                let (rate, wants) = self.sending.get_mut(&feedback.pair).unwrap();
                *rate = feedback.rate.min(*wants);
            }
        }
    }

    pub(super) fn sum_to(&self, vm: u32) -> f64 {
        let to = self.sending.iter().filter(|(pair, _)| pair.dst == VmId(vm));
        to.map(|(_, (rate, _))| rate.as_f64()).sum()
    }
}

fn near(got: f64, mbps: f64, slack: f64) {
    let part = got / (mbps * 1e6);
    assert!((part - 1.0).abs() <= slack, "{:.1} Mb/s, not {mbps}", got / 1e6);
}

#[test]
fn senders_to_one_vm_meet_at_its_capacity() {
    for n in [1, 3, 14] {
        let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
        played = played.send(10, n, 0, mbps(10_000));
        played.play(300);
        near(played.sum_to(0), 9_000.0, 0.01);
    }
}

#[test]
fn two_vms_share_by_their_floors_and_a_change_of_priorities_turns_it_round() {
    let mut played = Played::new(config(EyeQ::default(), [1_000, 4_000]));
    played = played.send(10, 4, 0, mbps(10_000)).send(11, 4, 1, mbps(10_000));
    played.play(500);
    near(played.sum_to(0), 1_800.0, 0.02);
    near(played.sum_to(1), 7_200.0, 0.02);
    let turned = config(EyeQ::default(), [4_000, 1_000]);
    played.host.handle(played.now, Input::Policy(&turned), &mut played.out);
    played.play(500);
    near(played.sum_to(0), 7_200.0, 0.02);
    near(played.sum_to(1), 1_800.0, 0.02);
    assert_eq!(played.host.counters().refused_populations, 0);
}

#[test]
fn best_effort_takes_nothing_from_floors_and_all_that_is_spare() {
    let mut played = Played::new(config(EyeQ::default(), [4_000, 0]));
    played = played.send(10, 2, 0, mbps(1_500)).send(11, 2, 1, mbps(10_000));
    played.play(500);
    near(played.sum_to(0), 3_000.0, 0.001);
    near(played.sum_to(1), 6_000.0, 0.02);
    played.sending.values_mut().for_each(|(_, wants)| *wants = mbps(10_000));
    played.play(500);
    near(played.sum_to(0), 9_000.0, 0.02);
    assert!(played.sum_to(1) <= 20e6, "{:.0}", played.sum_to(1));
    assert!(played.sum_to(1) > 0.0, "nobody starves");
}

/// VM 0 is of tenant 0: from VMs of tenant 1 come strangers' floods.
#[test]
fn a_flood_of_strangers_takes_nothing_from_a_vms_own_tenant() {
    let mut played = Played::new(config(EyeQ::default(), [4_000, 4_000]));
    played = played.send(10, 2, 0, mbps(2_000)).send(11, 20, 0, mbps(10_000));
    played = played.send(51, 1, 1, mbps(10_000));
    played.play(1_500);
    let of = |tenant: u32| {
        let to = played.sending.iter().filter(|(pair, _)| pair.dst == VmId(0));
        let theirs = to.filter(|(pair, _)| tenant_of(pair.src.0) == TenantId(tenant));
        theirs.map(|(_, (rate, _))| rate.as_f64()).sum::<f64>()
    };
    near(of(0), 4_000.0, 0.001);
    near(of(1), 500.0, 0.2);
    near(played.sum_to(1), 4_500.0, 0.03);
}

#[test]
fn feedback_is_one_message_for_ten_kilobytes_and_everybody_is_told() {
    let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
    played = played.send(10, 25, 0, mbps(10_000));
    // The link carries no more than its rate.
    played.sending.values_mut().for_each(|(rate, _)| *rate = mbps(400));
    played.play(1);
    assert_eq!(played.told.len(), 25);
    let told: u64 = played.told.values().sum();
    assert_eq!(told, 25, "10 Gb/s in 200 us");
    // EyeQ §3.2: 64 Mb/s of messages of 64 octets on 10 Gb/s.
    let wire = told as f64 * 64.0 * 8.0 / PERIOD.as_secs_f64();
    assert!(wire <= 66e6, "{wire}");
}

#[test]
fn who_sends_little_among_many_is_told_in_the_end() {
    let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
    played = played.send(10, 24, 0, mbps(180)).send(11, 25, 0, mbps(180));
    played = played.send(58, 1, 0, mbps(1));
    played.play(2_000);
    // 25 octets in a period, and 22 messages for fifty sources: not before it has sent as much as
    // the others.
    let small = played.told[&PairId::new(VmId(58), VmId(0))];
    assert!((2..20).contains(&small), "told {small} times");
    let large = played.told[&PairId::new(VmId(10), VmId(0))];
    assert!(large >= 500, "told {large} times");
}

#[test]
fn marks_in_the_core_lower_what_is_advertised() {
    let advertised = |marked: u64| {
        let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
        played = played.send(10, 1, 0, mbps(4_500));
        for _ in 0..50 {
            let count = played.arrived.values_mut().next().unwrap();
            count.marked += marked;
            played.play(1);
        }
        played.host.meters(VmId(0))[0].advertised
    };
    // 4.5 Gb/s in 200 us are 75 segments.
    assert_eq!(advertised(0), mbps(9_000));
    let marked = advertised(75);
    assert!(marked < mbps(4_500), "{marked}");
}

#[test]
fn what_was_lost_counts_as_arrived_only_if_asked() {
    let advertised = |counts_losses| {
        let eyeq = EyeQ { counts_losses, ..EyeQ::default() };
        let mut played = Played::new(config(eyeq, [4_500, 4_500]));
        played = played.send(10, 1, 0, mbps(8_000));
        for _ in 0..5 {
            let count = played.arrived.values_mut().next().unwrap();
            count.lost += 135;
            played.play(1);
        }
        played.host.meters(VmId(0))[0].advertised
    };
    assert_eq!(advertised(false), mbps(9_000));
    assert!(advertised(true) < mbps(6_000), "{}", advertised(true));
}

/// A host whose VM 0 sends to VM 10, and may have been told a rate.
fn sending(told: Option<Rate>) -> (Host, Outbox) {
    let mut host = host(&config(EyeQ::default(), [4_500, 4_500])).unwrap();
    let mut out = Outbox::default();
    sent(&mut host, Time::ZERO, 0);
    if let Some(rate) = told {
        let feedback = Feedback { pair: OUT, rate };
        host.handle(Time::ZERO, Input::Message(HostId(10), Message::Feedback(feedback)), &mut out);
    }
    (host, out)
}

const OUT: PairId = PairId::new(VmId(0), VmId(10));

fn sent(host: &mut Host, now: Time, octets: u64) {
    let count = SendCount { octets, numbered: octets, ..SendCount::default() };
    let sample = Observed { send: vec![(OUT, count)], ..Observed::default() };
    host.handle(now, Input::Observed(&sample), &mut Outbox::default());
    host.handle(now, Input::Tick, &mut Outbox::default());
}

#[test]
fn a_destination_has_no_limiter_until_its_receiver_speaks() {
    let (host, _) = sending(None);
    assert_eq!(host.limits().get(OUT), None);
    let (mut host, _) = sending(Some(mbps(300)));
    let limit = host.limits().get(OUT).unwrap();
    assert_eq!(limit, mbps(300));
    let setting = Setting { floor: mbps(300), ceiling: mbps(300) };
    assert_eq!(host.orders().pairs.take_changed(), [(OUT, setting)]);
    assert!(host.orders().pairs.take_changed().is_empty());
}

#[test]
fn a_silent_receiver_halves_every_hundred_milliseconds_down_to_one_megabit() {
    let (mut host, _) = sending(Some(mbps(1_000)));
    let mut rates = Vec::new();
    for ms in 1..=1_500u64 {
        sent(&mut host, Time::ZERO + Span::from_millis(ms), ms * 20_000);
        if ms % 100 == 0 {
            rates.push(host.limits().get(OUT).unwrap());
        }
    }
    assert_eq!(rates[..3], [500, 250, 125].map(mbps));
    assert_eq!(rates[14], mbps(1));
    assert_eq!(host.counters().halved, 10);
}

#[test]
fn who_sends_little_is_not_halved_for_want_of_feedback() {
    let (mut host, _) = sending(Some(mbps(1_000)));
    for ms in 1..=1_500u64 {
        // Less than 20 kB in all.
        sent(&mut host, Time::ZERO + Span::from_millis(ms), ms * 13);
    }
    assert_eq!(host.limits().get(OUT).unwrap(), mbps(1_000));
}

#[test]
fn an_idle_limiter_is_given_up_and_the_table_says_so() {
    let (mut host, _) = sending(Some(mbps(1_000)));
    sent(&mut host, Time::ZERO + Span::from_millis(2_999), 0);
    assert!(host.limits().get(OUT).is_some());
    sent(&mut host, Time::ZERO + Span::from_millis(3_001), 0);
    assert_eq!(host.limits().get(OUT), None);
    assert_eq!(host.orders().pairs.take_forgotten(), [(OUT, Direction::Send)]);
    assert_eq!(host.next_deadline(), None);
}

#[test]
fn feedback_from_strangers_for_others_or_of_impossible_rates_is_dropped_and_counted() {
    let (mut host, mut out) = sending(None);
    let mut say = |from: u32, src: u32, dst: u32, rate: Rate| {
        let feedback = Feedback { pair: PairId::new(VmId(src), VmId(dst)), rate };
        host.handle(
            Time::ZERO,
            Input::Message(HostId(from), Message::Feedback(feedback)),
            &mut out,
        );
        assert!(host.limits().iter().next().is_none());
        host.counters()
    };
    assert_eq!(say(11, 0, 10, mbps(1)).strangers, 1, "VM 10 is not on host 11");
    assert_eq!(say(99, 0, 99, mbps(1)).strangers, 2, "nobody's VM");
    assert_eq!(say(10, 12, 10, mbps(1)).misdirected, 1, "VM 12 is not here");
    assert_eq!(say(10, 0, 10, mbps(40_001)).impossible, 1);
    assert_eq!(say(10, 0, 10, Rate::ZERO).impossible, 2);
    let counters = say(12, 0, 12, mbps(1));
    assert_eq!(counters.strayed, 1, "nothing is sent there");
    assert_eq!(counters.feedback, 0);
}

#[test]
fn a_faster_receiver_is_believed_up_to_ones_own_link() {
    let (host, _) = sending(Some(mbps(25_000)));
    assert_eq!(host.limits().get(OUT).unwrap(), mbps(10_000));
}

#[test]
fn what_stays_within_a_host_is_neither_metered_nor_limited() {
    let mut host = host(&config(EyeQ::default(), [4_500, 4_500])).unwrap();
    let pair = PairId::new(VmId(1), VmId(0));
    let sample = Observed {
        send: vec![(
            pair,
            SendCount { numbered: 1_000_000, waiting: Some(1), ..SendCount::default() },
        )],
        receive: vec![(pair, ReceiveCount { octets: 1_000_000, ..ReceiveCount::default() })],
        ..Observed::default()
    };
    host.handle(Time::ZERO, Input::Observed(&sample), &mut Outbox::default());
    assert_eq!(host.limits().iter().count(), 0);
    // It has its part of the floor beside the VM's other pairs, and is forgotten when idle.
    assert_eq!(host.next_deadline(), Some((Time::ZERO, Why::Send)));
    assert_eq!(host.counters(), Counters::default());
}

#[test]
fn peers_beyond_the_bound_are_counted_and_not_remembered() {
    let eyeq = EyeQ { peers_most: 5, ..EyeQ::default() };
    let mut played = Played::new(config(eyeq, [4_500, 4_500])).send(10, 25, 0, mbps(100));
    assert_eq!(played.host.counters().refused_peers, 20);
    played.play(50);
    assert_eq!(played.told.len(), 5);
    let count = SendCount { octets: 1, numbered: 1, waiting: Some(1), ..SendCount::default() };
    let to = |dst| (PairId::new(VmId(0), VmId(dst)), count);
    let sample = Observed { send: (10..60).map(to).collect(), ..Observed::default() };
    let before = played.host.counters().refused_peers;
    played.host.handle(played.now, Input::Observed(&sample), &mut played.out);
    assert_eq!(played.host.counters().refused_peers - before, 45);
    for dst in 10..60 {
        let feedback = Feedback { pair: to(dst).0, rate: mbps(1) };
        played.host.handle(
            played.now,
            Input::Message(HostId(dst), Message::Feedback(feedback)),
            &mut played.out,
        );
    }
    assert_eq!(played.host.limits().iter().count(), 5);
    assert_eq!(played.host.counters().strayed, 45);
}

#[test]
fn without_counters_nothing_is_concluded() {
    let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
    played = played.send(10, 14, 0, mbps(10_000));
    played.play(300);
    let before = played.host.meters(VmId(0));
    for _ in 0..100 {
        played.now += PERIOD;
        played.host.handle(played.now, Input::Tick, &mut played.out);
    }
    assert_eq!(played.host.meters(VmId(0)), before);
}

#[test]
fn a_late_driver_skips_periods_and_does_not_catch_up() {
    let mut played = Played::new(config(EyeQ::default(), [4_500, 4_500]));
    played = played.send(10, 1, 0, mbps(1_000));
    played.play(1);
    played.now += Span::from_micros(900);
    played.play(1);
    let (next, why) = played.host.next_deadline().unwrap();
    assert_eq!(why, Why::Receive);
    assert!(next > played.now && next.since(played.now) <= PERIOD, "{next:?}");
    let view = played.host.meters(VmId(0))[0];
    assert_eq!(view.over, Span::from_micros(1_100));
}

#[test]
fn a_population_that_promises_too_much_changes_nothing_and_is_counted() {
    let mut host = host(&config(EyeQ::default(), [4_500, 4_500])).unwrap();
    let too_much = config(EyeQ::default(), [4_500, 4_501]);
    host.handle(Time::ZERO, Input::Policy(&too_much), &mut Outbox::default());
    assert_eq!(host.counters().refused_populations, 1);
}

#[test]
fn who_leaves_takes_his_limiters_and_his_meters_along() {
    let (mut host, mut out) = sending(Some(mbps(300)));
    let mut without = config(EyeQ::default(), [4_500, 4_500]);
    without.retain_vms(|vm| vm != VmId(0));
    host.handle(Time::ZERO, Input::Policy(&without), &mut out);
    assert_eq!(host.limits().get(OUT), None);
    assert_eq!(host.orders().classes.get(VmId(0)), None);
    assert!(host.meters(VmId(0)).is_empty());
    assert_eq!(host.next_deadline(), None);
}

#[test]
fn a_vm_without_a_floor_is_marked_for_the_low_class() {
    let mut host = host(&config(EyeQ::default(), [4_500, 0])).unwrap();
    let class = |vm| host.orders().classes.get(vm).unwrap();
    assert_eq!([VmId(0), VmId(1)].map(class), [Class::Guaranteed, Class::BestEffort]);
}
