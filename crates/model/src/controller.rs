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
    /// Where the records are, if several controllers share them: `etcd://HOST[:PORT],…[/PREFIX]`, with
    /// TLS `etcds://…`. The port is 2379 and the prefix `weir` unless they are named. Default: a file in
    /// `data_dir`, for one controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// How long another controller waits for a leader that is silent before it leads itself. Larger means
    /// longer gaps without writes when the leader dies; smaller means that a slow disk of etcd's makes
    /// leaders change. In whole seconds. Default `5s`.
    #[serde(default = "lease", skip_serializing_if = "is_usual_lease")]
    pub lease: SpanText,
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
    /// How many days it is known how floors were kept. Of a thousand VMs that always want more than they have,
    /// a day takes some 40 MB in `data_dir`. Default 30.
    #[serde(default = "accounts_days", skip_serializing_if = "is_usual_days")]
    pub accounts_days: u32,
    /// The mark on switches of this cloud's controllers, the same for all of them: 1 to 16 of a-z, 0-9
    /// and -. Default: one that follows from `pairs.keys`, so name one before these keys are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_owner: Option<String>,
    /// Files for `etcds://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_tls: Option<EtcdTls>,
}

/// How the controller and etcd know each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdTls {
    /// Certificates of the authorities that sign etcd's, PEM.
    pub ca: PathBuf,
    /// The controller's certificate for etcd, PEM, if etcd asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// What `store` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdAddress {
    /// Names or addresses, and ports.
    pub endpoints: Vec<(String, u16)>,
    /// All records are below it.
    pub prefix: String,
    /// Whether to speak TLS.
    pub tls: bool,
}

/// etcd's usual port.
const ETCD_PORT: u16 = 2379;
const ETCD_FORM: &str = "write etcd://HOST:PORT,HOST:PORT/PREFIX (etcds:// with TLS), or leave it out for \
                         a file in data_dir";

impl EtcdAddress {
    /// Reads `etcd://a,b:2379,[2001:db8::1]:2379/prefix`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}`: {what}: {ETCD_FORM}");
        let (tls, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("it is of no kind that is known")),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, "weir"));
        let prefix = prefix.trim_end_matches('/').to_owned();
        let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if prefix.is_empty() || !prefix.chars().all(good) {
            return Err(wrong("the prefix is made of letters, digits, `-`, `_`, `.` and `/`"));
        }
        let endpoint = |host: &str| {
            let (name, port) = match host.rsplit_once(':') {
                // An address of version 6 without a port.
                Some(_) if host.ends_with(']') => (host, None),
                Some((name, port)) => (name, Some(port)),
                None => (host, None),
            };
            let port = port.map_or(Ok(ETCD_PORT), str::parse);
            let port = port.map_err(|_| wrong(&format!("`{host}` has no port")))?;
            let name = name.trim_start_matches('[').trim_end_matches(']');
            let good = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
            if name.is_empty() || !name.chars().all(good) {
                return Err(wrong(&format!("`{host}` names no host")));
            }
            Ok((name.to_owned(), port))
        };
        let endpoints: Result<Vec<_>, String> = hosts.split(',').map(endpoint).collect();
        Ok(Self { endpoints: endpoints?, prefix, tls })
    }
}

const fn lease() -> SpanText {
    SpanText(Span::from_secs(5))
}

fn is_usual_lease(span: &SpanText) -> bool {
    *span == lease()
}

const fn history() -> u32 {
    10_000
}

const fn audit() -> u32 {
    100_000
}

const fn accounts_days() -> u32 {
    30
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_usual_days(days: &u32) -> bool {
    *days == accounts_days()
}

const fn hour() -> SpanText {
    SpanText(Span::from_secs(3600))
}

impl ControllerConfig {
    /// A configuration with the usual bounds.
    pub fn new(listen: SocketAddr, names: Vec<String>, data_dir: PathBuf) -> Self {
        let (history, audit, keep_reservations) = (history(), audit(), hour());
        Self {
            listen,
            names,
            data_dir,
            store: None,
            lease: lease(),
            history,
            audit,
            keep_reservations,
            accounts_days: accounts_days(),
            switch_owner: None,
            etcd_tls: None,
        }
    }

    /// Where etcd is, if the records are there. [`ControllerConfig::check`] refuses what is none.
    pub fn etcd(&self) -> Option<EtcdAddress> {
        EtcdAddress::parse(self.store.as_deref()?).ok()
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
        if let Some(store) = &self.store {
            let address = EtcdAddress::parse(store).map_err(|what| ("store", what))?;
            if address.tls && self.etcd_tls.is_none() {
                let what = "etcds:// needs a table [etcd_tls] with `ca`";
                return Err(("store", what.into()));
            }
            if !address.tls && self.etcd_tls.is_some() {
                return Err(("etcd_tls", "it is for `store = \"etcds://…\"`".into()));
            }
        }
        if let Some(tls) = &self.etcd_tls
            && tls.certificate.is_some() != tls.key.is_some()
        {
            return Err(("etcd_tls", "name both `certificate` and `key`, or neither".into()));
        }
        let second = 1_000_000_000;
        let lease = self.lease.0.as_nanos();
        if !(second..=60 * second).contains(&lease) || !lease.is_multiple_of(second) {
            return Err(("lease", "write whole seconds, from 1s to 60s".into()));
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
    /// `https://NAME:PORT`; of several controllers, all of them with commas between.
    pub server: String,
    /// File with the certificate of the authority that signed the controller's.
    pub ca: PathBuf,
    /// The token. The file is for its owner's eyes alone.
    pub token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_names_endpoints_and_a_prefix_and_mistakes_say_how_to_write_it() {
        let read =
            EtcdAddress::parse("etcd://a,b:7,[2001:db8::1]:9,[::1]/cloud/one").expect("good");
        let names: Vec<(&str, u16)> =
            read.endpoints.iter().map(|(name, port)| (name.as_str(), *port)).collect();
        assert_eq!(names, [("a", 2379), ("b", 7), ("2001:db8::1", 9), ("::1", 2379)]);
        assert_eq!((read.prefix.as_str(), read.tls), ("cloud/one", false));
        assert!(EtcdAddress::parse("etcds://a").expect("good").tls);
        for (bad, what) in [
            ("redis://a", "no kind that is known"),
            ("etcd://", "names no host"),
            ("etcd://a,,b", "names no host"),
            ("etcd://a:x", "has no port"),
            ("etcd://a/", "the prefix"),
            ("etcd://a/b c", "the prefix"),
        ] {
            let error = EtcdAddress::parse(bad).expect_err(bad);
            assert!(error.contains(what) && error.contains("write etcd://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_configuration_whose_parts_contradict_each_other_is_refused() {
        let listen = "127.0.0.1:7443".parse().expect("an address");
        let good = ControllerConfig::new(listen, vec!["c".into()], "/d".into());
        assert_eq!(good.check(), Ok(()));
        let of = |change: &dyn Fn(&mut ControllerConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().map_err(|(field, _)| field)
        };
        assert_eq!(of(&|c| c.store = Some("etcd://a".into())), Ok(()));
        assert_eq!(of(&|c| c.store = Some("file".into())), Err("store"));
        assert_eq!(of(&|c| c.store = Some("etcds://a".into())), Err("store"));
        let tls = EtcdTls { ca: "/ca".into(), certificate: Some("/c".into()), key: None };
        assert_eq!(of(&|c| c.etcd_tls = Some(tls.clone())), Err("etcd_tls"));
        assert_eq!(of(&|c| c.lease = SpanText(Span::from_millis(1500))), Err("lease"));
    }
}
