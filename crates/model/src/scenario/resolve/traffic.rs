//! Traffic that comes and goes, with its numbers.

use super::Word;
use crate::scenario::error::Error;
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::spec::Spec;
use crate::scenario::spec::traffic::{
    FlowsSpec, LoadSpec, MemcachedSpec, RequestSpec, SizesSpec, WorkSpec,
};
use crate::scenario::{
    Arrivals, Connections, Exec, Flows, Load, Memcached, Pauses, Pick, Request, Sizes, Spacing,
    Traffic, TrafficKind,
};
use std::collections::BTreeMap;
use weir_units::Bytes;

/// Starts per second beyond this are a blaster, which is another kind of traffic.
const STARTS_MOST: f64 = 10_000.0;

/// Connections of one client: as many clients' as one machine has.
const CONNECTIONS_MOST: u32 = 1000;
/// Room for the number of any key, and the protocol's own bound.
const KEY: std::ops::RangeInclusive<u64> = 8..=250;
/// What memcached takes in one piece, as it is started by default, is a little less than 1 MiB.
const VALUE_MOST: u64 = 500_000;
/// All values of one server together: they are held in this machine's memory.
const VALUES_MOST: u64 = 1_000_000_000;

/// What one entry plays between any two VMs; seeds and destinations come later
/// ([`crate::scenario::workload::complete`]).
pub(super) fn kind(spec: &WorkSpec, scope: &Scope) -> Result<TrafficKind, Error> {
    match spec {
        WorkSpec::Request(spec) => request(spec, scope).map(TrafficKind::Request),
        WorkSpec::Flows(spec) => flows(spec, scope).map(TrafficKind::Flows),
        WorkSpec::Shuffle { octets, congestion } => Ok(TrafficKind::Shuffle {
            octets: size(octets, scope, "a shuffle")?,
            congestion: congestion_of(congestion),
        }),
        WorkSpec::Memcached(spec) => memcached(spec, scope).map(TrafficKind::Memcached),
        WorkSpec::Exec { server, client } => {
            Ok(TrafficKind::Exec(Exec { server: server.text.clone(), client: client.text.clone() }))
        }
    }
}

fn request(spec: &RequestSpec, scope: &Scope) -> Result<Request, Error> {
    let load = match &spec.load {
        LoadSpec::Open { rate, fixed } => Load::Open(arrivals(rate, *fixed, scope)?),
        LoadSpec::Closed { outstanding } => {
            Load::Closed { outstanding: outstanding.count(scope, 1)? }
        }
    };
    Ok(Request {
        size: size(&spec.size, scope, "a request")?,
        response: size(&spec.response, scope, "an answer")?,
        load,
        connections: if spec.kept { Connections::Kept } else { Connections::New },
        congestion: congestion_of(&spec.congestion),
    })
}

fn flows(spec: &FlowsSpec, scope: &Scope) -> Result<Flows, Error> {
    let sizes = match &spec.sizes {
        SizesSpec::Fixed(formula) => Sizes::Fixed(size(formula, scope, "a flow")?),
        SizesSpec::Table(_, Some(table)) => Sizes::Table(table.clone(), 1.0),
        SizesSpec::Table(word, None) => {
            return Err(word.error("the table was not read", "load the scenario from its file"));
        }
    };
    let closed = spec.pause.as_ref().map(|pause| pauses(pause, &spec.chance, scope));
    let arrivals = match &spec.rate {
        Some(rate) => arrivals(rate, spec.fixed, scope)?,
        // A closed loop starts no flow by itself.
        None => Arrivals { per_second: 1.0, spacing: Spacing::Fixed, seed: 0 },
    };
    Ok(Flows {
        arrivals,
        closed: closed.transpose()?,
        sizes,
        pick: if spec.in_turn { Pick::InTurn } else { Pick::Random },
        mine: 0,
        of: 1,
        congestion: congestion_of(&spec.congestion),
    })
}

/// Pauses of a closed loop.
fn pauses(most: &Formula, chance: &Option<Formula>, scope: &Scope) -> Result<Pauses, Error> {
    let most = most.span(scope)?;
    let Some(formula) = chance else { return Ok(Pauses { most, chance: 0.5 }) };
    let chance = formula.number(scope)?;
    if !(0.0..=1.0).contains(&chance) {
        let message = format!("a chance of {chance}");
        return Err(
            formula.error(message, "write a part of one: 0.5 pauses after every second flow")
        );
    }
    Ok(Pauses { most, chance })
}

fn memcached(spec: &MemcachedSpec, scope: &Scope) -> Result<Memcached, Error> {
    let count = |formula: &Option<Formula>, otherwise: u32| {
        formula.as_ref().map_or(Ok(otherwise), |formula| formula.count(scope, 1))
    };
    let key = match &spec.key {
        None => Bytes::new(32),
        Some(formula) => match formula.size(scope)? {
            key if KEY.contains(&key.get()) => key,
            key => {
                let help = format!("write {}B to {}B", KEY.start(), KEY.end());
                return Err(formula.error(format!("a key of {} octets", key.get()), help));
            }
        },
    };
    let value = size(&spec.value, scope, "a value")?;
    let keys = count(&spec.keys, 1000)?;
    if value.get() > VALUE_MOST || value.get() * u64::from(keys) > VALUES_MOST {
        let message = format!("{keys} keys with values of {} octets", value.get());
        let help = format!(
            "let a value have at most {VALUE_MOST}B, and all together at most {VALUES_MOST}B: use fewer `keys`"
        );
        return Err(spec.value.error(message, help));
    }
    let connections = count(&spec.connections, 10)?;
    if let Some(formula) = spec.connections.as_ref().filter(|_| connections > CONNECTIONS_MOST) {
        let message = format!("{connections} connections of one client");
        return Err(formula.error(message, format!("write 1 to {CONNECTIONS_MOST}")));
    }
    let sets = spec.sets.as_ref().map_or(Ok(0.1), |formula| formula.number(scope))?;
    if let Some(formula) = spec.sets.as_ref().filter(|_| !(0.0..=1.0).contains(&sets)) {
        let message = format!("{sets} of the requests store something");
        return Err(formula.error(message, "write a part of all: 0 for GETs alone, 1 for SETs"));
    }
    Ok(Memcached {
        arrivals: arrivals(&spec.rate, spec.fixed, scope)?,
        sets,
        keys,
        key,
        value,
        connections,
        congestion: congestion_of(&spec.congestion),
    })
}

fn arrivals(rate: &Formula, fixed: bool, scope: &Scope) -> Result<Arrivals, Error> {
    let per_second = rate.number(scope)?;
    if per_second <= 0.0 || per_second > STARTS_MOST {
        let message = format!("{per_second} starts per second");
        let help = format!("write a number above 0, at most {STARTS_MOST}, or leave the entry out");
        return Err(rate.error(message, help));
    }
    let spacing = if fixed { Spacing::Fixed } else { Spacing::Poisson };
    Ok(Arrivals { per_second, spacing, seed: 0 })
}

fn size(formula: &Formula, scope: &Scope, what: &str) -> Result<Bytes, Error> {
    let size = formula.size(scope)?;
    if size.get() == 0 {
        return Err(formula.error(format!("{what} of no octets"), "write a size: 20kB"));
    }
    Ok(size)
}

fn congestion_of(word: &Option<Word>) -> String {
    word.as_ref().map_or_else(|| "cubic".into(), |word| word.text.clone())
}

/// A program's goodput is read from its receiver's port, so nothing else may pass there. `entries`
/// says from which entry of the file each traffic comes.
pub(super) fn check_programs(
    spec: &Spec,
    traffic: &[Traffic],
    entries: &[usize],
) -> Result<(), Error> {
    let is_program = |t: &Traffic| matches!(t.kind, TrafficKind::Exec(_));
    let mut receivers: BTreeMap<usize, usize> = BTreeMap::new();
    for (t, &entry) in traffic.iter().zip(entries).filter(|(t, _)| is_program(t)) {
        receivers.insert(t.to, entry);
    }
    for (t, &entry) in traffic.iter().zip(entries) {
        let disturbs = |vm: usize| (!is_program(t) || vm == t.from).then(|| receivers.get(&vm));
        if let Some(&program) = [t.from, t.to].into_iter().find_map(|vm| disturbs(vm)?) {
            let word = &spec.traffic[program].group;
            let message = format!(
                "the receiver of `{}` has other traffic, of `{}`",
                word.text, spec.traffic[entry].group.text
            );
            let help =
                "give a program's receiver a VM of its own: its goodput is read from the port";
            return Err(word.error(message, help));
        }
    }
    Ok(())
}
