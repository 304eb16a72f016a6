//! `attacks:` as written: attackers, and the packets that must not be believed.

use super::{Word, name, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::Field;

/// One attack.
#[derive(Clone, Debug)]
pub(crate) struct AttackSpec {
    pub(crate) name: Word,
    /// A VM or a host.
    pub(crate) from: Word,
    pub(crate) kind: AttackKindSpec,
    pub(crate) per_second: Formula,
    pub(crate) start: Option<Formula>,
    pub(crate) stop: Option<Formula>,
}

#[derive(Clone, Debug)]
pub(crate) enum AttackKindSpec {
    /// Packets with a forged source address, and their destination.
    Forge { source: Word, to: Word, payload: Option<Formula> },
    /// Frames of no pair, to a VM's hardware address.
    Frames { kind: Word, to: Word, addressed: Option<Word>, size: Option<Formula> },
    /// Control messages to a host's agent.
    Control { how: Word, to: Word },
}

pub(crate) fn attack(field: &Field<'_>) -> Result<AttackSpec, Error> {
    let table = field.table(&["name", "from", "forge", "frames", "control", "start", "stop"])?;
    let (kind, body) = table.one_of(&["forge", "frames", "control"])?;
    let (kind, per_second) = match kind {
        "forge" => {
            let body = body.table(&["source", "to", "per_second", "payload"])?;
            let kind = AttackKindSpec::Forge {
                source: word(body.need("source", "x-src")?)?,
                to: word(body.need("to", "x-dst")?)?,
                payload: body.get("payload").map(Formula::read).transpose()?,
            };
            (kind, body.need("per_second", "1000")?)
        }
        "frames" => {
            let body = body.table(&["kind", "to", "addressed", "per_second", "size"])?;
            let kind = AttackKindSpec::Frames {
                kind: word(body.need("kind", "unknown-type")?)?,
                to: word(body.need("to", "x-dst")?)?,
                addressed: body.get("addressed").map(word).transpose()?,
                size: body.get("size").map(Formula::read).transpose()?,
            };
            (kind, body.need("per_second", "15000")?)
        }
        _ => {
            let body = body.table(&["how", "to", "per_second"])?;
            let kind = AttackKindSpec::Control {
                how: word(body.need("how", "forged")?)?,
                to: word(body.need("to", "right-0")?)?,
            };
            (kind, body.need("per_second", "1000")?)
        }
    };
    Ok(AttackSpec {
        name: name(table.need("name", "liar")?)?,
        from: word(table.need("from", "evil")?)?,
        kind,
        per_second: Formula::read(per_second)?,
        start: table.get("start").map(Formula::read).transpose()?,
        stop: table.get("stop").map(Formula::read).transpose()?,
    })
}
