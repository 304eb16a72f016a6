//! The dashboard in a browser: it loads, goes on by itself, and survives a restart of the controller.
//!
//! Chromium is driven by the DevTools protocol, over a socket of its own.

#[expect(dead_code, reason = "the other tests use the rest")]
mod harness;
#[expect(dead_code, reason = "the other tests use the rest")]
mod hosts;

use harness::{Controller, Folder, object};
use hosts::{Agent, apply, joined, until, vm};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use weir_rpc::messages::{Accounts, FloorAccount};

struct Browser {
    child: Child,
    socket: tungstenite::WebSocket<TcpStream>,
    asked: u64,
    /// What scripts and the browser complained of.
    complaints: Vec<String>,
}

impl Browser {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new("chromium");
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--ignore-certificate-errors",
        ]);
        command.args(["--remote-debugging-port=0", "--window-size=1300,900", "about:blank"]);
        command.arg(format!("--user-data-dir={}", folder.display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("chromium: `make test-long` installs it");
        let told = folder.join("DevToolsActivePort");
        until("the browser listens", || {
            std::fs::read_to_string(&told).is_ok_and(|text| text.lines().count() == 2)
        });
        let text = std::fs::read_to_string(&told).expect("it is there");
        let (port, path) = text.split_once('\n').expect("two lines");
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        let url = format!("ws://127.0.0.1:{port}{}", path.trim());
        let (socket, _) = tungstenite::client(url, stream).expect("it speaks");
        Self { child, socket, asked: 0, complaints: Vec::new() }
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.socket.send(message.to_string().into()).expect("it listens");
        loop {
            let told = self.socket.read().expect("it answers").into_text().expect("text");
            let told: Value = serde_json::from_str(&told).expect("JSON");
            if told["id"] == self.asked {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
            if told["method"] == "Runtime.exceptionThrown" || told["method"] == "Log.entryAdded" {
                self.complaints.push(told["params"].to_string());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A page of the browser.
struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Page<'_> {
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// What an expression gives.
    fn see(&mut self, expression: &str) -> Value {
        self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}))["result"]["value"].clone()
    }

    /// Loads a page, until it has this title.
    fn go(&mut self, url: &str, title: &str) {
        self.call("Page.navigate", json!({"url": url}));
        let there =
            format!("document.title == '{title} – Weir' && document.readyState == 'complete'");
        until("the page is there", || self.see(&there) == true);
    }
}

fn said(windows: u64) -> Accounts {
    let floor = FloorAccount {
        vm: "a".into(),
        out: true,
        windows,
        held: windows,
        owed: windows * 12_500_000,
        got: windows * 12_500_000,
        all: windows * 12_500_000,
        borrowed: 0,
    };
    Accounts { life: 1, at_ms: 1000 * windows, floors: vec![floor], ..Accounts::default() }
}

#[test]
fn the_dashboard_loads_goes_on_by_itself_and_survives_a_restart_of_the_controller() {
    let (folder, mut controller) = (Folder::new(), Controller::start());
    let host = json!({"switch": "tor", "rate": "1Gbit", "slots": 100});
    let items =
        [object("Host", "h0", host), object("Tenant", "gold", json!({})), vm("a", "h0", "100Mbit")];
    apply(&controller, json!({ "items": items }));
    let home = joined(&controller, &folder.0, "h0");
    let agent = Agent::start(&controller.server, &home, 0);
    until("the controller asks", || agent.desk.accounts_every_ms() > 0);
    agent.desk.account(said(1));

    let mut browser = Browser::start(&folder.0.join("browser"));
    let target =
        browser.call(None, "Target.createTarget", json!({"url": "about:blank"}))["targetId"]
            .clone();
    let attach = json!({"targetId": target, "flatten": true});
    let session = browser.call(None, "Target.attachToTarget", attach)["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let mut page = Page { browser: &mut browser, session };
    for domain in ["Page", "Runtime", "Log"] {
        page.call(&format!("{domain}.enable"), json!({}));
    }
    let server = controller.server.clone();
    // A stranger is asked for a token; with it, the tenants are there.
    page.go(&format!("{server}/ui/vms/a"), "Log in");
    let token = &controller.first.token;
    page.see(&format!("document.querySelector('#token').value = '{token}'; document.querySelector('form').submit()"));
    until("the tenants are there", || page.see("document.title") == "Tenants – Weir");

    // The map is one stop of the keyboard, arrows move in it, and a line says what the cell says.
    page.see("document.querySelector('table.heat a[tabindex=\"0\"]').focus()");
    for key in ["ArrowRight", "End", "ArrowDown", "ArrowLeft"] {
        for kind in ["rawKeyDown", "keyUp"] {
            page.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key}));
        }
    }
    let cell = "document.activeElement.matches('table.heat td:nth-last-child(3) a')";
    assert_eq!(page.see(cell), true, "the last cell but one");
    assert_eq!(page.see("document.querySelectorAll('table.heat a[tabindex=\"0\"]').length"), 1);
    let says = "document.activeElement.title == document.querySelector('.says').textContent";
    assert_eq!(page.see(says), true);
    page.go(&format!("{server}/ui/tenants/gold"), "Tenant gold");
    until("the chart is drawn", || {
        page.see("document.querySelector('figure.chart')?.dataset.points") == "59"
            && page.see("document.querySelectorAll('figure.chart canvas').length") == 1
    });

    // What agents say appears without a reload.
    page.see("window.mark = 'the same page'");
    let mut windows = 1;
    let mut sees = |page: &mut Page<'_>, agent: &Agent| {
        until("the new part is there", || {
            windows += 1;
            agent.desk.account(said(windows));
            page.see("document.querySelector('#vms').innerText.includes('100.00 %')") == true
        });
    };
    sees(&mut page, &agent);

    // A click sorts, and the order stays when the table is replaced.
    page.see("document.querySelector('#vms th').click()");
    assert_eq!(
        page.see("document.querySelector('#vms th').getAttribute('aria-sort')"),
        "ascending"
    );

    controller.stop();
    until("it says that nobody answers", || {
        page.see("!document.getElementById('lost').hidden") == true
    });
    controller.restart();
    until("the page goes on", || page.see("document.getElementById('lost').hidden") == true);
    sees(&mut page, &agent);
    assert_eq!(page.see("window.mark"), "the same page", "nobody loaded it again");
    assert_eq!(
        page.see("document.querySelector('#vms th').getAttribute('aria-sort')"),
        "ascending"
    );
    // A browser that is gone costs the controller nothing.
    let complaints: Vec<String> = page
        .browser
        .complaints
        .iter()
        .filter(|one| !one.contains("ERR_CONNECTION"))
        .cloned()
        .collect();
    drop(browser);
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(controller.client().get("/healthz").expect("it answers").status, 200);
}
