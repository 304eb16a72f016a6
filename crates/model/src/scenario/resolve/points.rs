//! Points of a sweep, and how one is called from another.

use super::params;
use crate::scenario::error::{Error, Place, did_you_mean};
use crate::scenario::expr::Scope;
use crate::scenario::spec::{PointSpec, Spec};

/// The values of all parameters, in the order of the file.
pub(super) fn named(spec: &Spec, scope: &Scope) -> Vec<(String, f64)> {
    let value = |name: &String| scope.get(name).map(|value| (name.clone(), value.number));
    spec.params.iter().filter_map(|(word, _)| value(&word.text)).collect()
}

/// The point that `at` calls: it has the values given there, and in what else is swept those of the
/// point at which `here` is. `None` if that is `here` itself, or if the command line chose other
/// points.
pub(super) fn other(
    spec: &Spec,
    at: &PointSpec,
    here: &Scope,
) -> Result<Option<Vec<(String, f64)>>, Error> {
    let mut swept: Vec<&str> = Vec::new();
    for (word, _) in spec.sweep.iter().flatten() {
        if !swept.contains(&word.text.as_str()) {
            swept.push(&word.text);
        }
    }
    let is_set = |place: &Place| matches!(place, Place::Set(_));
    let overridden = spec.sweep.iter().flatten().any(|(_, formula)| is_set(&formula.place));
    let mut wanted: Vec<(&str, f64)> = Vec::new();
    for name in &swept {
        wanted.extend(here.get(name).map(|value| (*name, value.number)));
    }
    for (word, formula) in &at.values {
        let value = formula.value(here)?.number;
        match wanted.iter_mut().find(|(name, _)| *name == word.text) {
            Some((_, wanted)) => *wanted = value,
            None if overridden && here.get(&word.text).is_some() => return Ok(None),
            None => {
                let message = format!("`{}` is not swept", word.text);
                return Err(word.error(message, did_you_mean(&word.text, swept.iter().copied())));
            }
        }
    }
    for point in &spec.sweep {
        let there = params(spec, point)?;
        let fits = |(name, wanted): &(&str, f64)| {
            there.get(name).is_some_and(|value| value.number.total_cmp(wanted).is_eq())
        };
        if wanted.iter().all(fits) {
            let there = named(spec, &there);
            return Ok((there != named(spec, here)).then_some(there));
        }
    }
    if overridden {
        return Ok(None);
    }
    let values: Vec<String> =
        wanted.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let message = format!("the sweep has no point with {}", values.join(", "));
    Err(at.whole.error(message, "name a point of the sweep, or say with `when` where it holds"))
}
