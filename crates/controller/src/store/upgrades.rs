//! From older schemas to newer ones.

use super::{Snapshot, StoreError, Table, Write};
use serde_json::{Value, json};

/// 1 → 2: hosts and VMs have numbers, by which agents know them.
pub(super) fn number(snapshot: &dyn Snapshot) -> Result<Vec<Write>, StoreError> {
    let mut next = [("Host/", 0_u32), ("VM/", 0)];
    let (mut writes, mut mistake) = (Vec::new(), None);
    snapshot.scan(Table::Objects, "", &mut |key, value| {
        let Some((_, number)) = next.iter_mut().find(|(kind, _)| key.starts_with(*kind)) else {
            return true;
        };
        match serde_json::from_slice::<Value>(value) {
            Ok(mut object) => {
                object["status"]["number"] = json!(*number);
                *number += 1;
                writes.push(Write::put(Table::Objects, key, object.to_string()));
            }
            Err(error) => mistake = Some(format!("{key}: {error}")),
        }
        mistake.is_none()
    })?;
    match mistake {
        None => Ok(writes),
        Some(what) => Err(StoreError::Damaged { path: "the store".into(), what }),
    }
}

/// 2 → 3: there are Switches, and queues of Tenants. Programs of before know neither.
pub(super) fn nothing(_: &dyn Snapshot) -> Result<Vec<Write>, StoreError> {
    Ok(Vec::new())
}
