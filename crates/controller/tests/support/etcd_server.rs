//! A real etcd with one member, for tests: dies with the test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Attempts to start: a port may be taken between its choice and its use.
const ATTEMPTS: u32 = 5;

/// etcd, which this process ends and starts.
pub(crate) struct Etcd {
    folder: PathBuf,
    ports: [u16; 2],
    /// For its clients: none, or TLS with certificates of both sides.
    tls: Vec<String>,
    child: Option<Child>,
}

impl Etcd {
    /// Starts it with an empty folder.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| Vec::new())
    }

    /// The same with these options, which name files that the caller writes into the folder.
    pub(crate) fn start_with(tls: impl Fn(&Path) -> Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..ATTEMPTS {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("weir-etcd-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).expect("a temporary folder");
            let tls = tls(&folder);
            let mut etcd = Self { folder, ports: [free_port(), free_port()], tls, child: None };
            if etcd.begin() {
                return etcd;
            }
        }
        panic!("etcd does not start: run scripts/setup test");
    }

    /// Where it is, as `store` of a controller says.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.tls.is_empty() { "etcd" } else { "etcds" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    /// Its folder, which is removed with it.
    #[allow(dead_code, reason = "each test program needs a part of this file")]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it as a crash does.
    #[allow(dead_code, reason = "each test program needs a part of this file")]
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
    }

    /// Pauses it by `STOP`, lets it go on by `CONT`.
    #[allow(dead_code, reason = "each test program needs a part of this file")]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("kill runs").success(), "it runs");
    }

    /// Starts it again with what it had on its disk.
    #[allow(dead_code, reason = "each test program needs a part of this file")]
    pub(crate) fn again(&mut self) {
        assert!(self.begin(), "etcd starts again");
    }

    /// False if it ended at once.
    fn begin(&mut self) -> bool {
        let [client, peer] = self.ports;
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        let (client, peer) =
            (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let data = self.folder.join("data");
        // It dies with the thread that started it, and so with the test. Fast elections allow leases of
        // one second.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name", "one", "--data-dir"])
            .arg(&data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--log-level", "error", "--logger", "zap"])
            .args(&self.tls)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log(&self.folder))
            .spawn()
            .expect("setpriv runs: scripts/setup test installs it");
        let mut child = child;
        loop {
            if child.try_wait().expect("it is ours").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.ports[0])).is_ok() {
                self.child = Some(child);
                return true;
            }
            pause(Duration::from_millis(20));
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.folder).expect("it is ours");
    }
}

fn log(folder: &Path) -> std::fs::File {
    let path = folder.join("log");
    std::fs::OpenOptions::new().create(true).append(true).open(path).expect("it is ours")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

#[expect(clippy::disallowed_methods, reason = "a test waits for another process")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
