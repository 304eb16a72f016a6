//! What one request costs the state machine, without TLS and without a disk.
//!
//! `cargo bench -p weir-controller --bench state`. It prints what it measured and judges nothing.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir_controller::state::{Action, Actor, Limits, Mode, Request, Role, State};
use weir_model::moment::Moment;
use weir_model::objects::{Kind, read};

/// The cloud of the reservations' bench.
const RACKS: usize = 50;
const PER_RACK: usize = 40;
const TENANTS: usize = 800;
const VMS: usize = 50;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn put(document: Value) -> Action {
    let wish = Box::new(read(document).expect("a good document"));
    Action::Put { wish, mode: Mode::Apply, seen: None }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// A state, and a clock that stands still.
struct Bench(State);

impl Bench {
    fn new() -> Self {
        Self(State::new(Limits::default()))
    }

    /// Time that the request and its publication took.
    fn ask(&mut self, action: Action) -> Duration {
        let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
        let request = Request { actor, dry_run: false, idempotency: None, action };
        let began = now();
        let answer = self.0.handle(Moment::from_millis(1_795_592_795_000), &request);
        self.0.keep();
        let took = began.elapsed();
        if let Err(problem) = answer {
            panic!("{}: {}", problem.reason, problem.detail);
        }
        took
    }

    fn batch(&mut self, documents: Vec<Value>) -> Duration {
        let wishes = documents.into_iter().map(|document| read(document).expect("good"));
        self.ask(Action::Batch(wishes.collect()))
    }

    fn network(&mut self, racks: usize, hosts: usize) {
        let mut documents = Vec::new();
        for rack in 0..racks {
            let link = json!({"lower": format!("r{rack}"), "upper": "core", "rate": "400Gbit"});
            documents.push(object("Link", &format!("r{rack}-up"), link));
            for host in 0..hosts {
                let spec = json!({"switch": format!("r{rack}"), "rate": "25Gbit", "slots": 100});
                documents.push(object("Host", &format!("h{rack}-{host}"), spec));
            }
        }
        self.batch(documents);
    }
}

fn said(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let of = |percent: usize| times[(times.len() - 1) * percent / 100];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    println!("{what}: mean {mean:?}, median {:?}, p99 {:?}, worst {:?}", of(50), of(99), of(100));
}

fn vm(tenant: &str, host: Option<String>) -> Value {
    let mut spec = json!({"tenant": tenant, "floor": {"out": "10Mbit", "in": "10Mbit"}});
    if let Some(host) = host {
        spec["host"] = host.into();
    }
    spec
}

/// One VM more and one less in a tenant of `size` VMs.
fn one_change(size: usize) {
    let mut bench = Bench::new();
    bench.network(8, 8);
    let mut documents = vec![object("Tenant", "t", json!({}))];
    for n in 0..size {
        let host = format!("h{}-{}", n % 8, n / 8 % 8);
        documents.push(object("VM", &format!("v{n}"), vm("t", Some(host))));
    }
    println!("a tenant of {size} in one batch: {:?}", bench.batch(documents));
    let (mut more, mut less, mut placed) = (Vec::new(), Vec::new(), Vec::new());
    let delete = || Action::Delete { kind: Kind::Vm, name: "x".into(), seen: None };
    for n in 0..300 {
        let host = format!("h{}-{}", n % 8, n / 8 % 8);
        more.push(bench.ask(put(object("VM", "x", vm("t", Some(host))))));
        less.push(bench.ask(delete()));
        placed.push(bench.ask(put(object("VM", "x", vm("t", None)))));
        bench.ask(delete());
    }
    said(&format!("tenant of {size}, a VM on a given host"), more);
    said(&format!("tenant of {size}, a VM deleted"), less);
    said(&format!("tenant of {size}, a VM placed"), placed);
}

/// Reservations in a cloud of 2000 hosts and 40,000 VMs, and a change of a link of it.
fn cloud() {
    let mut bench = Bench::new();
    bench.network(RACKS, PER_RACK);
    let began = now();
    let host = |n: usize| format!("h{}-{}", n % RACKS, n / RACKS % PER_RACK);
    for t in 0..TENANTS {
        let name = format!("t{t}");
        let mut documents = vec![object("Tenant", &name, json!({}))];
        for n in 0..VMS {
            let on = host(t * 37 + n * 11);
            documents.push(object("VM", &format!("{name}-{n}"), vm(&name, Some(on))));
        }
        bench.batch(documents);
    }
    println!("{} VMs of {TENANTS} tenants applied in {:?}", TENANTS * VMS, began.elapsed());
    let (mut reserve, mut confirm) = (Vec::new(), Vec::new());
    for n in 0..2000 {
        let name = format!("r{n}");
        let one = json!({"name": format!("n{n}"), "host": host(n * 7), "floor": {"out": "1Mbit"}});
        let spec = json!({"tenant": format!("t{}", n % TENANTS), "vms": [one]});
        reserve.push(bench.ask(put(object("Reservation", &name, spec))));
        confirm.push(bench.ask(Action::Confirm(name)));
    }
    said("reserve", reserve);
    said("confirm", confirm);
    let mut change = Vec::new();
    for n in 0..4 {
        let rate = format!("{}Gbit", 401 + n);
        let link = json!({"lower": "r0", "upper": "core", "rate": rate});
        change.push(bench.ask(put(object("Link", "r0-up", link))));
    }
    said("a link grows", change);
}

fn main() {
    one_change(50);
    one_change(500);
    cloud();
}
