//! Commands around the controller: objects in files, requests, tables.
//!
//! Problem   An error has to say where (file, line, field), what is wrong, and what to do, whoever found
//!           the mistake: this program or the controller.
//! Approach  Files are read with the controller's own types before anything is sent. A refusal names the
//!           object of the batch, from which its file and line follow.

pub(crate) mod change;
pub(crate) mod daemon;
pub(crate) mod files;
pub(crate) mod import;
pub(crate) mod show;
pub(crate) mod slo;

use crate::args::Connection;
use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use std::path::PathBuf;
use weir_controller::client::{Client, Reply};
use weir_model::controller::ClientConfig;
use weir_model::objects::Kind;

/// Reads client.toml and makes a client.
fn connect(connection: &Connection) -> Result<Client> {
    let file = client_file(connection);
    let config = config(connection)?;
    Client::new(&config.server, &config.ca, &config.token)
        .with_context(|| format!("{}", file.display()))
}

/// Reads client.toml.
fn config(connection: &Connection) -> Result<ClientConfig> {
    let file = client_file(connection);
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "{}: cannot be read: `weir controller init` makes one; or name yours with --client FILE",
            file.display()
        )
    })?;
    toml::from_str(&text).with_context(|| format!("{}", file.display()))
}

fn client_file(connection: &Connection) -> PathBuf {
    if let Some(file) = &connection.client {
        return file.clone();
    }
    if let Some(file) = std::env::var_os("WEIR_CLIENT") {
        return file.into();
    }
    let home =
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config/weir/client.toml"));
    home.filter(|file| file.exists()).unwrap_or_else(|| "/etc/weir/client.toml".into())
}

/// The kind that an argument means.
fn kind(text: &str) -> Result<Kind> {
    let known = || Kind::ALL.map(Kind::plural).join(", ");
    Kind::named(text)
        .ok_or_else(|| anyhow!("`{text}` is no kind of object: write one of {}", known()))
}

/// The body of a request that was done; else the refusal in one sentence.
fn done(reply: &Reply) -> Result<Value> {
    if reply.is_ok() {
        return Ok(reply.json());
    }
    bail!("{}", refusal(reply))
}

/// What the controller says against a request.
fn refusal(reply: &Reply) -> String {
    let body = reply.json();
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    if text("detail").is_empty() {
        return format!("the controller answered with status {}", reply.status);
    }
    let mut said = format!("{}: {} ({})", text("field"), text("detail"), text("reason"));
    if let Some(tenants) = body["tenants"].as_array() {
        let names: Vec<&str> = tenants.iter().filter_map(Value::as_str).collect();
        said.push_str(&format!("\n  in the way: {}", names.join(", ")));
    }
    said
}
