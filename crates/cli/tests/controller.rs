//! A real controller process, killed at any moment, and the commands around it.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use weir_controller::client::Client;
use weir_controller::clock::Clock;
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_model::moment::Moment;

mod place;
#[path = "controller/plan.rs"]
mod plan;
use place::Place;

/// Kills of `make test`. `scripts/test-long` asks for more by `WEIR_CRASHES`.
const FEW: u64 = 6;
/// Longer than a restart and two looks take on any machine, milliseconds.
const A_WHILE: u64 = 600_000;
/// How long a reservation that ended is kept, milliseconds: the default.
const KEPT: u64 = 3_600_000;

fn weir(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).env("WEIR_CLIENT", folder.join("client.toml"));
    command.args(args).output().expect("the binary runs")
}

/// What a command that works prints.
#[track_caller]
fn works(folder: &Path, args: &[&str]) -> String {
    let output = weir(folder, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// A process that dies with the test.
struct Daemon(Child);

impl Daemon {
    /// Starts a controller at a free port and waits until it serves. Its address goes to client.toml.
    fn start(folder: &Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["controller", "--config", "controller.toml"])
            .current_dir(folder)
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut daemon = Self(child);
        let mut lines = BufReader::new(daemon.0.stderr.take().expect("it is piped")).lines();
        let address = lines.by_ref().find_map(|line| {
            let line = line.expect("text");
            line.split_once("serving https://").map(|(_, address)| address.trim().to_owned())
        });
        let address = address.expect("it serves");
        // Nobody may find the pipe full or closed.
        std::thread::spawn(move || lines.for_each(drop));
        let mut client = client_config(folder);
        client.server = format!("https://{address}");
        let text = toml::to_string(&client).expect("it is TOML");
        std::fs::write(folder.join("client.toml"), text).expect("it is ours");
        daemon
    }

    fn kill(mut self) {
        // SIGKILL.
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ended");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have been killed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn client_config(folder: &Path) -> ClientConfig {
    let text = std::fs::read_to_string(folder.join("client.toml")).expect("it was made");
    toml::from_str(&text).expect("it is ours")
}

fn client(folder: &Path) -> Client {
    let config = client_config(folder);
    Client::new(&config.server, &folder.join(&config.ca), &config.token).expect("an address")
}

fn init(folder: &Path) {
    let any = ["--listen", "127.0.0.1:0", "--name", "127.0.0.1", "--data", "data"];
    let files = ["controller", "init", "--config", "controller.toml", "--client", "client.toml"];
    works(folder, &[&files[..], &any[..]].concat());
}

const CLOUD: &str = "\
apiVersion: weir/v1
kind: Host
metadata: {name: h0}
spec: {switch: tor, rate: 1Gbit, slots: 50}
---
apiVersion: weir/v1
kind: Host
metadata: {name: h1}
spec: {switch: tor, rate: 1Gbit, slots: 50}
---
apiVersion: weir/v1
kind: Tenant
metadata: {name: gold}
";

/// SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One random change: its path, its method, its body.
fn change(seed: &mut u64) -> (hyper::Method, String, Value) {
    use hyper::Method;
    let name = format!("vm{}", random(seed) % 12);
    let host = format!("h{}", random(seed) % 2);
    let floor = format!("{}Mbit", 1 + random(seed) % 200);
    let spec = json!({"tenant": "gold", "host": host, "floor": {"out": floor, "in": floor}});
    let reservation = format!("r{}", random(seed) % 30);
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    match random(seed) % 10 {
        0..5 => (Method::PUT, format!("/api/v1/vms/{name}"), object("VM", &name, spec)),
        5..7 => (Method::DELETE, format!("/api/v1/vms/{name}"), Value::Null),
        7..9 => {
            let vm = json!({"name": name, "host": host, "floor": {"out": floor}});
            let spec = json!({"tenant": "gold", "vms": [vm], "holdFor": "3600s"});
            (Method::POST, "/api/v1/reservations".into(), object("Reservation", &reservation, spec))
        }
        _ => (Method::POST, format!("/api/v1/reservations/{reservation}/confirm"), Value::Null),
    }
}

/// All VMs, and the reservations that time neither ends nor removes for so long.
fn lasting(client: &mut Client, millis: u64) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let later = Clock::start().now().plus_millis(millis);
    for kind in ["vms", "reservations"] {
        let list = client.get(&format!("/api/v1/{kind}?limit=10000")).expect("it answers").json();
        for item in list["items"].as_array().expect("items") {
            let ends = item["status"]["expiresAt"].as_str().map(|at| at.parse::<Moment>());
            let ends = ends.transpose().expect("a moment");
            let is_held = item["status"]["phase"] == "Held";
            let goes = ends.map(|at| at.plus_millis(if is_held { 0 } else { KEPT }));
            if goes.is_none_or(|at| at > later) {
                found.insert(format!("{kind}/{}", item["metadata"]["name"]), item.clone());
            }
        }
    }
    found
}

/// What a restart may not change: what is there and lasts. Both looks take less than `A_WHILE`.
fn same(client: &mut Client, before: &BTreeMap<String, Value>, kill: u64) {
    let now = lasting(client, 0);
    for (name, item) in before {
        assert_eq!(now.get(name), Some(item), "kill {kill}: a restart changes nothing: {name}");
    }
    for name in lasting(client, 2 * A_WHILE).keys() {
        assert!(before.contains_key(name), "kill {kill}: a restart makes nothing: {name}");
    }
}

/// Changes things until the controller is gone. Returns the last answer that came: a version.
fn work(folder: &Path, seed: &mut u64) -> u64 {
    let (mut client, mut newest) = (client(folder), 0);
    loop {
        let (method, path, body) = change(seed);
        let Ok(reply) = client.send(method, &path, &body) else { return newest };
        assert!(reply.status < 500, "{}", reply.json());
        let etag = reply.headers.get("etag").and_then(|value| value.to_str().ok());
        let version = etag.and_then(|text| text.trim_matches('"').parse::<u64>().ok());
        newest = newest.max(version.unwrap_or(0));
    }
}

#[test]
fn after_kill_9_at_any_moment_all_that_was_acknowledged_is_there() {
    let folder = Place::new("cloud-kill");
    init(&folder.0);
    std::fs::write(folder.0.join("cloud.yaml"), CLOUD).expect("it is ours");
    let first = Daemon::start(&folder.0);
    works(&folder.0, &["apply", "-f", "cloud.yaml"]);
    first.kill();
    let kills = std::env::var("WEIR_CRASHES").map_or(FEW, |text| text.parse().expect("a number"));
    let mut seed = 1;
    for kill in 0..kills {
        let daemon = Daemon::start(&folder.0);
        let mut watcher = client(&folder.0);
        let mut watch = watcher
            .begin(hyper::Method::GET, "/api/v1/vms?watch=true", &[], "".into())
            .expect("it answers");
        let (path, mut theirs) = (folder.0.clone(), seed);
        let worker = std::thread::spawn(move || (work(&path, &mut theirs), theirs));
        // The moment of the kill is a number of changes that a watch has seen.
        for _ in 0..random(&mut seed) % 40 {
            watch.line(&watcher).expect("it goes on");
        }
        daemon.kill();
        let (newest, next) = worker.join().expect("it ends");
        seed = next;
        // Every start adds up all claims against all links.
        let again = Daemon::start(&folder.0);
        let mut reader = client(&folder.0);
        let list = reader.get("/api/v1/vms?limit=1").expect("it answers").json();
        let version = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok());
        assert!(version >= Some(newest), "kill {kill}: {newest} was acknowledged, not {version:?}");
        let found = lasting(&mut reader, A_WHILE);
        again.kill();
        let once_more = Daemon::start(&folder.0);
        same(&mut client(&folder.0), &found, kill);
        once_more.kill();
    }
}

#[test]
fn the_commands_apply_show_plan_and_remove_and_their_errors_say_where() {
    let folder = Place::new("cloud-commands");
    let at = folder.0.as_path();
    let output = weir(at, &["get", "vms"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("client.toml") && stderr.contains("weir controller init"), "{stderr}");
    init(at);
    let again =
        weir(at, &["controller", "init", "--config", "controller.toml", "--client", "other.toml"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is a controller already"));
    let daemon = Daemon::start(at);
    let vms = "---\napiVersion: weir/v1\nkind: VM\nmetadata: {name: web}\nspec:\n  tenant: gold\n  \
               host: h0\n  floor: {out: 100M, in: 100M}\n---\napiVersion: weir/v1\nkind: VM\nmetadata: \
               {name: db}\nspec: {tenant: gold, host: h1, floor: {out: 100M, in: 100M}}\n";
    let text = format!("{CLOUD}{vms}");
    std::fs::write(at.join("cloud.yaml"), &text).expect("it is ours");
    assert!(works(at, &["plan", "-f", "cloud.yaml"]).contains("web"));
    assert!(!works(at, &["get", "vms"]).contains("web"), "a plan changes nothing");
    let told = works(at, &["apply", "-f", "cloud.yaml"]);
    assert!(told.contains("VM web created") && told.contains("Host h0 created"), "{told}");
    assert!(works(at, &["apply", "-f", "cloud.yaml"]).contains("VM web unchanged"));
    let table = works(at, &["get", "vms"]);
    assert!(table.contains("100Mbit") && table.contains("Fits"), "{table}");
    assert!(works(at, &["describe", "vm", "web"]).contains("Admitted"));
    assert!(works(at, &["status", "--wait"]).contains("all are as they should be"));
    let yaml = works(at, &["get", "vms", "-o", "yaml"]);
    std::fs::write(at.join("again.yaml"), yaml).expect("it is ours");
    assert!(works(at, &["apply", "-f", "again.yaml"]).contains("VM web unchanged"));
    let lost = weir(at, &["plan", "--without", "h1"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&lost.stdout).contains("HostDead"));

    for (bad, line, words) in [
        (text.replace("out: 100M, in", "out: 100, in"), "line 21", "has no unit"),
        (text.replace("out: 100M, in: 100M}", "out: 2Gbit, in: 2Gbit}"), "line 26", "LinkFull"),
        (text.replace("host: h1", "host: h9"), "line 26", "apply it first"),
    ] {
        std::fs::write(at.join("bad.yaml"), bad).expect("it is ours");
        let output = weir(at, &["apply", "-f", "bad.yaml"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr.contains("bad.yaml") && stderr.contains(line) && stderr.contains(words),
            "{stderr}"
        );
    }
    let mode = |host: &str| {
        let host = client(at).get(&format!("/api/v1/hosts/{host}")).expect("it answers").json();
        host["spec"]["mode"].as_str().unwrap_or("none").to_owned()
    };
    // A third host has no VM of the tenant.
    let third = CLOUD.replace("h1", "h2");
    std::fs::write(at.join("third.yaml"), third).expect("it is ours");
    works(at, &["apply", "-f", "third.yaml"]);
    let told = works(at, &["host", "mode", "observe", "--tenant", "gold"]);
    assert!(told.contains("2 of 3 hosts"), "{told}");
    assert_eq!(["h0", "h1", "h2"].map(mode), ["observe", "observe", "none"]);
    works(at, &["host", "mode", "enforce", "--all"]);
    assert_eq!(["h0", "h1", "h2"].map(mode), ["enforce", "enforce", "enforce"]);
    let unknown = weir(at, &["host", "mode", "observe", "h0", "--tenant", "silver"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no Tenant `silver`"));
    assert_eq!(mode("h0"), "enforce", "all or none");
    std::fs::write(at.join("idle.yaml"), CLOUD.replace("gold", "idle")).expect("it is ours");
    works(at, &["apply", "-f", "idle.yaml"]);
    let nowhere = weir(at, &["host", "mode", "observe", "--tenant", "idle"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("no VM of idle is on a host"));
    let token = works(at, &["token", "create", "eyes", "--role", "viewer"]);
    assert!(token.starts_with("weir_"), "{token}");
    assert!(works(at, &["token", "list"]).contains("eyes"));
    works(at, &["token", "delete", "eyes"]);
    works(at, &["backup", "b.jsonl"]);
    works(at, &["delete", "vm", "web"]);
    daemon.kill();
    let refused = weir(at, &["restore", "b.jsonl", "--config", "controller.toml"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("move it away first"));
    std::fs::remove_file(at.join("data/store.redb")).expect("it is there");
    std::fs::rename(at.join("data/pairs.keys"), at.join("pairs.keys")).expect("it is there");
    let refused = weir(at, &["restore", "b.jsonl", "--config", "controller.toml"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no pairs.keys"));
    std::fs::rename(at.join("pairs.keys"), at.join("data/pairs.keys")).expect("it is ours");
    works(at, &["restore", "b.jsonl", "--config", "controller.toml"]);
    let daemon = Daemon::start(at);
    assert!(works(at, &["get", "vms"]).contains("web"), "it was there when the backup was taken");
    daemon.kill();
}

#[test]
fn get_follows_changes_as_they_happen_until_it_is_interrupted() {
    let folder = Place::new("cloud-watch");
    let at = folder.0.as_path();
    init(at);
    let _controller = Daemon::start(at);
    let vm = |mbit: u32| {
        let vm = format!(
            "---\napiVersion: weir/v1\nkind: VM\nmetadata: {{name: web}}\n\
             spec: {{tenant: gold, host: h0, floor: {{out: {mbit}Mbit}}}}\n"
        );
        std::fs::write(at.join("cloud.yaml"), format!("{CLOUD}{vm}")).expect("it is ours");
        works(at, &["apply", "-f", "cloud.yaml"]);
    };
    vm(100);
    // A shell that starts tests in the background has them ignore Ctrl-C, and so would the command.
    let mut watch = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_weir"), "get", "vms", "-w"])
        .current_dir(at)
        .env("WEIR_CLIENT", at.join("client.toml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Daemon)
        .expect("the binary runs");
    let mut lines = BufReader::new(watch.0.stdout.take().expect("a pipe")).lines();
    let mut comes = |begin: &str, word: &str| {
        let fits = |line: &String| line.trim_start().starts_with(begin) && line.contains(word);
        let found = lines.by_ref().map(|line| line.expect("text")).find(fits);
        assert!(found.is_some(), "it ended before `{begin}` with `{word}`");
    };
    comes("web", "100Mbit");
    vm(200);
    comes("modified", "200Mbit");
    works(at, &["delete", "vm", "web"]);
    comes("deleted", "web");
    vm(300);
    comes("added", "300Mbit");
    let pid = watch.0.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(sent.success(), "it goes on until it is interrupted");
    let ended = watch.0.wait().expect("it ends");
    // Shells show that as status 130.
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(2), "{ended}");
    let mut said = String::new();
    let mut stderr = watch.0.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("text");
    assert_eq!(said, "", "Ctrl-C is no error");
}

#[test]
fn completions_and_man_pages_come_from_the_commands() {
    let folder = Place::new("cloud-man");
    for shell in ["bash", "zsh", "fish"] {
        assert!(works(&folder.0, &["completions", shell]).contains("controller"), "{shell}");
    }
    works(&folder.0, &["man", "pages"]);
    let page = std::fs::read_to_string(folder.0.join("pages/weir-apply.1")).expect("it was made");
    assert!(page.contains("objects of files"), "{page}");
}

#[test]
fn a_controller_whose_configuration_is_wrong_names_the_line() {
    let folder = Place::new("cloud-config");
    init(&folder.0);
    let file = folder.0.join("controller.toml");
    let text = std::fs::read_to_string(&file).expect("it was made");
    let config: ControllerConfig = toml::from_str(&text).expect("it is ours");
    std::fs::write(&file, text.replace(&format!("history = {}", config.history), "history = 1"))
        .expect("it is ours");
    let output = weir(&folder.0, &["controller", "--config", "controller.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("controller.toml, line ") && stderr.contains("history: 1"), "{stderr}");
}

const AGENT: &str = r#"
instance = "a"
host = "h9"
listen = "192.0.2.1:7001"
key_file = "keys"
directory = "directory.yaml"
[uplink]
interface = "eth0"
rate = "10Gbit"
host_floor = "200Mbit"
[mechanism]
name = "elasticswitch"
[[vm]]
name = "web"
port = "tap0"
floor_out = "300Mbit"
floor_in = "200Mbit"
external_floor = "50Mbit"
external_ceiling = "70Mbit"
cap_out = "1Gbit"
translation = "dctcp"
policing = "15kB"
budget = { total = "180kB", flows_most = 5, class = [{ name = "x", weight = 1 }] }
[[vm]]
name = "outside"
port = "eth1"
floor_out = "1Gbit"
floor_in = "1Gbit"
"#;

const DIRECTORY: &str = "
hosts:
- {name: h8, control: '192.0.2.8:7001'}
- {name: h9, control: '192.0.2.1:7001', id: 40}
vms:
- {name: web, tenant: gold, host: h9, addresses: [198.51.100.1], id: 17}
- {name: outside, tenant: gold, host: h9, prefixes: [0.0.0.0/0]}
- {name: db, tenant: gold, host: h8}
- {name: strange, tenant: bulk, host: h8}
";

#[test]
fn import_shows_the_difference_makes_objects_once_and_changes_what_differs() {
    let folder = Place::new("cloud-import");
    let folder = folder.0.as_path();
    init(folder);
    let _controller = Daemon::start(folder);
    std::fs::write(folder.join("agent.toml"), AGENT).expect("ours");
    std::fs::write(folder.join("directory.yaml"), DIRECTORY).expect("ours");
    let refused = weir(folder, &["import", "agent.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("no Host `h9`") && said.contains("--switch"), "{said}");
    let said = works(folder, &["import", "agent.toml", "--switch", "tor"]);
    for line in [
        "+ Host h9",
        "spec.rate: - -> 10Gbit",
        "spec.own.out: - -> 200Mbit",
        "spec.control: - -> 192.0.2.1:7001",
        "spec.number: - -> 40",
        "+ Tenant gold",
        "+ VM web",
        "spec.number: - -> 17",
        "spec.floor.in: - -> 200Mbit",
        "spec.external.out: - -> 50Mbit",
        "spec.cap: - -> 1Gbit",
        "spec.network.port: - -> tap0",
        "spec.network.externalCap: - -> 70Mbit",
        "spec.network.translation: - -> dctcp",
        "spec.network.policing: - -> 15000B",
        "spec.network.budget.total: - -> 180000B",
        "+ VM outside",
        "spec.network.prefixes: - -> [\"0.0.0.0/0\"]",
        "! VM db: host `h8` is not among the files",
        "4 of 4 objects would be made or changed",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("strange"), "a tenant without VMs on h9 is no matter: {said}");
    let made =
        |kind: &str| client(folder).get(&format!("/api/v1/{kind}")).expect("it answers").json();
    assert_eq!(made("vms")["items"], json!([]), "nothing changes without --yes");
    works(folder, &["import", "agent.toml", "--switch", "tor", "--yes"]);
    assert_eq!(made("vms")["items"][0]["status"]["host"], "h9");
    let number = |path: &str| made(path)["status"]["number"].clone();
    assert_eq!(["hosts/h9", "vms/web", "vms/outside"].map(number), [40, 17, 1]);
    let said = works(folder, &["import", "agent.toml", "--yes"]);
    assert!(said.contains("nothing would change"), "{said}");
    let other = DIRECTORY.replace("id: 17", "id: 18");
    std::fs::write(folder.join("directory.yaml"), other).expect("ours");
    let refused = weir(folder, &["import", "agent.toml", "--yes"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("VM `web`: the VM is number 17") && said.contains("spec.number"),
        "{said}"
    );
    let said = works(folder, &["import", "agent.toml", "--renumber"]);
    assert!(said.contains("~ VM web\n    spec.number: 17 -> -"), "it keeps the number: {said}");
    std::fs::write(folder.join("directory.yaml"), DIRECTORY).expect("ours");
    let faster = AGENT.replace("\"300Mbit\"", "\"400Mbit\"");
    std::fs::write(folder.join("agent.toml"), &faster).expect("ours");
    let said = works(folder, &["import", "agent.toml", "--yes"]);
    assert!(said.contains("~ VM web\n    spec.floor.out: 300Mbit -> 400Mbit"), "{said}");
    std::fs::write(folder.join("agent.toml"), faster.replace("10Gbit", "230Mbit")).expect("ours");
    let said = works(folder, &["import", "agent.toml"]);
    assert!(said.contains("! VM web: "), "a floor that would fall is told: {said}");
    assert_eq!(made("hosts")["items"][0]["spec"]["rate"], "10Gbit");
    let lost =
        DIRECTORY.replace("tenant: gold, host: h9, addresses", "tenant: gold, host: h8, addresses");
    std::fs::write(folder.join("directory.yaml"), lost).expect("ours");
    let said = weir(folder, &["import", "agent.toml"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("vm `web`") && said.contains("on host `h8`"), "{said}");
}
