//! A server and a client in network name spaces of their own, with two networks between them.
//!
//! The test's process is the server's: it is started once more under unshare(1). The client's is
//! held by a process that waits.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::skip::skip;

/// Set in the process that is started once more.
const INSIDE: &str = "INRUSH_TEST_INSIDE";
/// The server's address, which both networks lead to.
const SERVER: &str = "10.99.0.1";

/// Whether this is that process.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this test alone in a name space of its own.
pub(crate) fn run_inside(test: &str) {
    let mut unshare = vec!["unshare", "--net"];
    if !rustix::process::geteuid().is_root() {
        unshare.push("--map-root-user");
    }
    let tried = Command::new(unshare[0])
        .args(&unshare[1..])
        .args(["sh", "-c", "ip link add x0 type veth peer name x1 && command -v nsenter"])
        .output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return skip(&format!("no network of one's own can be made: {}", why.trim()));
        }
        Err(error) => return skip(&format!("unshare: {error}")),
    }
    let myself = std::env::current_exe().expect("a test's own program");
    let inside = Command::new(unshare[0])
        .args(&unshare[1..])
        .arg(myself)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("what was tried before");
    let [stdout, stderr] =
        [&inside.stdout, &inside.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        inside.status.success() && stdout.contains("1 passed"),
        "{test}, inside: {}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
        inside.status
    );
}

/// Two networks: the client's interface a0 leads to the server's b0, and a1 to b1. Routes prefer
/// a0. There is an a2, too, which is down.
pub(crate) struct Networks {
    holder: Child,
}

impl Networks {
    pub(crate) fn new() -> Self {
        // It lives as long as its standard input is open.
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a name space");
        let networks = Self { holder };
        let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let number = networks.holder.id().to_string();
        let is_apart = || space(&number).is_some_and(|other| Some(other) != space("self"));
        for _ in 0..10_000 {
            if is_apart() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(is_apart(), "the client has a name space of its own");
        let server = |words: &str| run("ip", &words.split(' ').collect::<Vec<_>>());
        let client = |words: &str| {
            let space = networks.client();
            let words: Vec<&str> =
                space[1..].iter().map(String::as_str).chain(words.split(' ')).collect();
            run(&space[0], &words)
        };
        server("link set lo up");
        client("ip link set lo up");
        server(&format!("address add {SERVER}/32 dev lo"));
        for at in 0..2 {
            server(&format!("link add b{at} type veth peer name a{at} netns {number}"));
            server(&format!("address add 10.77.{at}.1/24 dev b{at}"));
            server(&format!("link set b{at} up"));
            client(&format!("ip address add 10.77.{at}.2/24 dev a{at}"));
            client(&format!("ip link set a{at} up"));
            // Answers come on the interface of their question, not on that of the best route.
            // By tee(1): sysctl(8) is not in every user's PATH.
            let filter = format!("/proc/sys/net/ipv4/conf/a{at}/rp_filter");
            networks.write(&filter, "2\n");
            let metric = at + 1;
            client(&format!("ip route add {SERVER} via 10.77.{at}.1 dev a{at} metric {metric}"));
        }
        server(&format!("link add b2 type veth peer name a2 netns {number}"));
        networks
    }

    /// Writes a setting of the client's network.
    fn write(&self, path: &str, value: &str) {
        let space = self.client();
        let mut tee = Command::new(&space[0])
            .args(&space[1..])
            .args(["tee", path])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("nsenter was found before");
        let written = tee.stdin.take().expect("it is piped").write_all(value.as_bytes());
        let ended = tee.wait().expect("it is this process's");
        assert!(written.is_ok() && ended.success(), "{path}: {written:?}, {ended}");
    }

    /// Where the server listens.
    pub(crate) fn server(&self) -> SocketAddr {
        format!("{SERVER}:0").parse().expect("an address")
    }

    /// What the client's programs are started by way of.
    pub(crate) fn client(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }

    /// Bytes that one of the client's interfaces has received.
    pub(crate) fn received(&self, interface: &str) -> u64 {
        let space = self.client();
        let words: Vec<&str> =
            space[1..].iter().map(String::as_str).chain(["cat", "/proc/self/net/dev"]).collect();
        let table = run(&space[0], &words);
        let line = table.lines().find_map(|line| line.trim().strip_prefix(interface));
        let counts = line.and_then(|rest| rest.strip_prefix(':')).expect("the interface");
        counts.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a number")
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs it to its end, which must be a success.
#[track_caller]
fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("an ordinary tool");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {}", words.join(" "), why.trim());
    String::from_utf8_lossy(&output.stdout).into_owned()
}
