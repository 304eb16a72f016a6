//! Hosts whose agents take up whatever they are told, and how a test waits for them.

use crate::harness::{Controller, done, object};
use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::runtime::Runtime;
use weir_controller::clock::Clock;
use weir_rpc::client::desk::Desk;
use weir_rpc::client::follow::{Facts, Follower};
use weir_rpc::client::{Trust, join};
use weir_rpc::home::Home;
use weir_rpc::kept::Kept;
use weir_rpc::messages::Queue;

/// How long something may take that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host whose agent takes up whatever it is told.
pub(crate) struct Agent {
    pub(crate) home: Home,
    pub(crate) kept: Arc<Mutex<Kept>>,
    /// While it is set, the agent takes up what it is told, and answers later.
    pub(crate) is_mute: Arc<AtomicBool>,
    pub(crate) desk: Arc<Desk>,
    runtime: Option<Runtime>,
}

impl Agent {
    /// Follows with what is on the disk, as an agent that was started.
    pub(crate) fn start(server: &str, home: &Home, number: usize) -> Self {
        Self::start_with(server, home, number, &[], |follower| follower)
    }

    pub(crate) fn start_with(
        server: &str,
        home: &Home,
        number: usize,
        code_points: &[u8],
        change: impl Fn(Follower) -> Follower,
    ) -> Self {
        let (ring, bell) = mpsc::channel();
        let desk = Arc::new(Desk::new(move || {
            // The loop ends with the test.
            let _ = ring.send(());
        }));
        let kept = Arc::new(Mutex::new(home.kept().expect("it joined")));
        let (there, inside) = (Arc::clone(&desk), Arc::clone(&kept));
        let is_mute = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&is_mute);
        std::thread::spawn(move || {
            while bell.recv().is_ok() {
                let tenants = there.take();
                let mut kept = inside.lock().expect("nobody panics");
                *kept = kept.with(&tenants);
                drop(kept);
                while waits.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                there.answer(tenants.into_iter().map(|tenant| (tenant, Ok(()))));
            }
        });
        let control = format!("127.0.0.1:{}", 7001 + number);
        let facts = Facts {
            program: "test".into(),
            rate: 1_000_000_000,
            control,
            code_points: code_points.to_vec(),
            own_out: 0,
        };
        let follower =
            Follower::new(server, home.clone(), facts, Arc::clone(&desk)).expect("it joined");
        let follower = change(follower);
        let runtime = runtime();
        runtime.spawn(follower.run());
        Self { home: home.clone(), kept, is_mute, desk, runtime: Some(runtime) }
    }

    /// Mbit/s out that are in force for a VM of this host.
    pub(crate) fn floor(&self, vm: &str) -> Option<u64> {
        floor(&self.kept.lock().expect("nobody panics"), vm)
    }

    /// What is in force for a tenant's queue on switches.
    pub(crate) fn queue(&self, tenant: &str) -> Option<Queue> {
        self.kept.lock().expect("nobody panics").tenants.get(tenant)?.queue.clone()
    }

    /// As `kill -9`: no word to anybody.
    pub(crate) fn kill(mut self) -> Home {
        self.runtime.take().expect("it runs").shutdown_background();
        self.home.clone()
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

pub(crate) fn floor(kept: &Kept, vm: &str) -> Option<u64> {
    let mut all = kept.tenants.values().flat_map(|tenant| &tenant.vms);
    let found = all.find(|one| one.name == vm)?;
    Some(found.local.as_ref()?.floor_out / 1_000_000)
}

/// Waits until something holds; how long does not matter.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !holds() {
        assert!(clock.running() < PATIENCE, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn vm(name: &str, host: &str, floor: &str) -> Value {
    let network = json!({"port": format!("p-{name}"), "addresses": ["10.0.0.1"]});
    let floor = json!({"out": floor, "in": floor});
    let spec = json!({"tenant": "gold", "host": host, "floor": floor, "network": network});
    object("VM", name, spec)
}

pub(crate) fn apply(controller: &Controller, items: Value) {
    done(controller.client().send(Method::POST, "/api/v1/apply", &items).expect("it answers"));
}

pub(crate) fn token(controller: &Controller, host: &str, millis: u64) -> String {
    let expires = Clock::start().now().plus_millis(millis).to_string();
    let name = format!("host-{host}");
    let wanted = json!({"name": name, "role": "host", "host": host, "expires": expires});
    let made = controller.client().send(Method::POST, "/api/v1/tokens", &wanted);
    let made = done(made.expect("it answers"));
    made["token"].as_str().expect("the secret").to_owned()
}

pub(crate) fn condition(controller: &Controller, path: &str, name: &str) -> Value {
    let object = controller.client().get(&format!("/api/v1/{path}")).expect("it answers").json();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == name).unwrap_or_default()
}

pub(crate) fn try_join(
    controller: &Controller,
    home: &Home,
    host: &str,
    token: &str,
) -> Result<(), String> {
    let ca = std::fs::read_to_string(&controller.first.ca).expect("it was made");
    let trust = Trust::Roots(ca);
    let joined = join(home, &controller.server, &trust, host, token);
    runtime().block_on(joined).map(drop).map_err(|error| error.to_string())
}

pub(crate) fn joined(controller: &Controller, folder: &Path, host: &str) -> Home {
    let home = Home::new(folder.join(host));
    let secret = token(controller, host, 3_600_000);
    try_join(controller, &home, host, &secret).expect("it may");
    home
}
