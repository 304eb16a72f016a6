//! A controller in this process, at a free port, and clients of it.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;
use weir_controller::binding::{Drivers, Real};
use weir_controller::client::{Client, Reply};
use weir_controller::store::Store;
use weir_controller::store::redb::RedbStore;
use weir_controller::{daemon, http};
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_model::objects::API_VERSION;

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-controller-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it is ours");
    }
}

/// A controller that serves.
pub(crate) struct Controller {
    pub(crate) server: String,
    pub(crate) first: ClientConfig,
    pub(crate) config: ControllerConfig,
    drivers: Arc<dyn Drivers>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    _folder: Folder,
}

impl Controller {
    pub(crate) fn start() -> Self {
        Self::with(|_| {}, |store| Box::new(store))
    }

    /// With its records in the etcd at this address. It leads.
    pub(crate) fn on(store: String) -> Self {
        Self::on_with_drivers(store, Arc::new(Real))
    }

    /// The same with something between the controller and its switches.
    pub(crate) fn on_with_drivers(store: String, drivers: Arc<dyn Drivers>) -> Self {
        let folder = Folder::new();
        let (file, client) = (folder.0.join("controller.toml"), folder.0.join("client.toml"));
        let any = "127.0.0.1:0".parse().expect("an address");
        let names = vec!["127.0.0.1".to_owned()];
        let wanted = ControllerConfig {
            store: Some(store),
            ..ControllerConfig::new(any, names, folder.0.join("data"))
        };
        daemon::init_as(&file, &client, wanted).expect("made");
        let config = daemon::read_config(&file).expect("it was made");
        let text = std::fs::read_to_string(client).expect("it was made");
        let first: ClientConfig = toml::from_str(&text).expect("it is ours");
        let store = daemon::open_store(&config, config.listen).expect("it was made");
        let (stop, port, thread) = launch(&config, store, Arc::clone(&drivers));
        let server = format!("https://127.0.0.1:{port}");
        let running =
            Self { server, first, config, drivers, stop, thread: Some(thread), _folder: folder };
        while !running.leads() {
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        running
    }

    /// Another one of the same cloud, at a port of its own. It follows.
    pub(crate) fn another(&self) -> Self {
        let folder = Folder::new();
        let data_dir = folder.0.join("data");
        std::fs::create_dir_all(&data_dir).expect("it is ours");
        for file in std::fs::read_dir(&self.config.data_dir).expect("it was made") {
            let file = file.expect("it can be read");
            if file.file_type().expect("it has one").is_file() {
                std::fs::copy(file.path(), data_dir.join(file.file_name())).expect("it is ours");
            }
        }
        // Leaders are known by their addresses.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let listen = free.expect("a free port");
        let config = ControllerConfig { data_dir, listen, ..self.config.clone() };
        let store = daemon::open_store(&config, listen).expect("it was made");
        let drivers = Arc::clone(&self.drivers);
        let (stop, port, thread) = launch(&config, store, Arc::clone(&drivers));
        let server = format!("https://127.0.0.1:{port}");
        let first = ClientConfig { ca: config.data_dir.join("ca.crt"), ..self.first.clone() };
        Self { server, first, config, drivers, stop, thread: Some(thread), _folder: folder }
    }

    /// Whether it may write.
    pub(crate) fn leads(&self) -> bool {
        let metrics = self.client().get("/metrics");
        let text = metrics.map(|it| String::from_utf8_lossy(&it.body).into_owned());
        text.is_ok_and(|text| text.contains("weir_controller_leads 1"))
    }

    /// With other settings, and something between the controller and its store.
    pub(crate) fn with(
        set: impl FnOnce(&mut ControllerConfig),
        wrap: impl FnOnce(RedbStore) -> Box<dyn Store>,
    ) -> Self {
        Self::with_drivers(set, wrap, Arc::new(Real))
    }

    /// The same with something between the controller and its switches.
    pub(crate) fn with_drivers(
        set: impl FnOnce(&mut ControllerConfig),
        wrap: impl FnOnce(RedbStore) -> Box<dyn Store>,
        drivers: Arc<dyn Drivers>,
    ) -> Self {
        let folder = Folder::new();
        let (file, client) = (folder.0.join("controller.toml"), folder.0.join("client.toml"));
        let any = "127.0.0.1:0".parse().expect("an address");
        daemon::init(&file, &client, any, &["127.0.0.1".into()], &folder.0.join("data"))
            .expect("made");
        let mut config = daemon::read_config(&file).expect("it was made");
        set(&mut config);
        let text = std::fs::read_to_string(client).expect("it was made");
        let first: ClientConfig = toml::from_str(&text).expect("it is ours");
        let store = wrap(RedbStore::open(&daemon::store_path(&config)).expect("it was made"));
        let (stop, port, thread) = launch(&config, store, Arc::clone(&drivers));
        let server = format!("https://127.0.0.1:{port}");
        Self { server, first, config, drivers, stop, thread: Some(thread), _folder: folder }
    }

    /// Ends it and starts another one at the same port with the same store.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let port = self.server.rsplit(':').next().expect("a port").parse().expect("a number");
        self.config.listen.set_port(port);
        let store = RedbStore::open(&daemon::store_path(&self.config)).expect("it is closed");
        let (stop, _, thread) = launch(&self.config, Box::new(store), Arc::clone(&self.drivers));
        (self.stop, self.thread) = (stop, Some(thread));
    }

    /// A client with this token.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        Client::new(&self.server, &self.first.ca, token).expect("an address and a certificate")
    }

    /// A client with the first operator's token.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.first.token)
    }

    /// A client with a new token.
    pub(crate) fn client_as(&self, name: &str, role: &str, tenant: Option<&str>) -> Client {
        let wanted = json!({"name": name, "role": role, "tenant": tenant});
        let made = self.client().send(hyper::Method::POST, "/api/v1/tokens", &wanted);
        let made = made.expect("it answers").json();
        self.client_of(made["token"].as_str().expect("the secret"))
    }

    pub(crate) fn stop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

/// Serves in a thread. How to end it, and its port.
fn launch(
    config: &ControllerConfig,
    store: Box<dyn Store>,
    drivers: Arc<dyn Drivers>,
) -> (watch::Sender<bool>, u16, JoinHandle<()>) {
    let stop = watch::Sender::new(false);
    let (told, port) = std::sync::mpsc::channel();
    let (until, settings) = (stop.subscribe(), config.clone());
    let thread = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = http::bind(settings.listen).await.expect("a free port");
            told.send(listener.local_addr().expect("it is bound").port()).expect("it waits");
            let served = daemon::serve_with(&settings, store, listener, until, drivers).await;
            served.expect("it serves");
        });
    });
    (stop, port.recv().expect("it starts"), thread)
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn vm(name: &str, tenant: &str, host: Option<&str>, floor: &str) -> Value {
    let mut spec = json!({"tenant": tenant, "floor": {"out": floor, "in": floor}});
    if let Some(host) = host {
        spec["host"] = host.into();
    }
    object("VM", name, spec)
}

/// Two hosts of 1 Gb/s at one switch, two tenants.
pub(crate) fn small_cloud() -> Value {
    let host = json!({"switch": "tor", "rate": "1Gbit", "slots": 100});
    json!({"items": [
        object("Host", "h0", host.clone()),
        object("Host", "h1", host),
        object("Tenant", "gold", json!({})),
        object("Tenant", "bulk", json!({})),
    ]})
}

/// The request was done.
#[track_caller]
pub(crate) fn done(reply: Reply) -> Value {
    assert!(reply.is_ok(), "{} {}", reply.status, String::from_utf8_lossy(&reply.body));
    reply.json()
}

/// The request was refused with this status, reason and field.
#[track_caller]
pub(crate) fn refused(reply: &Reply, status: u16, reason: &str, field: &str) -> Value {
    let body = reply.json();
    assert_eq!(reply.status, status, "{body}");
    assert_eq!(reply.headers["content-type"], "application/problem+json");
    assert_eq!(
        (body["reason"].as_str(), body["field"].as_str()),
        (Some(reason), Some(field)),
        "{body}"
    );
    for member in ["type", "title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    }
    body
}
