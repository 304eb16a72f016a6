//! Batches as operations of etcd.

use super::messages::{Piece, Record, Request, RequestOp, TxnRequest, delete, put};
use crate::store::{Table, Write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Operations of one level of a transaction. With as many levels below them, less than etcd's 128.
const LEVEL: usize = 60;
/// Records of one transaction, below `LEVEL` times `LEVEL` with what the store adds.
const RECORDS: usize = 3000;
/// What a record costs beside its key and its value, about.
const FRAME: usize = 48;

/// An object that was deleted: `kind/name`, and the version of that change.
pub(super) type Deleted = (String, u64);

/// The record that changes with every commit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Log {
    /// Which batch this is of.
    pub(super) id: String,
    /// The batch goes on.
    pub(super) more: bool,
    pub(super) deleted: Vec<Deleted>,
}

impl Log {
    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data is JSON")
    }

    pub(super) fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// A batch as pieces of at most `once` octets. Of several changes of a record the last one counts: etcd
/// takes one per transaction.
pub(super) fn pieces(batch: &[Write], once: usize) -> Vec<Piece> {
    let mut version = 0;
    let mut latest: BTreeMap<(Table, &str), (&Write, u64)> = BTreeMap::new();
    // From the end: the version of a change follows it.
    for write in batch.iter().rev() {
        if let Some(number) = write.version() {
            version = number;
        }
        latest.entry((write.table, &write.key)).or_insert((write, version));
    }
    let mut all: Vec<Piece> = Vec::new();
    let mut room = 0;
    for (write, version) in latest.into_values() {
        let key = format!("{}/{}", write.table.name(), write.key);
        let size = FRAME + key.len() + write.value.as_ref().map_or(key.len(), Vec::len);
        let is_full = all.last().is_none_or(|piece| piece.records.len() >= RECORDS);
        if is_full || room < size {
            all.push(Piece::default());
            room = once;
        }
        room = room.saturating_sub(size);
        let record = Record { key, value: write.value.clone(), version };
        all.last_mut().expect("there is one").records.push(record);
    }
    all
}

/// Name of a piece, in the order of numbers.
pub(super) fn piece_name(folder: &str, id: &str, n: usize) -> String {
    format!("{folder}{id}/{n:08}")
}

/// What puts records in their places. The log learns of objects that are deleted.
pub(super) fn operations(prefix: &str, records: Vec<Record>, log: &mut Log) -> Vec<RequestOp> {
    let objects = format!("{}/", Table::Objects.name());
    let one = |Record { key, value, version }: Record| {
        let place = format!("{prefix}/{key}");
        match value {
            Some(value) => put(place, value, 0),
            None => {
                if let Some(name) = key.strip_prefix(&objects) {
                    log.deleted.push((name.to_owned(), version));
                }
                delete(place, Vec::new())
            }
        }
    };
    records.into_iter().map(one).collect()
}

/// Operations as one transaction has them: beyond a number, in transactions within it.
pub(super) fn nested(operations: Vec<RequestOp>) -> Vec<RequestOp> {
    if operations.len() <= LEVEL {
        return operations;
    }
    let mut groups: Vec<Vec<RequestOp>> = Vec::new();
    for operation in operations {
        match groups.last_mut() {
            Some(group) if group.len() < LEVEL => group.push(operation),
            _ => groups.push(vec![operation]),
        }
    }
    let one = |success| {
        let txn = TxnRequest { success, ..TxnRequest::default() };
        RequestOp { request: Some(Request::Txn(txn)) }
    };
    groups.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(n: u64) -> Write {
        Write::put(Table::Meta, "revision", n.to_string())
    }

    #[test]
    fn of_several_changes_of_a_record_the_last_one_is_written_and_a_removal_has_its_version() {
        let batch = [
            Write::put(Table::Objects, "VM/a", "1"),
            revision(7),
            Write::delete(Table::Objects, "VM/b"),
            revision(8),
            Write::put(Table::Objects, "VM/a", "2"),
            revision(9),
            Write::put(Table::Audit, "1", "who"),
        ];
        let [piece] = &pieces(&batch, 1000)[..] else { panic!("one piece") };
        let mut log = Log { id: "1-1".into(), more: false, deleted: Vec::new() };
        let operations = operations("weir", piece.records.clone(), &mut log);
        assert_eq!(log.deleted, [("VM/b".to_owned(), 8)]);
        let expected = [
            put("weir/meta/revision", "9", 0),
            put("weir/objects/VM/a", "2", 0),
            delete("weir/objects/VM/b", ""),
            put("weir/audit/1", "who", 0),
        ];
        assert_eq!(operations, expected);
        assert_eq!(Log::read(&log.text()), Some(log));
    }

    #[test]
    fn a_large_batch_is_cut_by_octets_and_by_records_and_no_level_has_more_than_etcd_takes() {
        let batch: Vec<Write> =
            (0..7000).map(|n| Write::put(Table::Audit, format!("{n:06}"), "x")).collect();
        let all = pieces(&batch, 1 << 20);
        assert_eq!(all.iter().map(|p| p.records.len()).collect::<Vec<_>>(), [3000, 3000, 1000]);
        let thick = [
            Write::put(Table::Audit, "1", vec![b'x'; 900]),
            Write::put(Table::Audit, "2", vec![b'x'; 900]),
        ];
        assert_eq!(pieces(&thick, 1000).len(), 2);
        let mut log = Log { id: String::new(), more: false, deleted: Vec::new() };
        let top = nested(operations("p", all[0].records.clone(), &mut log));
        let below = |op: &RequestOp| match &op.request {
            Some(Request::Txn(txn)) => txn.success.len(),
            _ => panic!("a level below"),
        };
        let most = top.iter().map(below).max().expect("there are some");
        assert!(top.len() + most <= 128, "{} and {most}", top.len());
        assert_eq!(top.iter().map(below).sum::<usize>(), 3000);
    }
}
