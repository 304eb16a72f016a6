//! A controller on host 1, what is declared there, and hosts that join it.

use super::{UPLINK, World};
use hyper::Method;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use tokio::sync::watch;
use weir_agent::{Joining, join};
use weir_controller::client::{Client, Reply};
use weir_controller::clock::Clock;
use weir_controller::store::redb::RedbStore;
use weir_controller::{daemon, http};
use weir_model::controller::ClientConfig;

/// Where the controller is: on host 1, which both hosts reach.
pub(crate) const AT: &str = "10.255.0.1:7443";

/// A controller in a thread of this process, in the namespace of host 1.
pub(crate) struct Controller {
    stop: watch::Sender<bool>,
    thread: std::thread::JoinHandle<()>,
}

impl Controller {
    pub(crate) fn start(world: &World) -> Self {
        let stop = watch::Sender::new(false);
        let (until, file) = (stop.subscribe(), world.dir.join("controller.toml"));
        let (told, serves) = std::sync::mpsc::channel();
        let thread = world.inside("host1", || {
            // A thread is where the thread was that made it.
            std::thread::spawn(move || {
                let config = daemon::read_config(&file).unwrap();
                let store = RedbStore::open(&daemon::store_path(&config)).unwrap();
                let mut runtime = tokio::runtime::Builder::new_multi_thread();
                let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = http::bind(config.listen).await.unwrap();
                    told.send(()).unwrap();
                    daemon::serve(&config, Box::new(store), listener, until).await.unwrap();
                });
            })
        });
        serves.recv().unwrap();
        Self { stop, thread }
    }

    pub(crate) fn stop(self) {
        self.stop.send_replace(true);
        self.thread.join().unwrap();
    }
}

pub(crate) fn first(world: &World) -> ClientConfig {
    toml::from_str(&fs::read_to_string(world.dir.join("client.toml")).unwrap()).unwrap()
}

/// A request with the first operator's token.
pub(crate) fn ask(world: &World, method: Method, path: &str, body: &Value) -> Value {
    let reply = try_ask(world, method, path, body);
    assert!(reply.is_ok(), "{}", reply.json());
    reply.json()
}

/// The same where the controller may refuse.
pub(crate) fn try_ask(world: &World, method: Method, path: &str, body: &Value) -> Reply {
    let first = first(world);
    world.inside("host1", || {
        let mut client = Client::new(&first.server, &first.ca, &first.token).unwrap();
        client.send(method, &format!("/api/v1/{path}"), body).unwrap()
    })
}

pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn vm(name: &str, n: u32, port: &str, mbit: u64) -> Value {
    let floor = format!("{mbit}Mbit");
    let network = json!({"port": port, "addresses": [format!("10.0.0.{n}")]});
    let spec = json!({"tenant": "t", "host": format!("host{n}"),
        "floor": {"out": floor, "in": floor}, "network": network});
    object("VM", name, spec)
}

pub(crate) fn apply(world: &World, items: Value) {
    ask(world, Method::POST, "apply", &json!({ "items": items }));
}

pub(crate) fn applied(world: &World, name: &str) -> (String, String, String) {
    let first = first(world);
    let object = world.inside("host1", || {
        let mut client = Client::new(&first.server, &first.ca, &first.token).unwrap();
        client.get(&format!("/api/v1/vms/{name}")).unwrap().json()
    });
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|c| c["type"] == "Applied").unwrap_or_default();
    let word = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (word("status"), word("reason"), word("message"))
}

/// The host's agent.toml, without VMs, and its join.
pub(crate) fn join_host(world: &World, n: u32) {
    join_host_with(world, n, "");
}

/// The same with one line more.
pub(crate) fn join_host_with(world: &World, n: u32, line: &str) {
    let file: PathBuf = world.dir.join(format!("host{n}.toml"));
    let text = format!(
        "{line}\ninstance = \"host{n}\"\nhost = \"host{n}\"\nlisten = \"10.255.0.{n}:7001\"\n\
         run_dir = {:?}\nbpffs = {:?}\n\
         uplink = {{ interface = \"up\", rate = \"{UPLINK}Mbit\" }}\n\
         mechanism = {{ name = \"elasticswitch\", set = {{ scale = 0.1 }} }}\n\
         [controller]\naddress = {AT:?}\nstate_dir = {:?}\n",
        world.dir.join("run"),
        world.bpffs(),
        world.dir.join(format!("state{n}")),
    );
    fs::write(&file, text).unwrap();
    let expires = Clock::start().now().plus_millis(60_000).to_string();
    let host = format!("host{n}");
    let wanted = json!({"name": host, "role": "host", "host": host, "expires": expires});
    let made = ask(world, Method::POST, "tokens", &wanted);
    let (token, ca) = (made["token"].as_str().unwrap(), first(world).ca.display().to_string());
    let joining = Joining { config: &file, controller: Some(AT), token, ca: &ca };
    world.inside(&host, || join(&joining)).expect("it may");
}

/// A controller on host 1.
pub(crate) fn controller(world: &World) -> Controller {
    init(world);
    Controller::start(world)
}

/// Its files, before it starts.
pub(crate) fn init(world: &World) {
    let (controller, client) = (world.dir.join("controller.toml"), world.dir.join("client.toml"));
    let (listen, names) = (AT.parse().unwrap(), ["10.255.0.1".to_owned()]);
    daemon::init(&controller, &client, listen, &names, &world.dir.join("data")).unwrap();
}
