//! `weir get`, `describe` and `status`.

use super::change::all;
use super::{connect, done, kind};
use crate::args::{self, Output};
use crate::output::{out, outln};
use anyhow::{Result, bail};
use hyper::Method;
use serde_json::Value;
use std::time::Duration;
use weir_controller::client::Client;
use weir_model::objects::Kind;
use weir_study::table::Grid;

/// Something is not as it should be.
const NOT_SO: u8 = 1;

/// `weir get`.
pub(crate) fn get(args: &args::Get) -> Result<u8> {
    let kind = kind(&args.kind)?;
    let mut client = connect(&args.connection)?;
    if let Some(name) = &args.name {
        let object = done(&client.get(&format!("/api/v1/{}/{name}", kind.plural()))?)?;
        match args.output {
            Output::Json => outln!("{}", serde_json::to_string_pretty(&object)?)?,
            output => show(kind, &[object], output)?,
        }
        return Ok(0);
    }
    let tenant = args.tenant.as_ref().map(|tenant| format!("&tenant={tenant}")).unwrap_or_default();
    let (mut items, mut next, mut version) = (Vec::new(), String::new(), String::new());
    loop {
        let path = format!("/api/v1/{}?limit=1000{tenant}{next}", kind.plural());
        let mut list = done(&client.get(&path)?)?;
        if let Some(page) = list["items"].as_array_mut() {
            items.append(page);
        }
        version = if version.is_empty() {
            text_of(&list["metadata"]["resourceVersion"])
        } else {
            version
        };
        let word = text_of(&list["metadata"]["continue"]);
        if word.is_empty() {
            break;
        }
        next = format!("&continue={word}");
    }
    show(kind, &items, args.output)?;
    if args.watch {
        let path =
            format!("/api/v1/{}?watch=true&resourceVersion={version}{tenant}", kind.plural());
        follow(&mut client, kind, &path, args.output)?;
    }
    Ok(0)
}

/// Changes as they happen.
fn follow(client: &mut Client, kind: Kind, path: &str, output: Output) -> Result<()> {
    let mut watch = client.begin(Method::GET, path, &[], "".into())?;
    if watch.status != 200 {
        bail!("the controller refuses the watch with status {}: start it again", watch.status);
    }
    while let Some(line) = watch.line(client)? {
        let told: Value = serde_json::from_str(&line)?;
        match told["type"].as_str() {
            Some("BOOKMARK") => {}
            Some("ERROR") => bail!("{}", text_of(&told["object"]["detail"])),
            _ if output == Output::Json => outln!("{line}")?,
            _ if output == Output::Yaml => {
                show(kind, std::slice::from_ref(&told["object"]), output)?
            }
            what => {
                let row = row(kind, &told["object"]).join("  ");
                outln!("{:<9} {row}", what.unwrap_or_default().to_lowercase())?;
            }
        }
    }
    bail!("the controller ended the watch: start it again")
}

fn show(kind: Kind, objects: &[Value], output: Output) -> Result<()> {
    match output {
        Output::Json => {
            outln!("{}", serde_json::to_string_pretty(&serde_json::json!({"items": objects}))?)
        }
        Output::Yaml => {
            for object in objects {
                out!("---\n{}", serde_saphyr::to_string(object)?)?;
            }
            Ok(())
        }
        Output::Table => {
            let mut grid = Grid::new(header(kind), header(kind).len());
            grid.rows = objects.iter().map(|object| row(kind, object)).collect();
            outln!("{}", grid.table())
        }
    }
}

fn header(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Topology => &["NAME", "ROUTING", "HEADROOM", "STATE", "WHY"],
        Kind::Host => &["NAME", "SWITCH", "RATE", "SLOTS", "USE", "STATE", "WHY"],
        Kind::Link => &["NAME", "LOWER", "UPPER", "RATE", "USE", "STATE", "WHY"],
        Kind::Switch => &["NAME", "DRIVER", "ADDRESS", "PORTS", "STATE", "WHY"],
        Kind::Tenant => &["NAME", "PRIORITY", "TAG", "STATE", "WHY"],
        Kind::Vm => &["NAME", "TENANT", "HOST", "OUT", "IN", "STATE", "WHY"],
        Kind::Reservation => &["NAME", "TENANT", "VMS", "PHASE", "EXPIRES", "STATE", "WHY"],
    }
}

fn row(kind: Kind, object: &Value) -> Vec<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut row = vec![text_of(&object["metadata"]["name"])];
    row.extend(match kind {
        Kind::Topology => {
            vec![text_of(&spec["routing"]), format!("{} %", text_of(&spec["headroomPercent"]))]
        }
        Kind::Host => ["switch", "rate", "slots", "state"].map(|key| text_of(&spec[key])).to_vec(),
        Kind::Link => ["lower", "upper", "rate", "state"].map(|key| text_of(&spec[key])).to_vec(),
        Kind::Switch => vec![
            text_of(&spec["driver"]),
            text_of(&spec["address"]),
            spec["ports"].as_array().map_or(0, Vec::len).to_string(),
        ],
        // Of one in the shared queue there is none.
        Kind::Tenant => {
            let tag = &status["queue"]["tag"];
            vec![text_of(&spec["priority"]), text_of(if *tag == 0 { &Value::Null } else { tag })]
        }
        Kind::Vm => vec![
            text_of(&spec["tenant"]),
            text_of(&status["host"]),
            text_of(&spec["floor"]["out"]),
            text_of(&spec["floor"]["in"]),
        ],
        Kind::Reservation => vec![
            text_of(&spec["tenant"]),
            spec["vms"].as_array().map_or(0, Vec::len).to_string(),
            text_of(&status["phase"]),
            text_of(&status["expiresAt"]),
        ],
    });
    let (_, state, why) = state_of(object);
    row.extend([state, why]);
    row
}

/// A value as a cell has it.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether it is unknown what became of an object: its host is silent, or has not answered yet. A
/// reservation that is held waits for its owner, and is as it should be.
fn is_unknown(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    object["kind"] != "Reservation" && conditions.iter().any(|one| one["status"] == "Unknown")
}

/// Whether nothing is wrong with an object, its state in one word, and why.
pub(crate) fn state_of(object: &Value) -> (bool, String, String) {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |status: &str| conditions.iter().find(move |condition| condition["status"] == status);
    // A reservation that ended is what it is: not false, but over.
    let bad = of("False").filter(|_| object["kind"] != "Reservation");
    let Some(condition) = bad.or_else(|| of("Unknown")).or_else(|| conditions.last()) else {
        return (false, "Unknown".into(), String::new());
    };
    let message = condition["message"].as_str().unwrap_or_default().to_owned();
    (bad.is_none(), text_of(&condition["reason"]), message)
}

/// `weir describe`.
pub(crate) fn describe(args: &args::Named) -> Result<u8> {
    let kind = kind(&args.kind)?;
    let path = format!("/api/v1/{}/{}", kind.plural(), args.name);
    let object = done(&connect(&args.connection)?.get(&path)?)?;
    let metadata = &object["metadata"];
    outln!("{kind} {}", args.name)?;
    outln!("  version     {}", text_of(&metadata["resourceVersion"]))?;
    outln!("  generation  {}", text_of(&metadata["generation"]))?;
    outln!("  made        {}", text_of(&metadata["creationTimestamp"]))?;
    for (title, part) in [("labels", &metadata["labels"]), ("spec", &object["spec"])] {
        if !part.is_null() {
            outln!("{title}:")?;
            for line in serde_saphyr::to_string(part)?.lines() {
                outln!("  {line}")?;
            }
        }
    }
    if let Some(host) = object["status"]["host"].as_str() {
        outln!("host: {host}")?;
    }
    let queue = &object["status"]["queue"];
    if !queue.is_null() {
        let free = if queue["free"] == true { "not limited to its floors" } else { "limited" };
        let (tag, version) = (text_of(&queue["tag"]), text_of(&queue["version"]));
        outln!("told to hosts: code point {tag}, {free}, version {version}")?;
    }
    outln!("conditions:")?;
    let mut grid = Grid::new(&["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], 5);
    for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
        let keys = ["type", "status", "reason", "lastTransitionTime", "message"];
        grid.rows.push(keys.map(|key| text_of(&condition[key])).to_vec());
    }
    outln!("{}", grid.table())?;
    Ok(0)
}

/// `weir status`.
#[expect(clippy::disallowed_methods, reason = "a command waits for the world")]
pub(crate) fn status(args: &args::Status) -> Result<u8> {
    let mut client = connect(&args.connection)?;
    let kinds = match &args.kind {
        Some(text) => vec![kind(text)?],
        None => Kind::ALL.to_vec(),
    };
    let began = std::time::Instant::now();
    let most = Duration::from_nanos(args.timeout.as_nanos());
    loop {
        let bad = not_so(&mut client, &kinds, args.name.as_deref())?;
        let late = began.elapsed() >= most;
        if bad.rows.is_empty() {
            outln!("all are as they should be")?;
            return Ok(0);
        }
        if !args.wait || late {
            outln!("{}", bad.table())?;
            return Ok(NOT_SO);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Objects that are not as they should be. One that is named and does not exist is not.
fn not_so(client: &mut Client, kinds: &[Kind], name: Option<&str>) -> Result<Grid> {
    let mut bad = Grid::new(&["KIND", "NAME", "STATE", "WHY"], 4);
    let mut seen = false;
    for kind in kinds {
        for object in all(client, *kind)? {
            let its = text_of(&object["metadata"]["name"]);
            if name.is_some_and(|name| name != its) {
                continue;
            }
            seen = true;
            let (good, state, why) = state_of(&object);
            if !good || is_unknown(&object) {
                bad.rows.push(vec![kind.name().into(), its, state, why]);
            }
        }
    }
    if let (Some(name), false) = (name, seen) {
        let kind = kinds.first().map_or("", |kind| kind.name());
        bad.rows.push(vec![kind.into(), name.into(), "Missing".into(), "there is none".into()]);
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::{is_unknown, state_of};
    use serde_json::json;

    #[test]
    fn a_silent_host_and_a_vm_that_no_host_has_answered_for_are_not_as_they_should_be() {
        let object = |kind: &str, status: &str, reason: &str| {
            let ready = json!({"type": "Ready", "status": "True", "reason": "Declared"});
            let other = json!({"type": "Other", "status": status, "reason": reason});
            json!({"kind": kind, "status": {"conditions": [ready, other]}})
        };
        let silent = object("Host", "Unknown", "Silent");
        assert_eq!((is_unknown(&silent), state_of(&silent).1), (true, "Silent".into()));
        assert!(is_unknown(&object("VM", "Unknown", "Sending")));
        assert!(!is_unknown(&object("VM", "True", "InForce")));
        assert!(!is_unknown(&object("Reservation", "Unknown", "Held")));
    }
}
