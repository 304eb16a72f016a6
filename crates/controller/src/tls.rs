//! Certificates: an authority of our own, and the controller's certificate that it signs.
//!
//! Approach  `weir controller init` makes the authority's key and certificate, once. Each start signs a
//!           new certificate for the API, which is renewed while the controller runs. Clients trust the
//!           authority's certificate, so nothing has to be copied again. Hosts get certificates of 24 h.
//!           While an authority is replaced there are two: both are trusted, the first one signs.
//! Promises  The authority's keys are in one file that only its owner can read. TLS 1.3 alone.

use crate::clock::Clock;
use crate::store::backup::hex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use time::{Duration, OffsetDateTime};
use weir_model::controller::EtcdTls;
use weir_model::moment::Moment;
use weir_rpc::identity::Identity;

/// How long the authority's certificate is valid, days.
const AUTHORITY_DAYS: i64 = 3650;
/// How long the controller's certificate is valid, days. It is renewed after two thirds.
const SERVER_DAYS: i64 = 90;
/// How long the certificate of a host is valid, milliseconds. It is renewed after half.
pub const HOST_LIFE: u64 = 24 * 3_600_000;
/// Certificates are valid from this long before they are made: clocks differ.
const SKEW: Duration = Duration::hours(1);
const NAME: &str = "Weir controller authority";

/// What is wrong with a certificate or a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {what}")]
    File {
        /// Which.
        path: String,
        /// Why.
        what: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// TLS refuses what it was given.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Makes an authority: its certificate and its key as PEM.
///
/// # Errors
///
/// The key cannot be made.
pub fn make_authority(now: Moment) -> Result<(String, String), TlsError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(now).self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn authority_params(now: Moment) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date(now) - SKEW;
    params.not_after = date(now) + Duration::days(AUTHORITY_DAYS);
    params
}

/// A moment on rcgen's calendar, to the second.
fn date(at: Moment) -> OffsetDateTime {
    let seconds = i64::try_from(at.as_millis() / 1000).expect("a moment is before the year 10000");
    OffsetDateTime::from_unix_timestamp(seconds).expect("the calendar has it")
}

/// Signs certificates of the controller and of hosts.
pub struct Authority {
    key: KeyPair,
    names: Vec<String>,
    /// Certificates of all authorities that are trusted. The first one is of `key`.
    roots: Vec<CertificateDer<'static>>,
    /// The same as PEM.
    pem: String,
}

impl Authority {
    /// Reads the key of the first authority, and the certificates of all. The controller's certificates
    /// are for `names`.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn read(key: &Path, certificates: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let text = read(key)?;
        let first = blocks(&text).into_iter().next().unwrap_or_default();
        let key = KeyPair::from_pem(&first).map_err(|error| wrong(key, &error))?;
        let pem = read(certificates)?;
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let roots = roots.map_err(|error| wrong(certificates, &error))?;
        if roots.is_empty() {
            return Err(wrong(certificates, &"there is no certificate in it"));
        }
        Ok(Self { key, names, roots, pem })
    }

    /// Certificates of all authorities that are trusted, PEM.
    pub fn roots(&self) -> &str {
        &self.pem
    }

    /// What decides whether the certificate of a client is good.
    ///
    /// # Errors
    ///
    /// TLS refuses an authority.
    pub fn trusted(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        for root in &self.roots {
            store.add(root.clone())?;
        }
        Ok(store)
    }

    /// Signs a certificate of a host for this key, valid from `from`. PEM.
    ///
    /// # Errors
    ///
    /// The name cannot stand in a certificate.
    pub fn sign_host(
        &self,
        from: Moment,
        key: &impl PublicKeyData,
        identity: &Identity,
    ) -> Result<String, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Weir agent");
        params.subject_alt_names = vec![SanType::URI(identity.uri().try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date(from) - SKEW;
        params.not_after = date(identity.until);
        let issuer = Issuer::new(authority_params(from), &self.key);
        Ok(params.signed_by(key, &issuer)?.pem())
    }

    /// Signs a new certificate for the API, valid by both clocks.
    ///
    /// # Errors
    ///
    /// A name cannot stand in a certificate.
    pub fn sign(&self, clock: &Clock) -> Result<Arc<CertifiedKey>, TlsError> {
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Weir controller");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date(clock.earliest()) - SKEW;
        params.not_after = date(clock.latest()) + Duration::days(SERVER_DAYS);
        let key = KeyPair::generate()?;
        // What of the authority stands in the certificate: its name and its key.
        let issuer = Issuer::new(authority_params(clock.now()), &self.key);
        // With the authority's certificate, which a host knows by its fingerprint alone when it joins.
        let chain = vec![params.signed_by(&key, &issuer)?.der().clone(), self.roots[0].clone()];
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| rustls::Error::General(error.into()))?;
        let provider = rustls::crypto::ring::default_provider();
        Ok(Arc::new(CertifiedKey::from_der(chain, private, &provider)?))
    }
}

/// The certificate in use. It can be replaced while connections are made.
pub struct Current(RwLock<Arc<CertifiedKey>>);

impl Current {
    /// Begins with this one.
    pub fn new(certificate: Arc<CertifiedKey>) -> Self {
        Self(RwLock::new(certificate))
    }

    /// New connections get this one.
    pub fn replace(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// When the certificate has to be replaced, if it was made at `made`.
    pub fn renew_at(made: Moment) -> Moment {
        const DAY_MS: u64 = 86_400_000;
        made.plus_millis(SERVER_DAYS as u64 * DAY_MS * 2 / 3)
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Decides about the certificates of clients by both clocks.
#[derive(Debug)]
struct ByEitherClock {
    inner: Arc<dyn ClientCertVerifier>,
    clock: Clock,
}

impl ClientCertVerifier for ByEitherClock {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let calendar = std::time::Duration::from_millis(self.clock.calendar().as_millis());
        let by_calendar =
            || self.inner.verify_client_cert(shown, chain, UnixTime::since_unix_epoch(calendar));
        let by_ours = self.inner.verify_client_cert(shown, chain, now);
        by_ours.or_else(|error| by_calendar().map_err(|_| error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// How the controller speaks TLS. A client may show a certificate; one that holds by neither of the
/// clocks ends the connection.
///
/// # Errors
///
/// TLS refuses it.
pub fn server_config(
    current: Arc<Current>,
    authority: &Authority,
    clock: Clock,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusted = Arc::new(authority.trusted()?);
    let inner = WebPkiClientVerifier::builder_with_provider(trusted, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let verifier = Arc::new(ByEitherClock { inner, clock });
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(clock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(current);
    // Agents offer HTTP/2 alone; the API is for those who can do the older one.
    config.alpn_protocols = vec![b"http/1.1".to_vec(), weir_rpc::client::ALPN.to_vec()];
    // Each connection shows its certificate anew.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// SHA-256 of the first certificate in a file, by which a host knows the authority when it joins.
///
/// # Errors
///
/// The file cannot be read or has no certificate.
pub fn fingerprint(path: &Path) -> Result<String, TlsError> {
    let text = read(path)?;
    let first = CertificateDer::from_pem_slice(text.as_bytes());
    let first = first.map_err(|error| wrong(path, &error))?;
    Ok(hex(ring::digest::digest(&ring::digest::SHA256, &first).as_ref()))
}

/// The blocks of a PEM file, one after the other.
pub(crate) fn blocks(text: &str) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN ";
    let starts: Vec<usize> = text.match_indices(BEGIN).map(|(at, _)| at).collect();
    let ends = starts.iter().copied().skip(1).chain([text.len()]);
    starts.iter().zip(ends).map(|(from, to)| format!("{}\n", text[*from..to].trim_end())).collect()
}

/// How a client speaks TLS: it trusts the authority in this file alone.
///
/// # Errors
///
/// The file cannot be read or has no certificate.
pub fn client_config(authority: &Path) -> Result<ClientConfig, TlsError> {
    let text = read(authority)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| wrong(authority, &error))?;
        roots.add(certificate)?;
    }
    if roots.is_empty() {
        return Err(wrong(authority, &"there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// How the controller speaks TLS to etcd.
///
/// # Errors
///
/// A file cannot be read or has no certificate.
pub(crate) fn etcd_config(files: &EtcdTls) -> Result<ClientConfig, TlsError> {
    let text = read(&files.ca)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate.map_err(|error| wrong(&files.ca, &error))?)?;
    }
    if roots.is_empty() {
        return Err(wrong(&files.ca, &"there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots);
    let mut config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let text = read(certificate)?;
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(text.as_bytes()).collect();
            let chain = chain.map_err(|error| wrong(certificate, &error))?;
            let private = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes());
            builder.with_client_auth_cert(chain, private.map_err(|error| wrong(key, &error))?)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![weir_rpc::client::ALPN.to_vec()];
    Ok(config)
}

fn read(path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, what: &dyn fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), what: what.to_string() }
}
