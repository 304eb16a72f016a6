//! The controller as a process: `weir controller`, and `weir controller init` before it.

use crate::agents::Fleet;
use crate::clock::Clock;
use crate::engine;
use crate::http::{Server, Shared, bind};
use crate::metrics::Metrics;
use crate::state::{Action, Actor, Limits, NewToken, Request, Role, State};
use crate::store::backup::{hex, sync_folder_of};
use crate::store::redb::RedbStore;
use crate::store::{Store, StoreError};
use crate::tls::{Authority, Current};
use crate::{tls, tokens};
use anyhow::{Context as _, Result, bail};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::net::TcpListener;
use tokio::sync::watch;
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_model::whereabouts;
use weir_wire::Keyring;

/// Files in the data folder.
const STORE: &str = "store.redb";
pub(crate) const CA_CERTIFICATE: &str = "ca.crt";
pub(crate) const CA_KEY: &str = "ca.key";
/// The keys from which those of all pairs of hosts follow.
const PAIRS: &str = "pairs.keys";
/// Name of the token that `init` makes.
const FIRST: &str = "first-operator";

/// The store of a configuration.
pub fn store_path(config: &ControllerConfig) -> PathBuf {
    config.data_dir.join(STORE)
}

/// Reads `controller.toml`.
///
/// # Errors
///
/// The file, the line and the field of the mistake.
pub fn read_config(path: &Path) -> Result<ControllerConfig> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| {
        format!("{shown}: cannot be read: make it with `weir controller init --config {shown}`")
    })?;
    let config: ControllerConfig = toml::from_str(&text).with_context(|| format!("{shown}"))?;
    if let Err((field, reason)) = config.check() {
        let line = whereabouts::line_in_toml(&text, field).unwrap_or(1);
        bail!("{shown}, line {line}: {field}: {reason}");
    }
    Ok(config)
}

/// What `init` made.
#[derive(Debug)]
pub struct Made {
    /// `controller.toml`, if there was none.
    pub config: Option<PathBuf>,
    /// `client.toml` with the first operator's token.
    pub client: PathBuf,
    /// The authority's certificate, which clients need.
    pub authority: PathBuf,
}

/// Makes what a controller needs: its configuration if there is none, the authority, the store with the
/// first operator's token, and the file by which commands on this machine find it.
///
/// # Errors
///
/// A file exists or cannot be written.
pub fn init(
    path: &Path,
    client: &Path,
    listen: SocketAddr,
    names: &[String],
    data_dir: &Path,
) -> Result<Made> {
    let exists = path.exists();
    let config = match exists {
        true => read_config(path)?,
        false => ControllerConfig::new(listen, names.to_vec(), data_dir.into()),
    };
    let Some(name) = config.names.first() else {
        bail!("no name: write --name NAME, the name by which clients reach the API");
    };
    let (store, folder) = (store_path(&config), &config.data_dir);
    if store.exists() {
        bail!(
            "{}: there is a controller already; its operators make tokens with `weir token create`",
            store.display()
        );
    }
    if client.exists() {
        bail!("{}: exists: move it away, or write --client FILE", client.display());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        format!("cannot make {}: name a folder that you may write to: --data DIR", folder.display())
    })?;
    let clock = Clock::start();
    let (certificate, key) = tls::make_authority(clock.now())?;
    let authority = folder.join(CA_CERTIFICATE);
    write_new(&folder.join(CA_KEY), &key, 0o600)?;
    write_new(&authority, &certificate, 0o644)?;
    let secret = tokens::draw();
    first_token(&store, &clock, &secret)?;
    let server = format!("https://{}", address(name, config.listen.port()));
    let found = ClientConfig { server, ca: authority.clone(), token: secret };
    write_new(client, &toml::to_string(&found)?, 0o600)?;
    if !exists {
        write_new(path, &toml::to_string(&config)?, 0o644)?;
    }
    let config = (!exists).then(|| path.into());
    Ok(Made { config, client: client.into(), authority })
}

fn address(name: &str, port: u16) -> String {
    if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
}

/// The store appears with its first token or not at all.
fn first_token(path: &Path, clock: &Clock, secret: &str) -> Result<()> {
    let half = path.with_extension("making");
    if half.exists() {
        fs::remove_file(&half).with_context(|| format!("{}", half.display()))?;
    }
    let mut store = RedbStore::open(&half)?;
    let mut state = State::new(Limits::default());
    let actor = Actor { name: "init".into(), role: Role::Operator, tenant: None };
    let token = NewToken {
        hash: tokens::hash(secret),
        name: FIRST.into(),
        role: Role::Operator,
        tenant: None,
        host: None,
        expires: None,
    };
    let action = Action::AddToken(token);
    let request = Request { actor, dry_run: false, idempotency: None, action };
    if let Err(problem) = state.handle(clock.now(), &request) {
        bail!("{}", problem.detail);
    }
    store.commit(state.writes())?;
    drop(store);
    fs::rename(&half, path)?;
    sync_folder_of(path).with_context(|| format!("{}", path.display()))
}

/// A file that did not exist, with its rights from the beginning.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let written = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().with_context(|| {
        format!("cannot write {}: is it there already, or is the folder another's?", path.display())
    })
}

/// Runs the controller until SIGTERM or SIGINT.
///
/// # Errors
///
/// It cannot start, with what to do.
pub fn run(path: &Path) -> Result<()> {
    let config = read_config(path)?;
    let store = RedbStore::open(&store_path(&config)).map_err(|error| explain(&config, error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = bind(config.listen).await?;
        let stop = watch::Sender::new(false);
        let signalled = stop.clone();
        let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            signalled.send_replace(true);
        });
        serve(&config, Box::new(store), listener, stop.subscribe()).await
    })
}

fn signal(kind: tokio::signal::unix::SignalKind) -> std::io::Result<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(kind)
}

fn explain(config: &ControllerConfig, error: StoreError) -> anyhow::Error {
    match config.data_dir.exists() {
        true => error.into(),
        false => anyhow::anyhow!(
            "{}: there is no such folder: run `weir controller init` first",
            config.data_dir.display()
        ),
    }
}

/// Serves the API of one store until `stop`.
///
/// # Errors
///
/// The store or the authority's key cannot be read.
pub async fn serve(
    config: &ControllerConfig,
    store: Box<dyn Store>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let clock = Clock::start();
    let folder = &config.data_dir;
    let names = config.names.clone();
    let authority =
        || Authority::read(&folder.join(CA_KEY), &folder.join(CA_CERTIFICATE), names.clone());
    let ring = pair_keys(&folder.join(PAIRS))?;
    let (authority, renewing) = (authority()?, authority()?);
    let made = clock.now();
    let current = Arc::new(Current::new(authority.sign(made)?));
    let limits = Limits {
        audit: config.audit.into(),
        keep_reservations: config.keep_reservations.0.as_nanos() / 1_000_000,
        ..Limits::default()
    };
    let metrics = Arc::new(Metrics::default());
    let history = config.history as usize;
    let (engine, view, running) =
        engine::start(store, limits, history, clock, Arc::clone(&metrics))?;
    let stopping = AtomicBool::new(false);
    let fleet = Fleet::new(ring, Arc::clone(&view), engine.clone(), clock).await?;
    let fleet = Arc::new(fleet);
    let following = tokio::spawn(Arc::clone(&fleet).run());
    let shared = Arc::new(Shared { view, engine, metrics, clock, fleet, authority, stopping });
    let address = listener.local_addr()?;
    let server = Server::new(listener, shared, Arc::clone(&current))?;
    tracing::info!("serving https://{address}");
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
    let renewing = tokio::spawn(renew(renewing, current, clock, made));
    server.run(stop.clone()).await;
    drop(stop.wait_for(|stop| *stop).await);
    renewing.abort();
    following.abort();
    // What was taken is written and answered before the end.
    tokio::task::spawn_blocking(|| running.stop()).await?;
    tracing::info!("ended");
    Ok(())
}

/// The keys from which those of all pairs of hosts follow. Drawn if there are none.
fn pair_keys(path: &Path) -> Result<Keyring> {
    if !path.exists() {
        let mut octets = [0; 16];
        SystemRandom::new().fill(&mut octets).map_err(|_| anyhow::anyhow!("no random numbers"))?;
        write_new(path, &format!("1 {}\n", hex(&octets)), 0o600)?;
    }
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    text.parse().with_context(|| format!("{}", path.display()))
}

/// Signs the next certificate when the present one is two thirds through.
async fn renew(
    authority: Authority,
    current: Arc<Current>,
    clock: Clock,
    mut made: weir_model::moment::Moment,
) {
    loop {
        tokio::time::sleep(clock.until(Current::renew_at(made))).await;
        made = clock.now();
        match authority.sign(made) {
            Ok(certificate) => current.replace(certificate),
            Err(error) => tracing::error!("the certificate was not renewed: {error}"),
        }
    }
}
