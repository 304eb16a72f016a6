//! `weir metrics` beside an agent that answers, one that hangs up, and scrapers that go away.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

mod place;
use place::Place;

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What an agent answers to the first question of each connection; nothing: it hangs up.
const ANSWER: &str = r#"{"kind":"top","host":"h0","mechanism":"elasticswitch (steady)","up_s":5.0,"pairs":[],"counters":[["agent.messages",7]],"cpu_s":0.25}"#;

fn agent(run_dir: &std::path::Path, name: &str, answer: Option<&'static str>) {
    std::fs::create_dir_all(run_dir.join(name)).expect("ours");
    let listener = UnixListener::bind(run_dir.join(name).join("agent.sock")).expect("ours");
    // Ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).expect("a question");
            assert!(asked.contains("\"top\""), "{asked}");
            if let Some(answer) = answer {
                writeln!(stream, "{answer}").expect("it listens");
            }
        }
    });
}

fn scrape(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn numbers_of_all_agents_are_served_and_a_scraper_that_leaves_harms_nobody() {
    let place = Place::new("metrics");
    agent(&place.0, "h0", Some(ANSWER));
    agent(&place.0, "h1", None);
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("metrics").arg("--run-dir").arg(&place.0);
    let once = weir.output().expect("weir runs");
    let once = String::from_utf8_lossy(&once.stdout).into_owned();
    assert!(once.contains("weir_agent_up{agent=\"h0\"} 1\n"), "{once}");
    assert!(once.contains("weir_agent_up{agent=\"h1\"} 0\n"), "{once}");
    assert!(once.contains("weir_agent_messages_total{agent=\"h0\"} 7.0\n"), "{once}");
    weir.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut daemon = Daemon(weir.spawn().expect("weir runs"));
    let mut lines = BufReader::new(daemon.0.stderr.take().expect("it is piped")).lines();
    let line = lines.next().expect("it says where").expect("text");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.expect("an address").to_owned();
    for _ in 0..20 {
        let mut gone = TcpStream::connect(&address).expect("it listens");
        write!(gone, "GET /metrics HTTP/1.1\r\n").expect("sent");
    }
    let told = scrape(&address, "/metrics");
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    assert!(told.contains("application/openmetrics-text; version=1.0.0"), "{told}");
    assert!(told.contains(&once), "{told}");
    assert!(scrape(&address, "/").starts_with("HTTP/1.1 404"));
    // The same address twice.
    let mut second = Command::new(env!("CARGO_BIN_EXE_weir"));
    let refused = second.args(["metrics", "--listen", &address]).output().expect("weir runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
}
