//! The agent's end: TLS, connections, calls.

pub mod desk;
pub mod follow;
mod pinned;

use crate::codec::Prost;
use crate::home::{Home, HomeError, Proof};
use crate::identity::Identity;
use crate::kept::Kept;
use crate::messages::{Certificate, FOLLOW, JOIN, JoinRequest, RENEW, RenewRequest};
use crate::messages::{FromAgent, FromController};
use crate::{MESSAGE_MOST, PROTOCOL};
use http::uri::PathAndQuery;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use pinned::Pinned;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::{Request, Status, Streaming};
use weir_model::moment::Moment;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer to one call may take.
const ANSWER: Duration = Duration::from_secs(30);
/// A connection on which nothing comes for this long is asked whether it is there. The controller does
/// the same.
pub const KEEPALIVE: Duration = Duration::from_secs(5);
/// It is given up if there is no answer within this time.
pub const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(10);
/// The protocol that TLS agrees on: HTTP/2.
pub const ALPN: &[u8] = b"h2";

/// Why the controller is not reached or does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("`{0}` is no address of a controller: write NAME:PORT")]
    Address(String),
    /// There is no connection.
    #[error("cannot reach the controller at {server}: {what}")]
    Unreachable {
        /// Where it should be.
        server: String,
        /// What happened.
        what: String,
    },
    /// It refuses, or broke off.
    #[error("the controller at {server} says: {}", said(status))]
    Refused {
        /// Where it is.
        server: String,
        /// What it said.
        status: Box<Status>,
    },
    /// The files of the host.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// TLS refuses what it was given.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A key or a request of a certificate cannot be made.
    #[error("cannot ask for a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The controller sent what it must not send.
    #[error("the controller sent {0}")]
    Nonsense(String),
    /// The host has no valid certificate.
    #[error("{0}")]
    NoIdentity(String),
}

impl ClientError {
    /// Whether another controller may do what this one does not.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => status.code() == tonic::Code::Unavailable,
            _ => false,
        }
    }
}

fn said(status: &Status) -> String {
    match status.message() {
        "" => format!("{:?}", status.code()),
        message => message.to_owned(),
    }
}

/// Whom a host trusts before it has joined.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Authorities, PEM.
    Roots(String),
    /// SHA-256 of the authority's certificate, which the controller sends along.
    Fingerprint([u8; 32]),
}

/// Where a controller is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    name: String,
    port: u16,
}

impl Server {
    /// Reads `NAME:PORT`; `https://` before it is read past.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let none = || ClientError::Address(text.into());
        let rest = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
        let (name, port) = rest.rsplit_once(':').ok_or_else(none)?;
        let port = port.parse().map_err(|_| none())?;
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(name.as_str()).map_err(|_| none())?;
        Ok(Self { name, port })
    }

    /// Reads one or several with commas between them, of controllers of one cloud.
    ///
    /// # Errors
    ///
    /// One is none.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, ClientError> {
        text.split(',').map(|one| Self::parse(one.trim())).collect()
    }

    fn shown(&self) -> String {
        if self.name.contains(':') {
            format!("[{}]:{}", self.name, self.port)
        } else {
            format!("{}:{}", self.name, self.port)
        }
    }

    fn unreachable(&self, what: impl ToString) -> ClientError {
        ClientError::Unreachable { server: self.shown(), what: what.to_string() }
    }
}

/// How a host speaks TLS: with its certificate, or before it has one.
///
/// # Errors
///
/// TLS refuses a certificate.
pub fn tls(trust: &Trust, proof: Option<&Proof>) -> Result<ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match trust {
        Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Fingerprint(hash) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned::new(*hash, provider))),
    };
    let mut config = match proof {
        None => builder.with_no_client_auth(),
        Some(proof) => {
            builder.with_client_auth_cert(vec![proof.certificate.clone()], proof.key.clone_key())?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Sessions are resumed by nobody: a host that was revoked must show its certificate anew.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Authorities in PEM.
///
/// # Errors
///
/// There is none, or one is cut off.
pub fn roots(pem: &str) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|_| ClientError::NoIdentity("a certificate is cut off".into()))?;
        roots.add(certificate)?;
    }
    match roots.is_empty() {
        true => Err(ClientError::NoIdentity("there is no certificate of an authority".into())),
        false => Ok(roots),
    }
}

/// One connection.
pub struct Channel {
    server: Server,
    grpc: tonic::client::Grpc<Http>,
}

impl Channel {
    /// Connects.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn connect(server: &Server, tls: Arc<ClientConfig>) -> Result<Self, ClientError> {
        let connecting = async {
            let name = ServerName::try_from(server.name.clone()).map_err(std::io::Error::other)?;
            let stream = TcpStream::connect((server.name.as_str(), server.port)).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(tls).connect(name, stream).await
        };
        let stream = tokio::time::timeout(CONNECT, connecting).await;
        let stream = stream
            .map_err(|_| server.unreachable("no answer in 10 s"))?
            .map_err(|error| server.unreachable(error))?;
        if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(
                server.unreachable("it takes no agents: is it a controller of this version?")
            );
        }
        let http = Http::over(stream, KEEPALIVE, KEEPALIVE_PATIENCE).await;
        let http = http.map_err(|error| server.unreachable(error))?;
        let origin = format!("https://{}", server.shown());
        let origin = origin.parse().map_err(|_| ClientError::Address(server.shown()))?;
        let grpc = tonic::client::Grpc::with_origin(http, origin);
        let grpc = grpc.max_decoding_message_size(MESSAGE_MOST);
        Ok(Self { server: server.clone(), grpc })
    }

    /// Asks for a first certificate.
    ///
    /// # Errors
    ///
    /// The controller refuses.
    pub async fn join(&mut self, request: JoinRequest) -> Result<Certificate, ClientError> {
        self.unary(JOIN, request).await
    }

    /// Asks for the next certificate.
    ///
    /// # Errors
    ///
    /// The controller refuses.
    pub async fn renew(&mut self, request: Vec<u8>) -> Result<Certificate, ClientError> {
        self.unary(RENEW, RenewRequest { request }).await
    }

    async fn unary<M: prost::Message + 'static>(
        &mut self,
        path: &'static str,
        message: M,
    ) -> Result<Certificate, ClientError> {
        let call = async {
            self.grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
            let codec = Prost::<M, Certificate>::default();
            self.grpc.unary(Request::new(message), PathAndQuery::from_static(path), codec).await
        };
        let answer = tokio::time::timeout(ANSWER, call).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in 30 s")));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refused(status))
    }

    /// Opens the stream.
    ///
    /// # Errors
    ///
    /// The controller refuses.
    pub async fn follow(
        &mut self,
        said: impl Stream<Item = FromAgent> + Send + 'static,
    ) -> Result<Streaming<FromController>, ClientError> {
        let call = async {
            self.grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
            let codec = Prost::<FromAgent, FromController>::default();
            self.grpc.streaming(Request::new(said), PathAndQuery::from_static(FOLLOW), codec).await
        };
        let answer = tokio::time::timeout(ANSWER, call).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in 30 s")));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refused(status))
    }

    /// An error of this controller.
    pub fn refused(&self, status: Status) -> ClientError {
        ClientError::Refused { server: self.server.shown(), status: Box::new(status) }
    }
}

/// HTTP/2 on one connection, as tonic wants it.
#[derive(Clone, Debug)]
pub struct Http {
    sender: SendRequest<Body>,
    /// Why the connection ended.
    ended: watch::Receiver<Option<String>>,
}

impl Http {
    /// Begins on a connection. One on which nothing comes for `interval` is asked whether it is there,
    /// and given up without an answer within `patience`.
    ///
    /// # Errors
    ///
    /// The other end speaks something else.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        interval: Duration,
        patience: Duration,
    ) -> Result<Self, hyper::Error> {
        let mut http = Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(interval)
            .keep_alive_timeout(patience)
            .keep_alive_while_idle(true);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        let (say, ended) = watch::channel(None);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                say.send_replace(Some(reasons(&error)));
            }
        });
        Ok(Self { sender, ended })
    }

    /// Why the connection ended, if it ends within this time. A call says only that it was given up.
    pub async fn why(&self, patience: Duration) -> Option<String> {
        let mut ended = self.ended.clone();
        let why = tokio::time::timeout(patience, ended.wait_for(Option::is_some)).await;
        why.ok()?.ok()?.clone()
    }
}

/// An error and what it came of.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

type Answering = Pin<
    Box<dyn Future<Output = Result<http::Response<hyper::body::Incoming>, hyper::Error>> + Send>,
>;

impl tower_service::Service<http::Request<Body>> for Http {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        Box::pin(self.sender.send_request(request))
    }
}

/// A new key, and the request of a certificate for it. What the certificate says, the controller decides.
///
/// # Errors
///
/// The key cannot be made.
pub fn draw_key() -> Result<(KeyPair, Vec<u8>), ClientError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((key, request.der().to_vec()))
}

/// Joins: makes a key, gets a certificate for it, and writes both into the folder, with what the host is to
/// have. What it was told before stays in force if it was the same host.
///
/// # Errors
///
/// The controller is not reached or refuses, or a file cannot be written.
pub async fn join(
    home: &Home,
    server: &str,
    trust: &Trust,
    host: &str,
    token: &str,
) -> Result<Identity, ClientError> {
    let servers = Server::parse_all(server)?;
    // Before the token is used up.
    home.make()?;
    let config = Arc::new(tls(trust, None)?);
    let (key, request) = draw_key()?;
    let (token, host) = (token.to_owned(), host.to_owned());
    let asked = JoinRequest { protocol: PROTOCOL, token, host: host.clone(), request };
    let made = ask_first(&servers, &config, &asked).await?;
    let identity = take_certificate(home, &key, &made, &host)?;
    let before = home.kept().ok();
    let before = before.filter(|kept| kept.host == host && kept.number == made.number);
    let new = || Kept { host, number: made.number, ..Kept::default() }.with(&made.tenants);
    home.keep(&before.unwrap_or_else(new))?;
    Ok(identity)
}

/// Asks one controller after the other, until one is not away and does not merely follow.
async fn ask_first(
    servers: &[Server],
    config: &Arc<ClientConfig>,
    asked: &JoinRequest,
) -> Result<Certificate, ClientError> {
    let mut failed = None;
    for server in servers {
        let answer = match Channel::connect(server, Arc::clone(config)).await {
            Ok(mut channel) => channel.join(asked.clone()).await,
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if error.is_elsewhere() => failed = failed.or(Some(error)),
            answer => return answer,
        }
    }
    Err(failed.expect("there is one server at least"))
}

/// Writes a new certificate down, if it is this host's.
fn take_certificate(
    home: &Home,
    key: &KeyPair,
    made: &Certificate,
    host: &str,
) -> Result<Identity, ClientError> {
    let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes())
        .map_err(|_| ClientError::Nonsense("a certificate that is none".into()))?;
    let identity = Identity::of(&certificate).filter(|identity| identity.host == host);
    let identity = identity
        .ok_or_else(|| ClientError::Nonsense("a certificate that is not this host's".into()))?;
    roots(&made.roots)?;
    home.keep_proof(&key.serialize_pem(), &made.certificate, &made.roots)?;
    Ok(identity)
}

/// The calendar's time.
#[expect(clippy::disallowed_methods, reason = "this is the driver's clock")]
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_scheme() {
        for (text, shown) in [
            ("controller.example.org:7443", "controller.example.org:7443"),
            ("https://192.0.2.1:7443/", "192.0.2.1:7443"),
            ("[2001:db8::1]:7443", "[2001:db8::1]:7443"),
        ] {
            assert_eq!(Server::parse(text).expect("an address").shown(), shown);
        }
        for text in ["", "controller", "controller:x", ":7443", "a b:1"] {
            let error = Server::parse(text).expect_err("no address").to_string();
            assert!(error.contains("write NAME:PORT"), "{error}");
        }
        let all = Server::parse_all("a.example:1, [2001:db8::1]:2").expect("two");
        assert_eq!(
            all.iter().map(Server::shown).collect::<Vec<_>>(),
            ["a.example:1", "[2001:db8::1]:2"]
        );
        assert!(Server::parse_all("a:1,,b:2").is_err());
    }
}
