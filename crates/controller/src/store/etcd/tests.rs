use super::*;
use crate::state::{Action, Actor, Limits, Mode, Request, Role, State, published};
use crate::store::newest_schema;
use serde_json::json;
use std::collections::BTreeMap;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, read};

#[path = "../../../tests/support/etcd_server.rs"]
mod etcd_server;
use etcd_server::Etcd;
mod tls;

const SOON: Duration = Duration::from_secs(60);

fn settings(etcd: &Etcd, name: &str) -> Settings {
    let address = EtcdAddress::parse(&format!("{}/weir", etcd.address())).expect("good");
    let me = Leader { name: name.into(), url: format!("https://{name}:7443") };
    // A machine that is busy for seconds changes no leader here: a leader that ends gives its lease back.
    let lease = Duration::from_secs(10);
    Settings { address, tls: None, lease, me, cluster: "cloud".into() }
}

fn open(etcd: &Etcd, name: &str) -> EtcdStore {
    EtcdStore::open(settings(etcd, name)).expect("etcd is there")
}

/// A store that leads and has a schema.
fn made(etcd: &Etcd) -> EtcdStore {
    let mut store = open(etcd, "a");
    store.lead(SOON).expect("nobody else does");
    store.commit(&[newest_schema()]).expect("written");
    store.begin().expect("it leads");
    store
}

fn all(store: &mut EtcdStore, table: Table) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let snapshot = store.snapshot().expect("it can be read");
    let mut take = |key: &str, value: &[u8]| {
        found.insert(key.into(), String::from_utf8_lossy(value).into());
        true
    };
    snapshot.scan(table, "", &mut take).expect("it can be read");
    found
}

/// The commits that a follower sees until there are so many writes.
fn told(store: &mut EtcdStore, enough: usize) -> Vec<Vec<(Write, u64)>> {
    let mut commits: Vec<Vec<(Write, u64)>> = Vec::new();
    while commits.iter().map(Vec::len).sum::<usize>() < enough {
        let feed = store.feed.as_mut().expect("it follows");
        let ready = store.runtime.as_ref().expect("it is there");
        let ready = ready.block_on(async { tokio::time::timeout(SOON, feed.ready()).await });
        assert_eq!(ready, Ok(true), "{} of {enough}", commits.len());
        match store.changes().expect("it can be read") {
            Some(Changes::Commit(commit)) => commits.push(commit),
            None => {}
            other => panic!("{other:?}"),
        }
    }
    commits
}

#[test]
fn a_commit_is_read_back_by_another_controller_whole_and_in_order_of_keys() {
    let etcd = Etcd::start();
    let mut first = made(&etcd);
    let mut second = open(&etcd, "b");
    drop(second.follow().expect("it can be read"));
    let batch = [
        Write::put(Table::Objects, "VM/b", "2"),
        Write::put(Table::Objects, "VM/a", "1"),
        Write::put(Table::Audit, "1", "not for followers"),
    ];
    first.commit(&batch).expect("written");
    let before = first.snapshot().expect("open");
    first.commit(&[Write::delete(Table::Objects, "VM/a")]).expect("written");
    let mut seen = Vec::new();
    let mut take = |key: &str, _: &[u8]| {
        seen.push(key.to_owned());
        true
    };
    before.scan(Table::Objects, "VM/a", &mut take).expect("read");
    assert_eq!(seen, ["VM/a", "VM/b"], "what is deleted later is in the snapshot");
    let commits = told(&mut second, 3);
    let keys = |commit: &Vec<(Write, u64)>| -> Vec<String> {
        commit.iter().map(|(write, _)| write.key.clone()).collect()
    };
    assert_eq!(commits.iter().map(keys).collect::<Vec<_>>(), [vec!["VM/a", "VM/b"], vec!["VM/a"]]);
    assert_eq!(all(&mut second, Table::Objects).len(), 1);
    assert!(
        matches!(second.standing(), Standing::Follows { leader: Some(l), .. } if l.name == "a")
    );
    let refused = second.commit(&[Write::put(Table::Objects, "VM/c", "3")]);
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
}

#[test]
fn a_batch_beyond_what_etcd_takes_at_once_is_one_commit_for_all() {
    let etcd = Etcd::start();
    let mut first = made(&etcd);
    let mut second = open(&etcd, "b");
    drop(second.follow().expect("it can be read"));
    let thick = "x".repeat(600);
    let batch: Vec<Write> = (0..7000)
        .map(|n| Write::put(Table::Objects, format!("VM/{n:05}"), thick.as_str()))
        .collect();
    first.commit(&batch).expect("4 MB are written");
    let commits = told(&mut second, 7000);
    assert_eq!(commits.iter().map(Vec::len).collect::<Vec<_>>(), [7000], "nobody sees a part");
    assert_eq!(all(&mut second, Table::Objects).len(), 7000);
    let none = first.wait(first.client.range(
        RangeRequest {
            key: first.keys.pieces().into_bytes(),
            range_end: after(&first.keys.pieces()),
            ..RangeRequest::default()
        },
        PATIENCE,
    ));
    assert_eq!(none.expect("read").kvs.len(), 0, "no piece is left");
    let removals: Vec<Write> =
        (0..7000).map(|n| Write::delete(Table::Objects, format!("VM/{n:05}"))).collect();
    first.commit(&removals).expect("written");
    assert_eq!(told(&mut second, 7000).len(), 1);
    assert_eq!(all(&mut first, Table::Objects), BTreeMap::new());
}

#[test]
fn a_large_batch_whose_writer_dies_is_there_whole_if_it_was_decided_and_else_not_at_all() {
    let etcd = Etcd::start();
    let batch = |value: &str| {
        (0..4000).map(|n| Write::put(Table::Objects, format!("VM/{n}"), value)).collect()
    };
    for is_decided in [false, true] {
        let mut first = match is_decided {
            false => made(&etcd),
            true => {
                let mut store = open(&etcd, "a");
                store.lead(SOON).expect("nobody else does");
                store.begin().expect("it leads");
                store
            }
        };
        let writes: Vec<Write> = batch("new");
        let all_pieces = pieces(&writes, ONCE);
        let pending = first.lay(all_pieces, "x-1").expect("laid down");
        if is_decided {
            first.decide_pending(&pending, "x-1").expect("decided");
        }
        drop(first);
        let mut second = open(&etcd, "b");
        second.lead(SOON).expect("the first one is gone");
        second.begin().expect("it leads");
        assert_eq!(all(&mut second, Table::Objects).len(), if is_decided { 4000 } else { 0 });
        second.commit(&[Write::put(Table::Audit, "1", "it goes on")]).expect("written");
    }
}

#[test]
fn a_transaction_that_comes_late_or_from_a_leader_whose_key_is_gone_changes_nothing() {
    let etcd = Etcd::start();
    let mut first = made(&etcd);
    // The same base for two commits, as when the first one's answer never came.
    let (log, id) = (first.log, "late".to_owned());
    first.commit(&[Write::put(Table::Objects, "VM/a", "1")]).expect("written");
    first.log = log;
    let piece = pieces(&[Write::put(Table::Objects, "VM/a", "0")], ONCE).remove(0);
    let late = first.at_once(piece, &id);
    assert!(
        matches!(&late, Err(StoreError::Refused { what, .. }) if what.contains("late")),
        "{late:?}"
    );
    assert_eq!(all(&mut first, Table::Objects)["VM/a"], "1");
    first.commit(&[Write::put(Table::Objects, "VM/a", "2")]).expect("it goes on after a look");
    // A look writes nothing where nothing is in doubt: a full etcd would refuse it.
    let log = first.log;
    assert_eq!(all(&mut first, Table::Objects)["VM/a"], "2");
    assert_eq!(first.log, log);
    // After a look that does not find what was given up, it cannot come any more, though nothing else was written.
    first.unsure = true;
    assert_eq!(all(&mut first, Table::Objects)["VM/a"], "2");
    let looked = std::mem::replace(&mut first.log, log);
    let piece = pieces(&[Write::put(Table::Objects, "VM/a", "0")], ONCE).remove(0);
    let late = first.at_once(piece, &id);
    assert!(matches!(&late, Err(StoreError::Refused { .. })), "{late:?}");
    first.log = looked;
    first.commit(&[Write::put(Table::Objects, "VM/a", "2")]).expect("it goes on");
    // A commit whose answer was lost is found by its name.
    let done = std::mem::replace(&mut first.log, log);
    let lost = format!("{}-{}", first.term, first.commits);
    let piece = pieces(&[Write::put(Table::Objects, "VM/a", "2")], ONCE).remove(0);
    assert_eq!(first.at_once(piece, &lost).expect("it was done"), done);
    first.log = done;
    // Another leads.
    let gone = TxnRequest {
        success: vec![delete(first.keys.leader(), Vec::new())],
        ..TxnRequest::default()
    };
    first.txn(gone).expect("removed");
    let refused = first.commit(&[Write::put(Table::Objects, "VM/a", "3")]);
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    assert_eq!(all(&mut open(&etcd, "b"), Table::Objects)["VM/a"], "2");
}

#[test]
fn stores_that_are_empty_of_another_cloud_or_of_a_newer_schema_are_refused_and_say_what_to_do() {
    let etcd = Etcd::start();
    let empty = open(&etcd, "a").follow().err().expect("empty").to_string();
    assert!(empty.contains("below `weir/`") && empty.contains("weir controller init"), "{empty}");
    drop(made(&etcd));
    let other = Settings { cluster: "other".into(), ..settings(&etcd, "b") };
    let error = EtcdStore::open(other).err().expect("another cloud").to_string();
    assert!(error.contains("copy ca.crt, ca.key and pairs.keys"), "{error}");
    let mut store = made(&etcd);
    store.commit(&[Write::put(Table::Meta, "schema", "99")]).expect("written");
    drop(store);
    let error = EtcdStore::open(settings(&etcd, "a")).err().expect("newer").to_string();
    assert!(error.contains(&format!("has schema 99, this program knows {SCHEMA}")), "{error}");
}

#[test]
fn records_of_an_older_schema_are_upgraded_by_the_leader_and_once() {
    let etcd = Etcd::start();
    let mut store = open(&etcd, "a");
    store.lead(SOON).expect("nobody else does");
    let host =
        json!({"apiVersion": "weir/v1", "kind": "Host", "metadata": {"name": "h"}, "status": {}});
    let old = [
        Write::put(Table::Meta, "schema", "1"),
        Write::put(Table::Objects, "Host/h", host.to_string()),
    ];
    store.commit(&old).expect("written");
    for _ in 0..2 {
        store.begin().expect("upgraded");
        assert!(all(&mut store, Table::Objects)["Host/h"].contains("\"number\":0"));
        assert_eq!(store.schema().expect("a number"), SCHEMA);
    }
}

fn ask(state: &mut State, action: Action) {
    let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
    let now = Moment::from_millis(1_795_592_795_000);
    let request = Request { actor, dry_run: false, idempotency: None, action };
    state.handle(now, &request).expect("it fits");
}

fn put_object(kind: &str, name: &str, spec: serde_json::Value) -> Action {
    let document =
        json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let wish = Box::new(read(document).expect("a good document"));
    Action::Put { wish, mode: Mode::Apply, seen: None }
}

#[test]
fn a_follower_tells_its_readers_the_same_changes_under_the_same_versions_as_the_leader() {
    let etcd = Etcd::start();
    let mut first = made(&etcd);
    let mut second = open(&etcd, "b");
    drop(second.follow().expect("it can be read"));
    let mut state = State::new(Limits::default());
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    let mut known: BTreeMap<(Kind, String), _> = BTreeMap::new();
    let vm = |floor: &str| json!({"tenant": "t", "floor": {"out": floor}});
    let delete = |name: &str| Action::Delete { kind: Kind::Vm, name: name.into(), seen: None };
    let whole =
        |vms: u32| json!({"components": [{"name": "c", "vms": vms, "floor": {"out": "1Mbit"}}]});
    for action in [
        put_object("Host", "h", json!({"switch": "s", "rate": "1Gbit", "slots": 9})),
        put_object("Tenant", "t", json!({})),
        put_object("VM", "a", vm("1Mbit")),
        put_object("VM", "b", vm("1Mbit")),
        put_object("VM", "a", vm("2Mbit")),
        delete("b"),
        put_object("Tenant", "w", whole(5)),
        put_object("Tenant", "w", whole(2)),
        put_object("VM", "b", vm("3Mbit")),
    ] {
        ask(&mut state, action);
        first.commit(state.writes()).expect("written");
        expected.extend(state.keep().events);
        while found.len() < expected.len() {
            for commit in told(&mut second, 1) {
                let news =
                    published(commit, &|kind, name| known.get(&(kind, name.into())).cloned());
                for event in news.expect("records make sense").events {
                    let key = (event.stored.object.kind(), event.stored.object.name().to_owned());
                    match event.kind {
                        crate::state::EventKind::Deleted => known.remove(&key),
                        _ => known.insert(key, Arc::clone(&event.stored)),
                    };
                    found.push(event);
                }
            }
        }
    }
    // Of several changes of an object in one commit, followers see the last one.
    let last = |n: usize| {
        let this = &expected[n];
        !expected[n + 1..].iter().any(|later| {
            later.stored.object.name() == this.stored.object.name()
                && later.stored.object.kind() == this.stored.object.kind()
                && !found.iter().any(|f| f.revision == this.revision)
        })
    };
    let shown = |event: &crate::state::Event| (event.revision, event.kind.name(), event.json());
    let expected: Vec<_> =
        (0..expected.len()).filter(|n| last(*n)).map(|n| shown(&expected[n])).collect();
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
}
