//! Attacks with their VMs, hosts and times.
//!
//! Problem   A slip here makes an attack without effect, and a promise that nothing tested.
//! Promises  A forged source is another VM than attacker and victim; so is the VM that a
//!           misdirected frame is addressed to; a control message goes to another host's agent if
//!           it comes from a host; every rate can be sent by one thread.

use super::{Placement, Word};
use crate::scenario::error::{Error, did_you_mean};
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::spec::Spec;
use crate::scenario::spec::attacks::{AttackKindSpec, AttackSpec};
use crate::scenario::{Attack, AttackKind, Attacker, ControlAttack, FrameKind};
use weir_units::{Bytes, Span};

/// UDP payload of a forged packet when the file does not say, and the most there can be.
const PAYLOAD: (u64, u64) = (100, 1472);
/// Size of a frame of no pair when the file does not say, and its bounds.
const FRAME: (u64, std::ops::RangeInclusive<u64>) = (1514, 60..=1514);
/// Packets per second that the attacking thread of a world sends without disturbing the others.
const MOST_PER_SECOND: u32 = 5_000;
/// The same for frames: a flood of them is the attack, and one frame costs little.
const MOST_FRAMES_PER_SECOND: u32 = 30_000;
/// The same for control messages.
const MOST_CONTROL_PER_SECOND: u32 = 20_000;

/// The attacks of the file.
pub(super) fn attacks(
    spec: &Spec,
    place: &Placement<'_>,
    scope: &Scope,
    duration: Span,
) -> Result<Vec<Attack>, Error> {
    spec.attacks.iter().map(|entry| one(entry, place, scope, duration)).collect()
}

fn one(
    spec: &AttackSpec,
    place: &Placement<'_>,
    scope: &Scope,
    duration: Span,
) -> Result<Attack, Error> {
    let start = spec.start.as_ref().map_or(Ok(Span::ZERO), |f| f.span(scope))?;
    let stop = spec.stop.as_ref().map_or(Ok(duration), |f| f.span(scope))?.min(duration);
    if stop <= start {
        let blame = spec.stop.as_ref().or(spec.start.as_ref()).unwrap_or(&spec.per_second);
        let message = format!("stops at {stop}, which is not after its start at {start}");
        return Err(blame.error(message, "let `stop` be later than `start`, within the duration"));
    }
    let most = match spec.kind {
        AttackKindSpec::Frames { .. } => MOST_FRAMES_PER_SECOND,
        AttackKindSpec::Control { .. } => MOST_CONTROL_PER_SECOND,
        AttackKindSpec::Forge { .. } => MOST_PER_SECOND,
    };
    let per_second = spec.per_second.count_to(scope, 1, most)?;
    let from = attacker(&spec.from, place)?;
    let kind = match &spec.kind {
        AttackKindSpec::Forge { source, to, payload } => {
            forge(spec, place, from, (source, to), payload.as_ref(), scope)?
        }
        AttackKindSpec::Frames { kind, to, addressed, size } => {
            let to = (to, addressed.as_ref());
            frames(spec, place, from, kind, to, size.as_ref(), scope)?
        }
        AttackKindSpec::Control { how, to } => control(place, from, how, to)?,
    };
    Ok(Attack { name: spec.name.text.clone(), from, kind, per_second, start, stop })
}

fn attacker(word: &Word, place: &Placement<'_>) -> Result<Attacker, Error> {
    if let Some(host) = place.hosts.iter().position(|host| *host == word.text) {
        return Ok(Attacker::Host(host));
    }
    vm(word, place).map(Attacker::Vm).map_err(|_| {
        let known = place.members.keys().chain(place.hosts).map(String::as_str);
        let help = did_you_mean(&word.text, known);
        word.error(format!("there is no VM or host `{}`", word.text), help)
    })
}

/// The first of a set: an attack needs one.
fn vm(word: &Word, place: &Placement<'_>) -> Result<usize, Error> {
    place.set(word)?.first().copied().ok_or_else(|| {
        word.error(format!("there is no VM of `{}` at this point", word.text), "raise its count")
    })
}

fn forge(
    spec: &AttackSpec,
    place: &Placement<'_>,
    from: Attacker,
    (source, to): (&Word, &Word),
    payload: Option<&Formula>,
    scope: &Scope,
) -> Result<AttackKind, Error> {
    let Attacker::Vm(attacker) = from else {
        let message = "packets of VMs are forged by VMs";
        return Err(spec.from.error(message, "let `from` be a VM"));
    };
    let (claimed, victim) = (vm(source, place)?, vm(to, place)?);
    if claimed == attacker || claimed == victim {
        let message = format!("`{}` is the attacker or the victim itself", source.text);
        return Err(source.error(message, "let `source` be a third VM"));
    }
    if victim == attacker {
        return Err(to.error("the attacker attacks itself", "let `to` be another VM"));
    }
    let octets = match payload {
        None => PAYLOAD.0,
        Some(f) => f.size(scope)?.get(),
    };
    if let (false, Some(f)) = ((1..=PAYLOAD.1).contains(&octets), payload) {
        let help = "write 1B to 1472B: one packet of an Ethernet frame";
        return Err(f.error(format!("a payload of {octets} octets"), help));
    }
    Ok(AttackKind::Forge { source: claimed, to: victim, payload: Bytes::new(octets) })
}

fn frames(
    spec: &AttackSpec,
    place: &Placement<'_>,
    from: Attacker,
    kind: &Word,
    (to, addressed): (&Word, Option<&Word>),
    size: Option<&Formula>,
    scope: &Scope,
) -> Result<AttackKind, Error> {
    let kinds = [
        ("unknown-type", FrameKind::UnknownType),
        ("own-address", FrameKind::OwnAddress),
        ("link-local", FrameKind::LinkLocal),
        ("broadcast", FrameKind::Broadcast),
        ("misdirected", FrameKind::Misdirected),
        ("marked", FrameKind::Marked),
    ];
    let Some((_, frame)) = kinds.iter().find(|(name, _)| *name == kind.text).copied() else {
        let help = did_you_mean(&kind.text, kinds.iter().map(|(name, _)| *name));
        return Err(kind.error(format!("frames cannot be `{}`", kind.text), help));
    };
    let Attacker::Vm(attacker) = from else {
        return Err(spec.from.error("frames are sent by VMs", "let `from` be a VM"));
    };
    let victim = vm(to, place)?;
    if victim == attacker {
        return Err(to.error("the attacker attacks itself", "let `to` be another VM"));
    }
    let addressed = accomplice(place, kind, frame, addressed, (attacker, victim))?;
    let octets = size.map_or(Ok(FRAME.0), |f| f.size(scope).map(Bytes::get))?;
    if let (false, Some(f)) = (FRAME.1.contains(&octets), size) {
        return Err(f.error(format!("a frame of {octets} octets"), "write 60B to 1514B"));
    }
    Ok(AttackKind::Frames { kind: frame, to: victim, addressed, size: Bytes::new(octets) })
}

/// To whose address misdirected frames are; other frames say nothing of it.
fn accomplice(
    place: &Placement<'_>,
    kind: &Word,
    frame: FrameKind,
    addressed: Option<&Word>,
    (attacker, victim): (usize, usize),
) -> Result<Option<usize>, Error> {
    match (frame, addressed) {
        (FrameKind::Misdirected, Some(word)) => {
            let other = vm(word, place)?;
            if other == attacker || other == victim {
                let message = format!("`{}` is the attacker or the victim itself", word.text);
                return Err(word.error(message, "let `addressed` be a third VM"));
            }
            Ok(Some(other))
        }
        (FrameKind::Misdirected, None) => {
            let message = "misdirected frames are addressed to nobody";
            Err(kind.error(message, "name a VM beside it: `addressed: fence`"))
        }
        (_, Some(word)) => {
            let message = format!("frames of kind `{}` have an address already", kind.text);
            Err(word.error(message, "leave `addressed` out, or let `kind` be `misdirected`"))
        }
        (_, None) => Ok(None),
    }
}

fn control(
    place: &Placement<'_>,
    from: Attacker,
    how: &Word,
    to: &Word,
) -> Result<AttackKind, Error> {
    let kinds = [
        ("garbage", ControlAttack::Garbage),
        ("forged", ControlAttack::Forged),
        ("replayed", ControlAttack::Replayed),
    ];
    let known = || kinds.iter().map(|(name, _)| *name);
    let Some((_, how)) = kinds.iter().find(|(name, _)| *name == how.text).copied() else {
        let message = format!("control messages cannot be `{}`", how.text);
        return Err(how.error(message, did_you_mean(&how.text, known())));
    };
    let host = place.host(&to.text, to)?;
    if from == Attacker::Host(host) {
        return Err(to.error("a host attacks its own agent", "let `to` be another host"));
    }
    if place.hosts.len() < 3 && matches!(from, Attacker::Host(_)) {
        let message = "there is no third host whose messages could be forged";
        return Err(to.error(message, "a control attack from a host needs three hosts"));
    }
    Ok(AttackKind::Control { how, to: host })
}
