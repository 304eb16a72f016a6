//! The controller's own configuration (`controller.toml`), and that of the commands that speak to it
//! (`client.toml`).

use crate::text::SpanText;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_units::Span;

/// `controller.toml`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// Address and port of the API.
    pub listen: SocketAddr,
    /// Names and addresses by which clients reach the API: the certificate has them.
    pub names: Vec<String>,
    /// Folder of the store and of the certificate authority, readable by the controller alone.
    pub data_dir: PathBuf,
    /// Number of changes that a watch can be behind. Older versions get the answer 410 Gone. Default
    /// 10 000.
    #[serde(default = "history")]
    pub history: u32,
    /// Number of entries of the audit log. The oldest are dropped. Default 100 000.
    #[serde(default = "audit")]
    pub audit: u32,
    /// How long a reservation in its last phase stays visible. Default `1h`, as 3600 s.
    #[serde(default = "hour")]
    pub keep_reservations: SpanText,
}

const fn history() -> u32 {
    10_000
}

const fn audit() -> u32 {
    100_000
}

const fn hour() -> SpanText {
    SpanText(Span::from_secs(3600))
}

impl ControllerConfig {
    /// A configuration with the usual bounds.
    pub fn new(listen: SocketAddr, names: Vec<String>, data_dir: PathBuf) -> Self {
        let (history, audit, keep_reservations) = (history(), audit(), hour());
        Self { listen, names, data_dir, history, audit, keep_reservations }
    }

    /// What is wrong with it: the field and the reason.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.names.is_empty() {
            return Err((
                "names",
                "no name: write the names by which clients reach the API".into(),
            ));
        }
        if !(100..=10_000_000).contains(&self.history) {
            return Err(("history", format!("{}: write 100 to 10000000", self.history)));
        }
        if !(100..=10_000_000).contains(&self.audit) {
            return Err(("audit", format!("{}: write 100 to 10000000", self.audit)));
        }
        Ok(())
    }
}

/// `client.toml`: where the controller is, and who asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// `https://NAME:PORT`.
    pub server: String,
    /// File with the certificate of the authority that signed the controller's.
    pub ca: PathBuf,
    /// The token. The file is for its owner's eyes alone.
    pub token: String,
}
