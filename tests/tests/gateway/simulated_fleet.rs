//! The simulator's gateways as a fleet, with a ledger in memory: what `make up-fleet` starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tests::client::Client;
use tests::envoy::{Setup, Upstream};
use tests::exchange::get;
use tests::gateway::Kind;
use tests::ledger::Ledger;
use tests::policy::Policy;
use tests::process::Process;
use tests::served::Served;
use tests::server::{Response, Server};
use tests::stage::MINUTE;
use tests::{artifacts, clock, flood};

/// How long a gateway may keep what the other could use.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests of a key pass at each gateway, when `requests` come to both at the same time.
fn passed_at_both(
    gateways: [SocketAddr; 2],
    key: &'static str,
    requests: usize,
    at_once: usize,
) -> [usize; 2] {
    let send = move |gateway| {
        let sent = (0..requests).map(move |_| ((), get("/links").key(key)));
        let counts = flood::send(gateway, at_once, sent).unwrap();
        let passed = counts.get(&((), 200)).copied().unwrap_or(0);
        assert_eq!(passed + counts.get(&((), 429)).copied().unwrap_or(0), requests, "{counts:?}");
        passed
    };
    std::thread::scope(|scope| {
        let floods = gateways.map(|gateway| scope.spawn(move || send(gateway)));
        floods.map(|flood| flood.join().unwrap())
    })
}

/// Sends requests until `more` have passed.
fn pass_until(gateway: &Client, key: &str, more: usize) {
    let mut passed = 0;
    clock::eventually("the rest of the quota", PATIENCE, || {
        passed +=
            usize::from(passed < more && gateway.send(&get("/links").key(key)).unwrap().status() == 200);
        (passed == more).then_some(())
    })
    .unwrap_or_else(|error| panic!("{passed} of {more}: {error}"));
}

fn assert_used_up(gateways: &[Client; 2], key: &str) {
    for gateway in gateways {
        let answer = gateway.send(&get("/links").key(key)).unwrap();
        assert_eq!((answer.status(), answer.number("x-ratelimit-remaining")), (429, Some(0)), "{answer}");
    }
}

#[test]
fn two_simulators_that_are_called_at_once_admit_a_quota_exactly() {
    const LIMIT: usize = 600;
    //  key, requests at once to each gateway
    let rows = [("one", 1), ("five", 5), ("forty", 40)];
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    let upstream = Server::start(|_| Response::default()).unwrap();
    let policy = rows
        .iter()
        .fold(Policy::contract().unwrap(), |policy, (key, _)| policy.subscriber(key, "pro", key))
        .with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]));
    let setup = Setup::new(policy, Upstream::At(upstream.address())).workers(2).sharing_through(&ledger);
    let gateways = [(); 2].map(|()| Served::start(&Kind::SIMULATOR.served(), setup.clone()).unwrap());
    let addresses = gateways.each_ref().map(Served::address);
    let clients = addresses.map(|address| Client::to(address).unwrap());
    for (key, at_once) in rows {
        let passed = passed_at_both(addresses, key, LIMIT, at_once);
        let left = LIMIT.checked_sub(passed.iter().sum());
        let left = left.unwrap_or_else(|| panic!("{at_once} at once: {passed:?} of {LIMIT}"));
        pass_until(&clients[0], key, left);
        assert_used_up(&clients, key);
    }
}

#[test]
fn a_caller_sees_at_each_simulator_what_it_has_used_at_all() {
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    let upstream = Server::start(|_| Response::default()).unwrap();
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    let policy =
        policy.with_at("/plans/pro/standard", json!(["10/month"])).with("usage_path", json!("/quota"));
    let setup = Setup::new(policy, Upstream::At(upstream.address())).workers(2).sharing_through(&ledger);
    let gateways = [(); 2].map(|()| Served::start(&Kind::SIMULATOR.served(), setup.clone()).unwrap());
    let clients = gateways.each_ref().map(|gateway| Client::to(gateway.address()).unwrap());
    let seen = |client: &Client| {
        // What the ledger has just said is not asked again.
        clock::pass(Duration::from_millis(300));
        let usage = client.send(&get("/quota").key("key")).unwrap().json().unwrap();
        let class = usage["classes"].as_array().unwrap().iter().find(|class| class["name"] == "standard");
        (class.unwrap()["quotas"][0]["remaining"].as_u64(), usage["scope"].clone())
    };
    pass_until(&clients[0], "key", 4);
    assert_eq!(clients.each_ref().map(seen), [(); 2].map(|()| (Some(6), json!("fleet"))));
    drop(ledger);
    assert_eq!(seen(&clients[1]), (Some(6), json!("gateway")));
}

/// The variables that a shell has after it has read the file.
fn sourced(file: &Path) -> BTreeMap<String, String> {
    let read =
        Command::new("bash").args(["-c", r#"set -a && source "$0" && env"#]).arg(file).env_clear().output();
    let read = read.unwrap();
    assert!(read.status.success(), "{read:?}");
    let lines = String::from_utf8(read.stdout).unwrap();
    lines
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn what_is_used_at_one_gateway_of_the_demo_counts_at_the_other() {
    let mut up = Command::new(artifacts::command("weir-demo"));
    let mut demo = Process::start("weir-demo", up.arg("up-fleet")).unwrap();
    demo.wait_for(|line| line.starts_with("# Ctrl-C").then_some(())).unwrap();
    let printed = demo.output().lines();
    let file = printed.iter().find_map(|line| line.strip_prefix("#   source ")).unwrap().trim_matches('"');
    let file = Path::new(file);
    // It has keys.
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let variables = sourced(file);
    let client =
        |name: &str| Client::to(variables[name].strip_prefix("http://").unwrap().parse().unwrap()).unwrap();
    assert_eq!(client("LEDGER").send(&get("/readyz")).unwrap().status(), 200);
    let gateways = ["GATEWAY", "SECOND_GATEWAY"].map(client);
    clock::wait_for_room(MINUTE.0, Duration::from_secs(20));
    for gateway in &gateways {
        pass_until(gateway, &variables["FREE"], 30);
    }
    assert_used_up(&gateways, &variables["FREE"]);

    // It ends what it has started, and removes the file.
    let asked = Command::new("kill").arg(demo.id().to_string()).status();
    assert!(asked.unwrap().success() && demo.wait().unwrap().success());
    for name in ["GATEWAY", "SECOND_GATEWAY", "LEDGER"] {
        assert!(client(name).send(&get("/readyz")).is_err(), "{name}");
    }
    assert!(!file.exists());
}
