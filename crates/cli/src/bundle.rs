//! `weir support-bundle`: what those who help want to see of a host, in one file.
//!
//! Problem   A broken floor is looked into by people who are not on the host, hours later.
//! Approach  Each part is gathered by itself: the agents' answers, the doctor's findings, agent.toml, links and
//!           queues of the kernel, the logs, the newest segments of a journal. What cannot be had is a line of
//!           `missing.txt` with its reason, and no error: the host may be half dead.
//! Promises  No part has a secret, as far as its form shows one. The file appears under its name when it is whole,
//!           readable by its owner alone. Each part is bounded, and so is the time that it takes.
//! Not here  The controller's records: `weir backup` has them.

use crate::args;
use crate::commands::stop_flag;
use crate::input;
use crate::output::{errln, outln};
use anyhow::{Context as _, Result, bail};
use flate2::{Compression, write::GzEncoder};
use regex::Regex;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_agent::client;
use weir_model::status::{Reply, Request};
use weir_model::text::show_size;
use weir_study::table::Grid;
use weir_units::Bytes;

/// Octets of one text; of a longer one the end is kept.
const TEXT_MOST: usize = 16 << 20;
/// Octets of a journal.
const JOURNAL_MOST: u64 = 64 << 20;
/// Lines of a log.
const LINES_MOST: &str = "20000";
/// Seconds that a program may take.
const PATIENCE: &str = "20";

/// Other programs' answers, by their names in the bundle.
const PROGRAMS: [(&str, &[&str]); 7] = [
    ("kernel/links.txt", &["ip", "-s", "-d", "link"]),
    ("kernel/qdiscs.txt", &["tc", "-s", "-d", "qdisc"]),
    (
        "kernel/classes.txt",
        &["sh", "-c", "for d in /sys/class/net/*; do tc -s class show dev ${d##*/}; done"],
    ),
    ("kernel/programs.txt", &["bpftool", "net"]),
    ("kernel/sockets.txt", &["ss", "-ulnp"]),
    ("kernel/memory.txt", &["cat", "/proc/meminfo", "/proc/loadavg", "/proc/stat"]),
    ("units.txt", &["systemctl", "--no-pager", "status", "weir-agent", "weir-controller"]),
];

/// `weir support-bundle`.
///
/// # Errors
///
/// The file exists, or cannot be written: nothing is left then.
pub(crate) fn bundle(args: &args::Bundle) -> Result<u8> {
    let now = seconds_since_1970();
    let name = || PathBuf::from(format!("weir-support-{}-{now}.tar.gz", host_name()));
    let out = args.out.clone().unwrap_or_else(name);
    if out.exists() {
        bail!("{}: it exists: name another file with --out", out.display());
    }
    let partial = out.with_extension("partial");
    let stop = stop_flag()?;
    let written = write(args, &partial, now, &|| stop.load(Ordering::Relaxed));
    let grid = match written.and_then(|grid| Ok((grid, fs::rename(&partial, &out)?))) {
        Ok((grid, ())) => grid,
        Err(error) => {
            drop(fs::remove_file(&partial));
            let help = "is there room, and may you write there? --out names another place";
            return Err(error.context(format!("{}: cannot be written; {help}", out.display())));
        }
    };
    outln!("{}", grid.table())?;
    let size = show_size(Bytes::new(fs::metadata(&out)?.len()));
    outln!("{}: {size}. It has names and addresses, and no keys or tokens", out.display())?;
    Ok(0)
}

fn write(
    args: &args::Bundle,
    partial: &Path,
    now: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Grid> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial)?;
    let mut bundle = Bundle {
        archive: tar::Builder::new(GzEncoder::new(file, Compression::default())),
        now,
        missing: String::new(),
        grid: Grid::new(&["PART", "SIZE"], 1),
    };
    let mut parts: Vec<Box<Part<'_>>> = vec![
        Box::new(|bundle| bundle.text("about.txt", Ok(about()))),
        Box::new(|bundle| bundle.text("agent.toml", input::read(&args.config))),
        Box::new(|bundle| {
            let config = args.config.exists().then(|| args.config.clone());
            bundle.text("doctor.json", crate::doctor::json(config))
        }),
        Box::new(|bundle| agents(bundle, &args.run_dir)),
    ];
    for (name, command) in PROGRAMS {
        parts.push(Box::new(move |bundle| bundle.text(name, said_by(command))));
    }
    for unit in ["weir-agent", "weir-controller"] {
        let since = args.since.as_nanos() / 1_000_000_000;
        parts.push(Box::new(move |bundle| {
            let since = format!("-{since}s");
            let command =
                ["journalctl", "--no-pager", "-u", unit, "-n", LINES_MOST, "--since", &since];
            bundle.text(&format!("log/{unit}.txt"), said_by(&command))
        }));
    }
    if let Some(journal) = &args.journal {
        parts.push(Box::new(|bundle| segments(bundle, journal)));
    }
    for part in parts {
        if is_stopped() {
            bail!("stopped");
        }
        part(&mut bundle)?;
    }
    bundle.end()
}

/// Puts something into a bundle.
type Part<'a> = dyn Fn(&mut Bundle) -> Result<()> + 'a;

/// The archive as far as it is written.
struct Bundle {
    archive: tar::Builder<GzEncoder<File>>,
    now: u64,
    missing: String,
    grid: Grid,
}

impl Bundle {
    /// A part that is text, without its secrets; or why there is none.
    fn text(&mut self, name: &str, text: Result<String>) -> Result<()> {
        match text {
            Ok(text) => self.octets(name, without_secrets(&text).as_bytes()),
            Err(error) => {
                self.missing.push_str(&format!("{name}: {error:#}\n"));
                Ok(())
            }
        }
    }

    fn octets(&mut self, name: &str, octets: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(octets.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.archive.append_data(&mut header, name, octets)?;
        self.grid.rows.push(vec![name.into(), show_size(Bytes::new(octets.len() as u64))]);
        Ok(())
    }

    /// What is missing, and the end.
    fn end(mut self) -> Result<Grid> {
        if !self.missing.is_empty() {
            let missing = without_secrets(&self.missing);
            self.octets("missing.txt", missing.as_bytes())?;
            missing.lines().for_each(|line| errln!("missing: {line}"));
        }
        let file = self.archive.into_inner()?.finish()?;
        file.sync_all()?;
        Ok(self.grid)
    }
}

/// What each running agent answers.
fn agents(bundle: &mut Bundle, run_dir: &Path) -> Result<()> {
    let instances = client::instances(run_dir);
    if instances.is_empty() {
        let why = "no agent runs here";
        bundle.missing.push_str(&format!("agents: {why} (nothing in {})\n", run_dir.display()));
    }
    for instance in instances {
        let socket = client::socket_path(run_dir, &instance);
        let top = client::ask(&socket, &Request::Top);
        let top = top.and_then(|reply| Ok(serde_json::to_string_pretty(&reply)?));
        bundle.text(&format!("agents/{instance}/top.json"), top)?;
        bundle.text(&format!("agents/{instance}/events.jsonl"), events(&socket))?;
    }
    Ok(())
}

/// All events that an agent remembers, one per line.
fn events(socket: &Path) -> Result<String> {
    let (mut after, mut text) = (0, String::new());
    loop {
        let reply = client::ask(socket, &Request::Events { after: Some(after) })?;
        let Reply::Events(told) = reply else { bail!("the agent knows no events") };
        for event in &told.events {
            text.push_str(&serde_json::to_string(event)?);
            text.push('\n');
        }
        // New ones come meanwhile; they are not waited for.
        if told.events.is_empty() || told.last <= after || text.len() > TEXT_MOST {
            return Ok(text);
        }
        after = told.last;
    }
}

/// The newest segments of a journal, as many as there is room for.
fn segments(bundle: &mut Bundle, journal: &Path) -> Result<()> {
    let found = match weir_journal::segments(journal) {
        Ok(found) => found,
        Err(error) => {
            bundle.missing.push_str(&format!("journal: {}: {error}\n", journal.display()));
            return Ok(());
        }
    };
    let mut left = JOURNAL_MOST;
    for path in found.iter().rev() {
        let name = path.strip_prefix(journal).unwrap_or(path).display();
        match fs::read(path) {
            Ok(octets) if octets.len() as u64 <= left => {
                left -= octets.len() as u64;
                bundle.octets(&format!("journal/{name}"), &octets)?;
            }
            Ok(_) => bundle.missing.push_str(&format!("journal/{name}: there is no more room\n")),
            // The agent that writes removes its oldest segment now and then.
            Err(error) => bundle.missing.push_str(&format!("journal/{name}: {error}\n")),
        }
    }
    Ok(())
}

fn about() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    format!(
        "weir {}\nhost {}\n{}{}",
        env!("CARGO_PKG_VERSION"),
        host_name(),
        read("/proc/version"),
        read("/etc/os-release")
    )
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().map(|c| if c == '/' { '-' } else { c }).collect();
    if name.is_empty() { "host".into() } else { name }
}

#[expect(clippy::disallowed_methods, reason = "a file has a date")]
fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// What a program prints, also if it ends with another status than 0.
fn said_by(command: &[&str]) -> Result<String> {
    let mut run = Command::new("timeout");
    run.arg(PATIENCE).args(command).stdin(Stdio::null());
    let done = run.output().with_context(|| command.join(" "))?;
    if done.stdout.is_empty() && !done.status.success() {
        let error = String::from_utf8_lossy(&done.stderr);
        bail!("`{}` says nothing ({}): {}", command.join(" "), done.status, error.trim());
    }
    let begin = done.stdout.len().saturating_sub(TEXT_MOST);
    Ok(String::from_utf8_lossy(&done.stdout[begin..]).into_owned())
}

/// The text without what looks like a secret: private keys, what follows the words token, key, password, secret and
/// authorization on their line, keys (32 or more hexadecimal digits), passwords in addresses.
fn without_secrets(text: &str) -> String {
    let forms = [
        (
            r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
            "(taken out)",
        ),
        (
            r#"(?i)(\b(?:token|key|password|secret|authorization)\b"?\s*[=:])[^\n]*"#,
            "$1 (taken out)",
        ),
        (r"\b[0-9a-fA-F]{32,}\b", "(taken out)"),
        (r"(://)[^/\s:@]*:[^/\s@]*@", "$1(taken out)@"),
    ];
    forms.iter().fold(text.to_owned(), |text, (form, instead)| {
        let form = Regex::new(form).expect("it is well formed");
        form.replace_all(&text, *instead).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn keys_tokens_and_passwords_are_taken_out_and_all_else_stays() {
        let key = "00112233445566778899aabbccddeeff";
        let text = format!(
            "host = \"h0\"\nkey_file = \"/etc/weir/h0.keys\"\ntoken = \"abc\"\n  \"password\": \"p w\",\n3 {key}\n\
             store = \"etcd://root:hush@10.0.0.1:2379/weir\"\n-----BEGIN PRIVATE KEY-----\nMIIB\n\
             -----END PRIVATE KEY-----\nrate 10 Mbit\nauthorization: Bearer xyz\nkeys: 2 signs for 3\n"
        );
        let told = without_secrets(&text);
        let kept = "host = \"h0\"\nkey_file = \"/etc/weir/h0.keys\"\ntoken = (taken out)\n  \"password\": (taken out)\n3 \
                    (taken out)\nstore = \"etcd://(taken out)@10.0.0.1:2379/weir\"\n(taken out)\nrate 10 Mbit\n\
                    authorization: (taken out)\nkeys: 2 signs for 3\n";
        assert_eq!(told, kept);
    }
}
