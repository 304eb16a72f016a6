//! Two agents and two uneven paths between them, without packets.

use super::super::Machine;
use super::*;
use crate::host::Policy;
use crate::host::{Direction, Hose, Input, Location, ReceiveCount, SendCount};
use crate::mechanism::Law;
use weir_units::{HostId, SortedMap, TenantId, VmId};

const PAIR: PairId = PairId::new(VmId(0), VmId(1));
const STEP: Span = Span::from_millis(5);
const FLOOR: Rate = Rate::from_mbps(140);

fn agent(host: u32, es: ElasticSwitch) -> Machine {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let paths = es.paths.count;
    let mut config = Policy::new(
        HostId(host),
        Rate::from_mbps(1000),
        Law::ElasticSwitch(Box::new(es.scaled(0.2))),
    )
    .with_vms(SortedMap::from([(VmId(host), Hose::of(FLOOR, FLOOR))]))
    .with_directory(SortedMap::from([(VmId(0), at(0)), (VmId(1), at(1))]));
    config.can.paths = paths;
    Machine::of(config, Time::ZERO)
}

struct World {
    agents: [Machine; 2],
    /// What each path carries.
    paths: Vec<Rate>,
    now: Time,
    sent: Vec<u64>,
    came: Vec<ReceiveCount>,
}

impl World {
    fn new(paths: &[u64]) -> Self {
        let es = ElasticSwitch::preset("steady-paths").expect("listed").with_paths(paths.len());
        let mut agents = [0, 1].map(|host| agent(host, es.clone()));
        let mut out = Outbox::default();
        for (agent, end) in agents.iter_mut().zip([Direction::Send, Direction::Receive]) {
            agent.handle(Time::ZERO, Input::Seen(PAIR, end), &mut out);
        }
        Self {
            agents,
            paths: paths.iter().map(|mbps| Rate::from_mbps(*mbps)).collect(),
            now: Time::ZERO,
            sent: vec![0; paths.len()],
            came: vec![ReceiveCount::default(); paths.len()],
        }
    }

    fn settings(&mut self) -> Vec<Setting> {
        let desired = &self.agents[0].orders(self.now).pairs;
        let (pair, paths) = (desired.get(PAIR), desired.paths(PAIR).expect("has several"));
        let sum: Rate = paths.iter().map(|path| path.floor).sum();
        assert_eq!(pair.map(|pair| pair.floor), Some(sum), "the parts sum to the floor");
        assert!(paths.iter().all(|path| path.ceiling >= path.floor));
        paths.to_vec()
    }

    /// The pair sends all that each path may.
    fn play(&mut self, span: Span) -> Vec<Setting> {
        for _ in 0..span.div_span(STEP) {
            self.now += STEP;
            for (path, setting) in self.settings().into_iter().enumerate() {
                let sent = setting.ceiling.bytes_in(STEP).get();
                let arrived = sent.min(self.paths[path].bytes_in(STEP).get());
                self.sent[path] += sent;
                let count = &mut self.came[path];
                count.octets += arrived;
                count.segments += arrived / 1514;
                count.lost += (sent - arrived) / 1514;
            }
            self.count();
        }
        self.settings()
    }

    fn count(&mut self) {
        let id = |path: usize| PathId(path as u32);
        let send = |octets: u64| SendCount { octets, numbered: octets, ..SendCount::default() };
        let octets: u64 = self.came.iter().map(|count| count.octets).sum();
        let all = ReceiveCount { octets, ..ReceiveCount::default() };
        let sent = self.sent.iter().enumerate().map(|(p, octets)| (PAIR, id(p), send(*octets)));
        let came = self.came.iter().enumerate().map(|(p, count)| (PAIR, id(p), *count));
        let sent_in_all = vec![(PAIR, send(self.sent.iter().sum()))];
        let samples = [
            Observed { send: sent_in_all, send_paths: sent.collect(), ..Observed::default() },
            Observed {
                receive: vec![(PAIR, all)],
                receive_paths: came.collect(),
                ..Observed::default()
            },
        ];
        for (host, sample) in samples.iter().enumerate() {
            let mut out = Outbox::default();
            let agent = &mut self.agents[host];
            agent.handle(self.now, Input::Observed(sample), &mut out);
            agent.handle(self.now, Input::Tick, &mut out);
            self.deliver(host, out);
        }
    }

    fn deliver(&mut self, from: usize, mut out: Outbox) {
        let messages = out.take();
        let is_plain = |m: &Message| matches!(m, Message::Congestion(_));
        assert!(!messages.iter().any(|(_, m)| is_plain(m)), "losses are reported per path");
        for (to, message) in messages {
            let mut answers = Outbox::default();
            let from = Input::Message(HostId(from as u32), message);
            self.agents[to.0 as usize].handle(self.now, from, &mut answers);
            if !answers.is_empty() {
                self.deliver(to.0 as usize, answers);
            }
        }
    }
}

#[test]
fn a_floor_that_does_not_fit_evenly_leaves_the_narrow_path() {
    let mut world = World::new(&[160, 40]);
    let settings = world.play(Span::from_secs(3));
    let floors: Vec<f64> = settings.iter().map(|s| s.floor.as_f64() / 1e6).collect();
    assert!(floors.iter().sum::<f64>() > 0.99 * 140.0, "the hose in all: {floors:?}");
    assert!(floors[1] < 40.0 && floors[0] < 160.0, "{floors:?}");
    assert_eq!(world.agents[0].counters().strayed + world.agents[1].counters().strayed, 0);
}

#[test]
fn a_path_that_becomes_free_is_used_again() {
    let mut world = World::new(&[160, 5]);
    let before = world.play(Span::from_secs(5))[1].floor;
    assert!(before < Rate::from_mbps(6), "{before}");
    world.paths = vec![Rate::from_mbps(100); 2];
    world.play(Span::from_secs(5));
    let after = world.settings();
    assert!(after.iter().all(|s| s.floor < Rate::from_mbps(100)), "{after:?}");
    assert!(after[1].floor > Rate::from_mbps(40), "{after:?}");
}

#[test]
fn paths_have_rates_of_their_own() {
    let mut world = World::new(&[400, 80]);
    let settings = world.play(Span::from_secs(20));
    let ceilings: Vec<Rate> = settings.iter().map(|s| s.ceiling).collect();
    assert!(ceilings[0] > Rate::from_mbps(150), "borrows where there is room: {settings:?}");
    assert!(ceilings[1] < Rate::from_mbps(160), "{settings:?}");
    let back = PairId::new(VmId(1), VmId(0));
    assert_eq!(world.agents[0].orders(world.now).pairs.paths(back), None);
}

#[test]
fn reports_about_paths_that_are_not_there_are_counted_and_ignored() {
    let mut world = World::new(&[100, 100]);
    let mut out = Outbox::default();
    let report = Congestion { pair: PAIR, lost: 9, marked: 0, received: 1 };
    let message = |path| Input::Message(HostId(1), Message::PathCongestion(PathId(path), report));
    let before = world.agents[0].counters();
    world.agents[0].handle(world.now, message(1), &mut out);
    world.agents[0].handle(world.now, message(2), &mut out);
    let after = world.agents[0].counters();
    assert_eq!((after.messages, after.strayed), (before.messages + 1, before.strayed + 1));
    let none = ReceiveCount::default();
    let receive_paths = vec![(PAIR, PathId(u32::MAX), none)];
    let far = Observed { receive_paths, ..Observed::default() };
    world.agents[1].handle(world.now, Input::Observed(&far), &mut out);
    let mut plain = agent(0, ElasticSwitch::default());
    plain.handle(Time::ZERO, Input::Seen(PAIR, Direction::Send), &mut out);
    plain.handle(Time::ZERO, message(0), &mut out);
    assert_eq!(plain.counters().strayed, 1, "a pair with one path has reports without");
    assert_eq!(plain.orders(Time::ZERO).pairs.paths(PAIR), None);
}
