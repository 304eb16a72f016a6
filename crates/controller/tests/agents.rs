//! Agents over real TLS: they join, follow, and are refused.

use crate::harness::{Controller, Folder, done, object};
use crate::hosts::{Agent, apply, condition, floor, joined, runtime, token, try_join, until, vm};
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use weir_controller::clock::Clock;
use weir_controller::roots::{self, Step};
use weir_controller::tls::{Authority, Current, HOST_LIFE, fingerprint, server_config};
use weir_rpc::client::desk::Desk;
use weir_rpc::client::follow::{Facts, Follower};
use weir_rpc::client::{Channel, Server, Trust, join, tls};
use weir_rpc::home::Home;
use weir_rpc::messages::{FromAgent, Hello};

#[path = "support/etcd_server.rs"]
pub(crate) mod etcd_server;
use etcd_server::Etcd;

fn cloud() -> Value {
    let host = json!({"switch": "tor", "rate": "1Gbit", "slots": 100});
    let hosts = ["h0", "h1"].map(|name| object("Host", name, host.clone()));
    json!({"items": [hosts[0], hosts[1], object("Tenant", "gold", json!({}))]})
}

#[test]
fn floors_reach_agents_and_hold_while_the_controller_is_away_and_all_come_back() {
    let (folder, mut controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let homes = ["h0", "h1"].map(|host| joined(&controller, &folder.0, host));
    let start = |n: usize| Agent::start(&controller.server, &homes[n], n);
    let agents = [start(0), start(1)];
    let vms = [vm("a", "h0", "100Mbit"), vm("b", "h1", "200Mbit")];
    apply(&controller, json!({"items": vms}));
    until("floors arrive", || {
        agents[0].floor("a") == Some(100) && agents[1].floor("b") == Some(200)
    });
    until("the objects say so", || {
        ["a", "b"].iter().all(|name| {
            condition(&controller, &format!("vms/{name}"), "Applied")["status"] == "True"
        })
    });
    until("it is said", || condition(&controller, "hosts/h0", "Ready")["reason"] == "Connected");
    until("it is said", || condition(&controller, "hosts/h0", "RateMatches")["status"] == "True");
    let key = |home: &Home| {
        let text = std::fs::read_to_string(home.keys()).expect("written before");
        text.lines().last().expect("a key").rsplit(' ').next().expect("its digits").to_owned()
    };
    assert_eq!(key(&homes[0]), key(&homes[1]), "the pair of hosts has a key");

    // The controller dies, then the agents do; each starts from its own disk.
    controller.stop();
    for agent in agents {
        agent.kill();
    }
    let server = controller.server.clone();
    let agents = [0, 1].map(|n| Agent::start(&server, &homes[n], n));
    assert_eq!((agents[0].floor("a"), agents[1].floor("b")), (Some(100), Some(200)));

    controller.restart();
    apply(&controller, json!({"items": [vm("a", "h0", "300Mbit")]}));
    until("they are back", || agents[0].floor("a") == Some(300));
    until("it is on the disk", || floor(&homes[0].kept().expect("whole"), "a") == Some(300));
    assert_eq!(agents[1].floor("b"), Some(200));
}

#[test]
fn a_host_that_joins_has_its_vms_on_its_disk_before_its_agent_starts() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    apply(&controller, json!({"items": [vm("a", "h0", "100Mbit"), vm("b", "h1", "200Mbit")]}));
    let homes = ["h0", "h1"].map(|host| joined(&controller, &folder.0, host));
    let floor_of = |n: usize, vm: &str| floor(&homes[n].kept().expect("whole"), vm);
    assert_eq!((floor_of(0, "a"), floor_of(1, "b")), (Some(100), Some(200)));
    let said = condition(&controller, "vms/a", "Applied");
    assert_ne!(said["status"], "True", "nobody enforces it yet: {said}");
    let agents = [0, 1].map(|n| Agent::start(&controller.server, &homes[n], n));
    until("it is said", || condition(&controller, "vms/a", "Applied")["reason"] == "InForce");
    // A host that joins once more keeps what it has in force, and hears of changes by its stream.
    agents.into_iter().for_each(|agent| drop(agent.kill()));
    apply(&controller, json!({"items": [vm("a", "h0", "50Mbit")]}));
    joined(&controller, &folder.0, "h0");
    assert_eq!(floor_of(0, "a"), Some(100));
    let agent = Agent::start(&controller.server, &homes[0], 0);
    until("it is told", || agent.floor("a") == Some(50));
}

#[test]
fn agents_follow_a_controller_whose_records_are_in_etcd() {
    let etcd = Etcd::start();
    let (folder, controller) = (Folder::new(), Controller::on(etcd.address()));
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let agent = Agent::start(&controller.server, &home, 0);
    apply(&controller, json!({"items": [vm("a", "h0", "100Mbit")]}));
    until("it is told", || agent.floor("a") == Some(100));
    until("it is said", || condition(&controller, "vms/a", "Applied")["reason"] == "InForce");
    drop(controller);
}

#[test]
fn a_token_works_once_and_for_its_host() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = Home::new(folder.0.join("h0"));
    let secret = token(&controller, "h0", 3_600_000);
    let error = try_join(&controller, &home, "h1", &secret).expect_err("another host");
    assert!(error.contains("this token is for host `h0`, not for `h1`"), "{error}");
    try_join(&controller, &home, "h0", &secret).expect("its own");
    let error = try_join(&controller, &home, "h0", &secret).expect_err("twice");
    assert!(error.contains("it was used before"), "{error}");
    let former = token(&controller, "h0", 3_600_000);
    let latest = token(&controller, "h0", 3_600_000);
    let error = try_join(&controller, &home, "h0", &former).expect_err("replaced");
    assert!(error.contains("this token is not known"), "{error}");
    try_join(&controller, &home, "h0", &latest).expect("the latest one");
    let error =
        try_join(&controller, &home, "h0", &controller.first.token).expect_err("a person's");
    assert!(error.contains("this token is not known"), "{error}");
    // Nor does a host's token open the API.
    let secret = token(&controller, "h0", 3_600_000);
    let mut client = controller.client_of(&secret);
    assert_eq!(client.get("/api/v1/vms").expect("it answers").json()["items"], json!([]));
    assert_eq!(client.get("/metrics").expect("it answers").status, 403);
}

#[test]
fn a_host_joins_by_fingerprint_and_another_authority_is_refused() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = Home::new(folder.0.join("h0"));
    let secret = token(&controller, "h0", 3_600_000);
    let hex = fingerprint(&controller.first.ca).expect("a certificate");
    let mut hash: [u8; 32] =
        std::array::from_fn(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("digits"));
    hash[0] ^= 1;
    let by = |hash| {
        let trust = Trust::Fingerprint(hash);
        runtime().block_on(join(&home, &controller.server, &trust, "h0", &secret))
    };
    let error = by(hash).expect_err("another").to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    hash[0] ^= 1;
    assert_eq!(by(hash).expect("the right one").host, "h0");
}

/// Opens a stream with the certificate in `home`; what it is told.
fn introduce(controller: &Controller, home: &Home, hello: Hello) -> Result<(), String> {
    runtime().block_on(async {
        let proof = home.proof().expect("whole").expect("it joined");
        let config = tls(&Trust::Roots(proof.roots.clone()), Some(&proof)).expect("sound");
        let server = Server::parse(&controller.server).expect("an address");
        let channel = Channel::connect(&server, Arc::new(config)).await;
        let mut channel = channel.map_err(|error| error.to_string())?;
        let first = FromAgent { hello: Some(hello), ..FromAgent::default() };
        let stream = channel.follow(tokio_stream::iter([first])).await;
        let mut stream = stream.map_err(|error| error.to_string())?;
        stream.message().await.map(drop).map_err(|status| status.to_string())
    })
}

fn hello() -> Hello {
    Hello { protocol: weir_rpc::PROTOCOL, ..Hello::default() }
}

#[test]
fn an_agent_of_another_version_and_one_without_a_certificate_are_told_so() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    introduce(&controller, &home, hello()).expect("it may");
    let error = introduce(&controller, &home, Hello { protocol: 99, ..hello() });
    let (error, ours) = (error.expect_err("another version"), weir_rpc::PROTOCOL);
    assert!(
        error.contains(&format!(
            "speaks version 99 of the messages, this controller version {ours}"
        )),
        "{error}"
    );
    let ca = std::fs::read_to_string(&controller.first.ca).expect("it was made");
    let error = runtime().block_on(async {
        let config = tls(&Trust::Roots(ca), None).expect("sound");
        let server = Server::parse(&controller.server).expect("an address");
        let mut channel = Channel::connect(&server, Arc::new(config)).await.expect("TLS alone");
        let first = FromAgent { hello: Some(hello()), ..FromAgent::default() };
        channel.follow(tokio_stream::iter([first])).await.expect_err("a stranger").to_string()
    });
    assert!(error.contains("show the certificate"), "{error}");
}

#[test]
fn a_host_that_was_revoked_is_refused_and_may_join_again() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    introduce(&controller, &home, hello()).expect("it may");
    let revoke = controller.client().send(Method::POST, "/api/v1/hosts/h0/revoke", &json!({}));
    done(revoke.expect("it answers"));
    let error = introduce(&controller, &home, hello()).expect_err("revoked");
    assert!(error.contains("was revoked") && error.contains("join again"), "{error}");
    joined(&controller, &folder.0, "h0");
    introduce(&controller, &home, hello()).expect("with the new certificate");
}

/// A host shows its certificate to a controller with `clock`. The clock `signs` made the controller's own.
fn handshake(
    controller: &Controller,
    home: &Home,
    clock: Clock,
    signs: Clock,
) -> Result<(), String> {
    let data = &controller.config.data_dir;
    let names = vec!["127.0.0.1".to_owned()];
    let authority = Authority::read(&data.join("ca.key"), &data.join("ca.crt"), names);
    let authority = authority.expect("it was made");
    let current = Arc::new(Current::new(authority.sign(&signs).expect("a name")));
    let config = server_config(current, &authority, clock).expect("sound");
    let proof = home.proof().expect("whole").expect("it joined");
    let client = tls(&Trust::Roots(proof.roots.clone()), Some(&proof)).expect("sound");
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let connecting = tokio::spawn(async move {
            let stream = TcpStream::connect(at).await.expect("it listens");
            let name = "127.0.0.1".try_into().expect("a name");
            TlsConnector::from(Arc::new(client)).connect(name, stream).await.map(drop)
        });
        let (stream, _) = listener.accept().await.expect("it comes");
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        let connected = connecting.await.expect("it ends well");
        accepted.map(drop).map_err(|error| error.to_string())?;
        connected.map_err(|error| error.to_string())
    })
}

#[test]
fn a_certificate_that_has_ended_ends_the_handshake() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let (now, hour) = (Clock::start(), Duration::from_secs(3600));
    let at = |hours: u32| handshake(&controller, &home, now.ahead(hour * hours), now);
    at(0).expect("it is valid");
    at(23).expect("it is valid still");
    let error = at(25).expect_err("it ended");
    assert!(error.contains("certificate expired"), "{error}");
}

#[test]
fn a_controller_whose_clock_stood_still_or_whose_calendar_was_set_lets_its_hosts_in() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let now = Clock::start();
    // Suspended for two days; begun with a calendar of a year ahead, which was set right since; and the
    // calendar is wrong now.
    let year = days(365);
    for clock in [now.suspended(days(2)), now.set_back(year), now.ahead(year).suspended(year)] {
        handshake(&controller, &home, clock, clock).expect("each is good by one of the clocks");
    }
    let error = handshake(&controller, &home, now.ahead(year), now).expect_err("by neither");
    assert!(error.contains("certificate expired"), "{error}");
}

#[test]
fn a_host_with_the_certificate_of_another_takes_nothing() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let homes = ["h0", "h1"].map(|host| joined(&controller, &folder.0, host));
    let identity = |home: &Home| home.path().join("identity.pem");
    std::fs::copy(identity(&homes[1]), identity(&homes[0])).expect("ours");
    let impostor = Agent::start(&controller.server, &homes[0], 0);
    let vms = [vm("a", "h0", "100Mbit"), vm("b", "h1", "200Mbit")];
    apply(&controller, json!({"items": vms}));
    // Long enough for it to be told, if it followed as the other one.
    let agent = Agent::start(&controller.server, &homes[1], 1);
    until("the other one is told", || agent.floor("b") == Some(200));
    assert_eq!(*impostor.kept.lock().expect("nobody panics"), homes[0].kept().expect("whole"));
    assert_eq!(impostor.floor("a"), None);
    until("it is said", || condition(&controller, "vms/a", "Applied")["reason"] == "HostSilent");
}

#[test]
fn a_certificate_is_renewed_when_its_time_has_come_and_not_before() {
    // Half of a life is half a day: here a host renews after a second.
    const AFTER: u64 = 1_000;
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let ends = || home.proof().expect("whole").expect("it joined").identity.until.as_millis();
    let mut all = vec![ends()];
    let left = HOST_LIFE - AFTER;
    let agent =
        Agent::start_with(&controller.server, &home, 0, &[], |one| one.renewing_before(left));
    until("it has renewed three times", || {
        if *all.last().expect("the first") != ends() {
            all.push(ends());
        }
        all.len() > 3
    });
    // A certificate's end says when it was made.
    assert!(all.windows(2).all(|two| two[1] - two[0] >= AFTER), "{all:?}");
    apply(&controller, json!({"items": [vm("a", "h0", "100Mbit")]}));
    until("it follows with the new one", || agent.floor("a") == Some(100));
    let former = agent.kill();
    introduce(&controller, &former, hello()).expect("the newest one is on its disk");
}

#[test]
fn a_host_renews_at_half_of_its_certificates_life() {
    let (folder, controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let ends = || home.proof().expect("whole").expect("it joined").identity.until;
    let made = ends().as_millis() - HOST_LIFE;
    let begins = Clock::start().now().as_millis();
    assert!(made <= begins, "the life of a certificate is that of the controller's constant");
    let control = "127.0.0.1:7001".into();
    let facts =
        Facts { program: "test".into(), rate: 1, control, code_points: Vec::new(), own_out: 0 };
    let desk = Arc::new(Desk::new(|| {}));
    let follower = Follower::new(&controller.server, home.clone(), facts, desk).expect("it joined");
    assert_eq!(follower.renews_before(), HOST_LIFE / 2);
}

#[test]
fn an_authority_is_replaced_while_hosts_renew() {
    let (folder, mut controller) = (Folder::new(), Controller::start());
    apply(&controller, cloud());
    let home = joined(&controller, &folder.0, "h0");
    let data = controller.config.data_dir.clone();
    let agent = Agent::start(&controller.server, &home, 0);
    let first = std::fs::read_to_string(data.join("ca.crt")).expect("it was made");
    roots::step(&data, Step::Drop).expect_err("there is one alone");
    roots::step(&data, Step::Add).expect("the first step");
    controller.restart();
    let trusted = |count: usize| {
        let roots = home.proof().expect("whole").expect("it joined").roots;
        roots.matches("BEGIN CERTIFICATE").count() == count
    };
    until("the host trusts both", || trusted(2));
    roots::step(&data, Step::Swap).expect("the second step");
    controller.restart();
    // With a certificate of the old authority, to a controller of the new one.
    let ca = std::fs::read_to_string(data.join("ca.crt")).expect("it was made");
    assert!(ca.ends_with(&first), "the old one is the second");
    apply(&controller, json!({"items": [vm("a", "h0", "100Mbit")]}));
    until("the host follows the new one", || agent.floor("a") == Some(100));
    roots::step(&data, Step::Drop).expect("the last step");
    controller.restart();
    let error = introduce(&controller, &home, hello()).expect_err("the old one's");
    assert!(error.contains("cannot reach") || error.contains("controller at"), "{error}");
    joined(&controller, &folder.0, "h0");
    introduce(&controller, &home, hello()).expect("of the new one");
}
