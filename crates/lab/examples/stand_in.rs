//! Stands in for `weir agent` in the lab's tests: reads its configuration strictly, opens its
//! socket, where it answers nothing, reads its lists again at SIGHUP, and waits to be ended. Shapes
//! nothing. `refuse` in the preset makes it fail at once, `deaf` makes it ignore requests to end,
//! `parent` makes it leave a child behind. At SIGHUP `mortal` makes it end at once, and `stubborn`
//! refuse the list: then it answers each question with one refusal.

use nix::sys::signal::{SigSet, Signal};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_model::agent::{AgentConfig, Directory};
use weir_model::status::{Reply, Top};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(arguments[1..3], ["agent", "--config"], "called as the lab calls an agent");
    let (config, _) = read(&arguments[3]);
    let key = std::fs::read_to_string(&config.key_file).expect("keys");
    assert!(key.contains(&format!("host {}\n", config.host)), "the keys of this host");
    std::net::UdpSocket::bind(config.listen).expect("the control address is this namespace's");
    if config.mechanism.preset() == "refuse" {
        eprintln!("cannot attach: no such feature");
        std::process::exit(3);
    }
    let mut hang_up = SigSet::empty();
    hang_up.add(Signal::SIGHUP);
    hang_up.thread_block().expect("blocking a signal");
    if config.mechanism.preset() == "deaf" {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.thread_block().expect("blocking a signal");
    }
    if config.mechanism.preset() == "parent" {
        #[expect(clippy::zombie_processes, reason = "to be left behind is its purpose")]
        std::process::Command::new("sleep").arg("600").spawn().expect("a child");
    }
    let run = config.run_dir.join(&config.instance);
    std::fs::create_dir_all(&run).expect("a run directory");
    let socket = run.join("agent.sock");
    // One that was killed leaves its own behind.
    let _ = std::fs::remove_file(&socket);
    let socket = UnixListener::bind(socket).expect("a socket");
    eprintln!("ready");
    let path = arguments[3].clone();
    let preset = config.mechanism.preset().to_owned();
    let refused = Arc::new(AtomicU64::new(0));
    let refusing = Arc::clone(&refused);
    std::thread::spawn(move || {
        while hang_up.wait().is_ok() {
            if preset == "mortal" {
                eprintln!("no room for this list");
                std::process::exit(9);
            }
            if preset == "stubborn" {
                eprintln!("refused: a list of VMs that nobody ordered");
                refusing.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (config, directory) = read(&path);
            eprintln!("{} VMs here, {} in all", config.vms.len(), directory.vms.len());
        }
    });
    // A question gets no answer but the refusal.
    for client in socket.incoming().flatten() {
        let counters = vec![("agent.reload_failures".into(), refused.load(Ordering::Relaxed))];
        if counters[0].1 > 0 {
            let answer = Reply::Top(Box::new(Top { counters, ..Top::default() }));
            let text = serde_json::to_string(&answer).expect("plain data");
            let mut question = String::new();
            let _ = BufReader::new(&client).read_line(&mut question);
            let _ = writeln!(&client, "{text}");
        }
    }
}

/// Both lists, whose VMs here have to be here.
fn read(path: &str) -> (AgentConfig, Directory) {
    let text = std::fs::read_to_string(path).expect("a configuration");
    let config: AgentConfig = toml::from_str(&text).expect("a valid configuration");
    let text = std::fs::read_to_string(&config.directory).expect("a directory");
    let directory: Directory = serde_json::from_str(&text).expect("a valid directory");
    assert!(directory.hosts.iter().any(|h| h.name == config.host), "knows its host");
    for vm in &config.vms {
        let index = std::fs::read_to_string("/proc/net/dev").expect("interfaces");
        assert!(index.contains(&format!("{}:", vm.port)), "{} is here", vm.port);
    }
    (config, directory)
}
