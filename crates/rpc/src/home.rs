//! The files by which a host is known to its controller, and what it was told.
//!
//! Approach  One folder. Each file is written beside, synced, and moved into place, and the folder is
//!           synced, so that a file is as before or whole after a power cut.
//! Promises  Keys are readable by their owner alone.

use crate::identity::Identity;
use crate::kept::Kept;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why a file does not say what it should.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The system refuses it.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It has other contents than it should.
    #[error("{path}: {what}; join again: `weir agent join`")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

/// Proof of a host's identity.
#[derive(Debug)]
pub struct Proof {
    /// Who it is.
    pub identity: Identity,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// The key that belongs to it.
    pub key: PrivateKeyDer<'static>,
    /// Certificates of the authorities that it trusts, PEM.
    pub roots: String,
}

impl Home {
    /// The folder at this path.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the keys that the host shares with others.
    pub fn keys(&self) -> PathBuf {
        self.0.join("peers.keys")
    }

    /// Makes the folder.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn make(&self) -> Result<(), HomeError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|source| at(&self.0, source))
    }

    /// Replaces key, certificate and authorities, all in one file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn keep_proof(&self, key: &str, certificate: &str, roots: &str) -> Result<(), HomeError> {
        write(&self.proof_file(), format!("{key}{certificate}{roots}").as_bytes())
    }

    /// Replaces the authorities alone.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub fn keep_roots(&self, roots: &str) -> Result<(), HomeError> {
        let path = self.proof_file();
        let text = fs::read_to_string(&path).map_err(|source| at(&path, source))?;
        let own_end = text.find(END).map_or(0, |end| end + END.len());
        write(&path, format!("{}\n{roots}", &text[..own_end]).as_bytes())
    }

    /// Reads the host's identity. `None` if it never joined.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has other contents.
    pub fn proof(&self) -> Result<Option<Proof>, HomeError> {
        let path = self.proof_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(at(&path, source)),
        };
        let damaged =
            |what: &str| HomeError::Damaged { path: path.display().to_string(), what: what.into() };
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| damaged("there is no key in it"))?;
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let certificates = certificates.map_err(|_| damaged("a certificate is cut off"))?;
        let mut certificates = certificates.into_iter();
        let certificate = certificates.next().ok_or_else(|| damaged("there is no certificate"))?;
        let identity = Identity::of(&certificate)
            .ok_or_else(|| damaged("the first certificate is not a host's"))?;
        // The first one is the host's own.
        let own_end = text.find(END).map_or(0, |end| end + END.len());
        let roots = text[own_end..].trim_start().to_owned();
        Ok(Some(Proof { identity, certificate, key, roots }))
    }

    /// Replaces what the host was told, and the keys that follow from it.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn keep(&self, kept: &Kept) -> Result<(), HomeError> {
        self.keep_keys(kept)?;
        let text = serde_json::to_vec_pretty(kept).expect("plain data is JSON");
        write(&self.state_file(), &text)
    }

    /// Replaces the keys alone.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn keep_keys(&self, kept: &Kept) -> Result<(), HomeError> {
        let (path, text) = (self.keys(), kept.keys());
        match fs::read(&path) {
            Ok(now) if now == text.as_bytes() => Ok(()),
            _ => write(&path, text.as_bytes()),
        }
    }

    /// What the host was told.
    ///
    /// # Errors
    ///
    /// There is no such file, or it has other contents.
    pub fn kept(&self) -> Result<Kept, HomeError> {
        let path = self.state_file();
        let text = fs::read(&path).map_err(|source| at(&path, source))?;
        serde_json::from_slice(&text).map_err(|error| HomeError::Damaged {
            path: path.display().to_string(),
            what: error.to_string(),
        })
    }

    fn proof_file(&self) -> PathBuf {
        self.0.join("identity.pem")
    }

    fn state_file(&self) -> PathBuf {
        self.0.join("state.json")
    }
}

/// End of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

fn at(path: &Path, source: io::Error) -> HomeError {
    HomeError::Io { path: path.display().to_string(), source }
}

/// As before or whole, whatever happens meanwhile.
fn write(path: &Path, octets: &[u8]) -> Result<(), HomeError> {
    let beside = path.with_extension("new");
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(octets)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(|source| at(path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    struct Place(Home);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("weir-home-{}-{name}", std::process::id());
            let home = Home::new(std::env::temp_dir().join(name));
            home.make().expect("a folder");
            Self(home)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(self.0.path()));
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_hidden_from_others() {
        let place = Place::new("kept");
        let kept = Kept { host: "h0".into(), number: 3, ..Kept::default() };
        place.0.keep(&kept).expect("written");
        assert_eq!(place.0.kept().expect("read"), kept);
        for file in ["state.json", "peers.keys"] {
            let mode = fs::metadata(place.0.path().join(file)).expect("a file").mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(fs::read_dir(place.0.path()).expect("a folder").count(), 2, "nothing beside");
    }

    #[test]
    fn a_cut_off_file_says_what_to_do_and_a_missing_one_is_no_host() {
        let place = Place::new("cut");
        assert!(place.0.proof().expect("nothing").is_none());
        fs::write(place.0.path().join("state.json"), "{\"host\": \"h").expect("written");
        let error = place.0.kept().expect_err("cut off").to_string();
        assert!(error.contains("state.json") && error.contains("join again"), "{error}");
        fs::write(place.0.path().join("identity.pem"), "nonsense").expect("written");
        let error = place.0.proof().expect_err("no key").to_string();
        assert!(error.contains("there is no key in it"), "{error}");
    }
}
