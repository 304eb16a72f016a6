//! ElasticSwitch's agent, which also plays Seawall and static reservations.

use super::{Agent, Counted, Lists, Orders};
use crate::host::letters::Words;
use crate::host::meter::Meter;
use crate::host::pairs::Sending;
use weir_core::host::{
    Counters, Direction, Ends, HostAgent, HostConfig, Input, Outbox, PathSample, ReceiveCount,
    Sample, SendCount, Setting,
};
use weir_core::message::Message;
use weir_units::{HostId, PairId, Time};
use weir_wire::MAX_RECORDS;

#[derive(Debug)]
pub(super) struct Elastic {
    agent: HostAgent,
    outbox: Outbox,
    sample: Sample,
    paths: PathSample,
}

impl Elastic {
    pub(super) fn new(config: &HostConfig, now: Time) -> Self {
        Self {
            agent: HostAgent::new(config.clone(), now),
            outbox: Outbox::default(),
            sample: Sample::default(),
            paths: PathSample::default(),
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_>) {
        self.agent.handle(now, input, &mut self.outbox);
    }

    fn read_sent(&mut self, counted: &Counted<'_>) {
        let Self { sample, paths, .. } = self;
        sample.send.clear();
        paths.send.clear();
        for pair in counted.sending() {
            let Sending { octets, numbered, .. } = pair.sending;
            let count = SendCount { octets, numbered, ..SendCount::default() };
            if pair.has_several() {
                paths.send.push((pair.id, pair.path, count));
                // The paths of a pair come in a row.
                if let Some((_, all)) = sample.send.last_mut().filter(|(id, _)| *id == pair.id) {
                    all.octets += octets;
                    all.numbered += numbered;
                    continue;
                }
            }
            sample.send.push((pair.id, count));
        }
    }

    fn read_received(&mut self, counted: &Counted<'_>) {
        let Self { sample, paths, .. } = self;
        sample.receive.clear();
        paths.receive.clear();
        for pair in counted.receiving() {
            let Meter { octets, segments, marked, .. } = pair.meter;
            let lost = pair.meter.lost(counted.now, counted.window);
            let mut count = ReceiveCount { octets, segments, numbered: None, lost, marked };
            if pair.has_several() {
                paths.receive.push((pair.id, pair.path, count));
                (count.lost, count.marked) = (0, 0);
                if let Some((_, all)) = sample.receive.last_mut().filter(|(id, _)| *id == pair.id) {
                    all.octets += octets;
                    all.segments += segments;
                    continue;
                }
            }
            sample.receive.push((pair.id, count));
        }
    }
}

impl Agent for Elastic {
    fn see(&mut self, now: Time, pair: PairId, direction: Direction) {
        self.handle(now, Input::Seen(pair, direction));
    }

    fn hear(&mut self, now: Time, from: HostId, words: &Words) {
        let Words::Records(messages) = words else { return };
        for message in messages {
            self.handle(now, Input::Message(from, *message));
        }
    }

    fn count(&mut self, now: Time, counted: &Counted<'_>) {
        self.read_sent(counted);
        self.read_received(counted);
        self.agent.handle(now, Input::Sample(&self.sample), &mut self.outbox);
        if !self.paths.send.is_empty() || !self.paths.receive.is_empty() {
            self.agent.handle(now, Input::PathSample(&self.paths), &mut self.outbox);
        }
    }

    fn tick(&mut self, now: Time) {
        self.handle(now, Input::Tick);
    }

    fn deadline(&self) -> Option<Time> {
        self.agent.next_deadline().map(|(at, _)| at)
    }

    fn take_up(&mut self, now: Time, lists: &Lists) {
        if let Lists::Pairs(config) = lists {
            self.handle(now, Input::Population(config));
        }
    }

    fn orders(&mut self, now: Time) -> Orders {
        let desired = self.agent.desired(now);
        let forgotten = desired.take_forgotten();
        let (changed, of_paths) = (desired.take_changed(), desired.take_changed_paths());
        // What a pair has is what its paths have, if it has several.
        let of_pairs = changed.into_iter().map(|(id, setting)| (id, vec![setting]));
        let settings = of_pairs.chain(of_paths).collect();
        Orders { forgotten, settings, shares: Vec::new() }
    }

    /// A datagram per peer, or several if it is much.
    fn say(&mut self) -> Vec<(HostId, Words)> {
        let messages = self.outbox.take();
        let mut letters = Vec::new();
        for batch in messages.chunk_by(|a, b| a.0 == b.0) {
            for part in batch.chunks(MAX_RECORDS) {
                let messages: Vec<Message> = part.iter().map(|(_, message)| *message).collect();
                letters.push((batch[0].0, Words::Records(messages)));
            }
        }
        letters
    }

    fn at_first(&self) -> Option<Setting> {
        None
    }

    fn adopt(&mut self, now: Time, pair: PairId, level: Setting) {
        self.handle(now, Input::Adopt(pair, level));
    }

    fn find(&mut self, now: Time, pair: PairId) {
        self.handle(now, Input::Found(pair));
    }

    fn peer_restarted(&mut self, now: Time, peer: HostId) {
        self.handle(now, Input::PeerRestarted(peer));
    }

    fn losses(&mut self, now: Time) -> Option<u64> {
        let views = self.agent.pairs(now);
        Some(views.iter().filter_map(|view| view.receive.as_ref()).map(|r| r.lost).sum())
    }

    fn listed(&mut self, now: Time) -> u64 {
        self.agent.pairs(now).len() as u64
    }

    fn unsent(&self) -> u64 {
        self.outbox.dropped
    }

    fn known(&self) -> (usize, usize) {
        self.agent.known()
    }

    fn counters(&self) -> Counters {
        self.agent.counters()
    }

    fn ends(&self, pair: PairId) -> Ends {
        self.agent.ends(pair)
    }
}
