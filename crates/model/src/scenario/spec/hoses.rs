//! A VM's `hoses` as they are written.

use super::{Word, whole};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::{Field, Key, Node};

/// One of a VM's further hoses.
#[derive(Clone, Debug)]
pub(crate) struct HoseSpec {
    pub(crate) name: Word,
    pub(crate) floor_in: Option<Formula>,
    pub(crate) floor_out: Option<Formula>,
}

/// `{NAME: {floor_out, floor_in}}` or `{NAME: {floor}}`.
pub(crate) fn hoses(field: &Field<'_>) -> Result<Vec<HoseSpec>, Error> {
    let hose = |(key, node): &(Key, Node)| {
        let path = format!("{}.{}", field.path, key.text);
        let name = Word { text: key.text.clone(), place: key.place.clone(), path: path.clone() };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.text.is_empty() || name.text.len() > 63 || !name.text.chars().all(plain) {
            let message = format!("`{}` is not a name", name.text);
            let help = "use letters, digits, `-` and `_`, at most 63 of them";
            return Err(name.error(message, help));
        }
        let field = Field { path, node };
        let table = field.table(&["floor", "floor_in", "floor_out"])?;
        for beside in ["floor_in", "floor_out"] {
            if let (Some(_), Some(second)) = (table.get("floor"), table.get(beside)) {
                let help = format!("keep `floor` or `{beside}`");
                return Err(second.error(format!("`{beside}` beside `floor`"), help));
            }
        }
        let formula = |key: &str| table.get(key).map(Formula::read).transpose();
        let either = |key: &str| Ok::<_, Error>(formula(key)?.or(formula("floor")?));
        let (floor_in, floor_out) = (either("floor_in")?, either("floor_out")?);
        if floor_in.is_none() && floor_out.is_none() {
            let error = whole(&field).error("has no floor", "write `{floor_out: 50Mbit}`");
            return Err(error);
        }
        Ok(HoseSpec { name, floor_in, floor_out })
    };
    field.entries()?.iter().map(hose).collect()
}
