//! The API over real TLS.

use crate::harness::{Controller, done, object, refused, small_cloud, vm};
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_controller::client::Client;
use weir_controller::http::document;
use weir_controller::store::redb::RedbStore;
use weir_controller::store::{Snapshot, Store, StoreError, Write};
use weir_model::objects::Kind;

const JSON: (&str, &str) = ("content-type", "application/json");

fn put(client: &mut Client, object: &Value) -> weir_controller::client::Reply {
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    let name = object["metadata"]["name"].as_str().expect("a name");
    client.send(Method::PUT, &format!("/api/v1/{kind}s/{name}"), object).expect("it answers")
}

fn cloud(controller: &Controller) -> Client {
    let mut client = controller.client();
    done(client.send(Method::POST, "/api/v1/apply", &small_cloud()).expect("it answers"));
    client
}

#[test]
fn an_object_is_made_read_changed_and_removed() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let made = put(&mut client, &vm("a", "gold", None, "100Mbit"));
    assert_eq!(made.status, 201);
    assert_eq!(made.headers["location"], "/api/v1/vms/a");
    let read = client.get("/api/v1/vms/a").expect("it answers");
    assert_eq!(read.headers["etag"], made.headers["etag"]);
    assert_eq!(read.json(), made.json());
    let changed = put(&mut client, &vm("a", "gold", None, "200Mbit"));
    assert_eq!((changed.status, changed.json()["metadata"]["generation"].as_u64()), (200, Some(2)));
    assert_ne!(changed.headers["etag"], made.headers["etag"]);
    let stale = [("if-match", made.headers["etag"].to_str().expect("text"))];
    let reply = client.ask(Method::DELETE, "/api/v1/vms/a", &stale, "").expect("it answers");
    refused(&reply, 412, "Stale", "If-Match");
    let newest = [("if-match", changed.headers["etag"].to_str().expect("text"))];
    let reply = client.ask(Method::DELETE, "/api/v1/vms/a", &newest, "").expect("it answers");
    assert_eq!(done(reply)["metadata"]["name"], "a");
    refused(&client.get("/api/v1/vms/a").expect("it answers"), 404, "NotFound", "metadata.name");
}

#[test]
fn every_refusal_names_a_field_and_a_reason() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    done(put(&mut client, &vm("a", "gold", Some("h0"), "1Mbit")));
    let good = vm("x", "gold", None, "1Mbit").to_string();
    let huge = format!("{{\"x\":\"{}\"}}", "y".repeat(16 << 20));
    let get = Method::GET;
    type Case<'a> = (Method, &'a str, Vec<(&'a str, &'a str)>, &'a str, u16, &'a str, &'a str);
    let cases: Vec<Case<'_>> = vec![
        (get.clone(), "/nothing", vec![], "", 404, "NoSuchPath", "path"),
        (get.clone(), "/api/v1/pods", vec![], "", 404, "NoSuchKind", "path"),
        (get.clone(), "/api/v1/vms/b", vec![], "", 404, "NotFound", "metadata.name"),
        (get.clone(), "/api/v1/vms?limit=x", vec![], "", 400, "BadParameter", "query.limit"),
        (get.clone(), "/api/v1/vms?limit=0", vec![], "", 400, "BadParameter", "query.limit"),
        (get.clone(), "/api/v1/vms?colour=1", vec![], "", 400, "BadParameter", "query.colour"),
        (
            get.clone(),
            "/api/v1/vms?limit=1&limit=2",
            vec![],
            "",
            400,
            "BadParameter",
            "query.limit",
        ),
        (get.clone(), "/api/v1/vms?continue=x", vec![], "", 400, "BadParameter", "query.continue"),
        (get.clone(), "/api/v1/vms?watch=perhaps", vec![], "", 400, "BadParameter", "query.watch"),
        (
            get.clone(),
            "/api/v1/vms?resourceVersion=1",
            vec![],
            "",
            400,
            "BadParameter",
            "query.resourceVersion",
        ),
        (
            get.clone(),
            "/api/v1/vms?watch=1&resourceVersion=999",
            vec![],
            "",
            400,
            "BadParameter",
            "query.resourceVersion",
        ),
        (get.clone(), "/api/v1/vms/%ff", vec![], "", 400, "BadPath", "path"),
        (get, "/api/v1/audit?limit=0", vec![], "", 400, "BadParameter", "query.limit"),
        (Method::PATCH, "/api/v1/vms/a", vec![], "", 405, "NoSuchMethod", "method"),
        (Method::POST, "/api/v1/vms", vec![], &good, 415, "NotJson", "Content-Type"),
        (Method::POST, "/api/v1/vms", vec![JSON], "{", 400, "NotJson", "body"),
        (Method::POST, "/api/v1/vms", vec![JSON], "{}", 422, "Invalid", "apiVersion"),
        (Method::POST, "/api/v1/vms", vec![JSON], &huge, 413, "TooLarge", "body"),
        (Method::POST, "/api/v1/hosts", vec![JSON], &good, 422, "Invalid", "kind"),
        (Method::POST, "/api/v1/apply", vec![JSON], "{\"items\":[7]}", 422, "Invalid", "items[0]"),
        (Method::PUT, "/api/v1/vms/y", vec![JSON], &good, 422, "Invalid", "metadata.name"),
        (
            Method::PUT,
            "/api/v1/vms/x?dryRun=Some",
            vec![JSON],
            &good,
            400,
            "BadParameter",
            "query.dryRun",
        ),
        (
            Method::PUT,
            "/api/v1/vms/x",
            vec![JSON, ("if-match", "seven")],
            &good,
            400,
            "BadHeader",
            "If-Match",
        ),
        (
            Method::PUT,
            "/api/v1/vms/x",
            vec![JSON, ("if-match", "\"7\"")],
            &good,
            412,
            "Stale",
            "If-Match",
        ),
        (
            Method::PUT,
            "/api/v1/vms/x",
            vec![JSON, ("if-none-match", "\"7\"")],
            &good,
            400,
            "BadHeader",
            "If-None-Match",
        ),
        (
            Method::PUT,
            "/api/v1/vms/x",
            vec![JSON, ("idempotency-key", " ")],
            &good,
            400,
            "BadHeader",
            "Idempotency-Key",
        ),
        (Method::DELETE, "/api/v1/vms/b", vec![], "", 404, "NotFound", "metadata.name"),
        (Method::DELETE, "/api/v1/tenants/gold", vec![], "", 409, "InUse", "metadata.name"),
        (Method::DELETE, "/api/v1/tokens/first-operator", vec![], "", 409, "OwnToken", "name"),
        (
            Method::POST,
            "/api/v1/reservations/r/confirm",
            vec![],
            "",
            404,
            "NotFound",
            "metadata.name",
        ),
        (
            Method::POST,
            "/api/v1/tokens",
            vec![JSON],
            "{\"name\":\"t\",\"role\":\"tenant\"}",
            422,
            "Invalid",
            "tenant",
        ),
        (
            Method::POST,
            "/api/v1/tokens",
            vec![JSON],
            "{\"name\":\"t\",\"role\":\"king\"}",
            400,
            "NotJson",
            "body",
        ),
    ];
    for (method, path, headers, body, status, reason, field) in cases {
        let reply = client.ask(method.clone(), path, &headers, body.to_owned());
        let reply = reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let told = reply.json();
        assert_eq!(
            (reply.status, told["reason"].as_str(), told["field"].as_str()),
            (status, Some(reason), Some(field)),
            "{method} {path}: {told}"
        );
        refused(&reply, status, reason, field);
    }
}

#[test]
fn a_client_whose_idle_connection_was_ended_asks_on_a_new_one() {
    let mut controller = Controller::start();
    let mut client = cloud(&controller);
    // As after a pause: the controller has ended the connection, and the client asks nothing meanwhile.
    controller.restart();
    done(put(&mut client, &vm("a", "gold", None, "1Mbit")));
    controller.restart();
    done(client.get("/api/v1/vms/a").expect("it answers"));
}

#[test]
fn nobody_gets_in_without_a_token_that_is_known_and_in_time() {
    let controller = Controller::start();
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(controller.client_of("").get(path).expect("it answers").status, 200, "{path}");
    }
    for path in ["/metrics", "/api/v1/vms", "/api/v1/nothing/at/all", "/nothing"] {
        let reply = controller.client_of("weir_guessed").get(path).expect("it answers");
        refused(&reply, 401, "Unauthorized", "Authorization");
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    let past = json!({"name": "past", "role": "viewer", "expires": "2020-01-01T00:00:00Z"});
    let mut operator = controller.client();
    let reply = operator.send(Method::POST, "/api/v1/tokens", &past).expect("it answers");
    refused(&reply, 422, "Invalid", "expires");
    let mut viewer = controller.client_as("eyes", "viewer", None);
    done(viewer.get("/api/v1/vms").expect("it answers"));
    refused(&viewer.get("/api/v1/tokens").expect("it answers"), 403, "Forbidden", "Authorization");
    refused(
        &put(&mut viewer, &object("Tenant", "t", json!({}))),
        403,
        "Forbidden",
        "Authorization",
    );
    done(operator.ask(Method::DELETE, "/api/v1/tokens/eyes", &[], "").expect("it answers"));
    refused(&viewer.get("/api/v1/vms").expect("it answers"), 401, "Unauthorized", "Authorization");
}

#[test]
fn a_tenant_sees_only_what_belongs_to_it() {
    let controller = Controller::start();
    let mut operator = cloud(&controller);
    for (name, tenant) in [("a", "gold"), ("b", "bulk")] {
        done(put(&mut operator, &vm(name, tenant, None, "1Mbit")));
    }
    let mut gold = controller.client_as("gold-ops", "tenant", Some("gold"));
    for (path, names) in [("vms", vec!["a"]), ("tenants", vec!["gold"]), ("hosts", vec![])] {
        let list = done(gold.get(&format!("/api/v1/{path}")).expect("it answers"));
        let seen = list["items"].as_array().expect("items").iter();
        let seen: Vec<&str> = seen.filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!(seen, names, "{path}");
    }
    refused(&gold.get("/api/v1/vms/b").expect("it answers"), 404, "NotFound", "metadata.name");
    refused(&gold.get("/metrics").expect("it answers"), 403, "Forbidden", "Authorization");
    done(put(&mut gold, &vm("mine", "gold", None, "1Mbit")));
    refused(&put(&mut gold, &vm("b", "bulk", None, "2Mbit")), 403, "Forbidden", "Authorization");
}

#[test]
fn a_list_comes_in_pages_that_together_are_the_whole() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let vms: Vec<Value> =
        (0..25).map(|n| vm(&format!("vm{n:02}"), "gold", None, "1Mbit")).collect();
    done(client.send(Method::POST, "/api/v1/apply", &json!({"items": vms})).expect("it answers"));
    let (mut seen, mut next, mut versions) = (Vec::new(), String::new(), Vec::new());
    loop {
        let page = format!("/api/v1/vms?limit=10&continue={next}");
        let page = if next.is_empty() { "/api/v1/vms?limit=10".into() } else { page };
        let list = done(client.get(&page).expect("it answers"));
        for item in list["items"].as_array().expect("items") {
            seen.push(item["metadata"]["name"].as_str().expect("a name").to_owned());
        }
        versions.push(list["metadata"]["resourceVersion"].clone());
        next = list["metadata"]["continue"].as_str().expect("a word").into();
        if next.is_empty() {
            break;
        }
        // A change between the pages: a watch from the list's version will tell it.
        done(put(&mut client, &vm("vm00", "gold", None, &format!("{}Mbit", seen.len()))));
    }
    assert_eq!(seen, (0..25).map(|n| format!("vm{n:02}")).collect::<Vec<_>>());
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
}

/// The next line of a watch that is no bookmark.
fn next(watch: &mut weir_controller::client::Begun, client: &Client) -> Value {
    loop {
        let line = watch.line(client).expect("it goes on").expect("it goes on");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        if told["type"] != "BOOKMARK" {
            return told;
        }
    }
}

#[test]
fn a_watch_tells_every_later_change_in_order() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let list = done(client.get("/api/v1/vms").expect("it answers"));
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    done(put(&mut client, &vm("a", "gold", None, "1Mbit")));
    let mut other = controller.client();
    let path = format!("/api/v1/vms?watch=true&resourceVersion={version}&tenant=gold");
    let mut watch = other.begin(Method::GET, &path, &[], "".into()).expect("it answers");
    assert_eq!(watch.status, 200);
    done(put(&mut client, &vm("theirs", "bulk", None, "1Mbit")));
    done(put(&mut client, &vm("a", "gold", None, "2Mbit")));
    done(client.ask(Method::DELETE, "/api/v1/vms/a", &[], "").expect("it answers"));
    let mut versions = Vec::new();
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let told = next(&mut watch, &other);
        assert_eq!(told["type"], kind);
        assert_eq!(told["object"]["metadata"]["name"], "a");
        let version = told["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
        versions.push(version.parse::<u64>().expect("a number"));
    }
    assert!(versions.is_sorted() && versions[0] < versions[2], "{versions:?}");
}

#[test]
fn a_browser_gets_the_same_changes_as_events() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let mut browser = controller.client();
    let accept = [("accept", "text/event-stream")];
    let mut watch = browser
        .begin(Method::GET, "/api/v1/vms?watch=true", &accept, "".into())
        .expect("it answers");
    assert_eq!(watch.headers["content-type"], "text/event-stream");
    let made = done(put(&mut client, &vm("a", "gold", None, "1Mbit")));
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut lines = || watch.line(&browser).expect("it goes on").expect("it goes on");
    assert_eq!(lines(), format!("id: {version}"));
    assert_eq!(lines(), "event: ADDED");
    assert!(lines().starts_with("data: {\"type\":\"ADDED\",\"object\":{"));
    assert_eq!(lines(), "");
}

#[test]
fn a_watch_from_a_version_that_is_no_longer_known_is_gone() {
    let controller = Controller::with(|config| config.history = 100, |store| Box::new(store));
    let mut client = cloud(&controller);
    let list = done(client.get("/api/v1/tenants?limit=1").expect("it answers"));
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let next = list["metadata"]["continue"].as_str().expect("a word");
    for n in 0..101 {
        done(put(&mut client, &object("Tenant", &format!("t{n}"), json!({}))));
    }
    let watch = format!("/api/v1/tenants?watch=true&resourceVersion={version}");
    let told = refused(
        &client.get(&watch).expect("it answers"),
        410,
        "Compacted",
        "query.resourceVersion",
    );
    assert!(told["oldest"].as_u64() > version.parse().ok(), "{told}");
    let page = format!("/api/v1/tenants?limit=1&continue={next}");
    refused(&client.get(&page).expect("it answers"), 410, "Expired", "query.continue");
}

#[test]
fn a_refusal_before_the_body_is_read_reaches_a_client_that_still_sends() {
    let controller = Controller::start();
    let mut client = controller.client();
    let body = "x".repeat(3 << 20);
    // Some of them were lost when the controller closed the connection at once.
    for _ in 0..20 {
        let stale = [JSON, ("if-match", "bad")];
        let answer = client.ask(Method::PUT, "/api/v1/vms/a", &stale, body.clone());
        refused(&answer.expect("it answers"), 400, "BadHeader", "If-Match");
        let answer = client.ask(Method::PUT, "/api/v1/vms/a", &[], body.clone());
        refused(&answer.expect("it answers"), 415, "NotJson", "Content-Type");
        let answer = client.ask(Method::POST, "/nothing", &[JSON], body.clone());
        refused(&answer.expect("it answers"), 404, "NoSuchPath", "path");
        // The same connection takes the next request.
        done(client.get("/api/v1/vms").expect("it answers"));
    }
}

#[test]
fn a_dry_run_over_the_api_changes_nothing_and_a_key_makes_a_request_happen_once() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let body = vm("a", "gold", None, "1Mbit");
    let dry = client.send(Method::POST, "/api/v1/vms?dryRun=All", &body).expect("it answers");
    assert_eq!((dry.status, dry.json()["metadata"]["name"].as_str()), (200, Some("a")));
    refused(&client.get("/api/v1/vms/a").expect("it answers"), 404, "NotFound", "metadata.name");
    let keyed = [JSON, ("idempotency-key", "k1")];
    let mut post = |body: &Value| {
        client.ask(Method::POST, "/api/v1/vms", &keyed, body.to_string()).expect("it answers")
    };
    let first = post(&body);
    assert_eq!(first.status, 201);
    let again = post(&body);
    assert_eq!((again.status, &again.body), (201, &first.body), "without the key it would exist");
    refused(&post(&vm("b", "gold", None, "1Mbit")), 422, "KeyReused", "Idempotency-Key");
}

#[test]
fn a_dry_run_answers_200_and_a_creation_201_for_every_kind() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let ports = json!([{"name": "Ethernet0", "host": "h0"}]);
    let reserved = json!([{"name": "b", "host": "h0"}]);
    let objects = [
        object("Topology", "default", json!({})),
        object("Host", "h2", json!({"switch": "tor", "rate": "1Gbit", "slots": 1})),
        object("Link", "up", json!({"lower": "tor", "upper": "core", "rate": "1Gbit"})),
        object("Switch", "tor", json!({"driver": "linux-tc", "ports": ports})),
        object("Tenant", "new", json!({})),
        vm("a", "gold", None, "1Mbit"),
        object("Reservation", "move", json!({"tenant": "gold", "vms": reserved})),
    ];
    let kinds = objects.each_ref().map(|object| object["kind"].as_str().expect("a kind"));
    assert_eq!(kinds, Kind::ALL.map(Kind::name));
    for (kind, object) in Kind::ALL.into_iter().zip(&objects) {
        let all = format!("/api/v1/{}", kind.plural());
        let name = object["metadata"]["name"].as_str().expect("a name");
        let one = format!("{all}/{name}");
        // Each way to make it: first a dry run, then the creation.
        for (method, path) in [(Method::POST, &all), (Method::PUT, &one)] {
            let dry = format!("{path}?dryRun=All");
            let dry = client.send(method.clone(), &dry, object).expect("it answers");
            assert_eq!(dry.status, 200, "{method} {kind}: {}", dry.json());
            assert!(!dry.headers.contains_key("location"), "{method} {kind}");
            let read = client.get(&one).expect("it answers");
            assert_eq!(read.status, 404, "{method} {kind}: a dry run makes nothing");
            let made = client.send(method.clone(), path, object).expect("it answers");
            assert_eq!(made.status, 201, "{method} {kind}: {}", made.json());
            assert_eq!(made.headers["location"], one.as_str());
            assert_eq!(dry.json()["spec"], made.json()["spec"], "{method} {kind}");
            done(client.ask(Method::DELETE, &one, &[], "").expect("it answers"));
        }
    }
}

#[test]
fn the_document_has_the_same_body_for_a_dry_run_and_a_creation() {
    let document: Value = serde_json::from_str(document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("operations").values());
    let mut found = 0;
    for operation in operations.filter(|one| one["responses"].get("201").is_some()) {
        let answers = &operation["responses"];
        assert_eq!(answers["200"]["content"], answers["201"]["content"], "{operation}");
        found += 1;
    }
    assert_eq!(found, 2 * Kind::ALL.len() + 1, "POST and PUT of every kind, and POST of a token");
}

#[test]
fn a_dry_run_of_a_token_answers_200_and_its_creation_201() {
    let controller = Controller::start();
    let mut client = controller.client();
    let wanted = json!({"name": "t", "role": "viewer"});
    let dry = client.send(Method::POST, "/api/v1/tokens?dryRun=All", &wanted).expect("it answers");
    assert_eq!((dry.status, dry.json()["name"].as_str()), (200, Some("t")));
    assert!(dry.json()["token"].is_null(), "a dry run draws no secret that works");
    let gone = client.ask(Method::DELETE, "/api/v1/tokens/t", &[], "").expect("it answers");
    assert_eq!(gone.status, 404, "a dry run makes nothing");
    let made = client.send(Method::POST, "/api/v1/tokens", &wanted).expect("it answers");
    assert_eq!(made.status, 201);
    assert!(made.json()["token"].is_string());
    done(client.ask(Method::DELETE, "/api/v1/tokens/t", &[], "").expect("it answers"));
}

#[test]
fn the_audit_log_says_who_changed_what_and_metrics_count_it() {
    let controller = Controller::start();
    let mut client = cloud(&controller);
    let mut gold = controller.client_as("gold-ops", "tenant", Some("gold"));
    done(put(&mut gold, &vm("a", "gold", None, "1Mbit")));
    let log = done(client.get("/api/v1/audit?limit=2").expect("it answers"));
    let last = &log["items"][1];
    assert_eq!(log["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&last["who"], &last["verb"], &last["name"]),
        (&json!("gold-ops"), &json!("apply"), &json!("a"))
    );
    let reply = client.get("/metrics").expect("it answers");
    assert!(
        reply.headers["content-type"]
            .to_str()
            .expect("text")
            .starts_with("application/openmetrics-text")
    );
    let text = String::from_utf8(reply.body.to_vec()).expect("text");
    for line in [
        "weir_controller_objects{kind=\"VM\"} 1",
        "weir_controller_unadmitted_vms 0",
        "weir_controller_requests_total{method=\"PUT\",route=\"/api/v1/{kind}/{name}\",code=\"201\"} 1",
        "# UNIT weir_controller_commit_duration_seconds seconds",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_backup_over_the_api_is_whole_and_can_be_restored() {
    let mut controller = Controller::start();
    let mut client = cloud(&controller);
    done(put(&mut client, &vm("a", "gold", None, "1Mbit")));
    let backup = client.get("/api/v1/backup").expect("it answers");
    assert_eq!(backup.status, 200);
    controller.stop();
    let path = controller.config.data_dir.join("other.redb");
    weir_controller::store::backup::restore(&*backup.body, &path).expect("it is whole");
    let mut restored = RedbStore::open(&path).expect("a store");
    let snapshot = restored.snapshot().expect("it can be read");
    let mut found = Vec::new();
    let mut each = |key: &str, _: &[u8]| {
        found.push(key.to_owned());
        true
    };
    snapshot.scan(weir_controller::store::Table::Objects, "", &mut each).expect("it can be read");
    assert_eq!(found, ["Host/h0", "Host/h1", "Tenant/bulk", "Tenant/gold", "VM/a"]);
}

/// A store whose disk can be full.
struct Filling {
    store: RedbStore,
    full: Arc<AtomicBool>,
}

impl Store for Filling {
    fn commit(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(StoreError::Full { path: "/var/lib/weir".into() }),
            false => self.store.commit(batch),
        }
    }

    fn snapshot(&mut self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.store.snapshot()
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_serving_and_takes_writes_again_when_there_is_room() {
    let full = Arc::new(AtomicBool::new(false));
    let disk = Arc::clone(&full);
    let controller = Controller::with(|_| {}, |store| Box::new(Filling { store, full: disk }));
    let mut client = cloud(&controller);
    done(put(&mut client, &vm("a", "gold", None, "1Mbit")));
    full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let reply = put(&mut client, &vm("a", "gold", None, "2Mbit"));
        let told = refused(&reply, 507, "DiskFull", "request");
        assert!(
            told["detail"].as_str().is_some_and(|text| text.contains("free some space")),
            "{told}"
        );
        assert_eq!(reply.headers["retry-after"], "1");
    }
    let read = done(client.get("/api/v1/vms/a").expect("it answers"));
    assert_eq!(read["spec"]["floor"]["out"], "1Mbit", "what is not on the disk is not seen");
    full.store(false, Ordering::Relaxed);
    // The next attempt is due a second later; until then each is refused.
    loop {
        let reply = put(&mut client, &vm("a", "gold", None, "3Mbit"));
        if reply.is_ok() {
            break;
        }
        refused(&reply, 507, "DiskFull", "request");
        std::thread::yield_now();
    }
    let read = done(client.get("/api/v1/vms/a").expect("it answers"));
    assert_eq!(read["spec"]["floor"]["out"], "3Mbit");
}

#[test]
fn the_openapi_document_is_served_to_everybody() {
    let controller = Controller::start();
    let document = done(controller.client_of("").get("/openapi.json").expect("it answers"));
    assert_eq!(document["info"]["title"], "Weir controller");
    assert!(document["paths"]["/api/v1/vms/{name}"]["put"].is_object());
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (one, other) = (Controller::start(), Controller::start());
    let mut client = Client::new(&one.server, &other.first.ca, "x").expect("it can be made");
    let error = client.get("/healthz").expect_err("another authority").to_string();
    assert!(
        error.contains("cannot reach the controller") && error.contains("certificate"),
        "{error}"
    );
}
