//! SONiC's own rules for the tables that Weir writes to, as far as they need no switch.
//!
//! Sources (read, not copied):
//! - sonic-net/sonic-buildimage, `src/sonic-yang-models/yang-models/`: `sonic-scheduler.yang`
//!   (commit 1be89ed), `sonic-queue.yang` (709ab09), `sonic-dscp-tc-map.yang` (a3488c1),
//!   `sonic-tc-queue-map.yang` (9701fa5), `sonic-port-qos-map.yang` (cef6bd2), and `tc_type` of
//!   `yang-templates/sonic-types.yang.j2` (07f1503).
//! - sonic-net/sonic-utilities, `generic_config_updater/`: the tables with field rules in
//!   `gcu_field_operation_validators.conf.json` (06a5797), and of `patch_sorter.py` the rules for
//!   create-only fields and empty tables.

use serde_json::Value;
use weir_switch::sonic::Tables;
use weir_units::{SortedMap, SortedSet};

/// What breaks a YANG rule, in words.
pub(crate) fn problems(tables: &Tables) -> Vec<String> {
    let mut found = Vec::new();
    let has = |table: &str, key: &str| tables.row(table, key).is_some();
    let mut check = |is_right: bool, what: String| {
        if !is_right {
            found.push(what);
        }
    };
    let number = |value: &str, range: std::ops::RangeInclusive<u64>| {
        value.parse().is_ok_and(|n| range.contains(&n)) && (value == "0" || !value.starts_with('0'))
    };
    for (key, row) in tables.rows("SCHEDULER") {
        for (field, value) in row {
            let is_right = match field.as_str() {
                "type" => ["DWRR", "WRR", "STRICT"].contains(&value.as_str()),
                "weight" => number(value, 1..=100),
                "priority" => number(value, 0..=9),
                "meter_type" => ["packets", "bytes"].contains(&value.as_str()),
                "cir" | "pir" => number(value, 0..=u64::MAX),
                "cbs" | "pbs" => number(value, 0..=u64::from(u32::MAX)),
                _ => false,
            };
            check(is_right, format!("SCHEDULER|{key} {field}={value}"));
        }
    }
    for (key, row) in tables.rows("QUEUE") {
        let (port, index) = key.split_once('|').unwrap_or((key, ""));
        check(port == "CPU" || has("PORT", port), format!("QUEUE|{key}: no such port"));
        let parts: Vec<&str> = index.split('-').collect();
        let is_index = parts.len() <= 2 && parts.iter().all(|part| number(part, 0..=48));
        check(is_index, format!("QUEUE|{key}: no index of a queue"));
        for (field, value) in row {
            let table =
                SortedMap::from([("scheduler", "SCHEDULER"), ("wred_profile", "WRED_PROFILE")]);
            let is_right = table.get(field.as_str()).is_some_and(|table| has(table, value));
            check(is_right, format!("QUEUE|{key} {field}={value}"));
        }
    }
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        name.len() <= 32
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(fits)
    };
    for (key, row) in tables.rows("DSCP_TO_TC_MAP") {
        check(is_name(key), format!("DSCP_TO_TC_MAP|{key}: no name"));
        for (codepoint, class) in row {
            let is_right = number(codepoint, 0..=63) && number(class, 0..=15);
            check(is_right, format!("DSCP_TO_TC_MAP|{key} {codepoint}={class}"));
        }
    }
    for (key, row) in tables.rows("TC_TO_QUEUE_MAP") {
        check(is_name(key), format!("TC_TO_QUEUE_MAP|{key}: no name"));
        for (class, queue) in row {
            let is_right = number(class, 0..=15) && number(queue, 0..=9);
            check(is_right, format!("TC_TO_QUEUE_MAP|{key} {class}={queue}"));
        }
    }
    for (key, row) in tables.rows("PORT_QOS_MAP") {
        check(key == "global" || has("PORT", key), format!("PORT_QOS_MAP|{key}: no such port"));
        for (field, value) in row {
            let is_right = match field.as_str() {
                "dscp_to_tc_map" => has("DSCP_TO_TC_MAP", value),
                "tc_to_queue_map" => has("TC_TO_QUEUE_MAP", value),
                "scheduler" => has("SCHEDULER", value),
                "pfc_enable" | "pfcwd_sw_enable" => value.split(',').all(|n| number(n, 0..=7)),
                _ => false,
            };
            check(is_right, format!("PORT_QOS_MAP|{key} {field}={value}"));
        }
    }
    found
}

/// Tables of which the generic updater allows some changes only, on some hardware.
const RESTRICTED: [&str; 5] = ["PFC_WD", "BUFFER_POOL", "BUFFER_PROFILE", "WRED_PROFILE", "PORT"];
const CREATE_ONLY: [&str; 7] = ["type", "weight", "meter_type", "cir", "pir", "cbs", "pbs"];

/// Makes a JSON patch (RFC 6902: add, remove, replace), and says what the generic updater refuses.
pub(crate) fn patched(before: &Value, patch: &[Value]) -> (Value, Vec<String>) {
    let mut now = before.clone();
    let mut refused = Vec::new();
    for op in patch {
        let path = op["path"].as_str().unwrap();
        let parts: Vec<String> =
            path[1..].split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        if RESTRICTED.contains(&parts[0].as_str()) {
            refused.push(format!("{op}: the table has field rules"));
        }
        if parts.len() == 3 && parts[0] == "SCHEDULER" && CREATE_ONLY.contains(&parts[2].as_str()) {
            refused.push(format!("{op}: the field is create-only"));
        }
        let (last, parents) = parts.split_last().unwrap();
        let mut at = &mut now;
        for parent in parents {
            at = at.get_mut(parent).unwrap_or_else(|| panic!("{op}: {parent} is not there"));
        }
        let at = at.as_object_mut().unwrap();
        let is_there = at.contains_key(last);
        match op["op"].as_str().unwrap() {
            "add" => _ = at.insert(last.clone(), op["value"].clone()),
            "replace" if is_there => _ = at.insert(last.clone(), op["value"].clone()),
            "remove" if is_there => _ = at.remove(last),
            _ => panic!("{op}: not there"),
        }
        let tables = now.as_object().unwrap();
        let is_empty = |(_, rows): &(&String, &Value)| rows.as_object().unwrap().is_empty();
        let empty: SortedSet<&String> =
            tables.iter().filter(is_empty).map(|(name, _)| name).collect();
        if !empty.is_empty() {
            refused.push(format!("{op}: leaves empty tables {empty:?}"));
        }
    }
    (now, refused)
}

#[test]
fn the_rules_find_what_sonic_would_refuse() {
    let tables = |text: &str| Tables::from_json(&serde_json::from_str(text).unwrap()).unwrap();
    let all = tables(
        r#"{"PORT": {"Ethernet0": {"speed": "100000"}},
            "SCHEDULER": {"a": {"type": "DWRR", "weight": "160"}},
            "QUEUE": {"Ethernet0|1": {"scheduler": "b"}, "Ethernet4|1": {"scheduler": "a"}},
            "DSCP_TO_TC_MAP": {"a b": {"64": "1"}},
            "TC_TO_QUEUE_MAP": {"m": {"1": "10"}},
            "PORT_QOS_MAP": {"Ethernet0": {"tc_to_queue_map": "n"}}}"#,
    );
    let found = problems(&all);
    assert_eq!(found.len(), 7, "{found:#?}");
}
