//! The attackers: another process, of the lowest priority. The processors are the service's, because an attacker brings its own.
//!
//! Threads of the lowest priority would take processors from PostgreSQL: Linux first shares them out among sessions, and each
//! connection of PostgreSQL has a session of its own (sched(7), "The autogroup feature").

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{setpriority_process, setsid};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use super::attack::{Answers, Attack, Hostile, Scale};

/// The variable of the environment with the orders.
const ORDERS: &str = "WEIR_ATTACK";
/// The test that is the attackers in a process with orders.
const TEST: &str = "hostile::attackers::attackers_leave_the_processors_to_others";

/// Whom to attack, and how.
#[derive(Deserialize, Serialize)]
pub(super) struct Orders {
    pub(super) address: SocketAddr,
    pub(super) key: String,
    pub(super) scale: Scale,
    pub(super) attacks: Vec<Attack>,
}

/// What the process prints when its attacks are prepared, which takes it a while.
const READY: &str = "ready\n";

/// The process of the attackers. It ends with this one.
pub(super) struct Attackers {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Attackers {
    /// Starts the process and waits until its attacks are prepared.
    pub(super) fn prepare(orders: &Orders) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", TEST])
            .env(ORDERS, serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != READY {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the attackers ended before the attack");
        }
        Self { child, output }
    }

    /// Begins the attacks.
    pub(super) fn begin(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Ends the attacks. The result is what was answered before.
    pub(super) fn end(mut self) -> Answers {
        drop(self.child.stdin.take());
        let mut output = String::new();
        self.output.read_to_string(&mut output).unwrap();
        assert!(self.child.wait().unwrap().success(), "{output}");
        let answers = output.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(answers.unwrap_or_else(|| panic!("no answers in {output:?}"))).unwrap()
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // They have ended, unless the test has failed.
        let _ended = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// Attacks from the first line of the input until its end, and prints the answers.
#[expect(clippy::print_stdout, reason = "another process reads it")]
fn attack(orders: Orders) {
    setsid().unwrap();
    setpriority_process(None, 19).unwrap();
    #[cfg(target_os = "linux")]
    match std::fs::write("/proc/self/autogroup", "19") {
        // Without this feature, there are no groups.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        written => written.unwrap(),
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let hostile = runtime.block_on(async {
        let hostile = Hostile::new(orders.address, orders.key);
        orders.attacks.iter().for_each(|attack| hostile.prepare(*attack, orders.scale));
        hostile
    });
    // The name of the test is on the line before.
    print!("\n{READY}");
    std::io::stdout().flush().unwrap();
    let mut input = std::io::stdin().lock();
    input.read_line(&mut String::new()).unwrap();
    hostile.begin();
    input.read_to_end(&mut Vec::new()).unwrap();
    // The end breaks connections off, which is not the service's answer.
    println!("\n{}", serde_json::to_string(&hostile.answers()).unwrap());
    runtime.shutdown_background();
}

#[test]
fn attackers_leave_the_processors_to_others() {
    if let Ok(orders) = std::env::var(ORDERS) {
        return attack(serde_json::from_str(&orders).unwrap());
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (attacked, mut attacks) = tokio::sync::mpsc::unbounded_channel();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move || {
        let _ended = attacked.send(());
        async { "[]" }
    };
    let router = axum::Router::new().fallback(answer);
    runtime.spawn(async { axum::serve(listener, router).await.unwrap() });

    let scale = Scale { clicks: 0, connections: 1, idle: 0 };
    let orders = Orders { address, key: "key".to_owned(), scale, attacks: vec![Attack::Lists] };
    let mut attackers = Attackers::prepare(&orders);
    attackers.begin();
    // The second request is sent after the first was answered.
    for _ in 0..2 {
        runtime.block_on(attacks.recv()).unwrap();
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, getpriority_process, getsid};
        let pid = Pid::from_child(&attackers.child);
        assert_eq!(getsid(Some(pid)).unwrap(), pid);
        if let Ok(group) = std::fs::read_to_string(format!("/proc/{}/autogroup", attackers.child.id())) {
            assert!(group.ends_with("nice 19\n"), "{group}");
        }
        let threads = std::fs::read_dir(format!("/proc/{}/task", attackers.child.id())).unwrap();
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
            let thread = thread.unwrap().file_name().into_string().unwrap().parse().unwrap();
            getpriority_process(Pid::from_raw(thread)).unwrap()
        };
        let lowest = threads.map(of_thread).filter(|priority| *priority == 19).count();
        assert!(lowest > 2, "{lowest} threads have the lowest priority");
    }
    let answers = attackers.end();
    assert!(answers[&200] > 0, "{answers:?}");
}
