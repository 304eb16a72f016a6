//! The dashboard and the accounts of floors, as browsers and clients see them.

use crate::harness::{Controller, Folder, done, object, refused};
use crate::hosts::{Agent, apply, joined, until, vm};
use hyper::Method;
use serde_json::{Value, json};
use weir_controller::client::{Client, Reply};
use weir_rpc::messages::{Accounts, BrokenFloor, FloorAccount, PairNow, Trouble};

fn cloud(controller: &Controller) {
    let host = json!({"switch": "tor", "rate": "1Gbit", "slots": 100});
    let mut items: Vec<Value> = ["h0", "h1"].map(|name| object("Host", name, host.clone())).into();
    items.extend(["gold", "blue"].map(|name| object("Tenant", name, json!({}))));
    items.extend([vm("a", "h0", "100Mbit"), vm("b", "h1", "200Mbit")]);
    apply(controller, json!({ "items": items }));
}

/// What h0 says after so many windows.
fn said(windows: u64, held: u64) -> Accounts {
    let floor = |vm: &str, out| FloorAccount {
        vm: vm.into(),
        out,
        windows,
        held,
        owed: windows * 12_500_000,
        got: held * 12_500_000,
        all: windows * 12_500_000,
        borrowed: 0,
    };
    let broken = BrokenFloor {
        id: 1,
        from: "a".into(),
        to: "b".into(),
        from_ms: 1000 * held,
        until_ms: 1000 * windows,
        owed: 1000,
        got: 100,
        lost: 7,
        cause: "Lost".into(),
    };
    let pair = PairNow {
        from: "a".into(),
        to: "b".into(),
        floor: 100_000_000,
        sent: 90_000_000,
        wants: true,
        phase: "holding".into(),
        ..PairNow::default()
    };
    let trouble = Trouble {
        kind: "Unenforced".into(),
        vm: "a".into(),
        message: "a <stranger's> program".into(),
    };
    Accounts {
        life: 1,
        at_ms: 1000 * windows,
        floors: vec![floor("a", true), floor("b", false)],
        broken: (held < windows).then_some(broken).into_iter().collect(),
        pairs: vec![pair],
        troubles: vec![trouble],
        ..Accounts::default()
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

fn with_cookie(client: &mut Client, method: Method, path: &str, cookie: &str) -> Reply {
    client.ask(method, path, &[("cookie", cookie)], Vec::new()).expect("it answers")
}

#[test]
fn what_agents_count_is_told_by_the_api_and_on_pages_to_those_who_may_see_it() {
    let (folder, mut controller) = (Folder::new(), Controller::start());
    cloud(&controller);
    let home = joined(&controller, &folder.0, "h0");
    let agent = Agent::start(&controller.server, &home, 0);
    until("the controller asks", || agent.desk.accounts_every_ms() > 0);
    // The first report is where counting begins.
    until("the first report is there", || {
        agent.desk.account(said(10, 10));
        let told = controller.client().get("/api/v1/pairs?vm=a").expect("it answers").json();
        told["items"].as_array().is_some_and(|pairs| pairs.len() == 1)
    });
    agent.desk.account(said(30, 20));
    let mut client = controller.client();
    let mut report = || done(client.get("/api/v1/slo?tenant=gold&since=1h").expect("it answers"));
    until("the second one is", || report()["floors"][0]["windows"] == 20);
    let told = report();
    let floor = &told["floors"][0];
    assert_eq!(
        (&floor["vm"], &floor["direction"], &floor["held"]),
        (&json!("a"), &json!("out"), &json!(10))
    );
    assert_eq!(
        (&told["broken"][0]["lost"], &told["broken"][0]["seconds"]),
        (&json!(7), &json!(10.0))
    );
    let alerts = done(client.get("/api/v1/alerts").expect("it answers"));
    let names: Vec<&str> = alerts["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|a| a["name"].as_str())
        .collect();
    assert!(names.contains(&"WeirFloorBroken") && names.contains(&"WeirVmUnenforced"), "{names:?}");

    // Nothing else is on its way over links of 1 Gb/s.
    until("all pairs were laid over all links", || {
        let told = done(client.get("/api/v1/pairs?vm=a").expect("it answers"));
        told["items"][0]["ideal"] == 1_000_000_000
    });

    // Words that are no methods are one series: each might be another.
    for word in ["A000001", "A000002"] {
        let method = Method::from_bytes(word.as_bytes()).expect("a word");
        client.ask(method, "/healthz", &[], "").expect("it answers");
    }
    let metrics = text(&client.get("/metrics").expect("it answers"));
    assert!(metrics.contains("method=\"other\"") && !metrics.contains("A00000"), "{metrics}");
    for line in [
        "weir_vm_tested_seconds_total{tenant=\"gold\",vm=\"a\",direction=\"out\"} 20",
        "weir_vm_held_seconds_total{tenant=\"gold\",vm=\"a\",direction=\"out\"} 10",
        "weir_vm_transmit_bytes_total{tenant=\"gold\",vm=\"a\"} 250000000",
        "weir_vm_receive_bytes_total{tenant=\"gold\",vm=\"b\"} 250000000",
        "weir_vm_guarantee_bytes_per_second{tenant=\"gold\",vm=\"b\",direction=\"in\"} 25000000",
        "weir_alerts{alert=\"WeirVmUnenforced\"} 1",
        "weir_alerts{alert=\"WeirSwitchDrift\"} 0",
        "weir_controller_leads 1",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line} in {metrics}");
    }
    assert_eq!(metrics.matches("# EOF").count(), 1);

    let cookie = format!("other=1; weir_token={}", controller.first.token);
    let mut browser = controller.client_of("");
    for (path, word) in [
        ("/ui", ">gold<"),
        ("/ui", ">1.00 Gb/s<"),
        ("/ui/tenants/gold", ">a<"),
        ("/ui/vms/a", "holding: after a loss"),
        ("/ui/network", "nic of h0"),
        ("/ui/links/nic%20of%20h0", "No tenant had a queue of its own"),
        ("/ui/queues", "shared queue"),
        ("/ui/alerts", "a &lt;stranger's&gt; program"),
    ] {
        let page = with_cookie(&mut browser, Method::GET, path, &cookie);
        assert_eq!(page.status, 200, "{path}");
        assert!(text(&page).contains(word), "{path}: {}", text(&page));
        assert!(
            page.headers["content-security-policy"]
                .to_str()
                .expect("words")
                .contains("default-src 'self'")
        );
    }
    for path in ["/ui/vms/none", "/ui/tenants/none", "/ui/links/none"] {
        assert_eq!(with_cookie(&mut browser, Method::GET, path, &cookie).status, 404);
    }
    let page = text(&with_cookie(&mut browser, Method::GET, "/ui", &cookie));
    for (at, _) in page.match_indices("/ui/assets/") {
        let file = page[at..].split('"').next().expect("a name");
        assert_eq!(browser.get(file).expect("it answers").status, 200, "{file}");
    }

    // The map says what was held, apart from what was not tested and what is not known.
    let map = text(&with_cookie(&mut browser, Method::GET, "/ui?only=map", &cookie));
    for word in ["held 50.00 % of 40 s tested\"", "blue, 24 h: not tested", ": no data\""] {
        assert!(map.contains(word), "{word}: {map}");
    }
    assert!(!map.contains("id=\"tenants\"") && !map.contains("figure"), "only what was asked for");
    let cell = map.find("class=\"c-bad\" tabindex").expect("gold's present half hour");
    let link = map[cell..].split('"').nth(5).expect("its address").to_owned();
    assert!(link.starts_with("/ui/tenants/gold?at=") && link.ends_with("#broken"), "{link}");
    let mut broken = |path: &str| text(&with_cookie(&mut browser, Method::GET, path, &cookie));
    assert!(broken(link.trim_end_matches("#broken")).contains("<td>7</td>"));
    let long_ago = broken("/ui/tenants/gold?only=broken&at=1000000000");
    assert!(long_ago.contains("2001-09-09 01:30–02:00 UTC") && long_ago.contains("None."));
    assert!(broken("/ui/vms/a?only=broken&at=18446744073709551615").contains("None."));
    for path in ["/ui?at=soon", "/ui?only=map&only=now"] {
        assert_eq!(with_cookie(&mut browser, Method::GET, path, &cookie).status, 400, "{path}");
    }

    // A tenant sees its own, and another one nothing of it.
    let map =
        text(&controller.client_as("m", "tenant", Some("blue")).get("/ui").expect("it answers"));
    assert!(map.contains("blue, 24 h: not tested") && !map.contains("gold"), "{map}");
    let mut gold = controller.client_as("g", "tenant", Some("gold"));
    let mut blue = controller.client_as("b", "tenant", Some("blue"));
    let seen = |client: &mut Client| {
        done(client.get("/api/v1/slo").expect("it answers"))["floors"].as_array().map(Vec::len)
    };
    assert_eq!((seen(&mut gold), seen(&mut blue)), (Some(4), Some(0)));
    refused(&blue.get("/api/v1/pairs?vm=a").expect("it answers"), 404, "NotFound", "query.vm");
    refused(&gold.get("/api/v1/alerts").expect("it answers"), 403, "Forbidden", "Authorization");
    assert_eq!(blue.get("/ui/vms/a").expect("it answers").status, 404);
    for path in ["/ui/alerts", "/ui/links/nic%20of%20h0"] {
        assert_eq!(gold.get(path).expect("it answers").status, 403, "{path}");
    }
    refused(
        &gold.get("/api/v1/slo?since=soon").expect("it answers"),
        400,
        "BadParameter",
        "query.since",
    );

    // It is still known after a restart, and the agent goes on.
    controller.restart();
    assert_eq!(
        done(controller.client().get("/api/v1/slo?since=1h").expect("it answers"))["floors"][0]["windows"],
        20
    );
}

#[test]
fn a_cookie_is_for_looking_only_and_strangers_are_asked_to_log_in() {
    let controller = Controller::start();
    cloud(&controller);
    let mut browser = controller.client_of("");
    let page = browser.get("/ui/tenants/gold").expect("it answers");
    assert_eq!((page.status, page.headers["location"].as_bytes()), (303, &b"/ui/login"[..]));
    assert!(text(&browser.get("/ui/login").expect("it answers")).contains("name=\"token\""));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let mut log_in = |token: &str| {
        browser.ask(Method::POST, "/ui/login", &form, format!("token={token}")).expect("it answers")
    };
    for wrong in ["", "nonsense", "a%0d%0aset-cookie:b"] {
        let page = log_in(wrong);
        assert_eq!(page.status, 403, "{wrong}");
        assert!(!page.headers.contains_key("set-cookie"));
    }
    let page = log_in(&controller.first.token);
    let cookie = page.headers["set-cookie"].to_str().expect("words").to_owned();
    for word in ["HttpOnly", "Secure", "SameSite=Strict"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    let mut browser = controller.client_of("");
    assert_eq!(with_cookie(&mut browser, Method::GET, "/api/v1/vms", &cookie).status, 200);
    for (method, path) in [
        (Method::DELETE, "/api/v1/vms/a"),
        (Method::POST, "/api/v1/apply"),
        (Method::PUT, "/api/v1/vms/a"),
    ] {
        let reply = with_cookie(&mut browser, method, path, &cookie);
        refused(&reply, 401, "Unauthorized", "Authorization");
    }
    let mut other = controller.client_as("other", "operator", None);
    done(other.ask(Method::DELETE, "/api/v1/tokens/first-operator", &[], "").expect("it answers"));
    assert_eq!(
        with_cookie(&mut browser, Method::GET, "/ui", &cookie).status,
        303,
        "the token was deleted"
    );
}
