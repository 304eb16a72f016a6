//! Several agents, any inputs in any order: no panic, no floor above its hose, no memory without
//! bound.
//!
//! Some messages travel as they should, late or twice; others are made up, as is everything that
//! the data plane tells: counters that go backwards, pairs of no VM, times that jump.

use proptest::prelude::*;
use weir_core::elasticswitch::{ElasticSwitch, Promise};
use weir_core::host::{
    Direction, Hose, HoseKey, HostMachine, Input, Location, Observed, Outbox, Policy, ReceiveCount,
    SendCount, Setting, Ties, Timed,
};
use weir_core::level::{Level, LevelLaw};
use weir_core::mechanism::{Law, PairView};
use weir_core::message::{Backlog, Congestion, Echo, LevelWord, Message, Offer};
use weir_core::reservation::Reservation;
use weir_units::{HoseId, HostId, PairId, PathId, Rate, SortedMap, Span, TenantId, Time, VmId};

const HOSTS: u32 = 3;
/// Two VMs on each host, of two tenants in turn; no VM has an id from here on.
const VMS: u32 = 2 * HOSTS;
const OUTBOX: usize = 40;

fn host_of(vm: u32) -> HostId {
    HostId(vm / 2)
}

fn tenant_of(vm: u32) -> TenantId {
    TenantId(vm % 2)
}

/// What happens to one of the agents.
#[derive(Clone, Debug)]
enum Step {
    Seen(PairId, bool),
    Adopt(PairId, u64, u64),
    Found(PairId),
    PeerRestarted(u32),
    Observed(Vec<(PairId, [u64; 3])>, Vec<(PairId, [u64; 4])>),
    /// The same counters as those of one path.
    PathSample(u32, Vec<(PairId, [u64; 3])>, Vec<(PairId, [u64; 4])>),
    /// The least delayed packets of hosts.
    Timed(Vec<(u32, u16, u64)>),
    Made(u32, Message),
    /// A message that was posted to this host, by its position; kept if it comes twice.
    Delivered(usize, bool),
    Tick,
    /// The agent dies, and one with nothing in mind takes its place.
    Restart,
    /// The VMs of the fleet are tied by other hoses, as this host hears.
    Tied(Vec<Tie>),
}

/// Of one VM: whether it sends and receives in the first further hose, in the second, and in its
/// tenant's.
type Tie = [(bool, bool); 3];

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0u64..5_000,
        0u64..1_000_000_000,
        any::<u64>(),
        Just(u64::MAX - 1),
        Just(u64::MAX)
    ]
}

fn pair() -> impl Strategy<Value = PairId> {
    (0..=VMS, 0..=VMS).prop_map(|(src, dst)| PairId::new(VmId(src), VmId(dst)))
}

fn message() -> impl Strategy<Value = Message> {
    let serial = || prop_oneof![0u32..40, any::<u32>(), Just(u32::MAX)];
    let offer = (pair(), serial(), number(), any::<bool>(), any::<bool>()).prop_map(
        |(pair, serial, floor, unbounded, confirm)| {
            let floor = Rate::from_bps(floor);
            Message::Offer(Offer { pair, serial, floor, unbounded, confirm, round_trip: None })
        },
    );
    let backlog = || {
        use Backlog::*;
        prop::sample::select(vec![Unknown, Free, Sometimes, Always])
    };
    let echo = (pair(), serial(), number(), prop::option::of(number()), backlog()).prop_map(
        |(pair, serial, floor, most, backlog)| {
            let (floor, most) = (Rate::from_bps(floor), most.map(Rate::from_bps));
            Message::Echo(Echo { pair, serial, floor, most, backlog })
        },
    );
    let count = || prop_oneof![0u32..50, any::<u32>(), Just(u32::MAX)];
    let report =
        || {
            (pair(), count(), count(), count()).prop_map(|(pair, lost, marked, received)| {
                Congestion { pair, lost, marked, received }
            })
        };
    let on_a_path = (0u32..3, report())
        .prop_map(|(path, report)| Message::PathCongestion(PathId(path), report));
    let level = (any::<bool>(), number()).prop_map(|(may, raw)| {
        let level = Level::from_raw(raw);
        Message::Level(if may { LevelWord::May(level) } else { LevelWord::Uses(level) })
    });
    prop_oneof![offer, echo, report().prop_map(Message::Congestion), on_a_path, level]
}

fn step() -> impl Strategy<Value = Step> {
    let sent = || prop::collection::vec((pair(), prop::array::uniform3(number())), 0..6);
    let came = || prop::collection::vec((pair(), prop::array::uniform4(number())), 0..6);
    prop_oneof![
        6 => (pair(), any::<bool>()).prop_map(|(pair, send)| Step::Seen(pair, send)),
        2 => (pair(), number(), number()).prop_map(|(pair, a, b)| Step::Adopt(pair, a.min(b), a.max(b))),
        2 => pair().prop_map(Step::Found),
        1 => (0..=HOSTS).prop_map(Step::PeerRestarted),
        6 => (sent(), came()).prop_map(|(sent, came)| Step::Observed(sent, came)),
        4 => (0u32..3, sent(), came()).prop_map(|(path, sent, came)| Step::PathSample(path, sent, came)),
        3 => prop::collection::vec((0..=HOSTS, any::<u16>(), number()), 0..4).prop_map(Step::Timed),
        4 => (0..=HOSTS, message()).prop_map(|(from, message)| Step::Made(from, message)),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(at, twice)| Step::Delivered(at, twice)),
        8 => Just(Step::Tick),
        1 => Just(Step::Restart),
        1 => ties().prop_map(Step::Tied),
    ]
}

fn ties() -> impl Strategy<Value = Vec<Tie>> {
    let plain = Just([(false, false), (false, false), (true, true)]);
    let tie = prop_oneof![1 => plain, 3 => any::<Tie>()];
    prop::collection::vec(tie, VMS as usize)
}

/// VMs that are in no further hose have no ties.
fn tied(all: &[Tie]) -> SortedMap<VmId, Ties> {
    let of = |(vm, [one, two, tenant]): (u32, &Tie)| {
        let ids = |ends: [bool; 2]| {
            let ids = [HoseId(1), HoseId(2)].into_iter().zip(ends);
            ids.filter(|(_, is)| *is).map(|(id, _)| id).collect()
        };
        let (out, in_): (Vec<_>, Vec<_>) = (ids([one.0, two.0]), ids([one.1, two.1]));
        let is_tied = !out.is_empty() || !in_.is_empty();
        is_tied.then_some((VmId(vm), Ties { out, in_, tenant_out: tenant.0, tenant_in: tenant.1 }))
    };
    (0..).zip(all).filter_map(of).collect()
}

/// How the clock of a world goes on before a step.
#[derive(Clone, Copy, Debug)]
enum Clock {
    On(u64),
    To(u64),
}

fn clock() -> impl Strategy<Value = Clock> {
    prop_oneof![
        12 => (0u64..10_000_000).prop_map(Clock::On),
        4 => (0u64..200_000_000).prop_map(Clock::On),
        1 => (0u64..20_000_000_000).prop_map(Clock::On),
        // Also backwards.
        1 => (0u64..20_000_000_000).prop_map(Clock::To),
        1 => any::<u64>().prop_map(Clock::To),
    ]
}

fn law() -> impl Strategy<Value = Law> {
    let presets = prop::sample::select(ElasticSwitch::ALL_PRESETS);
    let elastic = |es| Law::ElasticSwitch(Box::new(es));
    prop_oneof![
        8 => presets.prop_map(move |name| elastic(ElasticSwitch::preset(name).expect("a preset"))),
        1 => Just(()).prop_map(move |()| elastic(ElasticSwitch::seawall())),
        4 => Just(()).prop_map(|()| Law::Level(Box::<LevelLaw>::default())),
        1 => Just(()).prop_map(|()| Law::Trinity(Box::default())),
        1 => number().prop_map(|rate| {
            let rates = SortedMap::from([(PairId::new(VmId(0), VmId(2)), Rate::from_bps(rate))]);
            Law::Reservation(Reservation { rates, other: Rate::from_mbps(1) })
        }),
    ]
}

/// Hoses as people buy them, and hoses that no person would buy.
fn hose() -> impl Strategy<Value = (u64, u64)> {
    let one = || prop_oneof![4 => 1_000_000u64..1_000_000_000, 1 => number()];
    (one(), one())
}

#[derive(Clone, Debug)]
struct Fleet {
    law: Law,
    line: u64,
    hoses: Vec<(u64, u64)>,
    /// Of each VM, in both further hoses.
    further: Vec<[(u64, u64); 2]>,
    ties: Vec<Tie>,
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let hoses = prop::collection::vec(hose(), VMS as usize);
    let line = prop_oneof![4 => 10_000_000u64..10_000_000_000, 1 => number()];
    let further = prop::collection::vec([hose(), hose()], VMS as usize);
    let nobody = Just(vec![[(false, false), (false, false), (true, true)]; VMS as usize]);
    let ties = prop_oneof![nobody, ties()];
    (law(), line, hoses, further, ties).prop_map(|(law, line, hoses, further, ties)| Fleet {
        law,
        line,
        hoses,
        further,
        ties,
    })
}

impl Fleet {
    fn agent(&self, host: u32, now: Time) -> HostMachine {
        HostMachine::new(self.policy(host, &self.ties), now).expect("nothing speaks against it")
    }

    fn further(&self, vm: u32) -> SortedMap<HoseId, Hose> {
        let hose = |(out, in_): (u64, u64)| Hose::of(Rate::from_bps(out), Rate::from_bps(in_));
        let [one, two] = self.further[vm as usize];
        SortedMap::from([(HoseId(1), hose(one)), (HoseId(2), hose(two))])
    }

    fn policy(&self, host: u32, ties: &[Tie]) -> Policy {
        let location = |vm: u32| Location { tenant: tenant_of(vm), host: host_of(vm) };
        let hose = |vm: u32| {
            let (out, in_) = self.hoses[vm as usize];
            Hose::of(Rate::from_bps(out), Rate::from_bps(in_))
        };
        let here = (0..VMS).filter(|vm| host_of(*vm) == HostId(host));
        let further = here.clone().map(|vm| (VmId(vm), self.further(vm)));
        let further = further.collect();
        let mut config = Policy::new(HostId(host), Rate::from_bps(self.line), self.law.clone())
            .with_vms(here.map(|vm| (VmId(vm), hose(vm))))
            .with_directory((0..VMS).map(|vm| (VmId(vm), location(vm))));
        config.can.paths = weir_core::path::MAX_PATHS;
        (config.further, config.ties) = (further, tied(ties));
        config
    }
}

struct World {
    fleet: Fleet,
    agents: Vec<HostMachine>,
    /// What each agent was told last.
    ties: Vec<Vec<Tie>>,
    outbox: Outbox,
    /// Posted and not yet delivered: from, to, what.
    posted: Vec<(HostId, HostId, Message)>,
    now: Time,
}

impl World {
    fn new(fleet: Fleet) -> Self {
        let agents = (0..HOSTS).map(|host| fleet.agent(host, Time::ZERO)).collect();
        let outbox = Outbox::new(OUTBOX);
        let ties = vec![fleet.ties.clone(); HOSTS as usize];
        Self { fleet, agents, ties, outbox, posted: Vec::new(), now: Time::ZERO }
    }

    fn play(&mut self, host: u32, clock: Clock, step: &Step) {
        self.now = match clock {
            Clock::On(ns) => self.now + Span::from_nanos(ns),
            Clock::To(ns) => Time::from_nanos(ns),
        };
        let now = self.now;
        let agent = &mut self.agents[host as usize];
        let mut handle = |input: Input<'_>| agent.handle(now, input, &mut self.outbox);
        match step {
            Step::Seen(pair, true) => handle(Input::Seen(*pair, Direction::Send)),
            Step::Seen(pair, false) => handle(Input::Seen(*pair, Direction::Receive)),
            Step::Adopt(pair, floor, ceiling) => {
                let (floor, ceiling) = (Rate::from_bps(*floor), Rate::from_bps(*ceiling));
                handle(Input::Adopt(*pair, Setting { floor, ceiling }));
            }
            Step::Found(pair) => handle(Input::Found(*pair, HostId(pair.src.0 % HOSTS))),
            Step::PeerRestarted(host) => handle(Input::PeerRestarted(HostId(*host))),
            Step::Observed(sent, came) => handle(Input::Observed(&sample(sent, came))),
            Step::PathSample(path, sent, came) => {
                let whole = sample(sent, came);
                let path = PathId(*path);
                let send = whole.send.into_iter().map(|(pair, count)| (pair, path, count));
                let receive = whole.receive.into_iter().map(|(pair, count)| (pair, path, count));
                handle(Input::Observed(&Observed {
                    send_paths: send.collect(),
                    receive_paths: receive.collect(),
                    ..Observed::default()
                }));
            }
            Step::Timed(all) => {
                let timed = |(host, sent, came): &(u32, u16, u64)| {
                    let came = Time::from_nanos(*came);
                    (HostId(*host), Timed { sent: *sent, came })
                };
                let timed = all.iter().map(timed).collect();
                handle(Input::Observed(&Observed { timed, ..Observed::default() }));
            }
            Step::Made(from, message) => handle(Input::Message(HostId(*from), *message)),
            Step::Delivered(at, twice) => {
                let here: Vec<usize> =
                    (0..self.posted.len()).filter(|i| self.posted[*i].1 == HostId(host)).collect();
                if let Some(at) = at.checked_rem(here.len()).map(|at| here[at]) {
                    let (from, _, message) = self.posted[at];
                    handle(Input::Message(from, message));
                    if !twice {
                        self.posted.remove(at);
                    }
                }
            }
            Step::Tick => handle(Input::Tick),
            Step::Restart => {
                *agent = self.fleet.agent(host, now);
                self.ties[host as usize].clone_from(&self.fleet.ties);
            }
            Step::Tied(ties) => {
                handle(Input::Policy(&self.fleet.policy(host, ties)));
                self.ties[host as usize].clone_from(ties);
            }
        }
    }

    /// What must hold after each step.
    fn check(&mut self, host: u32, step: &Step) -> Result<(), TestCaseError> {
        let now = self.now;
        let messages = self.outbox.take();
        prop_assert!(messages.len() <= OUTBOX, "{} messages", messages.len());
        self.posted.extend(messages.into_iter().map(|(to, message)| (HostId(host), to, message)));
        self.posted.truncate(500);

        let agent = &mut self.agents[host as usize];
        let is_late = now >= Time::from_nanos(u64::MAX / 2);
        if matches!(step, Step::Tick) && !is_late {
            let next = agent.next_deadline();
            prop_assert!(next.is_none_or(|(at, _)| at > now), "a deadline that is over: {next:?}");
        }
        let desired = &mut agent.orders(now).pairs;
        let table: Vec<(PairId, Setting)> = desired.iter().collect();
        for (pair, setting) in desired.take_changed() {
            prop_assert!(table.contains(&(pair, setting)), "{pair} is not in the table");
        }
        for (pair, paths) in desired.take_changed_paths() {
            let sum: u128 = paths.iter().map(|path| u128::from(path.floor.as_bps())).sum();
            let floor = table.iter().find(|(known, _)| *known == pair).map(|(_, s)| s.floor);
            prop_assert_eq!(floor.map(|floor| u128::from(floor.as_bps())), Some(sum), "{}", pair);
        }
        desired.take_forgotten();
        let most = (VMS + 1) * (VMS + 1);
        prop_assert!(table.len() <= most as usize, "{} settings", table.len());
        for (pair, Setting { floor, ceiling }) in &table {
            prop_assert!(ceiling >= floor, "{pair}: {floor} above {ceiling}");
        }
        for view in agent.pairs(now) {
            let view = match view {
                PairView::ElasticSwitch(view) => *view,
                PairView::Level(view) => view.floors,
                _ => continue,
            };
            // Both are sums that the agent gives away itself.
            if let Some(r) = view.receive {
                prop_assert!(r.spent <= r.hose, "{}: {} of {}", view.pair, r.spent, r.hose);
            }
        }
        let es = match &self.fleet.law {
            Law::ElasticSwitch(es) => Some(es.as_ref()),
            Law::Level(level) => Some(&level.partition),
            Law::Trinity(law) => Some(&law.pairs),
            _ => None,
        };
        if let Some(es) = es.filter(|es| es.promise == Promise::Hose) {
            self.floors_are_within_hoses(host, es.default_floor, &table)?;
        }
        Ok(())
    }

    /// The floors of each VM's pairs in each of its hoses, as its agent knows them.
    fn floors_are_within_hoses(
        &self,
        host: u32,
        default_floor: Rate,
        table: &[(PairId, Setting)],
    ) -> Result<(), TestCaseError> {
        let policy = self.fleet.policy(host, &self.ties[host as usize]);
        let further = [1, 2].map(|id| HoseKey::Further(HoseId(id)));
        for vm in 0..VMS {
            for key in [HoseKey::Tenant, HoseKey::Default].into_iter().chain(further) {
                let theirs = table
                    .iter()
                    .filter(|(pair, _)| pair.src == VmId(vm) && policy.hose_of(*pair) == Some(key));
                let sum: u128 = theirs.map(|(_, s)| u128::from(s.floor.as_bps())).sum();
                let hose = match key {
                    HoseKey::Tenant => Rate::from_bps(self.fleet.hoses[vm as usize].0),
                    HoseKey::Default => default_floor,
                    HoseKey::Further(id) => self.fleet.further(vm)[&id].out.floor,
                };
                prop_assert!(
                    sum <= u128::from(hose.as_bps()),
                    "VM {vm} is promised {hose}, its pairs {sum} bit/s: {table:?}"
                );
            }
        }
        Ok(())
    }
}

fn sample(sent: &[(PairId, [u64; 3])], came: &[(PairId, [u64; 4])]) -> Observed {
    let send = |(pair, [octets, numbered, unnumbered]): &(PairId, [u64; 3])| {
        let (octets, numbered, unnumbered) = (*octets, *numbered, *unnumbered);
        let waiting = (unnumbered % 3 > 0).then_some(unnumbered);
        let (acks, waiting_acks, segments) = (unnumbered, octets, numbered);
        let count =
            SendCount { octets, acks, numbered, unnumbered, segments, waiting, waiting_acks };
        (*pair, count)
    };
    let receive = |(pair, [octets, segments, lost, marked]): &(PairId, [u64; 4])| {
        let (octets, segments, lost, marked) = (*octets, *segments, *lost, *marked);
        (*pair, ReceiveCount { octets, segments, numbered: Some(segments), lost, marked })
    };
    Observed {
        send: sent.iter().map(send).collect(),
        receive: came.iter().map(receive).collect(),
        ..Observed::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn several_agents_hold_their_hoses_whatever_comes_in_any_order(
        fleet in fleet(),
        steps in prop::collection::vec((0..HOSTS, clock(), step()), 0..250),
    ) {
        let mut world = World::new(fleet);
        for (host, clock, step) in &steps {
            world.play(*host, *clock, step);
            world.check(*host, step)?;
        }
    }
}
