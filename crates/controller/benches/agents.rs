//! Agents at load: how long a change of one tenant takes to its hosts, what an agent costs, how long a
//! reservation takes meanwhile, and how soon all are back after a restart.
//!
//! `WEIR_AGENTS=1000 cargo bench -p weir-controller --bench agents`. The agents are in another process
//! and speak TLS with certificates of their own. They acknowledge at once and write no disk. It prints
//! what it measured and judges nothing.

use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use weir_controller::client::Client;
use weir_controller::store::redb::RedbStore;
use weir_controller::{daemon, http};
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_rpc::PROTOCOL;
use weir_rpc::backoff::Backoff;
use weir_rpc::client::{Channel, ClientError, Server, Trust, join, now, tls};
use weir_rpc::home::Home;
use weir_rpc::kept::Kept;
use weir_rpc::messages::{Answer, FromAgent, Hello, NETWORKS};

/// Tenants that are changed, one after the other.
const CHANGES: usize = 200;
/// Hosts of a tenant.
const SPREAD: usize = 4;
/// VMs of a tenant: ten on each host.
const VMS: usize = 20;
/// Reservations, one after the other.
const RESERVATIONS: usize = 500;
/// Objects of one request.
const PART: usize = 2000;
/// Agents that join at the same time.
const JOINING: usize = 32;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

// -- the agents' process ------------------------------------------------------------------------

/// Follows for ever; a line for each floor that arrives and each stream that opens.
async fn agent(server: Server, home: Home, host: usize) {
    let (mut kept, mut backoff, mut seed) =
        (home.kept().expect("it joined"), Backoff::default(), host as u64);
    loop {
        println!("try {host} 0 {}", now().as_millis());
        drop(stream(&server, &home, host, &mut kept, &mut backoff).await);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(backoff.next(seed)).await;
    }
}

async fn stream(
    server: &Server,
    home: &Home,
    host: usize,
    kept: &mut Kept,
    backoff: &mut Backoff,
) -> Result<(), ClientError> {
    let proof = home.proof()?.expect("it joined");
    let config = tls(&Trust::Roots(proof.roots.clone()), Some(&proof))?;
    let mut channel = Channel::connect(server, Arc::new(config)).await?;
    let (say, said) = tokio::sync::mpsc::channel(2);
    let control = format!("127.0.0.1:{}", 1024 + host % 60_000);
    let hello = Hello {
        protocol: PROTOCOL,
        program: "bench".into(),
        rate: 100_000_000_000,
        control,
        known: kept.known(),
        features: vec![NETWORKS.into()],
        ..Hello::default()
    };
    let first = FromAgent { hello: Some(hello), ..FromAgent::default() };
    drop(say.send(first).await);
    let mut told = channel.follow(ReceiverStream::new(said)).await?;
    backoff.reset();
    println!("up {host} 0 {}", now().as_millis());
    while let Ok(Some(message)) = told.message().await {
        *kept = kept.with(&message.tenants);
        let answers = message.tenants.iter().map(|tenant| Answer {
            tenant: tenant.name.clone(),
            version: tenant.version,
            applied: true,
            ..Answer::default()
        });
        let message_of = FromAgent { answers: answers.collect(), ..FromAgent::default() };
        for tenant in &message.tenants {
            for local in tenant.vms.iter().filter_map(|vm| vm.local.as_ref()) {
                println!("floor {} {} {}", tenant.name, local.floor_out, now().as_millis());
            }
        }
        drop(say.send(message_of).await);
    }
    Ok(())
}

fn agents(folder: &Path, server: &str, ca: &Path) {
    let tokens = std::fs::read_to_string(folder.join("tokens")).expect("the parent made it");
    let ca = std::fs::read_to_string(ca).expect("it was made");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let tokens: Vec<String> = tokens.lines().map(str::to_owned).collect();
        let server_at = Server::parse(server).expect("an address");
        let mut homes = Vec::new();
        for (part, some) in tokens.chunks(JOINING).enumerate() {
            let joining = some.iter().enumerate().map(|(n, token)| {
                let (host, trust) = (part * JOINING + n, Trust::Roots(ca.clone()));
                let home = Home::new(folder.join(format!("h{host}")));
                let (server, token) = (server.to_owned(), token.clone());
                tokio::spawn(async move {
                    let name = format!("h{host}");
                    join(&home, &server, &trust, &name, &token).await.expect("it may");
                    home
                })
            });
            for joined in joining.collect::<Vec<_>>() {
                homes.push(joined.await.expect("it joined"));
            }
        }
        println!("joined 0 0 {}", now().as_millis());
        for (host, home) in homes.into_iter().enumerate() {
            tokio::spawn(agent(server_at.clone(), home, host));
        }
        std::future::pending::<()>().await;
    });
}

// -- the controller's process -------------------------------------------------------------------

struct Serving {
    stop: watch::Sender<bool>,
    thread: std::thread::JoinHandle<()>,
    port: u16,
}

fn serve(config: &ControllerConfig) -> Serving {
    let store = Box::new(RedbStore::open(&daemon::store_path(config)).expect("it was made"));
    let stop = watch::Sender::new(false);
    let (told, port) = mpsc::channel();
    let (until, settings) = (stop.subscribe(), config.clone());
    let thread = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = http::bind(settings.listen).await.expect("a free port");
            told.send(listener.local_addr().expect("it is bound").port()).expect("it waits");
            daemon::serve(&settings, store, listener, until).await.expect("it serves");
        });
    });
    Serving { stop, port: port.recv().expect("it starts"), thread }
}

/// Resident memory of this process, kB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// User and system time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Lines of the agents: word, name, number, moment.
type Lines = mpsc::Receiver<(String, String, u64, u64)>;

fn wait_for(lines: &Lines, what: &str, mut enough: impl FnMut(&str, &str, u64, u64) -> bool) {
    loop {
        let line = lines.recv_timeout(Duration::from_secs(300));
        let (word, name, number, at) = line.unwrap_or_else(|_| panic!("nothing for {what}"));
        if enough(&word, &name, number, at) {
            return;
        }
    }
}

fn vm(tenant: usize, n: usize, count: usize, bps: u64) -> Value {
    let host = format!("h{}", (tenant * SPREAD + n % SPREAD) % count);
    let floor = format!("{bps}bit");
    let network = json!({"port": format!("p{tenant}"), "addresses": [format!("10.0.{n}.1")]});
    let spec = json!({"tenant": format!("t{tenant}"), "host": host,
        "floor": {"out": floor, "in": floor}, "network": network});
    object("VM", &format!("t{tenant}-{n}"), spec)
}

fn main() {
    if let Ok(arguments) = std::env::var("WEIR_BENCH_AGENTS") {
        let words: Vec<&str> = arguments.split(' ').collect();
        return agents(Path::new(words[0]), words[1], Path::new(words[2]));
    }
    let count: usize =
        std::env::var("WEIR_AGENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let folder = std::env::temp_dir().join(format!("weir-agents-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    measure(&folder, count);
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

fn prepare(folder: &Path, config: &ControllerConfig, first: &ClientConfig, count: usize) -> Client {
    let server = format!("https://127.0.0.1:{}", config.listen.port());
    let mut client = Client::new(&server, &first.ca, &first.token).expect("an address");
    let tenants = count / 2;
    let host = json!({"switch": "tor", "rate": "100Gbit", "slots": 1000});
    let mut items: Vec<Value> =
        (0..count).map(|n| object("Host", &format!("h{n}"), host.clone())).collect();
    items.extend((0..tenants).map(|n| object("Tenant", &format!("t{n}"), json!({}))));
    items.extend((0..tenants).flat_map(|t| (0..VMS).map(move |n| vm(t, n, count, 1000))));
    for part in items.chunks(PART) {
        let reply = client.send(Method::POST, "/api/v1/apply", &json!({"items": part}));
        let reply = reply.expect("it answers");
        assert!(reply.is_ok(), "{}", reply.json());
    }
    let mut tokens = std::fs::File::create(folder.join("tokens")).expect("it is ours");
    let expires = now().plus_millis(3_600_000).to_string();
    for n in 0..count {
        let wanted = json!({"name": format!("host-h{n}"), "role": "host",
            "host": format!("h{n}"), "expires": expires});
        let made = client.send(Method::POST, "/api/v1/tokens", &wanted).expect("it answers").json();
        writeln!(tokens, "{}", made["token"].as_str().expect("the secret")).expect("written");
    }
    client
}

fn measure(folder: &Path, count: usize) {
    let (file, client_file) = (folder.join("controller.toml"), folder.join("client.toml"));
    let any = "127.0.0.1:0".parse().expect("an address");
    daemon::init(&file, &client_file, any, &["127.0.0.1".into()], &folder.join("data"))
        .expect("made");
    let mut config = daemon::read_config(&file).expect("it was made");
    let text = std::fs::read_to_string(client_file).expect("it was made");
    let first: ClientConfig = toml::from_str(&text).expect("it is ours");
    let serving = serve(&config);
    config.listen.set_port(serving.port);
    let mut client = prepare(folder, &config, &first, count);
    let (before, cpu_before) = (memory(), cpu());
    let (mut child, lines) = spawn(folder, &config, &first.ca);
    let (mut up, mut told, mut began) = (0, 0, 0);
    let all = count / 2 * VMS;
    wait_for(&lines, "all agents", |word, _, _, at| {
        match word {
            "joined" => began = at,
            "up" => up += 1,
            "floor" => told += 1,
            _ => {}
        }
        if up >= count && told >= all {
            println!("{count} agents follow, {all} VMs are told: {} ms", at.saturating_sub(began));
        }
        up >= count && told >= all
    });
    let kept = memory().saturating_sub(before);
    println!(
        "memory per agent: {} kB, in all {} MB; CPU so far {:?}",
        kept / count as u64,
        memory() / 1024,
        cpu() - cpu_before
    );
    changes(&mut client, &lines, count);
    reservations(&mut client, count);
    // A restart: the agents find it by themselves.
    serving.stop.send_replace(true);
    serving.thread.join().expect("it ends well");
    let (cpu_before, began) = (cpu(), clock());
    let serving = serve(&config);
    let (mut back, mut tries) = (0, 0);
    wait_for(&lines, "all agents to be back", |word, _, _, _| {
        tries += usize::from(word == "try");
        back += usize::from(word == "up");
        back >= count
    });
    println!(
        "after a restart all are back in {:?}; CPU {:?}; connections per agent {:.2}; memory {} MB",
        began.elapsed(),
        cpu() - cpu_before,
        tries as f64 / count as f64,
        memory() / 1024
    );
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    serving.stop.send_replace(true);
    serving.thread.join().expect("it ends well");
}

/// Changes tenants one after the other; how long until the last of its hosts has heard of it.
fn changes(client: &mut Client, lines: &Lines, count: usize) {
    let mut took = Vec::new();
    for n in 0..CHANGES {
        let (tenant, bps) = (n % (count / 2), 2000 + n as u64);
        let items: Vec<Value> = (0..VMS).map(|n| vm(tenant, n, count, bps)).collect();
        let began = now().as_millis();
        let reply = client.send(Method::POST, "/api/v1/apply", &json!({"items": items}));
        assert!(reply.expect("it answers").is_ok());
        let mut heard: BTreeMap<u64, usize> = BTreeMap::new();
        wait_for(lines, "a change", |word, _, floor, at| {
            let seen = heard.entry(floor).or_default();
            *seen += usize::from(word == "floor" && floor == bps);
            if floor == bps && *seen == VMS {
                took.push(at.saturating_sub(began));
            }
            floor == bps && *seen == VMS
        });
    }
    show("a change reaches its hosts, ms", took);
}

/// Reserves one VM after the other, on hosts whose agents follow.
fn reservations(client: &mut Client, count: usize) {
    let mut took = Vec::new();
    for n in 0..RESERVATIONS {
        let one = json!({"name": format!("new-{n}"), "host": format!("h{}", n * 7 % count),
            "floor": {"out": "1Mbit", "in": "1Mbit"}});
        let spec = json!({"tenant": format!("t{}", n % (count / 2)), "vms": [one]});
        let body = object("Reservation", &format!("r{n}"), spec);
        let began = clock();
        let reply = client.send(Method::POST, "/api/v1/reservations", &body);
        took.push(u64::try_from(began.elapsed().as_micros()).expect("it is short"));
        let reply = reply.expect("it answers");
        assert!(reply.is_ok(), "{}", reply.json());
    }
    show("a reservation, us", took);
}

fn show(what: &str, mut took: Vec<u64>) {
    took.sort_unstable();
    let of = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!("{what}: median {}, p99 {}, worst {}", of(50), of(99), of(100));
}

fn spawn(folder: &Path, config: &ControllerConfig, ca: &Path) -> (std::process::Child, Lines) {
    let server = format!("127.0.0.1:{}", config.listen.port());
    let this = std::env::current_exe().expect("it runs");
    let arguments = format!("{} {server} {}", folder.display(), PathBuf::from(ca).display());
    let mut child = Command::new(this)
        .env("WEIR_BENCH_AGENTS", arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let out = child.stdout.take().expect("it is piped");
    let (say, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |n: usize| words.get(n).and_then(|word| word.parse().ok()).unwrap_or(0);
            let told = (words[0].to_owned(), words[1].to_owned(), number(2), number(3));
            if say.send(told).is_err() {
                return;
            }
        }
    });
    (child, lines)
}
