//! Following a controller: a thread beside the loop, and joining before.

use crate::config::Setup;
use anyhow::{Context, Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use weir_model::agent::{AgentConfig, Mode};
use weir_model::status::TenantUse;
use weir_rpc::client::desk::{Desk, Done, Report};
use weir_rpc::client::follow::{Facts, Follower};
use weir_rpc::client::{Trust, join as join_controller};
use weir_rpc::home::Home;
use weir_rpc::kept::Kept;
use weir_rpc::messages::{Accounts, Tenant, Used};
use weir_units::{Span, Time};

/// The files by which this host is known to its controller.
pub(crate) fn home(file: &AgentConfig) -> Option<Home> {
    file.controller.as_ref().map(|followed| Home::new(&followed.state_dir))
}

/// The thread, as the loop sees it.
pub(crate) struct Link {
    desk: Arc<Desk>,
    bell: OwnedFd,
    /// What is in force.
    kept: Kept,
    /// When the controller was last told what tenants use.
    reported: Time,
    /// When it was last told how floors were kept.
    accounted: Time,
}

impl Link {
    /// Starts the thread if the configuration names a controller.
    pub(crate) fn start(setup: &Setup) -> Result<Option<Self>> {
        let file = &setup.file;
        let (Some(home), Some(followed)) = (home(file), &file.controller) else { return Ok(None) };
        let kept = home.kept()?;
        let (bell, rope) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        let desk = Arc::new(Desk::new(move || {
            // Full, it rings already.
            let _ = rustix::io::write(&rope, &[1]);
        }));
        let facts = Facts {
            program: env!("CARGO_PKG_VERSION").into(),
            rate: file.uplink.rate.0.as_bps(),
            control: file.listen.to_string(),
            code_points: file.code_points.clone(),
            own_out: file.uplink.host_floor.map_or(0, |floor| floor.0.as_bps()),
        };
        let follower = Follower::new(&followed.address, home, facts, Arc::clone(&desk))?;
        let runtime = runtime()?;
        std::thread::Builder::new()
            .name("controller".into())
            .spawn(move || runtime.block_on(follower.run()))
            .context("the thread that speaks to the controller could not be started")?;
        Ok(Some(Self { desk, bell, kept, reported: Time::ZERO, accounted: Time::ZERO }))
    }

    /// Readable when something may be wanted.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether the bell rang.
    pub(crate) fn has_news(&self) -> bool {
        let mut rings = [0u8; 64];
        rustix::io::read(&self.bell, &mut rings).is_ok_and(|rung| rung > 0)
    }

    /// The mode that the controller wants, if it is another than the one in force.
    pub(crate) fn other_mode(&self) -> Option<Option<Mode>> {
        self.desk.mode().filter(|mode| *mode != self.kept.mode)
    }

    /// The mode of `kept` is in force.
    pub(crate) fn answer_mode(&self) {
        self.desk.answer_mode(self.kept.mode);
    }

    pub(crate) fn take(&self) -> Vec<Tenant> {
        self.desk.take()
    }

    pub(crate) fn answer(&self, done: Vec<Done>) {
        self.desk.answer(done);
    }

    /// What is in force.
    pub(crate) const fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Something else is in force.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// When the controller is to be told what tenants use, if it wants to know.
    pub(crate) fn report_due(&self) -> Option<Time> {
        let every = self.desk.usage_every_ms();
        (every > 0).then(|| self.reported + Span::from_millis(every.into()))
    }

    /// Tells it.
    pub(crate) fn report(&mut self, now: Time, tenants: Vec<TenantUse>) {
        self.reported = now;
        let used = |told: TenantUse| Used {
            tenant: told.tenant,
            sent: told.sent,
            received: told.received,
        };
        let at_ms = now.as_nanos() / 1_000_000;
        self.desk.report(Report { at_ms, used: tenants.into_iter().map(used).collect() });
    }

    /// When the controller is to be told how floors were kept, if it wants to know.
    pub(crate) fn accounts_due(&self) -> Option<Time> {
        let every = self.desk.accounts_every_ms();
        (every > 0).then(|| self.accounted + Span::from_millis(every.into()))
    }

    /// Tells it.
    pub(crate) fn account(&mut self, now: Time, accounts: Accounts) {
        self.accounted = now;
        self.desk.account(accounts);
    }

    /// How it stands with the controller, as counters.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let standing = self.desk.standing();
        vec![
            ("controller.connected".into(), u64::from(standing.connected)),
            ("controller.streams".into(), standing.streams),
            ("controller.failures".into(), standing.failures),
            ("controller.certificate_s".into(), standing.certificate_s),
            ("controller.tenants".into(), self.kept.tenants.len() as u64),
        ]
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("no runtime for the network")
}

/// How a host joins.
#[derive(Clone, Debug)]
pub struct Joining<'a> {
    /// `agent.toml`, which names the host and the folder of its files.
    pub config: &'a Path,
    /// `NAME:PORT` of the controller; default: what `agent.toml` says.
    pub controller: Option<&'a str>,
    /// The token.
    pub token: &'a str,
    /// A file with the authority's certificate, or its SHA-256 in hexadecimal digits.
    pub ca: &'a str,
}

/// Joins the host to its controller. Says how long the certificate is valid.
///
/// # Errors
///
/// `agent.toml` names no controller, or the controller refuses.
pub fn join(joining: &Joining<'_>) -> Result<String> {
    let file = crate::config::read(joining.config)?;
    let (home, followed) = home(&file).zip(file.controller.as_ref()).with_context(|| {
        format!(
            "{}: it names no controller: write `[controller]` with `address = \"NAME:PORT\"`",
            joining.config.display()
        )
    })?;
    let address = joining.controller.unwrap_or(&followed.address);
    ensure!(
        address == followed.address,
        "controller.address: {} says {}, the command says {address}: make them equal",
        joining.config.display(),
        followed.address
    );
    let trust = trust(joining.ca)?;
    let joined = join_controller(&home, address, &trust, &file.host, joining.token);
    let identity = runtime()?.block_on(joined)?;
    Ok(format!("host {} joined; its certificate ends at {}", identity.host, identity.until))
}

/// A fingerprint, or the text of a file.
fn trust(ca: &str) -> Result<Trust> {
    let digits: String = ca.chars().filter(|c| *c != ':').collect();
    if digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit()) {
        let mut hash = [0; 32];
        for (octet, n) in hash.iter_mut().zip(0..) {
            *octet = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16)?;
        }
        return Ok(Trust::Fingerprint(hash));
    }
    let text = std::fs::read_to_string(ca)
        .with_context(|| format!("{ca}: neither a readable file nor 64 hexadecimal digits"))?;
    Ok(Trust::Roots(text))
}
