//! The dashboard of a large cloud: how long its pages take, and how large they are.
//!
//! `cargo bench -p weir-controller --bench dashboard`. 500 hosts with 10,000 VMs of 500 tenants report every two
//! seconds by TLS; a day of half hours of tenants, and of one tenant's VMs, is on the disk. `WEIR_VMS` sets another
//! number of VMs. The first page has to be there within a second and an update within 200 ms; status 101 if not.
//! With `WEIR_STAY=1` it goes on serving, to look at pages with a browser, until its input ends.

use hyper::Method;
use redb::{Database, TableDefinition};
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use weir_controller::client::Client;
use weir_controller::store::redb::RedbStore;
use weir_controller::{daemon, http};
use weir_model::controller::{ClientConfig, ControllerConfig};
use weir_rpc::PROTOCOL;
use weir_rpc::client::{Channel, Server, Trust, join, now, tls};
use weir_rpc::home::Home;
use weir_rpc::messages::{
    Accounts, BrokenFloor, FloorAccount, FromAgent, Hello, NETWORKS, PairNow,
};

/// VMs of a tenant, and of a host.
const VMS: usize = 20;
/// Objects of one request.
const PART: usize = 2000;
/// How often a page is asked for.
const TIMES: usize = 30;
/// Half hours of a day, and their length, ms.
const HALVES: u64 = 48;
const HALF: u64 = 1_800_000;
const DAY: u64 = HALVES * HALF;

const FIRST_VIEW: Duration = Duration::from_secs(1);
const UPDATE: Duration = Duration::from_millis(200);

fn tenant(number: usize) -> String {
    format!("tenant-{number:04}")
}

fn vm(number: usize) -> String {
    format!("{}-vm-{}", tenant(number / VMS), number % VMS)
}

/// Tenants are spread: the VMs of each are on twenty hosts.
fn host(number: usize, hosts: usize) -> usize {
    (number / VMS + number % VMS * 7) % hosts
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

/// What a tenant held of 1000 windows in a half hour: most all, some not, a few much less.
fn held(tenant: usize, half: u64) -> u64 {
    match (tenant % 50, (half + tenant as u64) % 16) {
        (7, 3 | 4) => 700,
        (13, 9) => 930,
        (21, 5) => 996,
        _ => 1000,
    }
}

/// Writes a day as a former start would have: half hours of all tenants, five minutes of one tenant's VMs.
fn past(folder: &Path, tenants: usize) {
    let database = Database::create(folder.join("accounts.redb")).expect("a new file");
    let transaction = database.begin_write().expect("it is ours");
    let now = now().as_millis();
    let begin = now / HALF * HALF + HALF - DAY;
    for half in 0..HALVES - 1 {
        let at = begin + half * HALF;
        let name = format!("course-{:06}", at / DAY);
        let table: TableDefinition<'_, (&str, u64), (u64, u64)> = TableDefinition::new(&name);
        let mut table = transaction.open_table(table).expect("a table");
        // For an hour nothing was heard.
        if (20..22).contains(&half) {
            continue;
        }
        table.insert(("", at), (1, 1)).expect("a row");
        for number in (0..tenants).filter(|number| number % 10 != 9) {
            let row = (tenant(number), held(number, half));
            table.insert((row.0.as_str(), at), (1000, row.1)).expect("a row");
        }
        let name = format!("sums-{:06}", at / DAY);
        let table: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new(&name);
        let mut table = transaction.open_table(table).expect("a table");
        for (number, five) in (0..VMS).flat_map(|vm| (0..6).map(move |five| (vm, five))) {
            let key = format!("{}/{}", tenant(number / VMS), vm(number));
            let sums = [170, held(7 + 50 * number, half) * 170 / 1000, 9, 9, 9, 0].repeat(2);
            let octets: Vec<u8> = sums.iter().flat_map(|sum: &u64| sum.to_le_bytes()).collect();
            let at = at + five * HALF / 6;
            table.insert((key.as_str(), at), octets.as_slice()).expect("a row");
        }
    }
    transaction.commit().expect("written");
}

/// What a host says after so many windows of each of its VMs.
fn said(own: &[usize], windows: u64) -> Accounts {
    let next = |number: usize| vm(number / VMS * VMS + (number + 1) % VMS);
    let floor = |name: String, out: bool| FloorAccount {
        vm: name,
        out,
        windows,
        held: windows - windows / 50,
        owed: windows * 1_250_000,
        got: windows * 1_250_000,
        all: windows * 2_500_000,
        borrowed: windows * 1_250_000,
    };
    let pair = |number: usize| PairNow {
        from: vm(number),
        to: next(number),
        floor: 10_000_000,
        rate: 100_000_000,
        sent: 20_000_000,
        wants: true,
        phase: "probing".into(),
        ..PairNow::default()
    };
    let broken = own.iter().take(1).filter(|number| *number % 40 == 0).map(|number| BrokenFloor {
        id: windows / 30,
        from: vm(*number),
        to: next(*number),
        from_ms: windows.saturating_sub(4) * 1000,
        until_ms: windows * 1000,
        owed: 5_000_000,
        got: 3_000_000,
        lost: 12,
        cause: "Lost".into(),
    });
    let both = |number: &usize| [floor(vm(*number), true), floor(next(*number), false)];
    Accounts {
        life: 1,
        at_ms: windows * 1000,
        floors: own.iter().flat_map(both).collect(),
        broken: broken.collect(),
        pairs: own.iter().map(|number| pair(*number)).collect(),
        ..Accounts::default()
    }
}

/// Joins, and reports for ever.
async fn agent(
    place: String,
    ca: String,
    home: Home,
    number: usize,
    token: String,
    own: Vec<usize>,
) {
    let trust = Trust::Roots(ca);
    let name = format!("h{number}");
    join(&home, &place, &trust, &name, &token).await.expect("it may");
    let proof = home.proof().expect("it joined").expect("it joined");
    let config = tls(&Trust::Roots(proof.roots.clone()), Some(&proof)).expect("it joined");
    let server = Server::parse(&place).expect("an address");
    let mut channel = Channel::connect(&server, Arc::new(config)).await.expect("it serves");
    let (say, heard) = tokio::sync::mpsc::channel(2);
    let hello = Hello {
        protocol: PROTOCOL,
        program: "bench".into(),
        rate: 100_000_000_000,
        control: format!("127.0.0.1:{}", 1024 + number),
        features: vec![NETWORKS.into()],
        ..Hello::default()
    };
    let first = FromAgent { hello: Some(hello), ..FromAgent::default() };
    say.send(first).await.expect("it is open");
    let mut told = channel.follow(ReceiverStream::new(heard)).await.expect("it serves");
    let mut every = tokio::time::interval(Duration::from_secs(2));
    let mut windows = 0;
    loop {
        tokio::select! {
            message = told.message() => if !matches!(message, Ok(Some(_))) { return },
            _ = every.tick() => {
                windows += 2;
                let accounts = Some(said(&own, windows));
                let message = FromAgent { accounts, ..FromAgent::default() };
                if say.send(message).await.is_err() { return }
            }
        }
    }
}

/// All agents, in a thread of their own that ends with the process.
fn agents(folder: &Path, place: String, ca: &Path, tokens: Vec<String>, vms: usize) {
    let ca = std::fs::read_to_string(ca).expect("it was made");
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().expect("a runtime").block_on(async {
            let hosts = tokens.len();
            for (number, token) in tokens.into_iter().enumerate() {
                let own = (0..vms).filter(|vm| host(*vm, hosts) == number).collect();
                let home = Home::new(folder.join(format!("h{number}")));
                tokio::spawn(agent(place.clone(), ca.clone(), home, number, token, own));
                tokio::task::yield_now().await;
            }
            std::future::pending::<()>().await;
        });
    });
}

fn serve(config: &ControllerConfig) -> (watch::Sender<bool>, u16, std::thread::JoinHandle<()>) {
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
    (stop, port.recv().expect("it starts"), thread)
}

/// Makes the objects. A token for each host.
fn prepare(client: &mut Client, vms: usize) -> Vec<String> {
    let (tenants, hosts) = (vms / VMS, vms / VMS);
    let mut items = Vec::new();
    for number in 0..hosts {
        let spec =
            json!({"switch": format!("rack{}", number / 25), "rate": "100Gbit", "slots": 1000});
        items.push(object("Host", &format!("h{number}"), spec));
    }
    for rack in 0..hosts.div_ceil(25) {
        let spec = json!({"lower": format!("rack{rack}"), "upper": "core", "rate": "400Gbit"});
        items.push(object("Link", &format!("rack{rack}-up"), spec));
    }
    items.extend((0..tenants).map(|number| object("Tenant", &tenant(number), json!({}))));
    items.extend((0..vms).map(|number| {
        let floor = json!({"out": "10Mbit", "in": "10Mbit"});
        let network = json!({"port": format!("p{number}"),
            "addresses": [format!("10.{}.{}.1", number / 256, number % 256)]});
        let spec = json!({"tenant": tenant(number / VMS), "floor": floor, "network": network,
            "host": format!("h{}", host(number, hosts))});
        object("VM", &vm(number), spec)
    }));
    for part in items.chunks(PART) {
        let reply = client.send(Method::POST, "/api/v1/apply", &json!({"items": part}));
        let reply = reply.expect("it answers");
        assert!(reply.is_ok(), "{}", reply.json());
    }
    let expires = now().plus_millis(3_600_000).to_string();
    let token = |number: usize| {
        let wanted = json!({"name": format!("host-h{number}"), "role": "host",
            "host": format!("h{number}"), "expires": expires});
        let made = client.send(Method::POST, "/api/v1/tokens", &wanted).expect("it answers");
        made.json()["token"].as_str().expect("the secret").to_owned()
    };
    (0..hosts).map(token).collect()
}

/// Asks for a page many times, each on a connection of its own, as a person who opens it does. Returns the worst.
fn time(open: &impl Fn() -> Client, page: &str) -> Duration {
    let (mut took, mut octets) = (Vec::new(), 0);
    for _ in 0..TIMES {
        let began = clock();
        let reply = open().get(page).expect("it answers");
        took.push(began.elapsed());
        assert_eq!(reply.status, 200, "{page}: {}", String::from_utf8_lossy(&reply.body));
        octets = reply.body.len();
        // Between the reports, not in step with them.
        std::thread::park_timeout(Duration::from_millis(130));
    }
    took.sort_unstable();
    let ms = |place: usize| took[place].as_secs_f64() * 1e3;
    println!("{page:56} {:8} kB {:8.1} ms {:8.1} ms", octets / 1000, ms(TIMES / 2), ms(TIMES - 1));
    took[TIMES - 1]
}

fn measure(folder: &Path, vms: usize) {
    let (file, client_file) = (folder.join("controller.toml"), folder.join("client.toml"));
    let any = "127.0.0.1:0".parse().expect("an address");
    let data = folder.join("data");
    daemon::init(&file, &client_file, any, &["127.0.0.1".into()], &data).expect("made");
    let config = daemon::read_config(&file).expect("it was made");
    let text = std::fs::read_to_string(client_file).expect("it was made");
    let first: ClientConfig = toml::from_str(&text).expect("it is ours");
    past(&data, vms / VMS);
    let (stop, port, thread) = serve(&config);
    let server = format!("https://127.0.0.1:{port}");
    let open = || Client::new(&server, &first.ca, &first.token).expect("an address");
    let tokens = prepare(&mut open(), vms);
    let hosts = tokens.len();
    agents(folder, format!("127.0.0.1:{port}"), &first.ca, tokens, vms);
    let began = clock();
    // All report, and the last ten seconds are over.
    let last = vm(vms - 1);
    while open().get(&format!("/api/v1/pairs?vm={last}")).expect("it answers").json()["items"]
        .as_array()
        .is_none_or(|pairs| pairs.len() < 2)
    {
        assert!(began.elapsed() < Duration::from_secs(300), "the agents do not report");
        std::thread::park_timeout(Duration::from_secs(1));
    }
    std::thread::park_timeout(Duration::from_secs(25));
    println!("{vms} VMs of {} tenants on {hosts} hosts, which report", vms / VMS);
    println!("{:56} {:>11} {:>11} {:>11}", "page", "size", "median", "worst");
    let (tenant, vm) = (format!("/ui/tenants/{}", tenant(0)), format!("/ui/vms/{}", vm(0)));
    let view = time(&open, "/ui");
    let parts = ["/ui?only=now,map,tenants", "/ui?only=tenants", "/ui?only=map", "/ui?only=now"];
    let update = parts.iter().map(|page| time(&open, page)).max().expect("some");
    for page in [
        "/api/v1/use",
        &tenant,
        &format!("{tenant}?only=vms"),
        &format!("{tenant}?only=map"),
        &format!("{tenant}?only=broken"),
        &vm,
        "/ui/network",
        "/ui/links/rack0-up",
        "/ui/links/nic%20of%20h0",
        "/ui/queues",
        "/ui/alerts",
    ] {
        time(&open, page);
    }
    println!("first view: asked 1000 ms, got {:.0} ms", view.as_secs_f64() * 1e3);
    println!("update: asked 200 ms, got {:.0} ms", update.as_secs_f64() * 1e3);
    if std::env::var("WEIR_STAY").is_ok() {
        println!("{server} {}", first.token);
        std::io::stdin().read_to_end(&mut Vec::new()).expect("it ends");
    }
    stop.send_replace(true);
    thread.join().expect("it ends well");
    assert!(view <= FIRST_VIEW && update <= UPDATE, "too slow");
}

fn main() {
    let vms = std::env::var("WEIR_VMS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let folder = std::env::temp_dir().join(format!("weir-dashboard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    measure(&folder, vms);
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
