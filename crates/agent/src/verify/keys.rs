//! Whether two hosts' agents would believe each other: real control messages, with real keys.
//!
//! Problem   Keys, host numbers of the directory and versions of the wire fit at both hosts, or no floor
//!           is agreed; an agent only counts what it does not believe.
//! Approach  Each side makes a greeting as its agent would, and judges the other's as its agent would.
//!           Each greeting is of an incarnation of its own, so a running agent takes none of them
//!           for its peer's.
//! Promises  No key leaves the host.
//! Not here  The datagrams that carry greetings: see `note`.

use super::note::Judged;
use crate::config::Setup;
use crate::keys::KeyFile;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_units::HostId;
use weir_wire::{Incarnation, Keys, Opened, Session};

/// A host's keys, and the hosts that it shares them with.
pub(crate) struct Greeter {
    own: HostId,
    hosts: BTreeMap<HostId, (String, SocketAddr)>,
    keys: Keys,
}

impl Greeter {
    /// What the agent of this configuration has.
    ///
    /// # Errors
    ///
    /// There is no key file, or it is another host's.
    pub(crate) fn of(setup: &Setup) -> Result<Self> {
        let (_, keys) = KeyFile::open(&setup.file.key_file, setup.key_reader())?;
        let own = setup.hosts.iter().find(|(_, (name, _))| *name == setup.file.host);
        let (own, _) = own.context("host: it is not in the directory")?;
        Ok(Self { own: *own, hosts: setup.hosts.clone(), keys })
    }

    /// The host whose agent has this address.
    pub(crate) fn host_at(&self, ip: IpAddr) -> Option<HostId> {
        let mut others = self.hosts.iter().filter(|(host, _)| **host != self.own);
        others.find(|(_, (_, at))| at.ip() == ip).map(|(host, _)| *host)
    }

    /// A control message for this host; or why there is none.
    pub(crate) fn greeting(&self, to: HostId) -> Result<Vec<u8>, String> {
        let mut datagrams = Vec::new();
        let greeted = self.session()?.greet(to, &mut datagrams);
        greeted.map_err(|untold| untold.to_string())?;
        datagrams.pop().ok_or_else(|| "there is no greeting".into())
    }

    /// What this host's agent would say of a control message that comes from `from`'s address.
    pub(crate) fn judge(&self, from: HostId, greeting: &[u8]) -> Judged {
        let mut session = match self.session() {
            Ok(session) => session,
            Err(why) => return Judged::Refused(why),
        };
        match session.open(greeting) {
            Ok(Opened::Believed { from: host, .. } | Opened::Greet(host)) if host == from => {
                Judged::Accepted
            }
            Ok(_) => Judged::Refused("it speaks for a host with another address".into()),
            Err(rejected) => Judged::Refused(rejected.to_string()),
        }
    }

    fn session(&self) -> Result<Session, String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| format!("no random incarnation: {e}"))?;
        let incarnation = Incarnation::new(u64::from_ne_bytes(random).max(1));
        let incarnation = incarnation.ok_or("no incarnation")?;
        let mut session = Session::new(self.own, incarnation, self.keys.clone());
        for host in self.hosts.keys().filter(|host| **host != self.own) {
            session.add_peer(*host).map_err(|e| e.to_string())?;
        }
        Ok(session)
    }
}
