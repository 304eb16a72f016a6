//! Connections: TLS, their number, their patience.

use super::{Shared, router};
use crate::agents;
use crate::tls::{self, Current, TlsError};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Open connections. Each is one open file, and takes some 50 kB with TLS.
pub(crate) const CONNECTIONS: usize = 20_000;
/// Handshakes at the same time. More wait in line, so that all are done in time when thousands of agents
/// come back.
const HANDSHAKES: usize = 64;
/// How long a client may take for the handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests in progress may take when the controller ends.
const GRACE: Duration = Duration::from_secs(5);

/// The API at a port.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    tls: TlsAcceptor,
}

/// Takes the port.
///
/// # Errors
///
/// The port is not free.
pub async fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        let what = format!("cannot listen at {listen}: {error}; is another controller running?");
        io::Error::new(error.kind(), what)
    })
}

impl Server {
    pub(crate) fn new(
        listener: TcpListener,
        shared: Arc<Shared>,
        current: Arc<Current>,
    ) -> Result<Self, TlsError> {
        let config = tls::server_config(current, &shared.authority, shared.clock)?;
        Ok(Self { listener, shared, tls: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Serves until `stop` says so, then lets requests in progress end.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        let service = router(Arc::clone(&self.shared));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Too many open files, for instance: they become fewer.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                self.shared.metrics.refused_connections.inc();
                continue;
            };
            let (tls, service) = (self.tls.clone(), service.clone());
            let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
            let handshakes = Arc::clone(&handshakes);
            tokio::spawn(async move {
                shared.metrics.connections.inc();
                connection(&shared, stream, (tls, &handshakes), service, stop).await;
                shared.metrics.connections.dec();
                drop(place);
            });
        }
        self.shared.stopping.store(true, Ordering::Relaxed);
        drop(self.listener);
        let all = u32::try_from(CONNECTIONS).expect("it is a small number");
        // Who does not end in time is cut off.
        drop(tokio::time::timeout(GRACE, room.acquire_many(all)).await);
    }
}

async fn connection(
    shared: &Arc<Shared>,
    stream: TcpStream,
    (tls, handshakes): (TlsAcceptor, &Semaphore),
    service: axum::Router,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small; each is sent at once.
    drop(stream.set_nodelay(true));
    let Ok(turn) = handshakes.acquire().await else { return };
    let accepted = tokio::time::timeout(PATIENCE, tls.accept(stream)).await;
    drop(turn);
    let Ok(Ok(stream)) = accepted else {
        shared.metrics.failed_handshakes.inc();
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(weir_rpc::client::ALPN) {
        return agents::connection(shared, stream, stop).await;
    }
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 << 10);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    tokio::select! {
        // A client that breaks off is no news.
        ended = &mut served => drop(ended),
        () = async { drop(stop.wait_for(|stop| *stop).await) } => {
            served.as_mut().graceful_shutdown();
            drop(served.await);
        }
    }
}
