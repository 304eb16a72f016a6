//! The keys of a fleet, made away from it.
//!
//! Problem   A key on a host is lost with that host. What makes all hosts' keys must never be on
//!           one.
//! Approach  A master file stays where the operator makes configurations. [`draw`] adds a random
//!           key to it; [`make`] writes, for each host of a directory, the file with the keys that
//!           this host shares with each other one.
//! Promises  A file is either as before or whole, and readable by its owner alone. The same master
//!           and directory make the same files.
//! Not here  How keys follow from the master: `weir_wire::host_file`. Carrying files to hosts.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_wire::{Keyring, MAX_KEY_FILE, host_file};

/// Adds a random key as the master file's last line, under the lowest free id; makes the file if
/// there is none. Returns the id.
///
/// # Errors
///
/// The file is no master file, holds four keys already, or cannot be written; the message names it.
pub fn draw(master: &Path) -> Result<u8> {
    let name = || master.display().to_string();
    let text = match fs::read_to_string(master) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e).with_context(name),
    };
    let has_keys =
        text.lines().any(|line| !line.split('#').next().unwrap_or_default().trim().is_empty());
    let taken: BTreeSet<u8> = if has_keys {
        text.parse::<Keyring>().with_context(name)?.ids().map(|id| id.0).collect()
    } else {
        BTreeSet::new()
    };
    let id = (1..=u8::MAX).find(|id| !taken.contains(id)).context("all ids are taken")?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("no random key: {e}"))?;
    let digits: String = random.iter().map(|octet| format!("{octet:02x}")).collect();
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{gap}{id} {digits}\n");
    text.parse::<Keyring>().with_context(name)?;
    write(master, &text)?;
    Ok(id)
}

/// Writes `HOST.keys` into `out` for each host of the directory. Returns the hosts' names.
///
/// # Errors
///
/// A file that cannot be read, makes no sense, or cannot be written; the message names it.
pub fn make(master: &Path, directory: &Path, out: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(master).with_context(|| {
        format!("{}: no master key; `weir keys draw --master {0}` makes one", master.display())
    })?;
    ensure!(text.len() <= MAX_KEY_FILE, "{}: too long for a master file", master.display());
    let ring: Keyring = text.parse().with_context(|| master.display().to_string())?;
    let listed = fs::read_to_string(directory)
        .map_err(anyhow::Error::from)
        .and_then(|text| weir_model::agent::parse_directory(&text).map_err(anyhow::Error::msg))
        .with_context(|| directory.display().to_string())?;
    let hosts: Vec<&str> = listed.hosts.iter().map(|host| host.name.as_str()).collect();
    ensure!(!hosts.is_empty(), "{}: no hosts in it", directory.display());
    let mut seen = BTreeSet::new();
    for host in &hosts {
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '#') {
            bail!(
                "{}: host `{}` cannot be the name of a file",
                directory.display(),
                host.escape_debug()
            );
        }
        ensure!(seen.insert(host), "{}: host `{host}` is there twice", directory.display());
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for host in &hosts {
        let file = host_file(&ring, host, hosts.iter().copied());
        write(&out.join(format!("{host}.keys")), &file)?;
    }
    Ok(hosts.into_iter().map(str::to_owned).collect())
}

/// Writes it beside, then moves it into place.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// A directory of its own, removed also when a test fails.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-keys-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn each_host_gets_a_file_of_its_own_that_others_cannot_read() {
        let place = Place::new("make");
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}, {name: h1, control: '10.0.0.2:7001'}, \
                         {name: h2, control: '10.0.0.3:7001'}]\nvms: []\n";
        fs::write(place.at("directory.yaml"), directory).expect("written");
        assert_eq!(draw(&place.at("master")).expect("the first key"), 1);
        assert_eq!(draw(&place.at("master")).expect("the second key"), 2);
        let made = make(&place.at("master"), &place.at("directory.yaml"), &place.at("keys"));
        assert_eq!(made.expect("made"), ["h0", "h1", "h2"]);
        let text = |host: &str| fs::read_to_string(place.at("keys").join(host)).expect("a file");
        let keys = |text: &str| -> BTreeSet<String> {
            text.lines()
                .filter_map(|line| line.split(' ').nth(2).map(str::to_owned))
                .filter(|k| k.len() == 32)
                .collect()
        };
        let [h0, h1, h2] = ["h0.keys", "h1.keys", "h2.keys"].map(|host| keys(&text(host)));
        assert_eq!((h0.len(), h1.len(), h2.len()), (4, 4, 4));
        assert_eq!(h0.intersection(&h1).count(), 2, "two keys that h0 and h1 share");
        assert_eq!(h0.intersection(&h1).filter(|key| h2.contains(*key)).count(), 0);
        for name in ["master", "keys/h0.keys"] {
            assert_eq!(
                fs::metadata(place.at(name)).expect("a file").mode() & 0o777,
                0o600,
                "{name}"
            );
        }
        assert_eq!(
            fs::read_dir(place.at("keys")).expect("files").count(),
            3,
            "nothing half written"
        );
    }

    #[test]
    fn what_cannot_be_made_says_what_to_do() {
        let place = Place::new("refused");
        let refused = |directory: &str| {
            fs::write(place.at("directory.yaml"), directory).expect("written");
            let made = make(&place.at("master"), &place.at("directory.yaml"), &place.at("keys"));
            format!("{:#}", made.expect_err("refused"))
        };
        assert!(refused("hosts: []\nvms: []\n").contains("`weir keys draw --master"));
        for _ in 0..4 {
            draw(&place.at("master")).expect("a key");
        }
        let fifth = format!("{:#}", draw(&place.at("master")).expect_err("a fifth"));
        assert!(fifth.contains("4 keys are accepted already; forget one first"), "{fifth}");
        assert!(refused("hosts: []\nvms: []\n").contains("no hosts in it"));
        let climbs = refused("hosts: [{name: ../h0, control: '10.0.0.1:7001'}]\nvms: []\n");
        assert!(climbs.contains("`../h0` cannot be the name of a file"), "{climbs}");
        assert!(!place.at("keys").exists());
    }
}
