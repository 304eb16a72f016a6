//! Replacing the authority while hosts and clients are there.
//!
//! Approach  The data folder has a list of authorities: all are trusted, the first one signs. To replace
//!           one: add the new one; wait until every host has renewed, so that all trust it; let it sign;
//!           wait again; drop the old one. A controller reads the list when it starts.
//! Promises  Between steps everybody trusts the one that signs. A file is as before or whole.

use crate::clock::Clock;
use crate::daemon::{CA_CERTIFICATE, CA_KEY};
use crate::store::backup::sync_folder_of;
use crate::tls::{blocks, make_authority};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A step of the replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A new authority is trusted; the old one signs.
    Add,
    /// The new one signs; the old one is trusted still.
    Swap,
    /// The old one is not trusted any more.
    Drop,
}

/// Does one step in a controller's data folder.
///
/// # Errors
///
/// It is not the step's turn, or a file cannot be read or written.
pub fn step(folder: &Path, step: Step) -> Result<()> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
    };
    let mut certificates = blocks(&read(CA_CERTIFICATE)?);
    let mut keys = blocks(&read(CA_KEY)?);
    ensure!(
        certificates.len() == keys.len(),
        "{}: {CA_CERTIFICATE} and {CA_KEY} have different numbers of authorities: restore a copy",
        folder.display()
    );
    match step {
        Step::Add => {
            ensure!(keys.len() == 1, "there are two authorities already: swap or drop first");
            let (certificate, key) = make_authority(Clock::start().now())?;
            certificates.push(certificate);
            keys.push(key);
        }
        Step::Swap => {
            ensure!(keys.len() == 2, "there is one authority: add another first");
            certificates.reverse();
            keys.reverse();
        }
        Step::Drop => {
            ensure!(keys.len() == 2, "there is one authority: it has to stay");
            certificates.truncate(1);
            keys.truncate(1);
        }
    }
    // What is trusted first: a key without its certificate would sign for nobody.
    replace(&folder.join(CA_CERTIFICATE), &certificates.concat(), 0o644)?;
    replace(&folder.join(CA_KEY), &keys.concat(), 0o600)
}

fn replace(path: &Path, text: &str, mode: u32) -> Result<()> {
    let beside = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        sync_folder_of(path)
    };
    written().with_context(|| format!("{}: cannot be written", path.display()))
}
