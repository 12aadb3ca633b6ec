//! Another configuration while requests wait for the rate-limit service: listener updates, updates of the filter alone (ECDS), and
//! roll-backs before the connections of the first have drained.

use std::time::Duration;

use fleet::burst::PATIENCE;
use fleet::gateways::{PAUSE, vm_failures};
use fleet::load::{configuration, key};
use fleet::{Fleet, Limiter, Setup};
use serde_json::{Value, json};
use tests::client::Connection;
use tests::clock;
use tests::envoy::{Envoy, Updates};
use tests::exchange::{Answer, Request, get};
use tests::policy::Policy;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A request under way: its status, or what became of it.
type Waiting = JoinHandle<String>;

const KEYS: usize = 400;
/// Connections to each gateway.
const CONNECTIONS: usize = 8;
/// Requests that wait during an update.
const WAITING: usize = 8;
/// In which a configuration is in force for new streams: much less than the time that connections drain.
const AT_ONCE: Duration = Duration::from_secs(4);
/// How long connections drain: longer than the updates of a test take.
const DRAIN: Duration = Duration::from_secs(15);
/// How long requests are held that keep the first configuration alive, less than connections drain.
const PAUSED: Duration = Duration::from_secs(7);
/// Envoy's gauge of requests that are held.
const PAUSES: &str = "http.api.fault.active_faults";

/// Two configurations that differ in one subscriber, and in the quota of requests without a key: those are counted in the gateway, so
/// they show which configuration is in force without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    A,
    B,
}

impl Version {
    fn configuration(self, fields: &Value) -> Value {
        let (keys, quota) = match self {
            Self::A => (KEYS, "60/minute"),
            Self::B => (KEYS + 1, "70/minute"),
        };
        let mut configuration = configuration(keys, "600/hour", fields);
        configuration["missing_key"] = json!({"action": "limit", "quotas": [quota]});
        configuration
    }

    /// Which of them decided a request without a key.
    fn of(answer: &Answer) -> Self {
        match answer.number("x-ratelimit-limit") {
            Some(3600) => Self::A,
            Some(4200) => Self::B,
            _ => panic!("neither: {answer}"),
        }
    }
}

struct Story {
    fleet: Fleet,
    fields: Value,
    runtime: Runtime,
    keys_used: usize,
}

impl Story {
    fn start(updates: Updates, drain: Duration, fields: Value) -> Self {
        let limiter = Limiter::Weir(Version::A.configuration(&fields));
        let fleet =
            Setup::new(limiter).gateways(1).without_upstream().updates(updates, drain).start().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { fleet, fields, runtime: runtime.unwrap(), keys_used: 0 }
    }

    fn gateway(&self) -> &Envoy {
        &self.fleet.gateways[0]
    }

    fn update(&mut self, version: Version) {
        let policy = Policy::from(version.configuration(&self.fields));
        assert!(self.fleet.gateways[0].update(policy).unwrap(), "{version:?}");
    }

    /// A request with a key that has not been used, so that the filter must ask the service.
    fn fresh(&mut self) -> Request {
        self.keys_used += 1;
        assert!(self.keys_used < KEYS, "more keys are needed");
        get("/links").key(&key(self.keys_used - 1))
    }

    fn connections(&self) -> Vec<Connection> {
        (0..CONNECTIONS).map(|_| Connection::to(self.gateway().address())).collect()
    }

    /// The answer to a request. Envoy may close a draining connection as the request is sent, so the request is sent a second time.
    fn send(&self, connection: &mut Connection, request: &Request, case: &str) -> Answer {
        self.runtime.block_on(async {
            for _ in 0..2 {
                match tokio::time::timeout(PATIENCE, connection.send(request)).await {
                    Err(_) => panic!("{case}: no answer within {PATIENCE:?}"),
                    Ok(Ok(answer)) => return answer,
                    Ok(Err(_)) => {}
                }
            }
            panic!("{case}: two connections broke off")
        })
    }

    /// Sends a request with a fresh key over each connection.
    fn use_all(&mut self, connections: &mut [Connection], case: &str) {
        for (place, connection) in connections.iter_mut().enumerate() {
            let request = self.fresh();
            let answer = self.send(connection, &request, &format!("{case}, connection {place}"));
            assert_eq!(answer.status(), 200, "{case}, connection {place}: {answer}");
        }
    }

    /// Waits until a version decides the requests on new connections of all workers, and sends the requests `meanwhile` over them all
    /// the time.
    fn in_force_on_new_connections(&self, version: Version, meanwhile: &[Request], case: &str) {
        let started = clock::now();
        loop {
            let probe = get("/links");
            let mut connections = self.connections();
            let mut versions = Vec::new();
            for connection in &mut connections {
                versions.push(Version::of(&self.send(connection, &probe, case)));
                for request in meanwhile {
                    self.send(connection, request, case);
                }
            }
            if versions.iter().all(|of| *of == version) {
                return;
            }
            let waited = clock::now().saturating_sub(started);
            assert!(waited < AT_ONCE, "{case}: after {waited:.1?} new connections have {versions:?}");
        }
    }

    /// Requests with fresh keys over new connections, as `amend` changes them.
    fn spawn(&mut self, amend: impl Fn(Request) -> Request) -> Vec<Waiting> {
        let gateway = self.gateway().address();
        let requests: Vec<_> = (0..WAITING).map(|_| amend(self.fresh())).collect();
        let send = |request: Request| async move {
            let mut connection = Connection::to(gateway);
            match tokio::time::timeout(PAUSED + PATIENCE, connection.send(&request)).await {
                Err(_) => "none".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Ok(Ok(answer)) => answer.status().to_string(),
            }
        };
        requests.into_iter().map(|request| self.runtime.spawn(send(request))).collect()
    }

    fn all_admitted(&self, waiting: Vec<Waiting>, case: &str) {
        let statuses = waiting.into_iter().map(|waiting| self.runtime.block_on(waiting).unwrap());
        assert_eq!(statuses.collect::<Vec<_>>(), ["200"; WAITING], "{case}");
    }

    /// Sends requests that wait before the filter, which keep the configuration in force for as long.
    fn hold(&mut self) -> Vec<Waiting> {
        let waiting = self.spawn(|request| request.header(PAUSE, PAUSED.as_millis().to_string()));
        let paused =
            || self.gateway().stat(PAUSES).is_ok_and(|paused| paused >= WAITING as u64).then_some(());
        clock::eventually("the requests to be paused", PATIENCE, paused).unwrap();
        waiting
    }

    /// Sends requests with fresh keys, as `amend` changes them, and updates once `all_wait` says so.
    fn update_while_they_wait(
        &mut self,
        updates: &[Version],
        amend: impl Fn(Request) -> Request,
        all_wait: impl Fn(&Fleet) -> bool,
        case: &str,
    ) {
        let waiting = self.spawn(amend);
        clock::eventually(case, PATIENCE, || all_wait(&self.fleet).then_some(())).unwrap();
        for version in updates {
            self.update(*version);
        }
        self.all_admitted(waiting, case);
    }
}

fn check_rollback(updates: Updates) {
    let mut story = Story::start(updates, DRAIN, json!({"cluster": "ratelimit"}));
    let mut old = story.connections();
    story.use_all(&mut old, "before");
    let held = story.hold();
    for version in [Version::B, Version::A, Version::B, Version::A] {
        story.update(version);
        story.in_force_on_new_connections(version, &[], &format!("{updates:?} to {version:?}"));
    }
    story.all_admitted(held, &format!("{updates:?}, requests from before the updates"));
}

#[test]
fn after_a_rollback_of_the_listener_the_first_configuration_is_in_force_at_once() {
    check_rollback(Updates::Listener);
}

#[test]
fn after_a_rollback_of_the_filter_the_first_configuration_is_in_force_at_once() {
    check_rollback(Updates::Extension);
}

fn check_updates_and_rollbacks(updates: Updates, drain: Duration, rounds: usize) {
    let mut story = Story::start(updates, drain, json!({"cluster": "ratelimit"}));
    story.fleet.service.set_round_trip(Duration::from_millis(10));
    let mut old = story.connections();
    story.use_all(&mut old, "before");
    let held = story.hold();
    // No key of another request.
    let one_key = get("/links").key(&key(KEYS - 1));
    let started = clock::now();
    for round in 0..rounds {
        for version in [Version::B, Version::A] {
            let case = format!("{updates:?}, round {round}, {version:?}");
            story.update(version);
            story.in_force_on_new_connections(version, std::slice::from_ref(&one_key), &case);
            let mut new = story.connections();
            story.use_all(&mut new, &format!("{case}, new"));
            story.use_all(&mut old, &format!("{case}, old"));
        }
    }
    story.all_admitted(held, &format!("{updates:?}, requests from before the updates"));
    let took = clock::now().saturating_sub(started);
    assert!(took < drain, "{rounds} rounds took {took:.1?}, longer than connections drain");
    // While the connections of all but the last version end, and once they have ended.
    for _ in 0..3 {
        clock::pass((drain + Duration::from_secs(1)) / 3);
        story.use_all(&mut old, &format!("{updates:?}, while connections drain"));
    }
    story.in_force_on_new_connections(Version::A, &[one_key], &format!("{updates:?}, in the end"));
    let mut new = story.connections();
    story.use_all(&mut new, &format!("{updates:?}, in the end"));
    assert_eq!(vm_failures(story.gateway()), [""; 0]);
}

#[test]
fn after_listener_updates_and_rollbacks_no_request_hangs_and_the_last_is_in_force() {
    check_updates_and_rollbacks(Updates::Listener, DRAIN, 1);
}

#[test]
fn after_updates_of_the_filter_and_rollbacks_no_request_hangs_and_the_last_is_in_force() {
    check_updates_and_rollbacks(Updates::Extension, DRAIN, 2);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn after_many_updates_and_rollbacks_no_request_hangs_and_the_last_is_in_force() {
    for updates in [Updates::Listener, Updates::Extension] {
        check_updates_and_rollbacks(updates, Duration::from_secs(60), 5);
    }
}

/// Updates that may come while requests wait.
const SEQUENCES: [&[Version]; 3] = [&[Version::B], &[Version::A], &[Version::B, Version::A]];

/// `deny`, so that only the answer to its call admits a request; and time for the updates.
fn patient() -> Value {
    json!({"cluster": "ratelimit", "timeout": "4s", "on_unavailable": "deny"})
}

fn check_calls_in_flight(updates: Updates) {
    let mut story = Story::start(updates, DRAIN, patient());
    story.fleet.service.set_round_trip(Duration::from_millis(1500));
    for sequence in SEQUENCES {
        let case = format!("{updates:?} to {sequence:?} with calls in flight");
        let before = story.fleet.service.calls();
        let all_wait = |fleet: &Fleet| fleet.service.calls() >= before + WAITING as u64;
        story.update_while_they_wait(sequence, |request| request, all_wait, &case);
    }
    assert_eq!(vm_failures(story.gateway()), [""; 0]);
}

#[test]
fn listener_updates_lose_no_request_whose_call_is_in_flight() {
    check_calls_in_flight(Updates::Listener);
}

#[test]
fn updates_of_the_filter_lose_no_request_whose_call_is_in_flight() {
    check_calls_in_flight(Updates::Extension);
}

fn check_paused_before_the_filter(updates: Updates) {
    let mut story = Story::start(updates, DRAIN, patient());
    for sequence in SEQUENCES {
        let case = format!("{updates:?} to {sequence:?} with requests before the filter");
        let pause = |request: Request| request.header(PAUSE, "1500");
        let all_wait =
            |fleet: &Fleet| fleet.gateways[0].stat(PAUSES).is_ok_and(|active| active >= WAITING as u64);
        story.update_while_they_wait(sequence, pause, all_wait, &case);
    }
    assert_eq!(vm_failures(story.gateway()), [""; 0]);
}

#[test]
fn listener_updates_lose_no_request_that_is_paused_before_the_filter() {
    check_paused_before_the_filter(Updates::Listener);
}

#[test]
fn updates_of_the_filter_lose_no_request_that_is_paused_before_it() {
    check_paused_before_the_filter(Updates::Extension);
}
