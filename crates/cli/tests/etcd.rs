//! Three real controllers on one etcd; they and etcd are killed and paused at any moment.
//!
//! Workers change what is theirs alone and remember what was acknowledged. A request without an answer is
//! sent again with its idempotency key, so each worker knows exactly what must be there.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_controller::client::Client;
use weir_model::controller::{ClientConfig, ControllerConfig};

#[path = "../../controller/tests/support/etcd_server.rs"]
mod etcd_server;
use etcd_server::Etcd;
mod place;
use place::Place;

/// Kills and pauses of `make test`. `scripts/test-long` asks for more by `WEIR_CRASHES`.
const FEW: u64 = 15;
const CONTROLLERS: usize = 3;
const WORKERS: u64 = 2;
/// Clouds beside each other, at most.
const LANES: u64 = 8;
/// Names of VMs of one worker.
const VMS: u64 = 8;
/// A leader that is paused this long has lost its lease of one second.
const PAUSE: Duration = Duration::from_millis(2500);
/// While etcd is paused this long, a controller gives up a commit, and etcd may make it afterwards.
const ETCD_PAUSE: Duration = Duration::from_millis(4500);
/// Every so many kills all is compared.
const COMPARED: u64 = 5;
/// Attempts to start a controller. On a busy machine etcd may answer too late for one.
const ATTEMPTS: u32 = 20;

#[expect(clippy::disallowed_methods, reason = "a test waits for other processes")]
fn wait(span: Duration) {
    std::thread::sleep(span);
}

/// SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One controller process; dies with the test.
struct Controller {
    config: PathBuf,
    child: Child,
    port: u16,
}

impl Controller {
    /// Starts a process as a service manager does: again if it ends because etcd does not answer.
    fn start(config: &Path) -> Self {
        for _ in 0..ATTEMPTS {
            match Self::try_start(config) {
                Ok(started) => return started,
                Err(said) => assert!(said.contains("cannot be reached"), "no start: {said}"),
            }
            wait(Duration::from_millis(200));
        }
        panic!("etcd does not answer");
    }

    /// A process that serves, or what it said before it ended.
    fn try_start(config: &Path) -> Result<Self, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["controller", "--config"])
            .arg(config)
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut said = String::new();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said.push_str(&line);
            let (_, address) = line.split_once("serving https://")?;
            address.trim().rsplit(':').next()?.parse().ok()
        });
        let Some(port) = port else {
            child.wait().expect("it ended");
            return Err(said);
        };
        // Nobody may find the pipe full or closed.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { config: config.into(), child, port })
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("kill runs").success(), "it runs");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }

    /// Another process at the same port.
    fn again(&mut self) {
        *self = Self::start(&self.config.clone());
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have been killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Three controllers, and how clients reach them.
struct Cloud {
    folder: Place,
    etcd: Etcd,
    controllers: Vec<Controller>,
    client: ClientConfig,
}

impl Cloud {
    fn start(name: &str) -> Self {
        let (folder, etcd) = (Place::new(&format!("three-{name}")), Etcd::start());
        let at = folder.0.as_path();
        let store = format!("{}/cloud", etcd.address());
        let made = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["controller", "init", "--config", "c0.toml", "--client", "client.toml"])
            .args(["--listen", "127.0.0.1:0", "--name", "127.0.0.1", "--data", "data"])
            .args(["--store", &store])
            .current_dir(at)
            .output()
            .expect("the binary runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let read = |name: &str| std::fs::read_to_string(at.join(name)).expect("it was made");
        let mut config: ControllerConfig = toml::from_str(&read("c0.toml")).expect("it is ours");
        config.data_dir = at.join("data");
        config.lease = "\"1s\"".parse::<toml::Value>().expect("TOML").try_into().expect("a span");
        let mut controllers = Vec::new();
        for n in 0..CONTROLLERS {
            let file = at.join(format!("c{n}.toml"));
            config.listen.set_port(0);
            let write = |config: &ControllerConfig| {
                std::fs::write(&file, toml::to_string(config).expect("TOML")).expect("it is ours");
            };
            write(&config);
            let controller = Controller::start(&file);
            // From now on always at this port.
            config.listen.set_port(controller.port);
            write(&config);
            controllers.push(controller);
        }
        let mut client: ClientConfig = toml::from_str(&read("client.toml")).expect("it is ours");
        client.ca = at.join("data/ca.crt");
        let places: Vec<String> =
            controllers.iter().map(|one| format!("https://127.0.0.1:{}", one.port)).collect();
        client.server = places.join(",");
        Self { folder, etcd, controllers, client }
    }

    /// A client of all.
    fn client(&self) -> Client {
        client(&self.client)
    }

    /// A client of one, wherever it sends.
    fn client_of(&self, n: usize) -> Client {
        let server = format!("https://127.0.0.1:{}", self.controllers[n].port);
        client(&ClientConfig { server, ..self.client.clone() })
    }

    /// Which one leads.
    fn leader(&self) -> usize {
        loop {
            for n in 0..self.controllers.len() {
                // A connection that a busy machine lets time out is made again.
                let Ok(metrics) = self.client_of(n).get("/metrics") else { continue };
                if String::from_utf8_lossy(&metrics.body).contains("weir_controller_leads 1") {
                    return n;
                }
            }
            wait(Duration::from_millis(50));
        }
    }
}

fn client(config: &ClientConfig) -> Client {
    Client::new(&config.server, &config.ca, &config.token).expect("an address")
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Sends a request until there is an answer. It is done once.
fn insist(
    client: &mut Client,
    config: &ClientConfig,
    (method, path, body): (hyper::Method, &str, &Value),
    key: &str,
) -> (u16, Value, Option<u64>) {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    let headers = if body.is_null() { &headers[1..] } else { &headers[..] };
    let text = if body.is_null() { String::new() } else { body.to_string() };
    loop {
        match client.ask(method.clone(), path, headers, text.clone()) {
            Ok(reply) if reply.status < 500 => {
                let etag = reply.headers.get("etag").and_then(|value| value.to_str().ok());
                let version = etag.and_then(|text| text.trim_matches('"').parse().ok());
                return (reply.status, reply.json(), version);
            }
            Ok(reply) => assert_eq!(reply.status, 503, "{}", reply.json()),
            Err(_) => *client = self::client(config),
        }
        wait(Duration::from_millis(30));
    }
}

/// What one worker knows to be there: VM → floor out, reservation → its VM and floor.
#[derive(Default, Debug)]
struct Known {
    vms: BTreeMap<String, String>,
    held: BTreeMap<String, (String, String)>,
    /// Versions of all changes that were acknowledged.
    versions: BTreeSet<u64>,
}

/// Changes things until it is told to stop; then everything was answered.
fn work(
    worker: u64,
    config: &ClientConfig,
    mut seed: u64,
    mut known: Known,
    (stop, done): (&AtomicBool, &AtomicU64),
) -> (Known, u64) {
    use hyper::Method;
    let mut client = client(config);
    while !stop.load(Ordering::Relaxed) {
        let (what, n) = (random(&mut seed) % 12, random(&mut seed) % VMS);
        let (vm, host) = (format!("w{worker}-{n}"), format!("h{}", random(&mut seed) % 4));
        let floor = format!("{}Mbit", 1 + random(&mut seed) % 90);
        let key = format!("{worker}-{:x}", random(&mut seed));
        let floors = json!({"out": floor, "in": floor});
        let mut ask = |method, path: &str, body: Value| {
            let (status, told, version) = insist(&mut client, config, (method, path, &body), &key);
            done.fetch_add(1, Ordering::Relaxed);
            (status < 300, told, version)
        };
        let (is_done, told, version) = match what {
            // Applies and resizes.
            0..5 => {
                let spec = json!({"tenant": "gold", "floor": floors});
                let done = ask(Method::PUT, &format!("/api/v1/vms/{vm}"), object("VM", &vm, spec));
                if done.0 {
                    known.vms.insert(vm, floor);
                }
                done
            }
            5..7 => {
                let done = ask(Method::DELETE, &format!("/api/v1/vms/{vm}"), Value::Null);
                if done.0 {
                    known.vms.remove(&vm);
                }
                done
            }
            7..9 => {
                let name = format!("r-{key}");
                let one = json!({"name": vm, "host": host, "floor": floors});
                let spec = json!({"tenant": "gold", "vms": [one], "holdFor": "3600s"});
                let done =
                    ask(Method::POST, "/api/v1/reservations", object("Reservation", &name, spec));
                if done.0 {
                    known.held.insert(name, (vm, floor));
                }
                done
            }
            _ => {
                let count = known.held.len().max(1);
                let n = random(&mut seed) as usize % count;
                let Some(name) = known.held.keys().nth(n).cloned() else { continue };
                let end = if what == 9 { "release" } else { "confirm" };
                let path = format!("/api/v1/reservations/{name}/{end}");
                let done = ask(Method::POST, &path, Value::Null);
                assert!(done.0 || done.1["reason"] != "NotFound", "{}: {}", name, done.1);
                if done.0 {
                    let (vm, floor) = known.held.remove(&name).expect("it was there");
                    if end == "confirm" {
                        known.vms.insert(vm, floor);
                    }
                }
                done
            }
        };
        if let Some(version) = version.filter(|_| is_done) {
            // The answer to a change that changes nothing has the version of the last one.
            known.versions.insert(version);
        }
        assert!(is_done || told["reason"].is_string(), "{told}");
    }
    (known, seed)
}

/// All objects of a kind as one controller shows them, and the version of that.
fn listed_at(client: &mut Client, kind: &str) -> (Vec<Value>, u64) {
    let path = format!("/api/v1/{kind}?limit=10000");
    // As above: a list may be asked for again.
    let list = (0..ATTEMPTS).find_map(|_| client.get(&path).ok()).expect("it answers").json();
    let version = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    (list["items"].as_array().expect("items").clone(), version.expect("a version"))
}

fn listed(client: &mut Client, kind: &str) -> Vec<Value> {
    listed_at(client, kind).0
}

/// What each controller shows is what the workers know. They rest meanwhile.
fn compare(cloud: &Cloud, all: &[&Known], kill: u64) {
    // The newest version: who shows it shows everything.
    let mark = object("Tenant", "mark", json!({"priority": kill + 1}));
    let asked = (hyper::Method::PUT, "/api/v1/tenants/mark", &mark);
    let made = insist(&mut cloud.client(), &cloud.client, asked, &format!("mark{kill}"));
    let newest = made.2.expect("a version");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let vms: BTreeMap<String, String> = all.iter().flat_map(|known| known.vms.clone()).collect();
    let held: BTreeSet<String> = all.iter().flat_map(|known| known.held.keys().cloned()).collect();
    for n in 0..CONTROLLERS {
        let mut client = cloud.client_of(n);
        let found = loop {
            let (found, version) = listed_at(&mut client, "vms");
            if version >= newest {
                break found;
            }
            wait(Duration::from_millis(20));
        };
        let found = found
            .iter()
            .map(|vm| (text(&vm["metadata"]["name"]), text(&vm["spec"]["floor"]["out"])));
        let found: BTreeMap<String, String> = found.collect();
        assert_eq!(found, vms, "kill {kill}: what was acknowledged, and nothing else");
        let found: BTreeSet<String> = listed(&mut client, "reservations")
            .iter()
            .filter(|one| one["status"]["phase"] == "Held")
            .map(|one| text(&one["metadata"]["name"]))
            .collect();
        assert_eq!(found, held, "kill {kill}, controller {n}");
    }
}

fn begin(cloud: &Cloud) {
    let host = json!({"switch": "tor", "rate": "1Gbit", "slots": 50});
    let mut items: Vec<Value> =
        (0..4).map(|n| object("Host", &format!("h{n}"), host.clone())).collect();
    items.push(object("Tenant", "gold", json!({})));
    let body = json!({"items": items});
    let asked = (hyper::Method::POST, "/api/v1/apply", &body);
    let (status, told, _) = insist(&mut cloud.client(), &cloud.client, asked, "begin");
    assert_eq!(status, 200, "{told}");
}

/// Kills and pauses in one cloud.
fn play(lane: u64, kills: u64) {
    let mut cloud = Cloud::start(&format!("kill{lane}"));
    begin(&cloud);
    let mut seed = 22 + lane;
    let mut all: Vec<(Known, u64)> =
        (0..WORKERS).map(|n| (Known::default(), 1000 * lane + n)).collect();
    for kill in 0..kills {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let begun = all.drain(..).enumerate().map(|(n, (known, seed))| {
            let (config, stop, done) = (cloud.client.clone(), Arc::clone(&stop), Arc::clone(&done));
            let work = move || work(n as u64, &config, seed, known, (&stop, &done));
            std::thread::spawn(work)
        });
        let threads: Vec<_> = begun.collect();
        let leader = cloud.leader();
        // The moment of the kill is a number of answers.
        let moment = random(&mut seed) % 60;
        while done.load(Ordering::Relaxed) < moment {
            wait(Duration::from_millis(1));
        }
        match random(&mut seed) % 8 {
            0 | 1 => {
                // It wakes up, and knows nothing of another leader.
                cloud.controllers[leader].signal("STOP");
                wait(PAUSE);
                cloud.controllers[leader].signal("CONT");
            }
            2 => {
                cloud.etcd.signal("STOP");
                wait(ETCD_PAUSE);
                cloud.etcd.signal("CONT");
            }
            3 => {
                cloud.etcd.kill();
                cloud.etcd.again();
            }
            _ => {
                cloud.controllers[leader].kill();
                cloud.controllers[leader].again();
            }
        }
        // Changes are acknowledged again.
        let before = done.load(Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < before + 2 * WORKERS {
            wait(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        all = threads.into_iter().map(|thread| thread.join().expect("it ends well")).collect();
        if kill % COMPARED == COMPARED - 1 || kill + 1 == kills {
            let known: Vec<&Known> = all.iter().map(|(known, _)| known).collect();
            compare(&cloud, &known, kill);
        }
    }
    // A version is one change, whoever led: it was acknowledged to one worker.
    let [(one, _), (other, _)] = &all[..] else { panic!("two workers") };
    let both: Vec<&u64> = one.versions.intersection(&other.versions).collect();
    assert_eq!(both, Vec::<&u64>::new(), "two leaders' changes have the same version");
}

#[test]
fn whatever_happens_to_leaders_and_to_etcd_all_that_was_acknowledged_is_there_and_nothing_else() {
    let kills = std::env::var("WEIR_CRASHES").map_or(FEW, |text| text.parse().expect("a number"));
    // Most of the time they wait for leases to end.
    let lanes = kills.div_ceil(25).clamp(1, LANES);
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            scope.spawn(move || play(lane, kills.div_ceil(lanes)));
        }
    });
}

#[test]
fn while_etcd_is_away_writes_are_refused_with_a_reason_and_reads_and_watches_go_on() {
    let mut cloud = Cloud::start("away");
    begin(&cloud);
    let leader = cloud.leader();
    let mut reader = cloud.client_of((leader + 1) % CONTROLLERS);
    let mut watcher = cloud.client_of((leader + 2) % CONTROLLERS);
    let mut watch = watcher
        .begin(hyper::Method::GET, "/api/v1/vms?watch=true", &[], "".into())
        .expect("it answers");
    let body = object("VM", "web", json!({"tenant": "gold", "floor": {"out": "1Mbit"}}));
    let json_of = [("content-type", "application/json")];
    let asked = |client: &mut Client| {
        client.ask(hyper::Method::PUT, "/api/v1/vms/web", &json_of, body.to_string())
    };
    // A follower may be behind on a busy machine.
    while listed(&mut reader, "hosts").len() < 4 {
        wait(Duration::from_millis(20));
    }
    cloud.etcd.kill();
    // At first because the commit fails, and beyond the lease because nobody leads.
    let mut reasons = BTreeSet::new();
    while reasons.len() < 2 {
        let refused = asked(&mut cloud.client_of(leader)).expect("it answers");
        let told = refused.json();
        assert_eq!(
            (refused.status, &refused.headers["retry-after"]),
            (503, &"1".parse().expect("text"))
        );
        let detail = told["detail"].as_str().unwrap_or_default();
        if detail.contains("etcd at 127.0.0.1:") && detail.contains("cannot be reached") {
            reasons.insert("etcd");
        }
        if told["reason"] == "NoLeader" {
            reasons.insert("leader");
        }
        wait(Duration::from_millis(50));
    }
    assert_eq!(listed(&mut reader, "hosts").len(), 4);
    assert_eq!(listed(&mut cloud.client_of(leader), "hosts").len(), 4);
    cloud.etcd.again();
    let made = insist(
        &mut cloud.client(),
        &cloud.client,
        (hyper::Method::PUT, "/api/v1/vms/web", &body),
        "web",
    );
    assert_eq!(made.0, 201, "{}", made.1);
    // The watch that had begun before sees it, under the same version.
    let line = loop {
        let line = watch.line(&watcher).expect("it goes on").expect("it goes on");
        if !line.contains("BOOKMARK") {
            break line;
        }
    };
    let event: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(event["type"], "ADDED");
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        made.1["metadata"]["resourceVersion"]
    );
}

#[test]
fn followers_send_writes_to_the_leader_and_a_backup_goes_back_into_an_empty_etcd() {
    let cloud = Cloud::start("redirect");
    begin(&cloud);
    let at = cloud.folder.0.as_path();
    let follower = (cloud.leader() + 1) % CONTROLLERS;
    let config = ClientConfig {
        server: format!("https://127.0.0.1:{}", cloud.controllers[follower].port),
        ..cloud.client.clone()
    };
    // The client goes where it is sent. On a busy machine no controller may lead for a moment.
    let body = object("VM", "web", json!({"tenant": "gold", "floor": {"out": "1Mbit"}}));
    let asked = (hyper::Method::POST, "/api/v1/vms", &body);
    let made = insist(&mut client(&config), &config, asked, "web");
    assert_eq!(made.0, 201, "{}", made.1);
    std::fs::write(at.join("client.toml"), toml::to_string(&config).expect("TOML")).expect("ours");
    // Again if etcd does not answer in time.
    let weir = |args: &[&str]| {
        for _ in 0..ATTEMPTS {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            command.args(args).current_dir(at).env("WEIR_CLIENT", at.join("client.toml"));
            let output = command.output().expect("the binary runs");
            if !String::from_utf8_lossy(&output.stderr).contains("cannot be reached") {
                return output;
            }
            wait(Duration::from_millis(200));
        }
        panic!("etcd does not answer");
    };
    // The follower may be behind.
    while listed(&mut client(&config), "vms").is_empty() {
        wait(Duration::from_millis(20));
    }
    let saved = weir(&["backup", "b.jsonl"]);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let full = weir(&["restore", "b.jsonl", "--config", "c0.toml"]);
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert!(said.contains("there is a controller already") && said.contains("copy"), "{said}");
    let text = std::fs::read_to_string(at.join("c0.toml")).expect("ours");
    std::fs::write(at.join("new.toml"), text.replace("/cloud", "/other")).expect("ours");
    let restored = weir(&["restore", "b.jsonl", "--config", "new.toml"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let text = std::fs::read_to_string(at.join("new.toml")).expect("ours");
    let port = format!(":{}\"", cloud.controllers[0].port);
    std::fs::write(at.join("new.toml"), text.replace(&port, ":0\"")).expect("ours");
    let again = Controller::start(&at.join("new.toml"));
    let server = format!("https://127.0.0.1:{}", again.port);
    let mut client = self::client(&ClientConfig { server, ..cloud.client.clone() });
    assert_eq!(listed(&mut client, "vms")[0]["metadata"]["name"], "web");
    let mistake = std::fs::read_to_string(at.join("new.toml")).expect("ours");
    std::fs::write(at.join("new.toml"), mistake.replace("etcd://", "redis://")).expect("ours");
    let refused = weir(&["controller", "--config", "new.toml"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("new.toml, line ") && said.contains("write etcd://HOST:PORT"), "{said}");
}
