//! Real Envoys that share quotas through a ledger.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tests::artifacts;
use tests::clock::{self, eventually};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::flood;
use tests::policy::Policy;
use tests::process::Process;

const KEY: &str = "key";
const LIMIT: usize = 600;
/// How long a window that began before the ledger lost everything grants nothing.
const SETTLING: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);

/// Gateways, and the ledger that they share.
struct Fleet {
    address: SocketAddr,
    ledger: Option<Process>,
    gateways: Vec<Envoy>,
}

/// `LIMIT` a month for the key.
fn policy() -> Policy {
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", KEY);
    policy
        .with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]))
        .with("fleet", json!({"cluster": "ledger"}))
}

fn ledger(address: SocketAddr, options: &[&str]) -> Process {
    let mut command = Command::new(artifacts::command("weir-ledger"));
    command.args(["serve", "--store", "memory", "--listen", &address.to_string()]).args(options);
    let ledger = Process::start("weir-ledger", &mut command).unwrap();
    ledger.wait_for(|line| line.contains("listening on").then_some(())).unwrap();
    ledger
}

impl Fleet {
    fn start(gateways: usize, policy: &Policy) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let ledger = Some(ledger(address, &[]));
        // Its epoch begins with it.
        clock::pass(SETTLING);
        let gateways = (0..gateways).map(|_| gateway(policy, address)).collect();
        Self { address, ledger, gateways }
    }

    /// Ends the ledger, which forgets everything.
    fn lose(&mut self) {
        drop(self.ledger.take());
    }

    fn return_ledger(&mut self) {
        self.ledger = Some(ledger(self.address, &[]));
    }

    /// How many of `requests` pass at one gateway, `at_once` at a time.
    fn passed(&self, gateway: usize, requests: usize, at_once: usize) -> usize {
        let requests = (0..requests).map(|_| ((), get("/links").key(KEY)));
        let counts = flood::send(self.gateways[gateway].address(), at_once, requests).unwrap();
        let refused: usize =
            counts.iter().filter(|((_, status), _)| *status != 200).map(|(_, count)| count).sum();
        assert_eq!(counts.get(&((), 429)).copied().unwrap_or(0), refused, "{counts:?}");
        counts.get(&((), 200)).copied().unwrap_or(0)
    }

    /// How many pass at all gateways, each of which gets `requests` at the same time.
    fn passed_everywhere(&self, requests: usize, at_once: usize) -> Vec<usize> {
        std::thread::scope(|scope| {
            let floods = (0..self.gateways.len())
                .map(|gateway| scope.spawn(move || self.passed(gateway, requests, at_once)));
            floods.collect::<Vec<_>>().into_iter().map(|flood| flood.join().unwrap()).collect()
        })
    }
}

fn gateway(policy: &Policy, ledger: SocketAddr) -> Envoy {
    let setup = Setup::new(policy.clone(), Upstream::DirectResponse);
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap().as_array_mut().unwrap();
        clusters.push(json!({
            "name": "ledger",
            "connect_timeout": "1s",
            "load_assignment": {"cluster_name": "ledger", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
                "socket_address": {"address": ledger.ip(), "port_value": ledger.port()},
            }}}]}]},
        }));
        Ok(())
    });
    envoy.unwrap()
}

#[test]
fn gateways_use_up_a_quota_exactly_whatever_comes_at_once() {
    //  gateways, requests at once to each
    for (gateways, at_once) in [(2, 1), (2, 5), (2, 40), (4, 5)] {
        let fleet = Fleet::start(gateways, &policy());
        let passed = fleet.passed_everywhere(LIMIT, at_once);
        assert_eq!(passed.iter().sum::<usize>(), LIMIT, "{gateways} gateways, {at_once} at once: {passed:?}");
        let answer = fleet.gateways[0].send(&get("/links").key(KEY)).unwrap();
        assert_eq!((answer.status(), answer.number("x-ratelimit-remaining")), (429, Some(0)), "{answer}");
    }
}

#[test]
fn what_one_gateway_has_used_the_other_tells_its_clients() {
    let fleet = Fleet::start(2, &policy());
    assert_eq!(fleet.passed(0, 250, 5), 250);
    let answer = fleet.gateways[1].send(&get("/links").key(KEY)).unwrap();
    assert_eq!(answer.number("x-ratelimit-remaining"), Some(LIMIT as u64 - 251), "{answer}");
}

#[test]
fn a_ledger_that_lost_everything_is_told_again_what_was_used() {
    let mut fleet = Fleet::start(2, &policy());
    assert_eq!(fleet.passed(0, 300, 8), 300);
    fleet.lose();
    fleet.return_ledger();
    clock::pass(SETTLING + Duration::from_secs(1));
    assert_eq!(fleet.passed(1, LIMIT, 8), LIMIT - 300);
}

#[test]
fn while_the_ledger_is_away_each_gateway_admits_its_part_which_is_charged_afterwards() {
    const LOCAL: usize = LIMIT / 10;
    let mut fleet = Fleet::start(2, &policy());
    assert_eq!(fleet.passed(0, 100, 4), 100);
    fleet.lose();
    assert_eq!(fleet.passed_everywhere(200, 4), [LOCAL, LOCAL]);
    assert_eq!(fleet.passed_everywhere(50, 4), [0, 0], "for the whole window");
    fleet.return_ledger();
    clock::pass(SETTLING + Duration::from_secs(1));
    let passed = fleet.passed_everywhere(LIMIT, 4);
    assert_eq!(passed.iter().sum::<usize>(), LIMIT - 100 - 2 * LOCAL, "{passed:?}");
}

#[test]
fn the_configuration_says_what_passes_while_there_is_no_ledger() {
    let fleet = |on_unavailable| {
        let policy = policy().with("fleet", json!({"cluster": "ledger", "on_unavailable": on_unavailable}));
        let mut fleet = Fleet::start(1, &policy);
        fleet.lose();
        fleet
    };
    assert_eq!(fleet(json!("allow")).passed(0, 2 * LIMIT, 4), 2 * LIMIT);
    let denying = fleet(json!("deny"));
    let answer = denying.gateways[0].send(&get("/links").key(KEY)).unwrap();
    assert_eq!(answer.status(), 503, "{answer}");
    let logged = || denying.gateways[0].log().contains("weir: ledger: ").then_some(());
    eventually("the reason in the log", PATIENCE, logged).unwrap();
}

#[test]
fn a_plan_that_changes_keeps_what_was_used_everywhere() {
    let fleet = Fleet::start(1, &policy());
    assert_eq!(fleet.passed(0, 400, 8), 400);
    // The other gateway has the new limit already.
    let raised = policy().with_at("/plans/pro/standard", json!(["1000/month"]));
    let other = gateway(&raised, fleet.address);
    let passed = (0..700).filter(|_| other.send(&get("/links").key(KEY)).unwrap().status() == 200).count();
    assert_eq!(passed, 600);
    assert_eq!(fleet.passed(0, 10, 1), 0);
}
