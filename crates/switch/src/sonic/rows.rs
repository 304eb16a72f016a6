//! Between Weir's queues and CONFIG_DB's rows.

use super::tables::{Row, Tables, Write, writes};
use super::{Saved, Settings};
use crate::Found;
use weir_core::binding::switch::{
    Abilities, PortAbilities, PortName, PortQueues, Stage, SwitchConfig,
};
use weir_units::{Rate, SortedMap, SortedSet};

pub(super) const PORTS: &str = "PORT";
pub(super) const SCHEDULERS: &str = "SCHEDULER";
const QUEUES: &str = "QUEUE";
const CLASSES: &str = "DSCP_TO_TC_MAP";
const CLASS_QUEUES: &str = "TC_TO_QUEUE_MAP";
const PORT_MAPS: &str = "PORT_QOS_MAP";
/// The tables that are read. All but the first are written to.
pub(super) const ALL: [&str; 6] = [PORTS, SCHEDULERS, QUEUES, CLASSES, CLASS_QUEUES, PORT_MAPS];

const SCHEDULER: &str = "scheduler";
const IN_FIELD: &str = "dscp_to_tc_map";
const OUT_FIELD: &str = "tc_to_queue_map";
/// What the names of Weir's rows begin with.
const OURS: &str = "WEIR-";
const WEIGHT: &str = "WEIR-W";
const OWNER: &str = "WEIR-OWNER-";
/// The map of ports where packets enter; behind it, the name of the operator's that it began as.
const IN_MAP: &str = "WEIR-IN";
/// A map's name has at most 32 characters.
const LONGEST_NAME: usize = 32;
/// What a queue with another profile than Weir's is read as.
const WRONG: u16 = 0;
const NO_QUEUE: u8 = u8::MAX;

/// The row that is the mark of an owner. CONFIG_DB has no place for notes, but profiles may have any
/// name, and one that no queue refers to does nothing.
pub(super) fn mark(owner: &str) -> String {
    format!("{OWNER}{owner}")
}

/// The scheduler profile of a weight.
pub(super) fn profile(weight: u16) -> Row {
    let fields = [("type", "DWRR".to_owned()), ("weight", weight.to_string())];
    let fields = fields.into_iter().chain([("meter_type", "bytes".to_owned())]);
    fields.map(|(field, value)| (field.to_owned(), value)).collect()
}

fn queue_key(port: &PortName, queue: u8) -> String {
    format!("{port}|{queue}")
}

fn out_map(port: &PortName) -> String {
    format!("{OURS}{port}")
}

fn in_map(base: Option<&str>) -> String {
    let Some(base) = base else { return IN_MAP.to_owned() };
    let name = format!("{IN_MAP}-{base}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    // FNV-1a: two long names that begin alike stay two.
    let hash =
        base.bytes().fold(0x811c_9dc5u32, |h, c| (h ^ u32::from(c)).wrapping_mul(0x0100_0193));
    format!("{}-{hash:08x}", &name[..LONGEST_NAME - 9])
}

/// A port's speed; `None` if there is no such port.
pub(super) fn speed(tables: &Tables, port: &PortName) -> Option<Rate> {
    let mbps = tables.get(PORTS, &port.0, "speed")?.parse().ok()?;
    Some(Rate::from_mbps(mbps))
}

/// Classes of tenants' own queues, and that of shared ones.
fn own(settings: &Settings) -> (u8, SortedSet<u8>) {
    let mut classes = settings.classes.iter().copied();
    let shared = classes.next().unwrap_or(0);
    (shared, classes.collect())
}

/// Queues of a port that rows of others name in ranges (`0-2`): such a row cannot be divided.
fn in_ranges(tables: &Tables, port: &PortName) -> SortedSet<u8> {
    let ranges = tables.rows(QUEUES).filter_map(|(key, _)| {
        let (first, last) = key.strip_prefix(&*port.0)?.strip_prefix('|')?.split_once('-')?;
        Some(first.parse::<u8>().ok()?..=last.parse::<u8>().ok()?)
    });
    ranges.flatten().collect()
}

/// Queues of virtual output queueing have four parts in their keys.
fn is_voq(tables: &Tables, port: &PortName) -> bool {
    tables
        .rows(QUEUES)
        .any(|(key, _)| key.split('|').count() == 4 && key.split('|').any(|part| part == &*port.0))
}

/// Classes that others' code points have, on any port.
fn others_classes(tables: &Tables, settings: &Settings) -> SortedSet<u8> {
    let maps: SortedSet<&str> = tables
        .rows(PORT_MAPS)
        .filter_map(|(_, row)| row.get(IN_FIELD))
        .map(String::as_str)
        .collect();
    let rows = maps.into_iter().filter_map(|map| tables.row(CLASSES, map)).flatten();
    rows.filter_map(|(codepoint, class)| Some((codepoint.parse().ok()?, class.parse().ok()?)))
        .filter(|(codepoint, _): &(u8, u8)| !settings.codepoints.contains(codepoint))
        .map(|(_, class)| class)
        .collect()
}

/// What was found.
pub(super) fn import(tables: &Tables, settings: &Settings) -> Found {
    let (shared, mine) = own(settings);
    let taken = others_classes(tables, settings);
    let free = mine.difference(&taken).copied().chain([shared]).collect();
    let all: SortedSet<u8> = (0..=63).collect();
    let mut found = Found {
        able: Abilities {
            ports: SortedMap::new(),
            classes: Some(free),
            most_weight: settings.most_weight,
            reserved_codepoints: all.difference(&settings.codepoints).copied().collect(),
        },
        config: SwitchConfig::default(),
        classes: SortedMap::new(),
        owners: SortedSet::new(),
        torn: SortedSet::new(),
        barred: SortedMap::new(),
        others: Vec::new(),
    };
    for class in mine.intersection(&taken) {
        found.others.push(format!("class {class}, which code points of others have"));
    }
    let owners = tables.rows(SCHEDULERS).filter_map(|(key, _)| key.strip_prefix(OWNER));
    found.owners = owners.map(str::to_owned).collect();
    let maps = tables.rows(CLASSES).filter(|(key, _)| key.starts_with(IN_MAP));
    for (_, row) in maps {
        for codepoint in &settings.codepoints {
            let class = row.get(&codepoint.to_string()).and_then(|class| class.parse().ok());
            if let Some(class) = class.filter(|class| mine.contains(class)) {
                found.classes.entry(*codepoint).or_insert(class);
            }
        }
    }
    for name in &settings.ports {
        let Some(rate) = speed(tables, name) else { continue };
        let ranges = in_ranges(tables, name);
        let is_free = |queue: &u8| settings.free.contains(queue) && !ranges.contains(queue);
        let reserved: SortedSet<u8> =
            (0..settings.queues).filter(|queue| !is_free(queue)).collect();
        if is_voq(tables, name) {
            found.barred.insert(name.clone(), "it has virtual output queues".to_owned());
        }
        for queue in settings.free.intersection(&ranges) {
            found.others.push(format!("queue {queue} of {name}, in a row for several queues"));
        }
        let able = PortAbilities { rate, queues: settings.queues, reserved };
        found.able.ports.insert(name.clone(), able);
        import_port(tables, settings, name, rate, &mut found);
    }
    found
}

fn import_port(
    tables: &Tables,
    settings: &Settings,
    name: &PortName,
    rate: Rate,
    found: &mut Found,
) {
    let (shared, _) = own(settings);
    let mut port = PortQueues {
        rate,
        shared: NO_QUEUE,
        weights: SortedMap::new(),
        queue_of: SortedMap::new(),
    };
    for queue in &settings.free {
        let scheduler = tables.get(QUEUES, &queue_key(name, *queue), SCHEDULER);
        let Some(scheduler) = scheduler.filter(|name| name.starts_with(WEIGHT)) else { continue };
        let weight = scheduler[WEIGHT.len()..].parse().unwrap_or(WRONG);
        let is_right = tables.row(SCHEDULERS, scheduler) == Some(&profile(weight));
        port.weights.insert(*queue, if is_right { weight } else { WRONG });
    }
    let map = |field| tables.get(PORT_MAPS, &name.0, field).filter(|map| map.starts_with(OURS));
    let (enters, leaves) = (map(IN_FIELD), map(OUT_FIELD));
    if port.weights.is_empty() && enters.is_none() && leaves.is_none() {
        return;
    }
    let queue = |class: u8| {
        let row = tables.row(CLASS_QUEUES, leaves?)?;
        row.get(&class.to_string())?.parse().ok()
    };
    let class = |codepoint: u8| -> Option<u8> {
        tables.row(CLASSES, enters?)?.get(&codepoint.to_string())?.parse().ok()
    };
    if enters.is_some() {
        port.shared = queue(shared).unwrap_or(NO_QUEUE);
    }
    for (codepoint, held) in &found.classes {
        let at = queue(*held).unwrap_or(NO_QUEUE);
        if at != port.shared {
            port.queue_of.insert(*codepoint, at);
            if class(*codepoint) != Some(*held) {
                found.torn.insert((name.clone(), *codepoint));
            }
        }
    }
    found.config.ports.insert(name.clone(), port);
}

/// What Weir replaces, as it is without Weir.
pub(super) fn save(tables: &Tables, settings: &Settings) -> Saved {
    let mut saved = Saved::default();
    let theirs = |value: Option<&str>| value.filter(|v| !v.starts_with(OURS)).map(str::to_owned);
    for name in &settings.ports {
        let map = |field| theirs(tables.get(PORT_MAPS, &name.0, field));
        saved.maps.insert(name.to_string(), [map(IN_FIELD), map(OUT_FIELD)]);
        for queue in &settings.free {
            let key = queue_key(name, *queue);
            let scheduler = theirs(tables.get(QUEUES, &key, SCHEDULER));
            saved.schedulers.insert(key, scheduler);
        }
    }
    saved
}

/// The tables with Weir's rows as `config` has them.
pub(super) fn render(
    before: &Tables,
    settings: &Settings,
    config: &SwitchConfig,
    classes: &SortedMap<u8, u8>,
    saved: &Saved,
) -> Tables {
    let (shared, mine) = own(settings);
    let mut after = without_rows(before, &[WEIGHT, IN_MAP]);
    for (name, port) in &config.ports {
        for queue in &settings.free {
            let key = queue_key(name, *queue);
            match port.weights.get(queue) {
                // Drift on a port that is not wanted: it stays.
                Some(&WRONG) => {
                    let name = before.get(QUEUES, &key, SCHEDULER).unwrap_or_default();
                    if let Some(row) = before.row(SCHEDULERS, name) {
                        after.put(SCHEDULERS, name, row.clone());
                    }
                }
                Some(weight) => {
                    let scheduler = format!("{WEIGHT}{weight}");
                    after.put(SCHEDULERS, &scheduler, profile(*weight));
                    after.set(QUEUES, &key, SCHEDULER, scheduler);
                }
                None => give_back(&mut after, saved, &key),
            }
        }
        let [enters, leaves] = saved.maps.get(&*name.0).cloned().unwrap_or_default();
        let in_name = in_map(enters.as_deref());
        let base = enters.and_then(|map| before.row(CLASSES, &map)).cloned().unwrap_or_default();
        let mut map = base;
        for codepoint in &settings.codepoints {
            let class = classes.get(codepoint).copied().unwrap_or(shared);
            map.insert(codepoint.to_string(), class.to_string());
        }
        after.put(CLASSES, &in_name, map);
        after.set(PORT_MAPS, &name.0, IN_FIELD, in_name);

        let base = leaves.and_then(|map| before.row(CLASS_QUEUES, &map)).cloned();
        // Without a map, SONiC's classes lead to the queues of the same numbers.
        let same = || (0..settings.queues).map(|n| (n.to_string(), n.to_string())).collect();
        let mut map = base.unwrap_or_else(same);
        for class in mine.iter().chain([&shared]) {
            let mut its = port.queue_of.iter().filter(|(at, _)| classes.get(at) == Some(class));
            let queue = its.next().map_or(port.shared, |(_, queue)| *queue);
            if queue != NO_QUEUE {
                map.insert(class.to_string(), queue.to_string());
            }
        }
        after.put(CLASS_QUEUES, &out_map(name), map);
        after.set(PORT_MAPS, &name.0, OUT_FIELD, out_map(name));
    }
    after
}

/// The tables without Weir's rows, and with what Weir had replaced.
pub(super) fn restored(before: &Tables, saved: &Saved) -> Tables {
    let mut after = before.clone();
    for (port, [enters, leaves]) in &saved.maps {
        for (field, value) in [(IN_FIELD, enters), (OUT_FIELD, leaves)] {
            let is_ours = after.get(PORT_MAPS, port, field).is_some_and(|v| v.starts_with(OURS));
            match value {
                Some(value) if is_ours => after.set(PORT_MAPS, port, field, value.clone()),
                None if is_ours => after.clear(PORT_MAPS, port, field),
                _ => {}
            }
        }
    }
    for key in saved.schedulers.keys() {
        give_back(&mut after, saved, key);
    }
    without_rows(&after, &[WEIGHT, IN_MAP, OURS])
}

fn give_back(after: &mut Tables, saved: &Saved, key: &str) {
    let is_ours = after.get(QUEUES, key, SCHEDULER).is_some_and(|name| name.starts_with(OURS));
    match saved.schedulers.get(key).cloned().flatten() {
        Some(theirs) if is_ours => after.set(QUEUES, key, SCHEDULER, theirs),
        None if is_ours => after.clear(QUEUES, key, SCHEDULER),
        _ => {}
    }
}

/// Without rows of profiles and maps whose names begin so. Owners' marks stay.
fn without_rows(tables: &Tables, prefixes: &[&str]) -> Tables {
    let mut after = tables.clone();
    for table in [SCHEDULERS, CLASSES, CLASS_QUEUES] {
        let is_it = |key: &str| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let keys = tables.rows(table).map(|(key, _)| key).filter(|key| is_it(key));
        let keys: Vec<&str> = keys.filter(|key| !key.starts_with(OWNER)).collect();
        keys.into_iter().for_each(|key| after.remove(table, key));
    }
    after
}

/// The writes from `before` to `after`. Rows come before those that refer to them, and go after them.
/// Code points leave a class before its queue changes, and come to a class after.
pub(super) fn ordered(before: &Tables, after: &Tables, stage: Stage) -> Vec<Write> {
    let set = match stage {
        Stage::Unbind => [SCHEDULERS, QUEUES, CLASSES, CLASS_QUEUES, PORT_MAPS],
        _ => [SCHEDULERS, QUEUES, CLASS_QUEUES, CLASSES, PORT_MAPS],
    };
    let remove = [PORT_MAPS, QUEUES, CLASSES, CLASS_QUEUES, SCHEDULERS];
    let all = set.into_iter().map(|table| (table, false));
    let all = all.chain(remove.into_iter().map(|table| (table, true)));
    all.flat_map(|(table, removes)| writes(before, after, table, removes)).collect()
}
