//! A client of the API, for commands, tests and benches: HTTP/1.1 over TLS, one connection.

use crate::tls;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may take to begin.
const ANSWER: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("`{0}` is no address of a controller: write https://NAME:PORT")]
    Address(String),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// There is no connection.
    #[error("cannot reach the controller at {server}: {what}")]
    Unreachable {
        /// Where it should be.
        server: String,
        /// What happened.
        what: String,
    },
    /// It broke off.
    #[error(
        "the controller at {server} broke off: {what}; whether it did what was asked is unknown"
    )]
    BrokenOff {
        /// Where it is.
        server: String,
        /// What happened.
        what: String,
    },
}

/// What the controller answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status of HTTP.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Whether the request was done.
    pub const fn is_ok(&self) -> bool {
        self.status < 300
    }
}

/// Requests whose repetition changes nothing that the first one did not change.
fn is_repeatable(method: &Method, headers: &[(&str, &str)]) -> bool {
    let has_key = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
    has_key || matches!(*method, Method::GET | Method::HEAD)
}

/// Redirections of one request. More mean that the controllers do not agree on a leader.
const REDIRECTS: usize = 3;

/// Why a connection gave no answer.
enum Failed {
    Broken {
        what: String,
        /// Whether the controller has surely not taken the request.
        is_untaken: bool,
    },
    Silent,
}

/// Where a controller is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    name: String,
    port: u16,
}

impl Place {
    /// Reads `https://NAME:PORT`; what follows is read past.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("https://")?;
        let rest = rest.split('/').next()?;
        let (name, port) = rest.rsplit_once(':')?;
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { name, port: port.parse().ok()? })
    }

    fn shown(&self) -> String {
        match self.name.contains(':') {
            true => format!("https://[{}]:{}", self.name, self.port),
            false => format!("https://{}:{}", self.name, self.port),
        }
    }
}

/// A client that blocks. It goes to the next controller if one is not reached, and where one that does not
/// lead sends it.
pub struct Client {
    runtime: Runtime,
    /// The first one is asked first.
    places: Vec<Place>,
    token: String,
    tls: TlsConnector,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client of `https://NAME:PORT`, or of several with commas between them, that trusts the authority
    /// in the file `ca`.
    ///
    /// # Errors
    ///
    /// The address is none, or the file cannot be read.
    pub fn new(server: &str, ca: &Path, token: &str) -> Result<Self, ClientError> {
        let address = || ClientError::Address(server.into());
        let place = |text| Place::parse(text).ok_or_else(address);
        let places: Vec<Place> = server.split(',').map(place).collect::<Result<_, _>>()?;
        let config = tls::client_config(ca)?;
        // A thread of its own, so that the end of a connection is seen also between two requests.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Unreachable {
            server: server.into(),
            what: error.to_string(),
        })?;
        Ok(Self {
            runtime,
            places,
            token: token.into(),
            tls: TlsConnector::from(Arc::new(config)),
            connection: None,
        })
    }

    /// Asks and waits for the whole answer.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply, ClientError> {
        let mut begun = self.begin(method, path, headers, body.into())?;
        let mut body = Vec::new();
        while let Some(piece) = begun.piece(self)? {
            body.extend_from_slice(&piece);
        }
        Ok(Reply { status: begun.status, headers: begun.headers, body: body.into() })
    }

    /// `GET` of a path.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn get(&mut self, path: &str) -> Result<Reply, ClientError> {
        self.ask(Method::GET, path, &[], Bytes::new())
    }

    /// A request with a body of JSON.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn send(&mut self, method: Method, path: &str, body: &Value) -> Result<Reply, ClientError> {
        let json = [("content-type", "application/json")];
        self.ask(method, path, &json, body.to_string())
    }

    /// Asks and waits for the beginning of the answer.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn begin(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Begun, ClientError> {
        for _ in 0..=REDIRECTS {
            let answer = self.once(&method, path, headers, body.clone())?;
            if answer.status() != 307 {
                return Ok(Begun::new(answer));
            }
            let place = answer.headers().get("location");
            let place = place.and_then(|place| Place::parse(place.to_str().ok()?));
            // An answer that sends nowhere has done nothing.
            let Some(place) = place else { break };
            // The leader is asked first from now on.
            self.places.retain(|other| *other != place);
            self.places.insert(0, place);
            self.connection = None;
        }
        let what = "the controllers do not agree who leads: try again in a moment".into();
        Err(ClientError::Unreachable { server: self.shown(), what })
    }

    fn shown(&self) -> String {
        self.places.first().map(Place::shown).unwrap_or_default()
    }

    fn once(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        // The controller ends a connection that was idle for some seconds, perhaps while this request is on
        // its way. A request that it surely has not taken, or may take twice, goes to a new connection.
        let kept = self.connection.take().filter(|open| !open.is_closed());
        let answer = match kept {
            Some(kept) => match self.send_on(kept, method, path, headers, body.clone()) {
                Err(Failed::Broken { is_untaken, .. })
                    if is_untaken || is_repeatable(method, headers) =>
                {
                    let new = self.connect()?;
                    self.send_on(new, method, path, headers, body)
                }
                answer => answer,
            },
            None => {
                let new = self.connect()?;
                self.send_on(new, method, path, headers, body)
            }
        };
        answer.map_err(|failed| {
            let what = match failed {
                Failed::Broken { what, .. } => what,
                Failed::Silent => format!("no answer in {} s", ANSWER.as_secs()),
            };
            ClientError::BrokenOff { server: self.shown(), what }
        })
    }

    /// One request on one connection, which is kept if it can be used again.
    fn send_on(
        &mut self,
        mut connection: SendRequest<Full<Bytes>>,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request =
            Request::builder().method(method).uri(path).header("host", &self.places[0].name);
        // Some routes ask for none.
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        let untaken =
            |error: &dyn Display| Failed::Broken { what: error.to_string(), is_untaken: true };
        let request = request.body(Full::new(body)).map_err(|error| untaken(&error))?;
        let answer = self.runtime.block_on(async {
            connection.ready().await.map_err(|error| untaken(&error))?;
            let answer = tokio::time::timeout(ANSWER, connection.try_send_request(request)).await;
            answer.map_err(|_| Failed::Silent)?.map_err(|mut error| {
                let is_untaken = error.take_message().is_some();
                Failed::Broken { what: error.into_error().to_string(), is_untaken }
            })
        })?;
        // With these the controller has not read the whole body, and ends the connection.
        let ends = matches!(answer.status().as_u16(), 307 | 408 | 413);
        self.connection = (!ends).then_some(connection);
        Ok(answer)
    }

    /// Connects to the first controller that is reached.
    fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let mut failed = None;
        for _ in 0..self.places.len() {
            match self.connect_to(&self.places[0]) {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = failed.or(Some(error)),
            }
            self.places.rotate_left(1);
        }
        Err(failed.expect("there is one place at least"))
    }

    fn connect_to(&self, place: &Place) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let unreachable = |what: String| ClientError::Unreachable { server: place.shown(), what };
        let name = ServerName::try_from(place.name.clone());
        let name = name.map_err(|_| ClientError::Address(place.shown()))?;
        let connecting = async {
            let stream = TcpStream::connect((place.name.as_str(), place.port)).await?;
            stream.set_nodelay(true)?;
            self.tls.connect(name, stream).await
        };
        self.runtime.block_on(async {
            let stream = tokio::time::timeout(CONNECT, connecting).await;
            let stream = stream.map_err(|_| unreachable("no answer in 10 s".into()))?;
            let stream = stream.map_err(|error| unreachable(error.to_string()))?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| unreachable(error.to_string()))?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(sender)
        })
    }
}

/// An answer that has begun.
pub struct Begun {
    /// Status of HTTP.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
    /// Octets after the last whole line.
    rest: Vec<u8>,
}

impl Begun {
    fn new(answer: Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        Self { status: head.status.as_u16(), headers: head.headers, body, rest: Vec::new() }
    }

    /// The next piece of the body; nothing at its end.
    ///
    /// # Errors
    ///
    /// The controller broke off.
    pub fn piece(&mut self, client: &Client) -> Result<Option<Bytes>, ClientError> {
        let broken = |what: String| ClientError::BrokenOff { server: client.shown(), what };
        client.runtime.block_on(async {
            loop {
                match self.body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(broken(error.to_string())),
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            }
        })
    }

    /// The next line of the body; nothing at its end.
    ///
    /// # Errors
    ///
    /// The controller broke off.
    pub fn line(&mut self, client: &Client) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(at) = self.rest.iter().position(|octet| *octet == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..at]).into_owned()));
            }
            match self.piece(client)? {
                Some(piece) => self.rest.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::tls::{Authority, Current, make_authority, server_config};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    #[test]
    fn a_redirection_that_leads_nowhere_is_no_answer() {
        let folder = std::env::temp_dir().join(format!("weir-nowhere-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let (key, ca) = (folder.join("ca.key"), folder.join("ca.crt"));
        let clock = Clock::start();
        let (certificate, secret) = make_authority(clock.now()).expect("made");
        std::fs::write(&ca, certificate).expect("ours");
        std::fs::write(&key, secret).expect("ours");
        let authority = Authority::read(&key, &ca, vec!["127.0.0.1".into()]).expect("read");
        let current = Arc::new(Current::new(authority.sign(&clock).expect("signed")));
        let config = Arc::new(server_config(current, &authority, clock).expect("sound"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = format!("https://{}", listener.local_addr().expect("it is bound"));
        let answering = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let tls = rustls::ServerConnection::new(config).expect("sound");
            let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                assert!(stream.read_line(&mut line).expect("a line of the head") > 0, "it goes on");
            }
            let answer = b"HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\n\r\n";
            stream.get_mut().write_all(answer).expect("it listens");
        });
        let mut client = Client::new(&server, &ca, "secret").expect("an address");
        let told = client.send(Method::POST, "/api/v1/vms", &Value::Null);
        answering.join().expect("it answered");
        std::fs::remove_dir_all(&folder).expect("ours");
        assert!(matches!(&told, Err(ClientError::Unreachable { .. })), "{told:?}");
    }
}
