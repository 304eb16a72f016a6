//! gRPC on one connection.

use super::fleet::{Attached, Fleet};
use super::request;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::http::Shared;
use crate::problem::Problem;
use crate::state::{Action, Actor, Request as Asked, Role};
use crate::store::Standing;
use crate::tls::{Authority, HOST_LIFE};
use crate::tokens;
use axum::http;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::Value;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Request, Response, Status, Streaming};
use weir_rpc::client::{KEEPALIVE, KEEPALIVE_PATIENCE};
use weir_rpc::codec::Prost;
use weir_rpc::identity::Identity;
use weir_rpc::messages::{
    Certificate, FOLLOW, FromAgent, FromController, Hello, JOIN, JoinRequest, RENEW, RenewRequest,
};
use weir_rpc::{MESSAGE_MOST, PROTOCOL};

/// How long an agent may take to introduce itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an agent waits for a leader that has just begun.
const BEGINNING: Duration = Duration::from_secs(5);
/// How long a stream waits after the store failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Messages that wait for the network, beside the one that is unanswered.
const OUTBOX: usize = 1;

/// Who is at the other end of a connection.
#[derive(Clone)]
struct Caller {
    shared: Arc<Shared>,
    /// None without a certificate.
    identity: Option<Identity>,
    stop: watch::Receiver<bool>,
}

/// Serves a connection to its end.
pub(crate) async fn connection(
    shared: &Arc<Shared>,
    stream: TlsStream<TcpStream>,
    mut stop: watch::Receiver<bool>,
) {
    let certificates = stream.get_ref().1.peer_certificates();
    let identity = certificates.and_then(|all| Identity::of(all.first()?));
    let caller = Caller { shared: Arc::clone(shared), identity, stop: stop.clone() };
    let service = service_fn(move |request| {
        let caller = caller.clone();
        async move { Ok::<_, Infallible>(caller.answer(request).await) }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_PATIENCE)
        // A stream, and a call to renew.
        .max_concurrent_streams(4)
        .max_header_list_size(8 << 10);
    let served = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        // An agent that breaks off is no news here: the stream's end tells the fleet.
        ended = &mut served => drop(ended),
        () = async { drop(stop.wait_for(|stop| *stop).await) } => {
            served.as_mut().graceful_shutdown();
            drop(served.await);
        }
    }
}

impl Caller {
    async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            JOIN => {
                let codec = Prost::<Certificate, JoinRequest>::default();
                let service = Call(|asked: JoinRequest| self.join(asked));
                tonic::server::Grpc::new(codec).unary(service, request).await
            }
            RENEW => {
                let codec = Prost::<Certificate, RenewRequest>::default();
                let service = Call(|asked: RenewRequest| self.renew(asked));
                tonic::server::Grpc::new(codec).unary(service, request).await
            }
            FOLLOW => {
                let codec = Prost::<FromController, FromAgent>::default();
                let service = Call(|said: Streaming<FromAgent>| self.follow(said));
                let grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MESSAGE_MOST);
                let mut grpc = grpc;
                grpc.streaming(service, request).await
            }
            other => Status::unimplemented(format!("there is nothing at {other}")).into_http(),
        }
    }

    /// The fleet. Agents of a controller that does not lead try the next one.
    async fn fleet(&self) -> Result<Arc<Fleet>, Status> {
        let standing = self.shared.engine.standing().borrow().clone();
        let why = match standing {
            Standing::Leads { .. } => match self.shared.fleet.get(BEGINNING).await {
                Some(fleet) => return Ok(fleet),
                None => "this controller has just begun to lead".to_owned(),
            },
            Standing::Follows { leader: Some(leader), .. } => {
                format!("this controller does not lead, {} does", leader.url)
            }
            Standing::Follows { why, .. } => format!("no controller leads at present: {why}"),
        };
        Err(Status::unavailable(why))
    }

    async fn join(self, asked: JoinRequest) -> Result<Certificate, Status> {
        let Shared { engine, clock, authority, .. } = &*self.shared;
        same_protocol(asked.protocol)?;
        let key = key_of(&asked.request)?;
        // Before the token is used up.
        let fleet = self.fleet().await?;
        let hash = tokens::hash(&asked.token);
        let (enrolment, number) = enrol(engine, &hash, &asked.host).await?;
        let tenants = fleet.begin(&asked.host).await.map_err(|problem| status_of(&problem))?;
        tracing::info!("host {} joined", asked.host);
        let until = clock.latest().plus_millis(HOST_LIFE);
        let identity = Identity { host: asked.host, enrolment, until };
        let certificate = certificate(authority, *clock, &key, &identity, number)?;
        Ok(Certificate { tenants, ..certificate })
    }

    async fn renew(self, asked: RenewRequest) -> Result<Certificate, Status> {
        let Shared { clock, authority, view, .. } = &*self.shared;
        let (identity, _) = self.known().await?;
        let key = key_of(&asked.request)?;
        let host = view.get(weir_model::objects::Kind::Host, &identity.host);
        let number = host.and_then(|host| host.object.status.number).unwrap_or_default();
        let identity = Identity { until: clock.latest().plus_millis(HOST_LIFE), ..identity };
        certificate(authority, *clock, &key, &identity, number)
    }

    /// Whose certificate it is, if it is good still.
    async fn known(&self) -> Result<(Identity, Arc<Fleet>), Status> {
        let identity = self.identity.clone().ok_or_else(|| {
            Status::unauthenticated("show the certificate that the host got when it joined")
        })?;
        if identity.until <= self.shared.clock.earliest() {
            let ended = format!("the certificate ended at {}: join again", identity.until);
            return Err(Status::unauthenticated(ended));
        }
        let fleet = self.fleet().await?;
        fleet.catch_up().await;
        let checked = fleet.check(&identity.host, identity.enrolment);
        checked.map_err(|stranger| Status::permission_denied(stranger.0))?;
        Ok((identity, fleet))
    }

    async fn follow(
        self,
        mut said: Streaming<FromAgent>,
    ) -> Result<ReceiverStream<Result<FromController, Status>>, Status> {
        let (identity, fleet) = self.known().await?;
        let first = tokio::time::timeout(PATIENCE, said.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no introduction in 10 s"))??;
        let hello = first.and_then(|first| first.hello);
        let hello: Hello = hello.ok_or_else(|| Status::invalid_argument("introduce yourself"))?;
        same_protocol(hello.protocol)?;
        let attached = fleet.attach(&identity.host, identity.enrolment, &hello);
        let attached = attached.map_err(|stranger| Status::permission_denied(stranger.0))?;
        let (say, out) = mpsc::channel(OUTBOX);
        self.shared.metrics.agents.inc();
        tokio::spawn(async move {
            let ended = self.speak(&fleet, &identity, &attached, &mut said, &say).await;
            fleet.detach(&identity.host, &attached);
            self.shared.books.detach(&identity.host);
            self.shared.metrics.agents.dec();
            if let Err(status) = ended {
                // Nobody hears it if the connection is gone.
                drop(say.try_send(Err(status)));
            }
        });
        Ok(ReceiverStream::new(out))
    }

    /// One stream, from the introduction to its end.
    async fn speak(
        &self,
        fleet: &Fleet,
        identity: &Identity,
        attached: &Attached,
        said: &mut Streaming<FromAgent>,
        say: &mpsc::Sender<Result<FromController, Status>>,
    ) -> Result<(), Status> {
        let Shared { clock, authority, .. } = &*self.shared;
        let host = &identity.host;
        let gone = || Status::unavailable("the agent is gone");
        let mut every = fleet.usage_every_ms();
        let mut accounts_every = fleet.accounts_every_ms();
        let mut mode = fleet.mode_of(host);
        let first = FromController {
            roots: authority.roots().into(),
            usage_every_ms: (every > 0).then_some(every),
            accounts_every_ms: Some(accounts_every),
            mode: Some(mode.clone()),
            ..FromController::default()
        };
        say.send(Ok(first)).await.map_err(|_| gone())?;
        let end = tokio::time::sleep(clock.left(identity.until));
        tokio::pin!(end);
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                message = said.message() => match message? {
                    Some(message) => {
                        // Zero is no time of a report: the agent's clock does not begin with it.
                        if message.used_at_ms > 0 {
                            fleet.used(host, message.used_at_ms, &message.used);
                        }
                        if let Some(accounts) = message.accounts {
                            fleet.says_mode(host, accounts.observing);
                            let (shared, name) = (Arc::clone(&self.shared), host.clone());
                            // It may read the disk.
                            let take = move || {
                                let now = shared.clock.now();
                                shared.books.take(&name, accounts, now, &shared.view);
                            };
                            drop(tokio::task::spawn_blocking(take).await);
                        }
                        if !message.answers.is_empty() {
                            fleet.answered(host, attached.id, &message.answers);
                        }
                    }
                    None => return Ok(()),
                },
                () = attached.bell.notified() => {
                    if fleet.is_closed() {
                        return Err(Status::unavailable("another controller leads"));
                    }
                    if !fleet.is_present(host, attached.id, identity.enrolment) {
                        let why = "the certificate was revoked, or the host opened another stream";
                        return Err(Status::permission_denied(why));
                    }
                    let now_mode = fleet.mode_of(host);
                    if now_mode != mode {
                        mode = now_mode;
                        let message =
                            FromController { mode: Some(mode.clone()), ..FromController::default() };
                        say.send(Ok(message)).await.map_err(|_| gone())?;
                    }
                    let now_every = (fleet.usage_every_ms(), fleet.accounts_every_ms());
                    if now_every != (every, accounts_every) {
                        (every, accounts_every) = now_every;
                        let message = FromController {
                            usage_every_ms: Some(every),
                            accounts_every_ms: Some(accounts_every),
                            ..FromController::default()
                        };
                        say.send(Ok(message)).await.map_err(|_| gone())?;
                    }
                    match fleet.next(host, attached.id).await {
                        Ok(tenants) if tenants.is_empty() => {}
                        Ok(tenants) => {
                            let message = FromController { tenants, ..FromController::default() };
                            say.send(Ok(message)).await.map_err(|_| gone())?;
                        }
                        Err(problem) => {
                            tracing::warn!("host {host} is not told: {}", problem.detail);
                            let bell = Arc::clone(&attached.bell);
                            tokio::spawn(async move {
                                tokio::time::sleep(PAUSE).await;
                                bell.notify_one();
                            });
                        }
                    }
                }
                () = &mut end => {
                    let ended = "the certificate ended: join again";
                    return Err(Status::unauthenticated(ended));
                }
                () = async { drop(stop.wait_for(|stop| *stop).await) } => {
                    return Err(Status::unavailable("the controller is ending"));
                }
            }
        }
    }
}

fn same_protocol(theirs: u32) -> Result<(), Status> {
    if theirs == PROTOCOL {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "the agent speaks version {theirs} of the messages, this controller version {PROTOCOL}: \
         install the same version of Weir on both"
    )))
}

fn key_of(asked: &[u8]) -> Result<request::HostKey, Status> {
    request::key_of(asked)
        .map_err(|what| Status::invalid_argument(format!("the request of a certificate: {what}")))
}

/// Uses up a token. Returns the enrolment and the host's number.
async fn enrol(engine: &Engine, token: &str, host: &str) -> Result<(u64, u32), Status> {
    let actor = Actor { name: format!("host:{host}"), role: Role::Host, tenant: None };
    let action = Action::Join { token: token.into(), host: host.into() };
    let asked = Asked { actor, dry_run: false, idempotency: None, action };
    let answer = engine.ask(asked).await.map_err(|problem| status_of(&problem))?;
    let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let number = |key: &str| told[key].as_u64();
    match (number("enrolment"), number("number").and_then(|n| u32::try_from(n).ok())) {
        (Some(enrolment), Some(number)) => Ok((enrolment, number)),
        _ => Err(Status::internal("the host has no number")),
    }
}

fn status_of(problem: &Problem) -> Status {
    let detail = problem.detail.clone();
    match problem.status {
        401 => Status::unauthenticated(detail),
        403 => Status::permission_denied(detail),
        404 => Status::not_found(detail),
        307 | 503 | 507 => Status::unavailable(detail),
        _ => Status::failed_precondition(detail),
    }
}

fn certificate(
    authority: &Authority,
    clock: Clock,
    key: &request::HostKey,
    identity: &Identity,
    number: u32,
) -> Result<Certificate, Status> {
    let signed = authority.sign_host(clock.earliest(), key, identity);
    let certificate = signed.map_err(|error| Status::internal(error.to_string()))?;
    let roots = authority.roots().into();
    Ok(Certificate { certificate, roots, number, tenants: Vec::new() })
}

/// A call as tower has it.
struct Call<F>(F);

type Answering<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send>>;

impl<F, A, R, Fut> tower_service::Service<Request<A>> for Call<F>
where
    F: FnOnce(A) -> Fut + Clone,
    Fut: Future<Output = Result<R, Status>> + Send + 'static,
{
    type Response = Response<R>;
    type Error = Status;
    type Future = Answering<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Answering<R> {
        let answer = (self.0.clone())(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}
