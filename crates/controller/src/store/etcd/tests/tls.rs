//! etcd that asks its clients for certificates, and shows one of its own.

use super::*;
use crate::tls::etcd_config;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use std::fs;
use std::path::{Path, PathBuf};
use weir_model::controller::EtcdTls;

/// Attempts to be told why a certificate is refused.
const ATTEMPTS: usize = 20;

/// An authority in a folder, and certificates that it signs.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        fs::write(folder.join("ca.crt"), certificate.pem()).expect("written");
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes `NAME.crt` and `NAME.key`, for 127.0.0.1.
    fn sign(&self, name: &str) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        // etcd is a client of itself, too.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("signed");
        fs::write(self.file(&format!("{name}.crt")), signed.pem()).expect("written");
        fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).expect("written");
    }
}

/// etcd of an authority, for clients of the same one.
fn etcd() -> Etcd {
    Etcd::start_with(|folder| {
        let authority = Authority::new(folder, "authority");
        ["etcd", "controller"].iter().for_each(|name| authority.sign(name));
        let path = |name: &str| authority.file(name).display().to_string();
        let options = [
            ("--cert-file", "etcd.crt"),
            ("--key-file", "etcd.key"),
            ("--trusted-ca-file", "ca.crt"),
        ];
        let files = options.iter().flat_map(|(option, file)| [(*option).to_owned(), path(file)]);
        files.chain(["--client-cert-auth".to_owned()]).collect()
    })
}

fn open_with(etcd: &Etcd, files: &EtcdTls) -> Result<EtcdStore, StoreError> {
    let tls = Some(etcd_config(files).expect("the files are there"));
    EtcdStore::open(Settings { tls, ..settings(etcd, "a") })
}

#[test]
fn a_controller_with_a_certificate_writes_and_reads_over_tls() {
    let etcd = etcd();
    let at = |name: &str| etcd.folder().join("authority").join(name);
    let files = EtcdTls {
        ca: at("ca.crt"),
        certificate: Some(at("controller.crt")),
        key: Some(at("controller.key")),
    };
    let mut first = open_with(&etcd, &files).expect("it may");
    first.lead(SOON).expect("nobody else does");
    first.commit(&[newest_schema()]).expect("written");
    first.begin().expect("it leads");
    first.commit(&[Write::put(Table::Objects, "VM/a", "1")]).expect("written");
    let mut second = open_with(&etcd, &files).expect("it may");
    drop(second.follow().expect("it can be read"));
    assert_eq!(all(&mut second, Table::Objects), [("VM/a".into(), "1".into())].into());
    // The watch is over TLS, too.
    first.commit(&[Write::put(Table::Objects, "VM/b", "2")]).expect("written");
    assert_eq!(told(&mut second, 1)[0][0].0.key, "VM/b");
}

#[test]
fn a_stranger_is_refused_by_etcd_and_a_false_etcd_by_the_controller() {
    let etcd = etcd();
    let at = |name: &str| etcd.folder().join("authority").join(name);
    let other = Authority::new(etcd.folder(), "other");
    other.sign("controller");
    let bare = EtcdTls { ca: at("ca.crt"), certificate: None, key: None };
    let strange = EtcdTls {
        certificate: Some(other.file("controller.crt")),
        key: Some(other.file("controller.key")),
        ..bare.clone()
    };
    let distrusting = EtcdTls {
        ca: other.file("ca.crt"),
        certificate: Some(at("controller.crt")),
        key: Some(at("controller.key")),
    };
    for (files, reason) in
        [(bare, "certificate"), (strange, "certificate"), (distrusting, "invalid peer certificate")]
    {
        let has_reason = |error: &String| error.to_lowercase().contains(reason);
        // A machine that is too busy for a handshake in three seconds tries again.
        let mut errors = (0..ATTEMPTS).map(|_| {
            let error = open_with(&etcd, &files).err().expect("refused").to_string();
            assert!(error.contains("127.0.0.1"), "{error}");
            error
        });
        let told: Vec<String> = errors.by_ref().take_while(|error| !has_reason(error)).collect();
        assert!(told.len() < ATTEMPTS, "{reason}: {told:?}");
    }
    // Without TLS at all.
    let address = EtcdAddress { tls: false, ..settings(&etcd, "a").address };
    let error = EtcdStore::open(Settings { address, ..settings(&etcd, "a") }).err();
    assert!(matches!(error, Some(StoreError::Unreachable { .. })), "{error:?}");
}
