//! What is read from the programs: counters of pairs and ports, and events.
//!
//! Problem   An agent reads the counters of hundreds of pairs many times a second.
//! Approach  Whole tables in one call each. New pairs and limits come by a ring.
//! Not here  What the programs count: see `bpf/intf.h`.

use super::Dataplane;
use crate::config::{
    Counters, Direction, Event, ExternalHose, HostTraffic, Port, PortCounters, RxCounters,
    TxCounters,
};
use crate::error::Error;
use crate::intf;
use crate::programs::Programs;
use crate::shaper::{self, PairRate as Levels};
use crate::table::Reading;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::host::Timed;
use weir_units::{Bytes, HostId, PairId, VmId};

impl Dataplane {
    /// Reads all counters with two calls into the kernel, for any number of pairs. `out` is
    /// overwritten, its memory reused. Forgotten pairs are omitted until they send again.
    ///
    /// `now_ns` is the monotonic clock's time. A gap that is open for too long by then counts as a
    /// loss, also if no packet came since.
    pub fn read(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        self.read_tx(Reading::Whole, now_ns, out)?;
        self.read_rx(Reading::Whole, now_ns, out)?;
        self.read_ports(out);
        Ok(())
    }

    /// Like [`Dataplane::read`], for pairs that send from here only, and cheaper while they are
    /// few. Then a pair whose event was not taken ([`take_events`](Self::take_events)) appears
    /// up to 60 ms late.
    pub fn read_sending(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        let reading = self.programs.tx.due(now_ns);
        self.read_tx(reading, now_ns, out)
    }

    /// Like [`Dataplane::read_sending`], for pairs that receive here.
    pub fn read_receiving(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        let reading = self.programs.rx.due(now_ns);
        self.read_rx(reading, now_ns, out)
    }

    /// The least delayed timed packet from each other host since the last call, without a call into the kernel.
    pub fn read_times(&self, out: &mut Vec<(HostId, Timed)>) {
        self.times.take(out);
    }

    /// Only a complete reading shows how many places are taken.
    fn read_tx(&mut self, reading: Reading, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        out.tx.clear();
        let whole = reading == Reading::Whole;
        if whole {
            self.places.begin_sending();
        }
        for (pair, tx) in self.programs.tx.read_as(reading)? {
            if whole {
                self.places.sends(VmId(pair.src));
            }
            if let Some(shown) = self.pairs.show(pair.into(), tx.into()) {
                let ahead = self.shaper.sends_ahead(pair.into());
                let waiting = ahead.and_then(|ahead| tx.waiting(now_ns, ahead.get()));
                let waiting_acks = Bytes::new(waiting.map_or(0, |(_, acks)| acks));
                let waiting = waiting.map(|(octets, _)| Bytes::new(octets));
                out.tx.push((pair.into(), TxCounters { waiting, waiting_acks, ..shown }));
            }
        }
        if !whole {
            return Ok(());
        }
        self.places.end_sending();
        for pair in self.pairs.evict(self.places.sending(), self.config.pairs_per_vm as usize) {
            self.programs.tx.delete(pair.into())?;
        }
        Ok(())
    }

    fn read_rx(&mut self, reading: Reading, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        out.rx.clear();
        let whole = reading == Reading::Whole;
        if whole {
            self.places.begin_receiving();
        }
        for (pair, rx) in self.programs.rx.read_as(reading)? {
            if whole {
                self.places.receives(VmId(pair.dst));
            }
            let overdue = rx.overdue(now_ns, self.config.reorder_window.as_nanos());
            let lost = self.pairs.show_lost(pair.into(), rx.lost, overdue);
            out.rx.push((pair.into(), RxCounters { lost, ..rx.into() }));
        }
        if whole {
            self.places.end_receiving();
        }
        Ok(())
    }

    /// Like [`Dataplane::read`], for ports only, without a call into the kernel.
    pub fn read_ports(&self, out: &mut Counters) {
        out.ports.clear();
        let counters = &self.programs.port_counters;
        out.ports.extend(
            self.slots
                .iter()
                .map(|(vm, slot)| (*vm, PortCounters::from(counters.get(*slot as usize)))),
        );
    }

    /// Becomes readable when there are events. For poll, not for reading.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's epoll descriptor lives as long as `self.ring`, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Takes all events so far. An event is a wake-up: a lost event costs 60 ms, no more.
    pub fn take_events(&mut self) -> Vec<Event> {
        // It fails only if a callback fails, and ours does not.
        let _ = self.ring.consume();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let events = std::mem::take(&mut heard.events);
        for event in &events {
            match event.direction {
                Direction::Tx => self.programs.tx.expect(event.pair.into()),
                Direction::Rx => self.programs.rx.expect(event.pair.into()),
            }
        }
        events
    }

    /// The host's own traffic, if it has a floor.
    pub fn host_traffic(&mut self) -> Result<Option<HostTraffic>, Error> {
        let floor = self.config.host_floor;
        if floor.is_zero() {
            return Ok(None);
        }
        let queues = self.shaper.stats()?;
        let own = queues.iter().find(|queue| queue.class == shaper::HOST_CLASS);
        Ok(own.map(|q| HostTraffic { floor, octets: Bytes::new(q.octets), dropped: q.drops }))
    }

    /// The external hoses of this host's VMs.
    pub fn externals(&mut self) -> Result<Vec<ExternalHose>, Error> {
        let queues = self.shaper.stats()?;
        let hose = |port: &Port| {
            let classes = self.shaper.vm_classes(port.vm)?;
            let queue = queues.iter().find(|queue| queue.class == classes.external);
            let Levels { floor, ceiling } = classes.external_rate;
            let dropped = queue.map_or(0, |queue| queue.drops);
            Some(ExternalHose { vm: port.vm, floor, ceiling, dropped })
        };
        Ok(self.config.ports.iter().filter_map(hose).collect())
    }
}

/// Events of the ring.
#[derive(Debug, Default)]
pub(super) struct Heard {
    events: Vec<Event>,
    /// Pairs whose receiver allows another rate.
    pub(super) limited: BTreeSet<PairId>,
}

impl Heard {
    fn take(&mut self, event: intf::Event) {
        if event.direction == intf::LIMIT {
            self.limited.insert(event.pair.into());
        } else {
            self.events.push(event.into());
        }
    }
}

pub(super) fn ring(
    programs: &Programs,
    heard: &Arc<Mutex<Heard>>,
) -> Result<RingBuffer<'static>, Error> {
    let map = programs.events()?;
    let heard = Arc::clone(heard);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |octets| {
            if let Some(event) = intf::Event::parse(octets) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).take(event);
            }
            0
        })
        .map_err(Error::Load)?;
    builder.build().map_err(Error::Load)
}

impl From<intf::Event> for Event {
    fn from(e: intf::Event) -> Self {
        let direction = if e.direction == intf::TX { Direction::Tx } else { Direction::Rx };
        Self { pair: e.pair.into(), direction, same_tenant: e.same_tenant != 0 }
    }
}

impl From<intf::Tx> for TxCounters {
    fn from(tx: intf::Tx) -> Self {
        Self {
            octets: Bytes::new(tx.octets),
            acks: Bytes::new(tx.acks_octets),
            segments: tx.segments,
            numbered: Bytes::new(tx.numbered),
            unnumbered: Bytes::new(tx.unnumbered),
            left: tx.sequence.into(),
            waiting: None,
            waiting_acks: Bytes::ZERO,
        }
    }
}

impl From<intf::Rx> for RxCounters {
    fn from(rx: intf::Rx) -> Self {
        Self {
            octets: Bytes::new(rx.octets),
            segments: rx.segments,
            numbered: rx.numbered.into(),
            lost: rx.lost,
            ce: rx.ce,
            reordered: rx.reordered,
            resyncs: rx.resyncs,
            strange: rx.strange,
        }
    }
}

impl From<intf::PortCounters> for PortCounters {
    fn from(c: intf::PortCounters) -> Self {
        Self {
            tx_octets: Bytes::new(c.tx_octets),
            tx_segments: c.tx_segments,
            rx_octets: Bytes::new(c.rx_octets),
            rx_segments: c.rx_segments,
            spoofed: c.spoofed,
            malformed: c.malformed,
            unclassified: c.unclassified,
            control: c.control,
            foreign: c.foreign,
            tx_full: c.tx_full,
            rx_full: c.rx_full,
            events_lost: c.events_lost,
            spoofed_mac: c.spoofed_mac,
            control_denied: c.control_denied,
            stray: c.stray,
            unpaired: c.unpaired,
            rogue: c.rogue,
            misdirected: c.misdirected,
            external_tx: Bytes::new(c.external_tx),
            external_rx: Bytes::new(c.external_rx),
            unleased: c.unleased,
        }
    }
}
