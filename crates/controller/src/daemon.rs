//! The controller as a process: `weir controller`, and `weir controller init` before it.

use crate::accounts::{Books, Numbers};
use crate::agents::{Fleet, Slot};
use crate::binding::{Binding, Common, Drivers, Real};
use crate::clock::Clock;
use crate::engine::{self, Engine};
use crate::http::{CONNECTIONS, Server, Shared, bind};
use crate::metrics::Metrics;
use crate::state::{Action, Actor, Limits, NewToken, Request, Role, State};
use crate::store::backup::{self, hex, sync_folder_of};
use crate::store::etcd::{EtcdStore, Settings};
use crate::store::redb::RedbStore;
use crate::store::{Leader, Standing, Store, StoreError, newest_schema};
use crate::tls::{Authority, Current};
use crate::view::View;
use crate::{tls, tokens};
use anyhow::{Context as _, Result, bail};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_model::whereabouts;
use weir_switch::Owner;
use weir_wire::Keyring;

/// Files in the data folder.
const STORE: &str = "store.redb";
pub(crate) const CA_CERTIFICATE: &str = "ca.crt";
pub(crate) const CA_KEY: &str = "ca.key";
/// The keys from which those of all pairs of hosts follow.
const PAIRS: &str = "pairs.keys";
/// Folder of the states of switches before Weir.
const SWITCHES: &str = "switches";
/// How long `init` and a restore wait for a former leader's lease to end.
const LEAD_PATIENCE: Duration = Duration::from_secs(70);
/// Wait of a leader that could not read what hosts may enforce.
const FLEET_AGAIN: Duration = Duration::from_secs(1);
/// Name of the token that `init` makes.
const FIRST: &str = "first-operator";

/// The file of the store, where there is no etcd.
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

/// Open files of a controller with as many connections as it takes, and some of its own.
const FILES: u64 = CONNECTIONS as u64 + 500;

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

/// Makes what a controller with a store of its own needs. See [`init_as`].
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
    init_as(path, client, ControllerConfig::new(listen, names.to_vec(), data_dir.into()))
}

/// Makes what a controller needs: its configuration if there is none, the authority, the store with the
/// first operator's token, and the file by which commands on this machine find it.
///
/// # Errors
///
/// A file or a store exists or cannot be written.
pub fn init_as(path: &Path, client: &Path, wanted: ControllerConfig) -> Result<Made> {
    let exists = path.exists();
    let config = if exists { read_config(path)? } else { wanted };
    if let Err((field, reason)) = config.check() {
        bail!("{field}: {reason}");
    }
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
    let shared = config.etcd().map(|_| empty_etcd(&config)).transpose()?;
    let clock = Clock::start();
    let (certificate, key) = tls::make_authority(clock.now())?;
    let authority = folder.join(CA_CERTIFICATE);
    write_new(&folder.join(CA_KEY), &key, 0o600)?;
    write_new(&authority, &certificate, 0o644)?;
    let secret = tokens::draw();
    match shared {
        None => first_token(&store, &clock, &secret)?,
        Some(mut shared) => {
            let state = with_first_token(&clock, &secret)?;
            shared.commit(&[state.writes(), &[newest_schema()]].concat())?;
        }
    }
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
    store.commit(with_first_token(clock, secret)?.writes())?;
    drop(store);
    fs::rename(&half, path)?;
    sync_folder_of(path).with_context(|| format!("{}", path.display()))
}

fn with_first_token(clock: &Clock, secret: &str) -> Result<State> {
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
    Ok(state)
}

/// etcd where no record is, with nobody else to write into it.
fn empty_etcd(config: &ControllerConfig) -> Result<EtcdStore> {
    let mut store = EtcdStore::open(etcd_settings(config, config.listen)?)?;
    let address = config.store.clone().unwrap_or_default();
    if store.schema()? > 0 {
        bail!(
            "{address}: there is a controller already: for a further one, copy controller.toml (with \
             names of its own) and ca.crt, ca.key and pairs.keys of the data folder from another"
        );
    }
    if !store.is_empty()? {
        let prefix = config.etcd().map(|etcd| etcd.prefix).unwrap_or_default();
        bail!(
            "{address}: there is a part of a store, as a restore leaves it that was cut off: name \
             another PREFIX, or remove it: etcdctl del --prefix {prefix}/"
        );
    }
    store.lead(LEAD_PATIENCE).with_context(|| address)?;
    Ok(store)
}

/// Puts a backup where the configuration says, if nothing is there. Returns the number of records.
///
/// # Errors
///
/// The backup is none, the former controller's keys are not there, there is a store already, or it
/// cannot be written.
pub fn restore(backup: impl BufRead, config: &ControllerConfig) -> Result<u64> {
    let folder = &config.data_dir;
    let is_missing = |name: &&str| !folder.join(name).exists();
    if let Some(name) = [CA_CERTIFICATE, CA_KEY, PAIRS].into_iter().find(is_missing) {
        bail!(
            "{}: there is no {name}: copy ca.crt, ca.key and pairs.keys of the former controller there \
             first, or its hosts will not know this one",
            folder.display()
        );
    }
    match config.etcd() {
        None => Ok(backup::restore(backup, &store_path(config))?),
        Some(_) => {
            let records = backup::read(backup)?;
            Ok(backup::restore_into(records, &mut empty_etcd(config)?)?)
        }
    }
}

/// The store of a configuration. `listen` is the address that clients reach.
///
/// # Errors
///
/// It cannot be opened, with what to do.
pub fn open_store(config: &ControllerConfig, listen: SocketAddr) -> Result<Box<dyn Store>> {
    match config.etcd() {
        None => {
            let store = RedbStore::open(&store_path(config));
            Ok(Box::new(store.map_err(|error| explain(config, error))?))
        }
        Some(_) => Ok(Box::new(EtcdStore::open(etcd_settings(config, listen)?)?)),
    }
}

fn etcd_settings(config: &ControllerConfig, listen: SocketAddr) -> Result<Settings> {
    let address = config.etcd().context("store: there is no etcd in it")?;
    let name = config.names.first().cloned().unwrap_or_default();
    let url = format!("https://{}", self::address(&name, listen.port()));
    let tls = config.etcd_tls.as_ref().map(tls::etcd_config).transpose()?;
    // Who has other keys of hosts' pairs is of another cloud.
    let ring = config.data_dir.join(PAIRS);
    pair_keys(&ring)?;
    let octets = fs::read(&ring).with_context(|| format!("{}", ring.display()))?;
    Ok(Settings {
        address,
        tls,
        lease: Duration::from_nanos(config.lease.0.as_nanos()),
        me: Leader { name, url },
        cluster: hex(digest(&SHA256, &octets).as_ref()),
    })
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
    if !config.data_dir.join(CA_KEY).exists() {
        let what = match config.etcd() {
            None => "run `weir controller init` first",
            Some(_) => {
                "copy ca.crt, ca.key and pairs.keys from another controller's data folder, or, on the \
                 first one, run `weir controller init`"
            }
        };
        bail!("{}: there is no {CA_KEY}: {what}", config.data_dir.display());
    }
    allow_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(bind(config.listen))?;
    let store = open_store(&config, listener.local_addr()?)?;
    runtime.block_on(async {
        let stop = watch::Sender::new(false);
        let signalled = stop.clone();
        let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            signalled.send_replace(true);
        });
        serve(&config, store, listener, stop.subscribe()).await
    })
}

/// Each connection is an open file. Most systems begin with 1024 and let a process have more.
fn allow_files() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the number of open files: {error}");
    }
    // None is no limit.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if most < FILES {
        tracing::warn!(
            "this process may open {most} files: more than some {} agents and clients find no place; \
             with systemd, write LimitNOFILE={FILES} into the unit",
            most.saturating_sub(100)
        );
    }
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
    stop: watch::Receiver<bool>,
) -> Result<()> {
    serve_with(config, store, listener, stop, Arc::new(Real)).await
}

/// The same with other switches.
///
/// # Errors
///
/// As [`serve`].
pub async fn serve_with(
    config: &ControllerConfig,
    store: Box<dyn Store>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    drivers: Arc<dyn Drivers>,
) -> Result<()> {
    let clock = Clock::start();
    let folder = &config.data_dir;
    let names = config.names.clone();
    let authority =
        || Authority::read(&folder.join(CA_KEY), &folder.join(CA_CERTIFICATE), names.clone());
    let ring = pair_keys(&folder.join(PAIRS))?;
    let (authority, renewing) = (authority()?, authority()?);
    let made = clock.now();
    let current = Arc::new(Current::new(authority.sign(&clock)?));
    let limits = Limits {
        audit: config.audit.into(),
        keep_reservations: config.keep_reservations.0.as_nanos() / 1_000_000,
        ..Limits::default()
    };
    let metrics = Arc::new(Metrics::default());
    let history = config.history as usize;
    let counted = Arc::clone(&metrics);
    let started = spawn_blocking(move || engine::start(store, limits, history, clock, counted));
    let (engine, view, running) = started.await??;
    let stopping = AtomicBool::new(false);
    let slot = Arc::new(Slot::default());
    let common = Common {
        drivers,
        owner: owner_of(config)?,
        saves: folder.join(SWITCHES),
        standing: engine.standing(),
    };
    let leader = Leading { ring, view: Arc::clone(&view), engine: engine.clone(), clock, common };
    let leading = tokio::spawn(leader.lead(Arc::clone(&slot)));
    let ended = engine.standing();
    let days = config.accounts_days;
    let place = folder.clone();
    let books = spawn_blocking(move || Arc::new(Books::open(&place, days))).await?;
    metrics.add(Numbers { books: Arc::clone(&books), view: Arc::clone(&view), clock });
    let writing = tokio::spawn(Arc::clone(&books).run(clock, Arc::clone(&view)));
    let surveying =
        tokio::spawn(Arc::clone(&books).survey_all(clock, Arc::clone(&view), engine.clone()));
    let kept = (Arc::clone(&books), Arc::clone(&view));
    let shared = Shared { view, engine, metrics, clock, fleet: slot, books, authority, stopping };
    let address = listener.local_addr()?;
    let server = Server::new(listener, Arc::new(shared), Arc::clone(&current))?;
    tracing::info!("serving https://{address}");
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
    let renewing = tokio::spawn(renew(renewing, current, clock, made));
    // It also ends if the writing thread does.
    let halt = watch::Sender::new(false);
    let halted = halt.subscribe();
    tokio::spawn(async move {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = writer_ends(ended) => {}
        }
        halt.send_replace(true);
    });
    server.run(halted).await;
    renewing.abort();
    leading.abort();
    writing.abort();
    surveying.abort();
    let (books, view) = kept;
    spawn_blocking(move || books.write(clock.now(), &view)).await?;
    // What was taken is written and answered before the end.
    spawn_blocking(|| running.stop()).await??;
    tracing::info!("ended");
    Ok(())
}

async fn writer_ends(mut standing: watch::Receiver<Standing>) {
    while standing.changed().await.is_ok() {}
}

/// A task that ends with this.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a process does while it leads.
struct Leading {
    ring: Keyring,
    view: Arc<View>,
    engine: Engine,
    clock: Clock,
    common: Common,
}

impl Leading {
    /// While this process leads, agents are told what is wanted of them, and tenants are bound to queues.
    async fn lead(self, slot: Arc<Slot>) {
        let mut standing = self.engine.standing();
        loop {
            let present = standing.borrow_and_update().clone();
            if let Standing::Leads { .. } = present {
                let Self { ring, view, engine, clock, common } = &self;
                match Fleet::new(ring.clone(), Arc::clone(view), engine.clone(), *clock).await {
                    Ok(fleet) => {
                        let fleet = Arc::new(fleet);
                        let following = Task(tokio::spawn(Arc::clone(&fleet).run()));
                        let (view, common) = (Arc::clone(view), common.clone());
                        let binding =
                            Binding::new(Arc::clone(&fleet), view, engine.clone(), *clock, common);
                        let binding = Task(tokio::spawn(binding.run()));
                        slot.set(Some(Arc::clone(&fleet)));
                        let others = |now: &Standing| *now != present;
                        drop(standing.wait_for(others).await);
                        slot.set(None);
                        fleet.close();
                        drop((following, binding));
                        continue;
                    }
                    Err(error) => {
                        tracing::error!("agents are not told: {error}");
                        tokio::time::sleep(FLEET_AGAIN).await;
                        continue;
                    }
                }
            }
            if standing.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The mark that this cloud's controllers leave on switches: of the keys that they have in common.
fn owner_of(config: &ControllerConfig) -> Result<Owner> {
    let name = match &config.switch_owner {
        Some(name) => name.clone(),
        None => {
            let ring = config.data_dir.join(PAIRS);
            let octets = fs::read(&ring).with_context(|| format!("{}", ring.display()))?;
            format!("weir-{}", &hex(digest(&SHA256, &octets).as_ref())[..10])
        }
    };
    Owner::new(&name).map_err(|error| anyhow::anyhow!("switch_owner: {error}"))
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
        match authority.sign(&clock) {
            Ok(certificate) => current.replace(certificate),
            Err(error) => tracing::error!("the certificate was not renewed: {error}"),
        }
    }
}
