//! Asks a running agent.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_model::status::{Reply, Request};

/// Where the agent `instance` answers.
pub fn socket_path(run_dir: &Path, instance: &str) -> PathBuf {
    run_dir.join(instance).join("agent.sock")
}

/// The instances that have a socket under `run_dir`.
pub fn instances(run_dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(run_dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|e| e.path().join("agent.sock").exists())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// One question, one answer.
pub fn ask(socket: &Path, request: &Request) -> Result<Reply> {
    let stream = UnixStream::connect(socket).with_context(|| {
        format!("{}: no agent answers; start one with `weir agent --config FILE`", socket.display())
    })?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    (&stream).write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    if answer.is_empty() {
        bail!("{}: the agent closed the connection; see its log", socket.display());
    }
    Ok(serde_json::from_str(&answer)?)
}
