//! Applies per second with 64 clients, the latency of one, and that of reservations in a cloud of 2000
//! hosts and 40,000 VMs: over TLS, each write synced.
//!
//! `cargo bench -p weir-controller --bench applies`. With `WEIR_STORE=etcd` the records are in an etcd that
//! it starts, with one member on this machine's disk; with `WEIR_STORE=etcd://HOST:PORT/PREFIX` in that
//! one. It prints what it measured and judges nothing.

use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_controller::client::Client;
use weir_controller::{daemon, http};
use weir_model::controller::{ClientConfig, ControllerConfig};

#[path = "../tests/support/etcd_server.rs"]
mod etcd_server;
use etcd_server::Etcd;

const CLIENTS: usize = 64;
const EACH: usize = 100;
const ALONE: usize = 300;
const RACKS: usize = 50;
const PER_RACK: usize = 40;
const TENANTS: usize = 800;
const PER_TENANT: usize = 50;
/// Schedulers that reserve and confirm, and how often each does.
const SCHEDULERS: usize = 8;
const RESERVATIONS: usize = 250;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Applies one VM.
fn apply(client: &mut Client, name: &str) {
    let spec =
        json!({"tenant": format!("t{}", name.len() % 8), "host": "h0", "floor": {"out": "1kbit"}});
    let reply = client.send(Method::PUT, &format!("/api/v1/vms/{name}"), &object("VM", name, spec));
    let reply = reply.expect("it answers");
    assert!(reply.is_ok(), "{}", reply.json());
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn said(what: &str, latencies: &mut [Duration]) {
    latencies.sort();
    let of = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    println!("{what}: median {:?}, p99 {:?}, worst {:?}", of(50), of(99), of(100));
}

fn batch(client: &mut Client, items: &[Value]) {
    let reply = client.send(Method::POST, "/api/v1/apply", &json!({"items": items}));
    let reply = reply.expect("it answers");
    assert!(reply.is_ok(), "{}", reply.json());
}

/// A host that many tenants share.
fn shared(n: usize) -> String {
    format!("n{}-{}", n % RACKS, n / RACKS % PER_RACK)
}

/// Reservations by several schedulers in a large cloud.
fn reserve(server: &str, ca: &Path, token: &str) {
    let connect = || Client::new(server, ca, token).expect("an address");
    let mut first = connect();
    let mut items = Vec::new();
    for rack in 0..RACKS {
        let link = json!({"lower": format!("r{rack}"), "upper": "core", "rate": "400Gbit"});
        items.push(object("Link", &format!("r{rack}-up"), link));
        for host in 0..PER_RACK {
            let spec = json!({"switch": format!("r{rack}"), "rate": "25Gbit", "slots": 100});
            items.push(object("Host", &format!("n{rack}-{host}"), spec));
        }
    }
    batch(&mut first, &items);
    let began = now();
    for t in 0..TENANTS {
        let tenant = format!("cloud{t}");
        let mut items = vec![object("Tenant", &tenant, json!({}))];
        for n in 0..PER_TENANT {
            let floor = json!({"out": "10Mbit", "in": "10Mbit"});
            let spec = json!({"tenant": tenant, "host": shared(t * 37 + n * 11), "floor": floor});
            items.push(object("VM", &format!("{tenant}-{n}"), spec));
        }
        batch(&mut first, &items);
    }
    println!("{} VMs in {TENANTS} applies: {:?}", TENANTS * PER_TENANT, began.elapsed());
    let one = |client: usize| {
        let mut connection = connect();
        let mut latencies = Vec::new();
        for n in 0..RESERVATIONS {
            let number = client * RESERVATIONS + n;
            let name = format!("r{number}");
            let floor = json!({"out": "1Mbit", "in": "1Mbit"});
            let vm =
                json!({"name": format!("x{number}"), "host": shared(number * 7), "floor": floor});
            let spec = json!({"tenant": format!("cloud{}", number % TENANTS), "vms": [vm]});
            let made = object("Reservation", &name, spec);
            let began = now();
            let reply = connection.send(Method::POST, "/api/v1/reservations", &made);
            latencies.push(began.elapsed());
            let reply = reply.expect("it answers");
            assert!(reply.is_ok(), "{}", reply.json());
            let path = format!("/api/v1/reservations/{name}/confirm");
            let reply = connection.ask(Method::POST, &path, &[], "").expect("it answers");
            assert!(reply.is_ok(), "{}", reply.json());
        }
        latencies
    };
    let mut latencies: Vec<Duration> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..SCHEDULERS).map(|client| scope.spawn(move || one(client))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    });
    said(&format!("reserve, {SCHEDULERS} schedulers"), &mut latencies);
}

fn measure(server: &str, ca: &Path, token: &str) {
    let connect = || Client::new(server, ca, token).expect("an address");
    let mut first = connect();
    let host = json!({"switch": "tor", "rate": "100Gbit", "slots": 100_000});
    let mut items = vec![object("Host", "h0", host)];
    items.extend((0..8).map(|n| object("Tenant", &format!("t{n}"), json!({}))));
    let reply = first.send(Method::POST, "/api/v1/apply", &json!({"items": items}));
    assert!(reply.expect("it answers").is_ok());
    let mut latencies: Vec<Duration> = (0..ALONE)
        .map(|n| {
            let began = now();
            apply(&mut first, &format!("alone{n}"));
            began.elapsed()
        })
        .collect();
    said("one client", &mut latencies);
    let began = now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut connection = connect();
                for n in 0..EACH {
                    apply(&mut connection, &format!("c{client}-{n}"));
                }
            });
        }
    });
    let took = began.elapsed();
    let rate = (CLIENTS * EACH) as f64 / took.as_secs_f64();
    println!("{CLIENTS} clients: {} applies in {took:?}, {rate:.0} per second", CLIENTS * EACH);
}

fn wait_for_leader(server: &str, ca: &Path, token: &str) {
    let mut client = Client::new(server, ca, token).expect("an address");
    loop {
        let metrics = client.get("/metrics").expect("it answers");
        if String::from_utf8_lossy(&metrics.body).contains("weir_controller_leads 1") {
            return;
        }
    }
}

fn main() {
    let folder = std::env::temp_dir().join(format!("weir-applies-{}", std::process::id()));
    let (file, client) = (folder.join("controller.toml"), folder.join("client.toml"));
    let asked = std::env::var("WEIR_STORE").ok();
    let etcd = asked.as_deref().filter(|asked| *asked == "etcd").map(|_| Etcd::start());
    let any = "127.0.0.1:0".parse().expect("an address");
    let wanted = ControllerConfig {
        store: etcd.as_ref().map(Etcd::address).or(asked),
        ..ControllerConfig::new(any, vec!["127.0.0.1".into()], folder.join("data"))
    };
    println!("store: {}", wanted.store.as_deref().unwrap_or("redb"));
    daemon::init_as(&file, &client, wanted).expect("made");
    let config = daemon::read_config(&file).expect("it was made");
    let text = std::fs::read_to_string(client).expect("it was made");
    let found: ClientConfig = toml::from_str(&text).expect("it is ours");
    let store = daemon::open_store(&config, config.listen).expect("it was made");
    let stop = watch::Sender::new(false);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(http::bind(config.listen)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let until = stop.subscribe();
    let serving = runtime.spawn(async move {
        daemon::serve(&config, store, listener, until).await.expect("it serves");
    });
    let server = format!("https://127.0.0.1:{port}");
    wait_for_leader(&server, &found.ca, &found.token);
    measure(&server, &found.ca, &found.token);
    reserve(&server, &found.ca, &found.token);
    stop.send_replace(true);
    runtime.block_on(serving).expect("it ends");
    std::fs::remove_dir_all(folder).expect("ours");
}
