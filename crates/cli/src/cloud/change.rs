//! `weir apply`, `delete`, `plan`, `confirm` and `release`.

use super::files::{self, Found};
use super::show::{state_of, text_of};
use super::{connect, done, kind, refusal};
use crate::args;
use crate::output::outln;
use anyhow::{Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_controller::client::{Client, Reply};
use weir_model::objects::Kind;
use weir_study::table::Grid;

/// `weir apply`.
pub(crate) fn apply(args: &args::Apply) -> Result<u8> {
    let found = files::objects(&args.files)?;
    let mut client = connect(&args.connection)?;
    let told = send(&mut client, &found, args.dry_run)?;
    let changes = told["changes"].as_array().cloned().unwrap_or_default();
    for item in told["items"].as_array().into_iter().flatten() {
        let (kind, name) = (text_of(&item["kind"]), text_of(&item["metadata"]["name"]));
        let ours = |change: &&Value| {
            change["object"]["kind"] == kind && change["object"]["metadata"]["name"] == name
        };
        let what = match changes.iter().find(ours).map(|change| text_of(&change["type"])).as_deref()
        {
            Some("ADDED") => "created",
            Some(_) => "changed",
            None => "unchanged",
        };
        let dry = if args.dry_run { " (dry run)" } else { "" };
        outln!("{kind} {name} {what}{dry}")?;
    }
    Ok(0)
}

/// Sends objects, all or none. A refusal names the file and the line.
fn send(client: &mut Client, found: &[Found], dry_run: bool) -> Result<Value> {
    let items: Vec<&Value> = found.iter().map(|one| &one.object).collect();
    let path = if dry_run { "/api/v1/apply?dryRun=All" } else { "/api/v1/apply" };
    let reply = client.send(Method::POST, path, &json!({"items": items}))?;
    if reply.is_ok() {
        return Ok(reply.json());
    }
    let body = reply.json();
    let item = body["item"].as_u64().and_then(|n| found.get(usize::try_from(n).ok()?));
    match item {
        Some(one) => {
            let field = text_of(&body["field"]);
            let field = field.split_once("].").map_or(field.as_str(), |(_, rest)| rest);
            let mut reason = format!("{} ({})", text_of(&body["detail"]), text_of(&body["reason"]));
            if let Some(tenants) = body["tenants"].as_array() {
                let names: Vec<String> = tenants.iter().map(text_of).collect();
                reason.push_str(&format!("\n  in the way: {}", names.join(", ")));
            }
            bail!("{}", one.blame(field, &reason))
        }
        None => bail!("{}", refusal(&reply)),
    }
}

/// `weir delete`.
pub(crate) fn delete(args: &args::Named) -> Result<u8> {
    let kind = kind(&args.kind)?;
    let path = format!("/api/v1/{}/{}", kind.plural(), args.name);
    done(&connect(&args.connection)?.ask(Method::DELETE, &path, &[], "")?)?;
    outln!("{kind} {} deleted", args.name)?;
    Ok(0)
}

/// `weir confirm` and `weir release`.
pub(crate) fn end(args: &args::Reservation, what: &str) -> Result<u8> {
    let path = format!("/api/v1/reservations/{}/{what}", args.name);
    let told = done(&connect(&args.connection)?.ask(Method::POST, &path, &[], "")?)?;
    outln!("Reservation {}: {}", args.name, text_of(&told["status"]["phase"]))?;
    Ok(0)
}

/// `weir plan`: exit status 1 if a floor would fall or the change would be refused.
pub(crate) fn plan(args: &args::Plan) -> Result<u8> {
    let found = if args.files.is_empty() { Vec::new() } else { files::objects(&args.files)? };
    let mut client = connect(&args.connection)?;
    let told = if args.without.is_empty() {
        send(&mut client, &found, true)?
    } else {
        let mut items: Vec<Value> = found.iter().map(|one| one.object.clone()).collect();
        for name in &args.without {
            lose(&mut client, name, &mut items)?;
        }
        done(&client.send(Method::POST, "/api/v1/apply?dryRun=All", &json!({"items": items}))?)?
    };
    let mut grid = Grid::new(&["CHANGE", "KIND", "NAME", "STATE", "WHY"], 5);
    let (mut bad, mut rows) = (Vec::new(), BTreeMap::new());
    for change in told["changes"].as_array().into_iter().flatten() {
        let object = &change["object"];
        let (good, state, why) = state_of(object);
        let kind = text_of(&object["kind"]);
        let name = text_of(&object["metadata"]["name"]);
        // One that changes in several steps is what the last one leaves.
        let next = bad.len();
        let n = *rows.entry((kind.clone(), name.clone())).or_insert(next);
        if n < next {
            grid.rows[n].splice(3.., [state, why]);
            bad[n] = !good;
            continue;
        }
        grid.rows.push(vec![text_of(&change["type"]).to_lowercase(), kind, name, state, why]);
        bad.push(!good);
    }
    let falls = bad.iter().filter(|bad| **bad).count();
    if grid.rows.is_empty() {
        outln!("nothing would change")?;
        return Ok(0);
    }
    outln!("{}", grid.table())?;
    outln!("{falls} would not be as they should; nothing was changed")?;
    Ok(u8::from(falls > 0))
}

/// Adds the objects that are lost with a host, link or switch, as they would be then.
fn lose(client: &mut Client, wanted: &str, items: &mut Vec<Value>) -> Result<()> {
    let (kind, name) = match wanted.split_once('/') {
        Some((kind, name)) => (Some(kind), name),
        None => (None, wanted),
    };
    let (hosts, links) = (all(client, Kind::Host)?, all(client, Kind::Link)?);
    let is_named = |object: &&Value| object["metadata"]["name"] == name;
    let ends = |object: &&Value| {
        ["switch", "lower", "upper"].iter().any(|end| object["spec"][*end] == name)
    };
    let lost: [(&str, Vec<&Value>); 3] = [
        ("host", hosts.iter().filter(is_named).collect()),
        ("link", links.iter().filter(is_named).collect()),
        ("switch", hosts.iter().chain(&links).filter(ends).collect()),
    ];
    if let Some(kind) = kind.filter(|kind| lost.iter().all(|(known, _)| known != kind)) {
        bail!("--without {wanted}: `{kind}` is no kind: write host, link or switch before the `/`");
    }
    let is_meant =
        |(of, lost): &&(&str, Vec<&Value>)| !lost.is_empty() && kind.is_none_or(|kind| kind == *of);
    let meant: Vec<_> = lost.iter().filter(is_meant).collect();
    match meant[..] {
        [(_, lost)] => lost.iter().for_each(|object| items.push(gone(object))),
        [] => {
            let kind = kind.unwrap_or("host, link or switch");
            bail!("--without {wanted}: there is no {kind} with the name `{name}`");
        }
        _ => {
            let kinds: Vec<String> = meant.iter().map(|(of, _)| format!("{of}/{name}")).collect();
            bail!(
                "--without {wanted}: several things have this name: write {}",
                kinds.join(" or ")
            );
        }
    }
    Ok(())
}

/// A host or link that is lost.
fn gone(object: &Value) -> Value {
    let mut object = object.clone();
    object["spec"]["state"] = if object["kind"] == "Host" { "dead" } else { "down" }.into();
    // Two names may lose the same link, and then its version is another one.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        drop(metadata.remove("resourceVersion"));
    }
    object
}

/// All objects of a kind, page by page.
pub(crate) fn all(client: &mut Client, kind: Kind) -> Result<Vec<Value>> {
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let reply: Reply = client.get(&format!("/api/v1/{}{next}", kind.plural()))?;
        let mut list = done(&reply)?;
        if let Some(items) = list["items"].as_array_mut() {
            found.append(items);
        }
        match list["metadata"]["continue"].as_str() {
            Some(word) if !word.is_empty() => next = format!("?continue={word}"),
            _ => return Ok(found),
        }
    }
}
