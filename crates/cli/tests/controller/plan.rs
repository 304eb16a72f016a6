//! `weir plan --without` against what then happens.

use super::{Daemon, Place, client, init, weir, works};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Three leaves and two spines. A host has the name of a leaf, and another the name of a link.
fn cloud() -> Vec<Value> {
    let mut all = vec![object("Topology", "default", json!({"routing": "layers"}))];
    for (name, leaf) in
        [("h0", "a"), ("h1", "a"), ("h2", "b"), ("b", "b"), ("c-two", "c"), ("h5", "c")]
    {
        all.push(object("Host", name, json!({"switch": leaf, "rate": "2Gbit", "slots": 4})));
    }
    for leaf in ["a", "b", "c"] {
        for spine in ["one", "two"] {
            let spec = json!({"lower": leaf, "upper": spine, "rate": "1Gbit"});
            all.push(object("Link", &format!("{leaf}-{spine}"), spec));
        }
    }
    for (tenant, priority, hosts, floor) in [
        ("gold", 200, ["h0", "h2"], "300Mbit"),
        ("bulk", 100, ["h1", "c-two"], "500Mbit"),
        ("third", 100, ["b", "h5"], "400Mbit"),
        ("last", 50, ["h0", "h5"], "400Mbit"),
    ] {
        all.push(object("Tenant", tenant, json!({"priority": priority})));
        for (n, host) in hosts.into_iter().enumerate() {
            let floor = json!({"out": floor, "in": floor});
            let spec = json!({"tenant": tenant, "host": host, "floor": floor});
            all.push(object("VM", &format!("{tenant}{n}"), spec));
        }
        // This one may go elsewhere.
        let spec = json!({"tenant": tenant, "floor": {"out": "10Mbit", "in": "10Mbit"}});
        all.push(object("VM", &format!("{tenant}-free"), spec));
    }
    all
}

fn apply(at: &Path, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    std::fs::write(at.join("cloud.yaml"), text.join("\n---\n")).expect("it is ours");
    works(at, &["apply", "-f", "cloud.yaml"]);
}

/// All objects of a kind.
fn all(at: &Path, kind: &str) -> Vec<Value> {
    let list = client(at).get(&format!("/api/v1/{kind}?limit=1000")).expect("it answers").json();
    list["items"].as_array().expect("items").clone()
}

/// VMs without floors: name, reason, message.
fn fallen(at: &Path) -> BTreeMap<String, (String, String)> {
    let said = |vm: &Value| {
        let conditions = vm["status"]["conditions"].as_array().expect("conditions").clone();
        let said = conditions.into_iter().find(|one| one["type"] == "Admitted").expect("admitted");
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let name = text(&vm["metadata"]["name"]);
        (said["status"] == "False").then(|| (name, (text(&said["reason"]), text(&said["message"]))))
    };
    all(at, "vms").iter().filter_map(said).collect()
}

fn hosts_of(at: &Path) -> BTreeMap<String, Value> {
    let of = |vm: Value| {
        (vm["metadata"]["name"].as_str().expect("a name").to_owned(), vm["status"]["host"].clone())
    };
    all(at, "vms").into_iter().map(of).collect()
}

/// The objects that something takes with it, as an operator writes them after it happened.
fn lost(at: &Path, kind: &str, name: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for (plural, of, state) in [("hosts", "host", "dead"), ("links", "link", "down")] {
        for mut object in all(at, plural) {
            let spec = &object["spec"];
            let is_lost = match kind {
                "switch" => ["switch", "lower", "upper"].iter().any(|end| spec[*end] == name),
                _ => kind == of && object["metadata"]["name"] == name,
            };
            if is_lost {
                object["spec"]["state"] = state.into();
                found.push(object);
            }
        }
    }
    found
}

#[test]
fn a_plan_without_something_says_what_happens_when_it_is_gone() {
    let folder = Place::new("cloud-without");
    let at = folder.0.as_path();
    init(at);
    let _controller = Daemon::start(at);
    apply(at, &cloud());
    assert_eq!(fallen(at), BTreeMap::new(), "all fit");
    let (mut falls, mut moves) = (0, 0);
    for (wanted, kind, name) in [
        ("h0", "host", "h0"),
        ("c-one", "link", "c-one"),
        ("one", "switch", "one"),
        ("two", "switch", "two"),
        ("a", "switch", "a"),
        ("host/b", "host", "b"),
        ("switch/b", "switch", "b"),
        ("host/c-two", "host", "c-two"),
        ("link/c-two", "link", "c-two"),
        ("switch/c", "switch", "c"),
    ] {
        let before = hosts_of(at);
        let plan = weir(at, &["plan", "--without", wanted]);
        let told = String::from_utf8(plan.stdout).expect("text");
        assert_eq!(hosts_of(at), before, "{wanted}: a plan changes nothing");
        assert_eq!(fallen(at), BTreeMap::new(), "{wanted}: a plan changes nothing");

        apply(at, &lost(at, kind, name));
        let (fell, after) = (fallen(at), hosts_of(at));
        assert_eq!(plan.status.code(), Some(i32::from(!fell.is_empty())), "{wanted}: {told}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = told
            .lines()
            .map(words)
            .filter(|row| row.get(1).is_some_and(|kind| kind == "VM"))
            .collect();
        let planned: BTreeSet<&String> =
            rows.iter().filter(|row| row[3] != "Fits").map(|row| &row[2]).collect();
        assert_eq!(planned, fell.keys().collect(), "{wanted}: {told}");
        for (name, (reason, message)) in &fell {
            let row = rows.iter().find(|row| row[2] == *name).expect("it was planned");
            assert_eq!(row[3], *reason, "{wanted}: {told}");
            assert_eq!(row[4..], words(message), "{wanted}: {told}");
        }
        for (name, host) in after.iter().filter(|(name, host)| before[*name] != **host) {
            assert!(
                rows.iter().any(|row| row[2] == *name),
                "{wanted}: {name} is on {host}: {told}"
            );
            moves += 1;
        }
        falls += fell.len();
        // It returns, with all floors.
        apply(at, &cloud());
        assert_eq!(fallen(at), BTreeMap::new(), "{wanted}");
    }
    assert!(falls > 5 && moves > 0, "the cases are there: {falls} floors fell, {moves} VMs moved");

    // Two names may lose the same link.
    let plan = weir(at, &["plan", "--without", "a-one", "--without", "one", "--without", "a-one"]);
    let (told, error) = (plan.stdout, String::from_utf8_lossy(&plan.stderr).into_owned());
    assert!(plan.status.code().is_some_and(|code| code < 2), "{error}");
    let told = String::from_utf8(told).expect("text");
    assert_eq!(told.lines().filter(|line| line.contains(" a-one ")).count(), 1, "{told}");

    for (wanted, words) in [
        ("h9", "there is no host, link or switch with the name `h9`"),
        ("link/h0", "there is no link with the name `h0`"),
        ("rack/a", "`rack` is no kind: write host, link or switch"),
        ("b", "several things have this name: write host/b or switch/b"),
        ("c-two", "several things have this name: write host/c-two or link/c-two"),
    ] {
        let plan = weir(at, &["plan", "--without", wanted]);
        let said = String::from_utf8_lossy(&plan.stderr).into_owned();
        assert_eq!(plan.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("--without {wanted}: {words}")), "{said}");
        assert!(plan.stdout.is_empty(), "{wanted}");
    }
}

#[test]
fn what_an_operator_drains_is_said_at_once_and_status_waits_for_it() {
    let folder = Place::new("cloud-drain");
    let at = folder.0.as_path();
    init(at);
    let _controller = Daemon::start(at);
    apply(at, &cloud());
    let drain = |names: &[&str]| {
        let spec = json!({"routing": "layers", "draining": names});
        std::fs::write(at.join("drain.yaml"), object("Topology", "default", spec).to_string())
            .expect("it is ours");
    };
    drain(&["one"]);
    let plan = weir(at, &["plan", "-f", "drain.yaml"]);
    let told = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert_eq!(plan.status.code(), Some(1), "{told}");
    assert!(told.contains("Topology") && told.contains("InUse"), "{told}");
    works(at, &["apply", "-f", "drain.yaml"]);
    assert_eq!(fallen(at), BTreeMap::new(), "draining takes no floor away");
    let table = works(at, &["get", "vms"]);
    let told: Vec<&str> = table
        .lines()
        .filter(|line| line.contains("Draining"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let without = weir(at, &["plan", "--without", "one"]);
    let without = String::from_utf8_lossy(&without.stdout).into_owned();
    let fall: Vec<&str> = without
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.get(1) == Some(&"VM") && row.get(3) != Some(&"Fits"))
        .map(|row| row[2])
        .collect();
    assert!(!fall.is_empty(), "{without}");
    assert_eq!(told, fall, "{table}{without}");
    let status = weir(at, &["status", "topologies", "default"]);
    assert_eq!(status.status.code(), Some(1), "{}", String::from_utf8_lossy(&status.stdout));
    for vm in ["bulk1", "last1", "third1"] {
        works(at, &["delete", "vm", vm]);
    }
    let status = works(at, &["status", "topologies", "default", "--wait"]);
    assert!(status.contains("all are as they should be"), "{status}");
}
