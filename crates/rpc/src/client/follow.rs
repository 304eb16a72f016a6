//! Following a controller: connect, say what is in force, take what is wanted, renew, and again.
//!
//! Promises  What was acknowledged is on the host's disk. Nothing is taken on a certificate that has
//!           ended. Waits are spread, see [`backoff`](crate::backoff).

use super::desk::{Desk, Outcome, Refusal, Report};
use super::{Channel, ClientError, Server, Trust, draw_key, now, take_certificate, tls};
use crate::PROTOCOL;
use crate::backoff::Backoff;
use crate::home::{Home, Proof};
use crate::kept::{self, Kept};
use crate::messages::{Answer, FromAgent, Hello, Known, NETWORKS};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_model::moment::Moment;

/// Messages to the controller that may wait: answers are coalesced before.
const OUTBOX: usize = 2;
/// How long the agent waits if it may not speak at all (no certificate, revoked): somebody has to join
/// it again.
const LOCKED_OUT: Duration = Duration::from_secs(10);
/// How long it waits if what was taken up cannot be written.
const DISK: Duration = Duration::from_secs(1);
/// A certificate's life in milliseconds: after half of it the host asks for the next one.
const LIFE: u64 = 24 * 3_600_000;

/// What an agent says of itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Version of its program.
    pub program: String,
    /// Rate of its uplink, bit/s.
    pub rate: u64,
    /// Where other agents reach it.
    pub control: String,
    /// Code points that tenants may be tagged with here.
    pub code_points: Vec<u8>,
    /// Floor of what the host itself sends, bit/s.
    pub own_out: u64,
}

/// One host that follows a controller.
pub struct Follower {
    /// All controllers of the cloud, the one to ask first.
    servers: Vec<Server>,
    home: Home,
    facts: Facts,
    desk: Arc<Desk>,
    kept: Kept,
    /// So long before its end a certificate is renewed, milliseconds.
    renew_before: u64,
}

/// How a stream ended.
enum End {
    /// The certificate was renewed.
    Renewed,
    /// It broke off.
    Broken(ClientError),
}

impl Follower {
    /// A host whose files are in `home`.
    ///
    /// # Errors
    ///
    /// The address is none, or the host never joined.
    pub fn new(
        server: &str,
        home: Home,
        facts: Facts,
        desk: Arc<Desk>,
    ) -> Result<Self, ClientError> {
        let servers = Server::parse_all(server)?;
        let kept = home.kept()?;
        Ok(Self { servers, home, facts, desk, kept, renew_before: LIFE / 2 })
    }

    /// The same that renews a certificate so long before it ends, in milliseconds, instead of at half of
    /// its life.
    #[must_use]
    pub fn renewing_before(self, renew_before: u64) -> Self {
        Self { renew_before, ..self }
    }

    /// So long before its end a certificate is renewed, milliseconds.
    pub const fn renews_before(&self) -> u64 {
        self.renew_before
    }

    /// Follows for ever.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        let (mut told, mut others) = (None, self.servers.len() - 1);
        loop {
            let streams = self.desk.standing().streams;
            let end = self.once().await;
            let had_stream = self.desk.standing().streams > streams;
            if had_stream {
                backoff.reset();
                (told, others) = (None, self.servers.len() - 1);
            }
            let error = match end {
                Ok(End::Renewed) => continue,
                Ok(End::Broken(error)) | Err(error) => error,
            };
            if error.is_elsewhere() {
                self.servers.rotate_left(1);
                // Without a wait, as long as there is one that was not asked; but all agents lose their
                // streams at once.
                if others > 0 && !had_stream {
                    others -= 1;
                    tracing::debug!("{error}: asks the next controller");
                    continue;
                }
                if !had_stream {
                    others = self.servers.len() - 1;
                }
            }
            let said = error.to_string();
            if told.as_ref() != Some(&said) {
                tracing::warn!("{said}; floors stay as they are, and changes wait");
                told = Some(said.clone());
            }
            self.desk.stand(|standing| {
                standing.connected = false;
                standing.failures += 1;
                standing.trouble = Some(said);
            });
            let wait = backoff.next(random());
            let wait = if is_locked_out(&error) { wait.max(LOCKED_OUT) } else { wait };
            tokio::time::sleep(wait).await;
        }
    }

    /// One stream, from its beginning to its end.
    async fn once(&mut self) -> Result<End, ClientError> {
        let proof = self.valid_proof()?;
        let until = proof.identity.until;
        let config = tls(&Trust::Roots(proof.roots.clone()), Some(&proof))?;
        let mut channel = Channel::connect(&self.servers[0], Arc::new(config)).await?;
        let (say, said) = mpsc::channel(OUTBOX);
        let hello = self.hello();
        let first = FromAgent { hello: Some(hello), ..FromAgent::default() };
        say.send(first).await.map_err(|_| ClientError::Nonsense("nothing".into()))?;
        let mut wanted = channel.follow(ReceiverStream::new(said)).await?;
        // This controller has not asked yet.
        self.desk.want_usage(0);
        self.desk.stand(|standing| {
            standing.connected = true;
            standing.streams += 1;
            standing.trouble = None;
        });
        tracing::info!("follows the controller at {}", self.servers[0].shown());
        let mut renew_at = until.as_millis().saturating_sub(self.renew_before);
        loop {
            let present = now();
            let left = until.as_millis().saturating_sub(present.as_millis());
            self.desk.stand(|standing| standing.certificate_s = left / 1000);
            if left == 0 {
                return Ok(End::Broken(expired(until)));
            }
            let wait = renew_at.saturating_sub(present.as_millis()).min(left).max(1);
            tokio::select! {
                message = wanted.message() => match message {
                    Ok(Some(message)) => {
                        if !message.roots.is_empty() && message.roots != proof.roots {
                            self.trust(&message.roots)?;
                        }
                        if let Some(every) = message.usage_every_ms {
                            self.desk.want_usage(every);
                        }
                        if let Some(mode) = &message.mode {
                            self.want_mode(mode);
                        }
                        if let Some(every) = message.accounts_every_ms {
                            self.desk.want_accounts(every);
                        }
                        self.want(message.tenants)?;
                    }
                    Ok(None) => {
                        let ended = tonic::Status::unavailable("it ended the stream");
                        return Ok(End::Broken(channel.refused(ended)));
                    }
                    Err(status) => return Ok(End::Broken(channel.refused(status))),
                },
                () = self.desk.answered.notified() => {
                    let answers = self.keep().await;
                    if !answers.is_empty() {
                        let message = FromAgent { answers, ..FromAgent::default() };
                        // A stream that ended shows in what is received.
                        drop(say.send(message).await);
                    }
                }
                () = self.desk.reported.notified() => {
                    let (report, accounts) = (self.desk.take_report(), self.desk.take_accounts());
                    if report.is_some() || accounts.is_some() {
                        let Report { at_ms, used } = report.unwrap_or_default();
                        let message =
                            FromAgent { used, used_at_ms: at_ms, accounts, ..FromAgent::default() };
                        // Where there is no room, the next report says the same and more.
                        drop(say.try_send(message));
                    }
                }
                // In steps, for a calendar that jumps.
                () = tokio::time::sleep(Duration::from_millis(wait.min(60_000))) => {
                    if now().as_millis() >= renew_at {
                        match self.renew(&mut channel).await {
                            Ok(()) => return Ok(End::Renewed),
                            Err(error) => {
                                tracing::warn!("the certificate was not renewed: {error}");
                                renew_at = now().as_millis() + LIFE / 48;
                            }
                        }
                    }
                }
            }
        }
    }

    fn valid_proof(&self) -> Result<Proof, ClientError> {
        let never =
            || ClientError::NoIdentity("this host has not joined: `weir agent join`".into());
        let proof = self.home.proof()?.ok_or_else(never)?;
        let (host, other) = (&self.kept.host, &proof.identity.host);
        if host != other {
            let what = format!(
                "the certificate in {} is of host `{other}`, and this is host `{host}`: join again with \
                 `weir agent join`",
                self.home.path().display()
            );
            return Err(ClientError::NoIdentity(what));
        }
        match proof.identity.until <= now() {
            true => Err(expired(proof.identity.until)),
            false => Ok(proof),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            program: self.facts.program.clone(),
            rate: self.facts.rate,
            control: self.facts.control.clone(),
            known: self.known(),
            features: vec![NETWORKS.into()],
            code_points: self.facts.code_points.iter().copied().map(u32::from).collect(),
            own_out: Some(self.facts.own_out),
        }
    }

    /// What is in force, by what is written down. A tenant of which a former stream's state is still open has no
    /// digest: it is told anew, and its floors are not counted as those on the disk.
    fn known(&self) -> Vec<Known> {
        let mut known = self.kept.known();
        for tenant in self.desk.open() {
            match known.iter_mut().find(|one| one.tenant == tenant) {
                Some(one) => one.digest = 0,
                None => known.push(Known { tenant, ..Known::default() }),
            }
        }
        known
    }

    /// Passes on what is wanted. The keys are on the disk before, because the loop reads them there.
    fn want(&self, tenants: Vec<crate::messages::Tenant>) -> Result<(), ClientError> {
        if !tenants.is_empty() {
            self.home.keep_keys(&self.kept.with(&tenants))?;
            self.desk.want(tenants);
        }
        Ok(())
    }

    fn want_mode(&self, text: &str) {
        match kept::mode(text) {
            Ok(mode) => self.desk.want_mode(mode),
            Err(what) => tracing::error!("{what}: the mode stays"),
        }
    }

    /// Writes down what was taken up, and says what became of all.
    async fn keep(&mut self) -> Vec<Answer> {
        let done = self.desk.answers();
        let taken = done.iter().filter_map(|outcome| outcome.taken.as_ref());
        let mut next = self.kept.with(taken);
        // A mode that the agent refuses is not on the disk: its next start would fail of it.
        next.mode = self.desk.mode_taken().unwrap_or(next.mode);
        if next != self.kept {
            // What is in force and not on the disk is not acknowledged.
            while let Err(error) = self.home.keep(&next) {
                tracing::error!("{error}: trying again");
                tokio::time::sleep(DISK).await;
            }
            self.kept = next;
        }
        done.into_iter()
            .map(|Outcome { last: (tenant, result), .. }| {
                answer(tenant.name, tenant.version, result)
            })
            .collect()
    }

    async fn renew(&self, channel: &mut Channel) -> Result<(), ClientError> {
        let (key, request) = draw_key()?;
        let made = channel.renew(request).await?;
        let identity = take_certificate(&self.home, &key, &made, &self.kept.host)?;
        tracing::info!("the certificate was renewed until {}", identity.until);
        Ok(())
    }

    /// Takes up another list of authorities beside the present certificate.
    fn trust(&self, roots: &str) -> Result<(), ClientError> {
        super::roots(roots)?;
        self.home.keep_roots(roots)?;
        tracing::info!("took up the controller's authorities");
        Ok(())
    }
}

fn answer(tenant: String, version: u64, result: Result<(), Refusal>) -> Answer {
    let applied = result.is_ok();
    let (reason, message) = match result {
        Ok(()) => (String::new(), String::new()),
        Err(Refusal { reason, message }) => (reason, message),
    };
    Answer { tenant, version, applied, reason, message }
}

fn expired(until: Moment) -> ClientError {
    ClientError::NoIdentity(format!(
        "this host's certificate ended at {until}: get a token with `weir host token` and join again"
    ))
}

/// Whether waiting alone does not help.
fn is_locked_out(error: &ClientError) -> bool {
    match error {
        ClientError::NoIdentity(_) | ClientError::Home(_) => true,
        ClientError::Refused { status, .. } => matches!(
            status.code(),
            tonic::Code::PermissionDenied
                | tonic::Code::Unauthenticated
                | tonic::Code::FailedPrecondition
        ),
        _ => false,
    }
}

fn random() -> u64 {
    let mut octets = [0; 8];
    // Without randomness the waits are all zero: rude, and never wrong.
    let _ = SystemRandom::new().fill(&mut octets);
    u64::from_ne_bytes(octets)
}
