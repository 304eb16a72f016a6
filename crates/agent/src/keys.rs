//! The key file while the agent runs.
//!
//! Problem   Keys are replaced on a thousand hosts while messages flow; a restart would be a gap.
//! Approach  The file is looked at with every heartbeat, and at once on SIGHUP. What is a key file
//!           replaces the keys in use; what is none (half written, a slip) is said and counted, and
//!           the keys in use stay.
//! Promises  The agent never ends up without keys. No message is refused between two readings of
//!           the file.
//! Not here  What a key file says: see `weir_wire::Keys`. The order in which hosts are changed:
//!           docs/keys.md.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_units::HostId;
use weir_wire::{Keys, MAX_KEY_FILE};

/// What tells one writing of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            // Not the time of modification: that can be set back.
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Whose key file it is, and which hosts its lines may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) own: &'a str,
    pub(crate) hosts: &'a BTreeMap<HostId, (String, std::net::SocketAddr)>,
}

/// A key file that is watched.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    /// What the file was when it was last read; `None` if it was not there.
    stamp: Option<Stamp>,
    /// Whether the last reading failed: then the next one is not put off until the file changes.
    failed: bool,
    /// Times that other keys were taken up.
    pub(crate) reloads: u64,
    /// Changes of the file after which it was no key file.
    pub(crate) failures: u64,
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no key file; the message names it.
    pub(crate) fn open(path: &Path, reader: Reader<'_>) -> Result<(Self, Keys)> {
        let (stamp, keys) = read(path, reader)?;
        let file = Self {
            path: path.to_owned(),
            stamp: Some(stamp),
            failed: false,
            reloads: 0,
            failures: 0,
        };
        Ok((file, keys))
    }

    /// The keys of a file that has changed; `ask`: also if it seems not to have. `None` while there
    /// is nothing new.
    ///
    /// # Errors
    ///
    /// It has changed to what is no key file, said once per change; the keys in use stay.
    pub(crate) fn look(&mut self, ask: bool, reader: Reader<'_>) -> Result<Option<Keys>> {
        let now = std::fs::metadata(&self.path).ok().map(|m| Stamp::of(&m));
        let is_new = now != self.stamp;
        if !is_new && !self.failed && !ask {
            return Ok(None);
        }
        match read(&self.path, reader) {
            Ok((stamp, keys)) => {
                self.stamp = Some(stamp);
                self.failed = false;
                self.reloads += 1;
                Ok(Some(keys))
            }
            // Once per change: it is looked at four times a second.
            Err(_) if !is_new && self.failed && !ask => Ok(None),
            Err(error) => {
                self.stamp = now;
                self.failed = true;
                self.failures += 1;
                Err(error.context("the keys in use stay"))
            }
        }
    }
}

fn read(path: &Path, reader: Reader<'_>) -> Result<(Stamp, Keys)> {
    let name = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("{}: cannot be read", name()))?;
    let metadata = file.metadata().with_context(name)?;
    ensure!(metadata.is_file(), "{}: is no file", name());
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(
            "{}: others than its owner may use the key file: chmod 600 it, and rotate its keys",
            name()
        );
    }
    let mut text = String::new();
    file.take(MAX_KEY_FILE as u64 + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("{}: cannot be read as text", name()))?;
    let hosts = reader.hosts.iter().map(|(id, (name, _))| (name.as_str(), *id)).collect();
    let keys = Keys::read(&text, reader.own, &hosts).with_context(name)?;
    Ok((Stamp::of(&metadata), keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use weir_units::HostId;
    use weir_wire::{Incarnation, KeyId, Opened, Session};

    const OLD: &str = "00112233445566778899aabbccddeeff";
    const NEW: &str = "1 ffeeddccbbaa99887766554433221100";

    /// A directory of its own, removed also when a test fails.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("weir-keys-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn key(&self) -> PathBuf {
            self.0.join("key")
        }

        /// As a tool should do it: written beside, then moved into place.
        fn write(&self, text: &str) {
            fs::write(self.0.join("new"), text).expect("written");
            fs::rename(self.0.join("new"), self.key()).expect("moved");
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn ids(keys: &Keys) -> Vec<u8> {
        keys.of(HostId(1)).expect("keys").ids().map(|id| id.0).collect()
    }

    /// A directory of two hosts, as h0 reads it.
    fn two() -> Reader<'static> {
        static HOSTS: std::sync::LazyLock<BTreeMap<HostId, (String, std::net::SocketAddr)>> =
            std::sync::LazyLock::new(|| {
                let at = |n: u32| ([127, 0, 0, 1], 7001 + n as u16).into();
                [0, 1].map(|n| (HostId(n), (format!("h{n}"), at(n)))).into()
            });
        Reader { own: "h0", hosts: &HOSTS }
    }

    #[test]
    fn a_changed_file_is_taken_up_once_and_one_that_stays_is_left_alone() {
        let place = Place::new("changed");
        place.write(&format!("{OLD}\n"));
        let (mut file, keys) = KeyFile::open(&place.key(), two()).expect("a key");
        assert_eq!(ids(&keys), [0]);
        assert!(file.look(false, two()).expect("nothing new").is_none());
        place.write(&format!("0 {OLD}\n{NEW}\n"));
        assert_eq!(ids(&file.look(false, two()).expect("sound").expect("new")), [0, 1]);
        assert!(file.look(false, two()).expect("nothing new").is_none());
        assert!(file.look(true, two()).expect("sound").is_some(), "who asks is answered");
        assert_eq!((file.reloads, file.failures), (2, 0));
    }

    #[test]
    fn a_broken_or_missing_file_leaves_the_keys_in_use_and_is_said_once() {
        let place = Place::new("broken");
        place.write(&format!("{OLD}\n"));
        let (mut file, _) = KeyFile::open(&place.key(), two()).expect("a key");
        place.write(&format!("0 {OLD}\n1 ff"));
        let error = format!("{:#}", file.look(false, two()).expect_err("half a key"));
        assert!(error.contains("the keys in use stay") && error.contains("line 2"), "{error}");
        assert!(file.look(false, two()).expect("said already").is_none());
        fs::remove_file(place.key()).expect("removed");
        file.look(false, two()).expect_err("gone");
        assert!(file.look(false, two()).expect("said already").is_none());
        place.write(NEW);
        assert_eq!(ids(&file.look(false, two()).expect("sound").expect("new")), [1]);
        assert_eq!((file.reloads, file.failures), (1, 2));
    }

    #[test]
    fn what_is_no_key_file_does_not_start_an_agent() {
        let place = Place::new("none");
        let error = format!("{:#}", KeyFile::open(&place.key(), two()).expect_err("nothing there"));
        assert!(error.contains("cannot be read"), "{error}");
        place.write("secret");
        let error = format!("{:#}", KeyFile::open(&place.key(), two()).expect_err("no key"));
        assert!(error.contains("/key") && error.contains("line 1"), "{error}");
        let error = format!("{:#}", KeyFile::open(&place.0, two()).expect_err("a directory"));
        assert!(error.contains("is no file"), "{error}");
        fs::write(place.key(), vec![b'\n'; 33 << 20]).expect("written");
        let error = format!("{:#}", KeyFile::open(&place.key(), two()).expect_err("no key file"));
        assert!(error.contains("octets are no key file"), "bounded: {error}");
    }

    /// Two hosts with a file each, edited one after the other as docs/keys.md says.
    #[test]
    fn two_hosts_replace_their_key_and_no_message_is_refused() {
        let places = [Place::new("a"), Place::new("b")];
        let hosts = [HostId(0), HostId(1)];
        let mut files = Vec::new();
        let mut sessions = Vec::new();
        for (i, place) in places.iter().enumerate() {
            place.write(OLD);
            let (file, keys) = KeyFile::open(&place.key(), two()).expect("a key");
            let incarnation = Incarnation::new(i as u64 + 7).expect("not 0");
            let mut session = Session::new(hosts[i], incarnation, keys);
            session.add_peer(hosts[1 - i]).expect("a peer");
            files.push(file);
            sessions.push(session);
        }
        let steps = [format!("0 {OLD}\n{NEW}\n"), format!("{NEW}\n0 {OLD}\n"), NEW.to_owned()];
        let mut believed = 0;
        for text in steps {
            for host in [1, 0] {
                places[host].write(&text);
                if let Some(keys) = files[host].look(false, two()).expect("sound") {
                    sessions[host].set_keys(keys);
                }
                for from in [0, 1, 0, 1] {
                    believed += greet(&mut sessions, hosts, from);
                }
            }
        }
        for session in &sessions {
            assert_eq!(session.counters().rejected(), 0);
            let keys = session.keys();
            assert!(keys.iter().all(|key| key.id == KeyId(1) && key.signs == 1 && key.seen > 0));
        }
        // All but the first greeting: until then its sender has heard no peer.
        assert_eq!(believed, 24 - 1);
    }

    fn greet(sessions: &mut [Session], hosts: [HostId; 2], from: usize) -> u32 {
        let mut out = Vec::new();
        sessions[from].greet(hosts[1 - from], &mut out).expect("a peer");
        let opened = sessions[1 - from].open(&out[0]).expect("never refused");
        u32::from(matches!(opened, Opened::Believed { .. }))
    }
}
