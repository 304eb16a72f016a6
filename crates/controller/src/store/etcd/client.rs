//! Calls of etcd: one connection at a time, the next endpoint when one does not answer.
//!
//! Problem   An endpoint may be dead, paused, or cut off from the others, and a call must not wait for it
//!           longer than a writer can.
//! Approach  A call is tried at one endpoint after the other until it is answered or its patience ends.
//! Promises  Every call ends in bounded time. A call that failed may have been done, and one that
//!           succeeded may have been done twice: calls that change something are conditional.

use super::messages::{
    self, CompactionRequest, GrantRequest, GrantResponse, KeepAliveResponse, LeaseRequest, Nothing,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreate, WatchRequest, WatchResponse,
};
use crate::store::StoreError;
use http::uri::PathAndQuery;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status, Streaming};
use weir_rpc::client::Http;
use weir_rpc::codec::Prost;

/// How long a connection to an endpoint may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long an endpoint may take for an answer before another one is asked.
const ANSWER: Duration = Duration::from_secs(2);
/// A silent connection is asked whether it is there after this time; etcd takes more than one in five
/// seconds for an attack. It is given up after the second one.
const KEEPALIVE: Duration = Duration::from_secs(6);
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(3);
/// Wait between two attempts.
const BETWEEN: Duration = Duration::from_millis(50);
/// The largest answer: a page of records, or all changes of one transaction.
const ANSWER_MOST: usize = 64 << 20;

/// etcd's endpoints.
pub(super) struct Client {
    endpoints: Vec<(String, u16)>,
    tls: Option<TlsConnector>,
    /// The endpoint in use.
    at: AtomicUsize,
    open: Mutex<Option<(Grpc, Http)>>,
    /// For messages.
    shown: String,
}

type Grpc = tonic::client::Grpc<Http>;

impl Client {
    pub(super) fn new(endpoints: Vec<(String, u16)>, tls: Option<TlsConnector>) -> Self {
        let all: Vec<String> =
            endpoints.iter().map(|(name, port)| format!("{name}:{port}")).collect();
        let shown = format!("etcd at {}", all.join(", "));
        Self { endpoints, tls, at: AtomicUsize::new(0), open: Mutex::default(), shown }
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) async fn range(
        &self,
        request: RangeRequest,
        patience: Duration,
    ) -> Result<RangeResponse, StoreError> {
        self.call(messages::RANGE, request, patience).await
    }

    pub(super) async fn txn(
        &self,
        request: TxnRequest,
        patience: Duration,
    ) -> Result<TxnResponse, StoreError> {
        self.call(messages::TXN, request, patience).await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), StoreError> {
        let asked = CompactionRequest { revision };
        self.call::<_, Nothing>(messages::COMPACT, asked, ANSWER).await.map(drop)
    }

    /// A lease of so many seconds.
    pub(super) async fn grant(
        &self,
        seconds: i64,
        patience: Duration,
    ) -> Result<GrantResponse, StoreError> {
        self.call(messages::GRANT, GrantRequest { ttl: seconds }, patience).await
    }

    pub(super) async fn revoke(&self, id: i64, patience: Duration) -> Result<(), StoreError> {
        self.call::<_, Nothing>(messages::REVOKE, LeaseRequest { id }, patience).await.map(drop)
    }

    /// Prolongs a lease. False if it has ended.
    pub(super) async fn keep_alive(&self, id: i64, patience: Duration) -> Result<bool, StoreError> {
        let once = |mut grpc: Grpc| async move {
            let path = PathAndQuery::from_static(messages::KEEP_ALIVE);
            let said = Request::new(tokio_stream::once(LeaseRequest { id }));
            let codec = Prost::<LeaseRequest, KeepAliveResponse>::default();
            let mut told = grpc.streaming(said, path, codec).await?.into_inner();
            told.message().await?.ok_or_else(|| Status::unavailable("it ended the stream"))
        };
        let answer = self.attempts(once, patience).await?;
        Ok(answer.ttl > 0)
    }

    /// All changes of a range from a revision on.
    pub(super) async fn watch(
        &self,
        create: WatchCreate,
    ) -> Result<Streaming<WatchResponse>, StoreError> {
        let once = |mut grpc: Grpc| {
            let create = Some(create.clone());
            async move {
                let path = PathAndQuery::from_static(messages::WATCH);
                // It stays open: etcd ends the watch with what is sent to it.
                let said = tokio_stream::once(WatchRequest { create });
                let said = said.chain(tokio_stream::pending());
                let mut said = Request::new(said);
                // An endpoint that is cut off from the others ends the watch.
                let yes = "true".parse().expect("it is ASCII");
                said.metadata_mut().insert("hasleader", yes);
                let codec = Prost::<WatchRequest, WatchResponse>::default();
                Ok(grpc.streaming(said, path, codec).await?.into_inner())
            }
        };
        self.attempts(once, ANSWER).await
    }

    async fn call<A, B>(
        &self,
        path: &'static str,
        asked: A,
        patience: Duration,
    ) -> Result<B, StoreError>
    where
        A: prost::Message + Clone + 'static,
        B: prost::Message + Default + 'static,
    {
        let once = |mut grpc: Grpc| {
            let asked = asked.clone();
            async move {
                let path = PathAndQuery::from_static(path);
                let answer =
                    grpc.unary(Request::new(asked), path, Prost::<A, B>::default()).await?;
                Ok(answer.into_inner())
            }
        };
        self.attempts(once, patience).await
    }

    /// Tries at one endpoint after the other.
    async fn attempts<T, F>(
        &self,
        once: impl Fn(Grpc) -> F,
        patience: Duration,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let until = Instant::now() + patience;
        let mut reason = None;
        loop {
            let at = self.at.load(Ordering::Relaxed);
            let left = until.saturating_duration_since(Instant::now()).min(ANSWER);
            let attempt = async {
                let mut grpc = self.channel(at).await.map_err(unreachable)?;
                grpc.ready().await.map_err(unreachable)?;
                once(grpc).await
            };
            let answer = timeout(left, attempt).await;
            let status = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => {
                    Status::deadline_exceeded(format!("no answer in {} ms", left.as_millis()))
                }
            };
            if is_final(&status) {
                return Err(self.refused(&status));
            }
            // The last attempt may have milliseconds, and end before it is told anything.
            reason = self.next(at).await.or(reason);
            if Instant::now() + BETWEEN >= until {
                let why = reason.unwrap_or_else(|| status.message().to_owned());
                let (name, port) = &self.endpoints[at % self.endpoints.len()];
                let what = format!("{name}:{port}: {why}");
                return Err(StoreError::Unreachable { path: self.shown.clone(), what });
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Gives up the connection to an endpoint, if no other call did so before. Says why it ended, if it
    /// has: a client without a good certificate is told so after the handshake.
    async fn next(&self, at: usize) -> Option<String> {
        let mut open = self.open.lock().await;
        let next = (at + 1) % self.endpoints.len();
        let changed =
            self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // With one endpoint it is the same one again.
        let former = if changed { open.take() } else { None };
        drop(open);
        let (_, http) = former?;
        http.why(BETWEEN).await
    }

    async fn channel(&self, at: usize) -> io::Result<Grpc> {
        let mut open = self.open.lock().await;
        if let Some((grpc, _)) = &*open {
            return Ok(grpc.clone());
        }
        let (name, port) = &self.endpoints[at % self.endpoints.len()];
        let connecting = async {
            let stream = TcpStream::connect((name.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let http = match &self.tls {
                None => Http::over(stream, KEEPALIVE, KEEPALIVE_PATIENCE).await,
                Some(tls) => {
                    let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
                    let stream = tls.connect(name, stream).await?;
                    Http::over(stream, KEEPALIVE, KEEPALIVE_PATIENCE).await
                }
            };
            http.map_err(io::Error::other)
        };
        let http = timeout(CONNECT, connecting).await;
        let http = http.map_err(|_| io::Error::other("no connection in 1 s"))??;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{name}:{port}").parse().map_err(io::Error::other)?;
        let grpc = Grpc::with_origin(http.clone(), origin).max_decoding_message_size(ANSWER_MOST);
        *open = Some((grpc.clone(), http));
        Ok(grpc)
    }

    fn refused(&self, status: &Status) -> StoreError {
        let (path, what) = (self.shown.clone(), status.message().to_owned());
        match status.code() {
            Code::ResourceExhausted if what.contains("space exceeded") => {
                StoreError::Quota { path }
            }
            _ => StoreError::Refused { path, what },
        }
    }
}

fn unreachable(error: impl ToString) -> Status {
    Status::unavailable(error.to_string())
}

/// Whether another endpoint would say the same.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::NotFound
            | Code::Unimplemented
    )
}
