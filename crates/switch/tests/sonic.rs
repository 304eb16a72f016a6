//! SONiC's rows, in memory and in a real redis server.

use crate::common::{Folder, LIMIT, apply, failure, managed};
use crate::sonic_rules::{patched, problems};
use serde_json::json;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_core::binding::MostWeight;
use weir_core::binding::switch::{Cannot, PortName, PortQueues, SwitchConfig};
use weir_switch::sonic::{Redis, Settings, Sonic, Store, Tables, Write};
use weir_switch::{Driver, Failed, Limit, Managed, Outcome, Owner, Saves, Step, Why};
use weir_units::{Rate, SortedSet};

const RATE: Rate = Rate::from_mbps(100_000);
const TENANTS: std::ops::RangeInclusive<u8> = 32..=45;

/// An operator's switch as SONiC's own template makes it: lossless classes 3 and 4, control in 6.
fn operators() -> Tables {
    let dscp = (0..64).map(|at| {
        let class = match at {
            3 | 4 => at,
            8 => 0,
            48 => 6,
            46 => 5,
            _ => 1,
        };
        (at.to_string(), json!(class.to_string()))
    });
    let same = (0..8).map(|n| (n.to_string(), json!(n.to_string())));
    let queues = ["Ethernet0", "Ethernet4"].into_iter().flat_map(|port| {
        (0..8).map(move |queue| {
            let row = match queue {
                3 | 4 => json!({"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}),
                _ => json!({"scheduler": "scheduler.0"}),
            };
            (format!("{port}|{queue}"), row)
        })
    });
    let maps = json!({"dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE", "pfc_enable": "3,4"});
    let all = json!({
        "PORT": {"Ethernet0": {"speed": "100000", "lanes": "0,1,2,3"},
                 "Ethernet4": {"speed": "100000", "lanes": "4,5,6,7"},
                 "Ethernet8": {"speed": "100000", "lanes": "8,9,10,11"}},
        "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"},
                      "scheduler.1": {"type": "DWRR", "weight": "15"}},
        "WRED_PROFILE": {"AZURE_LOSSLESS": {"ecn": "ecn_all"}},
        "DSCP_TO_TC_MAP": {"AZURE": dscp.collect::<serde_json::Map<_, _>>()},
        "TC_TO_QUEUE_MAP": {"AZURE": same.collect::<serde_json::Map<_, _>>()},
        "QUEUE": queues.collect::<serde_json::Map<_, _>>(),
        "PORT_QOS_MAP": {"Ethernet0": maps.clone(), "Ethernet4": maps},
    });
    Tables::from_json(&all).unwrap()
}

/// A switch that had no queues at all.
fn bare() -> Tables {
    let all = json!({"PORT": {"Ethernet0": {"speed": "100000"}, "Ethernet4": {"speed": "100000"}}});
    Tables::from_json(&all).unwrap()
}

fn settings() -> Settings {
    Settings {
        ports: ["Ethernet0", "Ethernet4"].map(PortName::from).into(),
        queues: 8,
        free: [1, 0, 2, 5, 7].into(),
        classes: [0, 2, 7, 5].into(),
        codepoints: TENANTS.collect(),
        most_weight: MostWeight::new(100),
    }
}

/// CONFIG_DB in memory, with SONiC's rules checked after every write.
struct Memory {
    tables: Tables,
    log: Vec<Write>,
}

impl Store for Memory {
    fn load(&mut self, tables: &[&str], limit: &Limit, step: Step) -> Result<Tables, Failed> {
        limit.left(step)?;
        let mut found = self.tables.clone();
        found.0.retain(|table, _| tables.contains(&table.as_str()));
        Ok(found)
    }

    fn write(&mut self, writes: &[Write], limit: &Limit, step: Step) -> Result<(), Failed> {
        limit.left(step)?;
        for write in writes {
            if write.removes_row {
                self.tables.remove(write.table, &write.key);
            }
            for (field, value) in &write.set {
                self.tables.set(write.table, &write.key, field, value.clone());
            }
            for field in &write.clear {
                self.tables.clear(write.table, &write.key, field);
            }
            let found = problems(&self.tables);
            assert!(found.is_empty(), "after {write:?}: {found:#?}");
            self.log.push(write.clone());
        }
        Ok(())
    }
}

fn memory(tables: Tables, folder: &Folder) -> Managed<Sonic<Memory>> {
    managed(Sonic::new(Memory { tables, log: Vec::new() }, settings()), "test", folder)
}

fn port(weights: &[(u8, u16)], bound: &[(u8, u8)]) -> PortQueues {
    PortQueues {
        rate: RATE,
        shared: 0,
        weights: weights.iter().copied().collect(),
        queue_of: bound.iter().copied().collect(),
    }
}

fn both(first: PortQueues, second: PortQueues) -> SwitchConfig {
    SwitchConfig { ports: [("Ethernet0".into(), first), ("Ethernet4".into(), second)].into() }
}

/// 40 is bound on both ports, in different queues; 41 on the first, 42 on the second.
fn wanted() -> SwitchConfig {
    both(
        port(&[(0, 10), (1, 20), (2, 5)], &[(40, 1), (41, 2)]),
        port(&[(0, 10), (2, 20), (5, 5)], &[(40, 2), (42, 5)]),
    )
}

/// The queue that a packet with this code point has from Ethernet0 to `port`, by the tables alone.
fn queue(tables: &Tables, codepoint: u8, port: &str) -> Option<String> {
    let enters = tables.get("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map")?;
    let class = tables.get("DSCP_TO_TC_MAP", enters, &codepoint.to_string())?;
    let leaves = tables.get("PORT_QOS_MAP", port, "tc_to_queue_map")?;
    tables.get("TC_TO_QUEUE_MAP", leaves, class).map(str::to_owned)
}

#[test]
fn code_points_lead_to_queues_and_others_packets_go_where_they_went() {
    let folder = Folder::new();
    let before = operators();
    let mut driver = memory(before.clone(), &folder);
    assert!(matches!(driver.apply(&wanted()), Outcome::Written(changes) if !changes.is_empty()));
    let tables = driver.backend().store().tables.clone();
    for (codepoint, port, expected) in [
        (40, "Ethernet0", "1"),
        (41, "Ethernet0", "2"),
        (40, "Ethernet4", "2"),
        (42, "Ethernet4", "5"),
        (43, "Ethernet0", "0"),
        (45, "Ethernet4", "0"),
    ] {
        assert_eq!(
            queue(&tables, codepoint, port).as_deref(),
            Some(expected),
            "{codepoint} {port}"
        );
    }
    for codepoint in (0..64).filter(|at| !TENANTS.contains(at) && *at != 46) {
        for port in ["Ethernet0", "Ethernet4"] {
            assert_eq!(
                queue(&tables, codepoint, port),
                queue(&before, codepoint, port),
                "{codepoint}"
            );
        }
    }
    let queue_row = |key: &str| tables.row("QUEUE", key).unwrap().clone();
    assert_eq!(queue_row("Ethernet0|3"), *before.row("QUEUE", "Ethernet0|3").unwrap());
    assert_eq!(queue_row("Ethernet0|2")["scheduler"], "WEIR-W5");
    assert_eq!(tables.get("SCHEDULER", "WEIR-W5", "weight"), Some("5"));
    assert_eq!(tables.get("PORT_QOS_MAP", "Ethernet0", "pfc_enable"), Some("3,4"));
    let found = driver.read().unwrap();
    assert!(driver.plan(&wanted()).unwrap().changes.is_empty());
    // Class 5 belongs to the operator's code point 46.
    assert!(found.others.iter().any(|other| other.contains("class 5")), "{:?}", found.others);
    assert_eq!(apply(&mut driver, &wanted()), 0);
}

#[test]
fn a_rollback_restores_every_row() {
    for before in [operators(), bare()] {
        let folder = Folder::new();
        let mut driver = memory(before.clone(), &folder);
        apply(&mut driver, &wanted());
        apply(&mut driver, &both(port(&[(0, 1), (7, 9)], &[(41, 7)]), port(&[(0, 1)], &[])));
        assert_ne!(driver.backend().store().tables, before);
        // A field that the operator adds meanwhile stays.
        let store = driver.backend().store();
        store.tables.set("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "3");
        let outcome = driver.rollback();
        assert_eq!(outcome, Outcome::Written(Vec::new()));
        let mut expected = before.clone();
        expected.set("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "3");
        assert_eq!(driver.backend().store().tables, expected);
    }
}

#[test]
fn a_port_that_comes_later_keeps_the_operators_maps_too() {
    let folder = Folder::new();
    let mut first = wanted();
    first.ports.remove(&PortName::from("Ethernet4"));
    let mut few = settings();
    few.ports.remove(&PortName::from("Ethernet4"));
    let store = Memory { tables: operators(), log: Vec::new() };
    let mut before = managed(Sonic::new(store, few), "test", &folder);
    apply(&mut before, &first);
    let tables = before.backend().store().tables.clone();
    let mut driver = memory(tables, &folder);
    apply(&mut driver, &wanted());
    let tables = driver.backend().store().tables.clone();
    assert_eq!(tables.get("PORT_QOS_MAP", "Ethernet4", "dscp_to_tc_map"), Some("WEIR-IN-AZURE"));
    assert_eq!(driver.rollback(), Outcome::Written(Vec::new()));
    assert_eq!(driver.backend().store().tables, operators());
}

#[test]
fn no_code_point_ever_meets_a_queue_without_a_profile() {
    // Swaps, moves, and a class that passes from one code point to another.
    let configs = [
        wanted(),
        both(
            port(&[(0, 10), (1, 5), (2, 20)], &[(40, 2), (41, 1)]),
            port(&[(0, 10), (2, 20)], &[(43, 2)]),
        ),
        both(port(&[(0, 1)], &[]), port(&[(0, 3), (7, 4), (1, 9)], &[(41, 7), (44, 1)])),
        wanted(),
    ];
    let folder = Folder::new();
    let mut driver = memory(bare(), &folder);
    apply(&mut driver, &both(port(&[(0, 1)], &[]), port(&[(0, 1)], &[])));
    for config in &configs {
        let mut now = driver.backend().store().tables.clone();
        driver.backend().store().log.clear();
        apply(&mut driver, config);
        for write in driver.backend().store().log.clone() {
            if write.removes_row {
                now.remove(write.table, &write.key);
            }
            for (field, value) in &write.set {
                now.set(write.table, &write.key, field, value.clone());
            }
            for field in &write.clear {
                now.clear(write.table, &write.key, field);
            }
            for port in ["Ethernet0", "Ethernet4"] {
                for codepoint in TENANTS {
                    let queue = queue(&now, codepoint, port).expect("maps are never half there");
                    let key = format!("{port}|{queue}");
                    let profile = now.get("QUEUE", &key, "scheduler");
                    assert!(profile.is_some(), "{write:?}: {codepoint} meets {key}");
                }
            }
        }
        assert!(driver.plan(config).unwrap().changes.is_empty());
    }
}

#[test]
fn full_and_patch_forms_say_the_same_and_break_no_rule() {
    for before in [operators(), bare()] {
        let folder = Folder::new();
        let mut driver = memory(before.clone(), &folder);
        for config in [wanted(), both(port(&[(0, 1)], &[]), port(&[(0, 2), (2, 7)], &[(44, 2)]))] {
            let now = driver.backend().store().tables.clone();
            let forms = driver.forms(&config).unwrap();
            let (after, refused) = patched(&now.to_json(), &forms.patch);
            assert!(refused.is_empty(), "{refused:#?}");
            let after = Tables::from_json(&after).unwrap();
            let found = problems(&after);
            assert!(found.is_empty(), "{found:#?}");
            let full = Tables::from_json(&forms.full).unwrap();
            for table in ["SCHEDULER", "QUEUE", "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "PORT_QOS_MAP"]
            {
                assert_eq!(after.0.get(table), full.0.get(table), "{table}");
            }
            apply(&mut driver, &config);
            let mut written = driver.backend().store().tables.clone();
            written.remove("SCHEDULER", "WEIR-OWNER-test");
            let mut after = after;
            after.remove("SCHEDULER", "WEIR-OWNER-test");
            assert_eq!(written, after, "the patch ends where the driver ends");
        }
    }
}

#[test]
fn what_sonic_cannot_express_is_refused_with_a_reason() {
    let folder = Folder::new();
    let mut driver = memory(operators(), &folder);
    // Class 5 is the operator's: 2 and 7 are left for three code points that meet on one port.
    let three = port(&[(0, 1), (1, 1), (2, 1), (5, 1)], &[(40, 1), (41, 2), (42, 5)]);
    let config = both(three, port(&[(0, 1)], &[]));
    let why = Cannot::Classes { codepoint: 42, classes: 2 };
    assert_eq!(driver.plan(&config).unwrap().fit.refused, [(42, why.clone())].into());
    assert_eq!(failure(driver.apply(&config)).why, Why::Cannot(why));
    let one = |queue: u8, weight, at| {
        both(port(&[(0, 1), (queue, weight)], &[(at, queue)]), port(&[(0, 1)], &[]))
    };
    let at = PortName::from("Ethernet0");
    let cases = [
        (one(3, 1, 40), Cannot::ReservedQueue { port: at.clone(), queue: 3 }),
        (one(2, 101, 40), Cannot::Weight { port: at.clone(), queue: 2, weight: 101, most: 100 }),
        (one(2, 1, 46), Cannot::ReservedCodepoint(46)),
        (one(9, 1, 40), Cannot::NoSuchQueue { port: at, queue: 9, has: 5 }),
    ];
    for (config, why) in cases {
        assert_eq!(failure(driver.apply(&config)).why, Why::Cannot(why));
    }
    let mut slow = wanted();
    slow.ports.values_mut().for_each(|port| port.rate = Rate::from_mbps(10));
    assert!(matches!(failure(driver.apply(&slow)).why, Why::Refused(why) if why.contains("speed")));
    let store = driver.backend().store();
    assert!(store.log.iter().all(|write| write.key.starts_with("WEIR-OWNER-")), "{:?}", store.log);

    let mut ranged = operators();
    ranged.remove("QUEUE", "Ethernet0|1");
    ranged.remove("QUEUE", "Ethernet0|2");
    ranged.set("QUEUE", "Ethernet0|1-2", "scheduler", "scheduler.0");
    let mut driver = memory(ranged, &Folder::new());
    let why = Cannot::ReservedQueue { port: "Ethernet0".into(), queue: 2 };
    assert_eq!(failure(driver.apply(&one(2, 1, 40))).why, Why::Cannot(why));
}

#[test]
fn what_drifted_is_mended() {
    let folder = Folder::new();
    let mut driver = memory(operators(), &folder);
    apply(&mut driver, &wanted());
    let right = driver.backend().store().tables.clone();
    let drifts: [(&str, &str, &str, Option<&str>); 7] = [
        ("SCHEDULER", "WEIR-W20", "weight", Some("7")),
        ("QUEUE", "Ethernet0|1", "scheduler", Some("scheduler.0")),
        ("QUEUE", "Ethernet4|2", "scheduler", None),
        ("TC_TO_QUEUE_MAP", "WEIR-Ethernet4", "2", Some("0")),
        ("DSCP_TO_TC_MAP", "WEIR-IN-AZURE", "40", Some("1")),
        ("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map", Some("AZURE")),
        ("PORT_QOS_MAP", "Ethernet4", "tc_to_queue_map", None),
    ];
    for (table, key, field, value) in drifts {
        let tables = &mut driver.backend().store().tables;
        match value {
            Some(value) => tables.set(table, key, field, value),
            None => tables.clear(table, key, field),
        }
        assert!(apply(&mut driver, &wanted()) > 0, "{table}|{key} {field}");
        assert_eq!(driver.backend().store().tables, right, "{table}|{key} {field}");
    }
}

/// A redis server that dies with the test.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let socket = folder.0.join("redis.sock");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder.0)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server: scripts/setup test installs it");
        let server = Self { child, socket };
        while !server.ask(&["ping"]).contains("PONG") {
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(&self.socket).args(["-n", "4"]).args(words);
        let output = command.output().expect("redis-tools");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn load(&self, tables: &Tables) {
        self.ask(&["flushdb"]);
        for (table, rows) in &tables.0 {
            for (key, row) in rows {
                let key = format!("{table}|{key}");
                let mut words = vec!["hset", &key];
                row.iter().for_each(|(field, value)| words.extend([field.as_str(), value]));
                self.ask(&words);
            }
        }
        self.ask(&["set", "CONFIG_DB_INITIALIZED", "1"]);
    }

    fn keys(&self) -> SortedSet<String> {
        self.ask(&["keys", "*"]).lines().map(str::to_owned).collect()
    }

    fn driver(&self, owner: &str, folder: &Folder, limit: Duration) -> Managed<Sonic<Redis>> {
        let redis = Redis::new(&format!("unix://{}", self.socket.display())).unwrap();
        let owner = Owner::new(owner).unwrap();
        Managed::new(Sonic::new(redis, settings()), owner, Saves::new(&folder.0, "sonic"), limit)
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_redis_has_the_rows_and_they_are_written_not_applied() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    server.load(&operators());
    let before = server.keys();
    let mut driver = server.driver("test", &folder, LIMIT);
    assert!(matches!(driver.apply(&wanted()), Outcome::Written(changes) if !changes.is_empty()));
    assert!(driver.plan(&wanted()).unwrap().changes.is_empty());
    assert_eq!(server.ask(&["hget", "QUEUE|Ethernet0|1", "scheduler"]).trim(), "WEIR-W20");
    assert_eq!(server.ask(&["hget", "DSCP_TO_TC_MAP|WEIR-IN-AZURE", "40"]).trim(), "2");
    // Another controller reads the mark, and gives way.
    let mut other = server.driver("other", &Folder::new(), LIMIT);
    assert_eq!(failure(other.apply(&wanted())).why, Why::Owned("test".into()));
    assert_eq!(driver.rollback(), Outcome::Written(Vec::new()));
    assert_eq!(server.keys(), before);
    assert_eq!(server.ask(&["hget", "PORT_QOS_MAP|Ethernet0", "dscp_to_tc_map"]).trim(), "AZURE");
}

#[test]
fn a_redis_that_does_not_answer_is_late_and_one_that_restarted_is_written_again() {
    let folder = Folder::new();
    let mut server = Server::start(&folder);
    server.load(&operators());
    let mut driver = server.driver("test", &folder, LIMIT);
    apply(&mut driver, &wanted());
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    let failed =
        failure(server.driver("test", &folder, Duration::from_millis(300)).apply(&wanted()));
    assert_eq!(failed.why, Why::Late, "{failed}");
    server.signal(nix::sys::signal::Signal::SIGCONT);

    // A reboot: the startup configuration has nothing of Weir's. Until it is loaded, nothing is done.
    drop(server);
    let failed = failure(driver.apply(&wanted()));
    assert!(matches!(failed.why, Why::Refused(_)), "{failed}");
    server = Server::start(&folder);
    let failed = failure(driver.apply(&wanted()));
    assert!(failed.to_string().contains("CONFIG_DB_INITIALIZED"), "{failed}");
    server.load(&operators());
    assert!(apply(&mut driver, &wanted()) > 0);
    assert!(driver.plan(&wanted()).unwrap().changes.is_empty());
    assert_eq!(driver.rollback(), Outcome::Written(Vec::new()));
}
