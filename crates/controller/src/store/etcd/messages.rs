//! The part of etcd's API (version 3) that the store uses. Field numbers are etcd's, `rpc.proto` and
//! `kv.proto` of 3.4; later versions only add to them.

use prost::Message;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// In every answer: the store's revision.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// A record.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

/// Reads `key`, or all from `key` to before `range_end`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// 0: the newest.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
}

/// A condition of a transaction: a number of `key` equals what is given.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0: equal; 1: greater.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// 1: revision of creation; 2: of the last change; 3: value.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Target", tags = "5, 6, 7")]
    pub(super) than: Option<Target>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Target {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Changed(i64),
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
}

/// If all conditions hold, does `success`, else `failure`, in one step.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

/// An answer without anything of interest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GrantRequest {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// Names a lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeepAliveResponse {
    /// 0: the lease has ended.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Not 0: the revisions up to this one are no longer known.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0: put; 1: deleted.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

/// A part of a batch that is too large for one transaction, as it waits in the store.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(message, repeated, tag = "1")]
    pub(super) records: Vec<Record>,
}

/// One change: `table/key`, the value (none removes it), and the version of an object that is removed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) value: Option<Vec<u8>>,
    #[prost(uint64, tag = "3")]
    pub(super) version: u64,
}

pub(super) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> RequestOp {
    let put = PutRequest { key: key.into(), value: value.into(), lease };
    RequestOp { request: Some(Request::Put(put)) }
}

pub(super) fn delete(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.into(), range_end: range_end.into() };
    RequestOp { request: Some(Request::Delete(delete)) }
}

pub(super) fn get(key: impl Into<Vec<u8>>) -> RequestOp {
    let range = RangeRequest { key: key.into(), ..RangeRequest::default() };
    RequestOp { request: Some(Request::Range(range)) }
}

/// `key` was created at this revision; 0: it is not there.
pub(super) fn created(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare { result: 0, target: 1, key: key.into(), than: Some(Target::Created(revision)) }
}

/// `key` is there.
pub(super) fn exists(key: impl Into<Vec<u8>>) -> Compare {
    Compare { result: 1, target: 1, key: key.into(), than: Some(Target::Created(0)) }
}

/// `key` was changed last at this revision; 0: it is not there.
pub(super) fn changed(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare { result: 0, target: 2, key: key.into(), than: Some(Target::Changed(revision)) }
}

/// `key` has this value.
pub(super) fn is(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
    Compare { result: 0, target: 3, key: key.into(), than: Some(Target::Value(value.into())) }
}

/// The end of the range of all keys that begin with `prefix`.
pub(super) fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    let last = end.last_mut().expect("a prefix has octets");
    *last += 1;
    end
}

impl TxnResponse {
    /// What the `n`th operation read, if it was one that reads: its first record.
    pub(super) fn read(&self, n: usize) -> Option<&KeyValue> {
        match self.responses.get(n)?.response.as_ref()? {
            Response::Range(range) => range.kvs.first(),
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}
