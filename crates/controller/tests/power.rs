//! Power cuts: of what was written since the last sync of the disk, any part may be lost.
//!
//! The disk below redb counts its operations and dies at a drawn one. What is left is what was synced
//! and, of the later writes, a drawn part of a drawn subset, in sectors. The state that a new controller
//! reads from that has to be the acknowledged one, or that of the commit in progress, whole.

use crate::harness::object;
use redb::StorageBackend;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use weir_controller::state::{Action, Actor, Limits, Mode, Request, Role, State};
use weir_controller::store::redb::RedbStore;
use weir_controller::store::{Store, StoreError};
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Phase, read};
use weir_units::SplitMix64;

/// Power cuts of `make test`. `scripts/test-long` asks for more by `WEIR_CRASHES`.
const FEW: u64 = 200;
const SECTOR: usize = 512;
const HOSTS: u64 = 6;

/// All chance of a case comes from its seed.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What happened to the disk since its last sync.
#[derive(Debug)]
enum Change {
    Length(u64),
    Octets(u64, Vec<u8>),
}

#[derive(Debug, Default)]
struct Platter {
    synced: Vec<u8>,
    /// What the living see.
    now: Vec<u8>,
    since: Vec<Change>,
    /// Writes and syncs that still work; none means no end.
    left: Option<u64>,
}

/// A disk that may lose its power.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platter>>);

impl Disk {
    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().expect("nobody panics with it")
    }

    /// One more operation, if there is power.
    fn powered(&self) -> io::Result<MutexGuard<'_, Platter>> {
        let mut platter = self.platter();
        match &mut platter.left {
            Some(0) => Err(io::Error::other("there is no power")),
            Some(left) => {
                *left -= 1;
                Ok(platter)
            }
            None => Ok(platter),
        }
    }

    fn die_after(&self, operations: u64) {
        self.platter().left = Some(operations);
    }

    /// What is found when the power is back.
    fn survivor(&self, random: &mut Random) -> Self {
        let mut platter = self.platter();
        let since = std::mem::take(&mut platter.since);
        let mut found = platter.synced.clone();
        for change in since {
            if random.one_in(2) {
                continue;
            }
            match change {
                Change::Length(length) => found.resize(length as usize, 0),
                Change::Octets(at, octets) => {
                    // A write may be torn between sectors.
                    let torn = random.one_in(4);
                    for (n, sector) in octets.chunks(SECTOR).enumerate() {
                        let at = at as usize + n * SECTOR;
                        if torn && random.one_in(2) {
                            continue;
                        }
                        if found.len() < at + sector.len() {
                            found.resize(at + sector.len(), 0);
                        }
                        found[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        let platter = Platter { now: found.clone(), synced: found, ..Platter::default() };
        Self(Arc::new(Mutex::new(platter)))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (platter, at) = (self.platter(), offset as usize);
        let octets = platter.now.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(octets);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.powered()?;
        platter.now.resize(len as usize, 0);
        platter.since.push(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.powered()?;
        platter.synced = platter.now.clone();
        platter.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut platter, at) = (self.powered()?, offset as usize);
        platter.now[at..at + data.len()].copy_from_slice(data);
        platter.since.push(Change::Octets(offset, data.into()));
        Ok(())
    }
}

fn open(disk: &Disk) -> Result<RedbStore, StoreError> {
    let disk = disk.clone();
    RedbStore::open_on(move || disk.clone())
}

/// All that was promised: objects, and who may come in.
type Known = (BTreeMap<String, String>, usize);

fn known(state: &State) -> Known {
    let objects = state.objects().map(|stored| {
        let (kind, name) = (stored.object.kind(), stored.object.name());
        (format!("{kind}/{name}"), stored.json.clone())
    });
    (objects.collect(), state.tokens().len())
}

/// A change as a cloud has it: mostly VMs that come, go, grow and move, and reservations.
fn draw(random: &mut Random, state: &State) -> Action {
    let put = |document: Value| {
        let wish = Box::new(read(document).expect("a good document"));
        Action::Put { wish, mode: Mode::Apply, seen: None }
    };
    let vm = |random: &mut Random| format!("vm{}", random.below(40));
    let host = |random: &mut Random| format!("h{}", random.below(HOSTS));
    let tenant = |vm: &str| format!("t{}", vm.len() % 3);
    let floor = |random: &mut Random| format!("{}Mbit", 1 + random.below(300));
    let names = |kind: Kind| -> Vec<String> {
        let all = state.objects().filter(|stored| stored.object.kind() == kind);
        all.map(|stored| stored.object.name().to_owned()).collect()
    };
    match random.below(22) {
        0..8 => {
            let (name, out, inward) = (vm(random), floor(random), floor(random));
            let mut spec = json!({"tenant": tenant(&name), "floor": {"out": out, "in": inward}});
            if random.one_in(2) {
                spec["host"] = host(random).into();
            }
            put(object("VM", &name, spec))
        }
        8..12 => Action::Delete { kind: Kind::Vm, name: vm(random), seen: None },
        12..15 => {
            let name = vm(random);
            let one = json!({"name": name, "host": host(random), "floor": {"out": floor(random)}});
            let spec = json!({"tenant": tenant(&name), "vms": [one]});
            put(object("Reservation", &format!("r{}", random.below(1000)), spec))
        }
        15..18 => {
            let reservations = names(Kind::Reservation);
            let n = random.below(reservations.len().max(1) as u64) as usize;
            let name = reservations.get(n).cloned().unwrap_or_default();
            if random.one_in(3) { Action::Release(name) } else { Action::Confirm(name) }
        }
        18 => {
            let state = ["active", "active", "draining", "dead"][random.below(4) as usize];
            let spec = json!({"switch": "tor0", "rate": "1Gbit", "slots": 20, "state": state});
            put(object("Host", &host(random), spec))
        }
        19 => {
            let (vms, floor) = (random.below(6), floor(random));
            let one = json!({"name": "c", "vms": vms, "floor": {"out": floor, "in": floor}});
            let survival = json!({"hostPercent": 50 * random.below(2)});
            let spec = json!({"components": [one], "survival": survival});
            put(object("Tenant", &format!("whole{}", random.below(2)), spec))
        }
        _ => {
            let rate = format!("{}Mbit", 300 + random.below(1000));
            put(object("Link", "tor0-up", json!({"lower": "tor0", "upper": "core", "rate": rate})))
        }
    }
}

fn ask(state: &mut State, now: Moment, action: Action) -> bool {
    let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
    state.handle(now, &Request { actor, dry_run: false, idempotency: None, action }).is_ok()
}

fn begin(state: &mut State, now: Moment) {
    let mut wishes = Vec::new();
    for n in 0..HOSTS {
        let spec = json!({"switch": format!("tor{}", n % 2), "rate": "1Gbit", "slots": 20});
        wishes.push(read(object("Host", &format!("h{n}"), spec)).expect("good"));
    }
    for rack in ["tor0", "tor1"] {
        let spec = json!({"lower": rack, "upper": "core", "rate": "1Gbit"});
        wishes.push(read(object("Link", &format!("{rack}-up"), spec)).expect("good"));
    }
    for n in 0..6 {
        let spec = json!({"priority": n, "quota": {"vms": 9}});
        wishes.push(read(object("Tenant", &format!("t{n}"), spec)).expect("good"));
    }
    assert!(ask(state, now, Action::Batch(wishes)), "the cloud is accepted");
}

/// Plays one power cut. Returns the number of commits before it.
fn play(seed: u64) -> u64 {
    let mut random = Random(SplitMix64::new(seed));
    let disk = Disk::default();
    let mut store = open(&disk).expect("an empty disk");
    let mut state = State::new(Limits { keep_reservations: 30_000, ..Limits::default() });
    let mut now = Moment::from_millis(1_795_592_795_000);
    begin(&mut state, now);
    store.commit(state.writes()).expect("there is power");
    state.keep();
    disk.die_after(random.below(600));
    let (mut acknowledged, mut commits) = (known(&state), 0);
    let after = loop {
        for _ in 0..=random.below(4) {
            let action = draw(&mut random, &state);
            ask(&mut state, now, action);
        }
        now = now.plus_millis(random.below(20_000));
        state.tick(now);
        let after = known(&state);
        if store.commit(state.writes()).is_err() {
            break after;
        }
        state.keep();
        state.check();
        (acknowledged, commits) = (after, commits + 1);
    };
    drop(store);
    let found = disk.survivor(&mut random);
    let mut store = open(&found).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let snapshot = store.snapshot().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut again = State::load(&*snapshot, Limits::default(), now)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // What is promised adds up to no more than the links.
    again.check();
    let restored = known(&again);
    assert!(
        restored == acknowledged || restored == after,
        "seed {seed}: after {commits} commits neither what was acknowledged nor what was being written"
    );
    // And it goes on.
    drop(snapshot);
    let gone =
        again.objects().filter(|stored| stored.object.status.phase == Some(Phase::Held)).count();
    again.tick(now.plus_millis(4_000_000));
    store.commit(again.writes()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    again.keep();
    again.check();
    assert!(gone == 0 || known(&again) != restored, "seed {seed}: reservations expire");
    commits
}

#[test]
fn after_a_power_cut_the_acknowledged_state_is_there_and_links_add_up() {
    let cuts = std::env::var("WEIR_CRASHES").map_or(FEW, |text| text.parse().expect("a number"));
    let commits: u64 = (0..cuts).map(play).sum();
    assert!(commits > cuts, "the power goes while there is work: {commits} commits");
}
