//! `weir slo report`: how floors were kept.

use super::{connect, done};
use crate::args::{self, ReportOutput};
use crate::cloud::show::text_of;
use crate::output::{out, outln};
use anyhow::Result;
use serde_json::Value;
use weir_study::table::Grid;
use weir_units::show;

/// A floor that was held in less of its windows is listed with its stretches. Exit status 1.
const BROKEN: u8 = 1;
/// Stretches that a table shows; JSON and CSV have all that the controller sends.
const LISTED: usize = 20;

/// Asks the controller and shows what it says.
///
/// # Errors
/// No controller answers, or it refuses.
pub(crate) fn report(args: &args::SloReport) -> Result<u8> {
    let mut path = format!("/api/v1/slo?since={}", args.since);
    for (key, value) in [("tenant", &args.tenant), ("vm", &args.vm)] {
        path.extend(value.iter().map(|value| format!("&{key}={value}")));
    }
    let told = done(&connect(&args.connection)?.get(&path)?)?;
    let list = |key: &str| told[key].as_array().cloned().unwrap_or_default();
    let (floors, broken) = (list("floors"), list("broken"));
    match args.output {
        ReportOutput::Json => outln!("{}", serde_json::to_string_pretty(&told)?)?,
        ReportOutput::Csv => out!("{}", csv(&floors)?)?,
        ReportOutput::Table => {
            outln!("{} to {}", text_of(&told["from"]), text_of(&told["until"]))?;
            outln!("{}", floors_table(&floors).table())?;
            if told["incomplete"] == true {
                outln!(
                    "The controller could not read all of its file: there may be more (see its log)."
                )?;
            }
            if floors.iter().all(|floor| floor["windows"] == 0) {
                outln!("No pair wanted more than it had, so no floor was put to the test.")?;
            }
            if !broken.is_empty() {
                outln!("\nFloors that were broken, the latest first:")?;
                outln!("{}", broken_table(&broken).table())?;
            }
            if broken.len() > LISTED || told["more"] == true {
                outln!("There are more: write -o json, or a shorter --since.")?;
            }
        }
    }
    let is_broken = |floor: &Value| floor["held"].as_u64() < floor["windows"].as_u64();
    Ok(if floors.iter().any(is_broken) { BROKEN } else { 0 })
}

fn rate(value: &Value) -> String {
    show::rate(value.as_f64().unwrap_or_default())
}

fn octets(value: &Value) -> String {
    show::amount(value.as_f64().unwrap_or_default())
}

fn floors_table(floors: &[Value]) -> Grid {
    let header =
        ["vm", "tenant", "", "floor", "held", "tested", "got of owed", "borrowed", "used (p95)"];
    let mut grid = Grid::new(&header, 3);
    for floor in floors {
        let windows = floor["windows"].as_u64().unwrap_or_default();
        let of =
            |a: &Value, b: &Value| a.as_f64().unwrap_or(0.0) / b.as_f64().unwrap_or(1.0).max(1.0);
        let (held, got) = match windows {
            0 => ("–".into(), "–".into()),
            _ => (
                format!("{:.2} %", floor["share"].as_f64().unwrap_or_default() * 100.0),
                format!("{:.2}", of(&floor["got"], &floor["owed"])),
            ),
        };
        grid.rows.push(vec![
            text_of(&floor["vm"]),
            text_of(&floor["tenant"]),
            text_of(&floor["direction"]),
            rate(&floor["floor"]),
            held,
            format!("{windows} s"),
            got,
            octets(&floor["borrowed"]),
            rate(&floor["usedP95"]),
        ]);
    }
    grid
}

fn broken_table(broken: &[Value]) -> Grid {
    let header = ["from", "to", "began", "lasted", "got of owed", "lost", "cause", "borrowed most"];
    let mut grid = Grid::new(&header, 3);
    for one in broken.iter().take(LISTED) {
        let part =
            one["got"].as_f64().unwrap_or(0.0) / one["owed"].as_f64().unwrap_or(1.0).max(1.0);
        grid.rows.push(vec![
            text_of(&one["from"]),
            text_of(&one["to"]),
            text_of(&one["begin"]),
            format!("{} s", one["seconds"].as_f64().unwrap_or_default().round()),
            format!("{part:.2}"),
            text_of(&one["lost"]),
            text_of(&one["cause"]),
            text_of(&one["took"]),
        ]);
    }
    grid
}

/// Rates in bit/s, amounts in octets.
fn csv(floors: &[Value]) -> Result<String> {
    let keys = [
        "vm",
        "tenant",
        "direction",
        "floor",
        "windows",
        "held",
        "owed",
        "got",
        "all",
        "borrowed",
        "usedP95",
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(keys)?;
    for floor in floors {
        writer.write_record(keys.map(|key| text_of(&floor[key])))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}
