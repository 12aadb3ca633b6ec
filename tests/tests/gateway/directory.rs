//! The directory: keys that the backend makes or revokes while the gateway runs, and what happens while it does not answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use filter::directory::GAUGES;
use filter::event::Event;
use serde_json::{Value, json};
use tests::artifacts;
use tests::backend::{Directory, Service};
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Updates, Upstream};
use tests::exchange::get;
use tests::gateway::{self, Gateway, Kind, wait_for_directory};
use tests::on_both_gateways;
use tests::policy::Policy;

/// How often the directory is asked here, and how long its answer may take: an interval, five seconds at most.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = INTERVAL;

/// How a gateway sees a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// It has a plan.
    Known,
    /// Nobody has it: refused.
    Unknown,
    /// Nobody can tell yet: passed on, uncounted.
    Passed,
    /// Nobody can tell yet: told to come back.
    Unavailable,
}

/// Unknown keys are refused and those that are not known yet pass, so that they can be told from known ones.
fn policy() -> Policy {
    Policy::deployed()
        .unwrap()
        .without("usage")
        .with("unknown_key", json!({"action": "reject"}))
        .with_at("/directory/not_ready", json!("pass"))
        .with_at("/directory/interval", json!("1s"))
}

/// A gateway that gets its keys from `directory`, and answers by itself what the filter lets pass.
fn gateway(kind: Kind, policy: Policy, directory: Directory) -> Box<dyn Gateway> {
    let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(directory).workers(kind.workers());
    gateway::start(kind, setup).unwrap()
}

/// How the workers see a key, all of them.
fn seen(gateway: &dyn Gateway, key: &str) -> BTreeSet<Seen> {
    // So many connections that each worker of an Envoy has some.
    let answers = (0..16).map(|_| gateway.send_anew(&get("/links").key(key)));
    let seen = answers.map(|answer| match (answer.status(), answer.header("x-ratelimit-limit")) {
        (_, Some(_)) => Seen::Known,
        (200, None) => Seen::Passed,
        (401, None) => Seen::Unknown,
        (503, None) => Seen::Unavailable,
        _ => panic!("{answer}"),
    });
    seen.collect()
}

/// Lets time pass until all workers see the key so, at most `bound` on a clock that is stepped. A real machine may be slow,
/// so there it only has to come to that.
fn assert_seen_within(kind: Kind, gateway: &dyn Gateway, key: &str, expected: Seen, bound: Duration) {
    const BETWEEN: Duration = Duration::from_millis(50);
    let bound = if kind == Kind::Envoy { 10 * bound } else { bound };
    let started = gateway.now();
    loop {
        let (passed, seen) = (gateway.now() - started, seen(gateway, key));
        if seen == BTreeSet::from([expected]) {
            return;
        }
        assert!(passed < bound, "{seen:?} instead of {expected:?} after {passed:?}");
        gateway.wait(BETWEEN);
    }
}

fn a_key_made_later_is_known_within_interval_and_timeout(kind: Kind) {
    let service = Service::start().unwrap();
    let gateway = gateway(kind, policy(), service.directory());
    wait_for_directory(&*gateway);
    let later = service.create_key("business").unwrap();
    assert_seen_within(kind, &*gateway, &later.key, Seen::Known, INTERVAL + TIMEOUT);
    let answer = gateway.send(&get("/links").key(&later.key));
    assert_eq!(answer.number("x-ratelimit-limit"), Some(1200 * 60), "it has its plan's quota: {answer}");
}

fn a_revoked_key_is_unknown_within_interval_and_timeout(kind: Kind) {
    let service = Service::start().unwrap();
    let key = service.create_key("pro").unwrap();
    let gateway = gateway(kind, policy(), service.directory());
    wait_for_directory(&*gateway);
    assert_eq!(seen(&*gateway, &key.key), BTreeSet::from([Seen::Known]));
    service.revoke_key(&key).unwrap();
    assert_seen_within(kind, &*gateway, &key.key, Seen::Unknown, INTERVAL + TIMEOUT);
    assert_eq!(seen(&*gateway, service.keys.of("pro")), BTreeSet::from([Seen::Known]), "and no other is");
}

fn until_the_first_answer_no_customer_is_limited_as_a_stranger(kind: Kind) {
    for (not_ready, expected) in [("pass", Seen::Passed), ("unavailable", Seen::Unavailable)] {
        let mut service = Service::start().unwrap();
        service.backend.stop();
        let one = json!({"action": "limit", "quotas": ["1/month"]});
        let policy = policy()
            .with("unknown_key", one.clone())
            .with("missing_key", one)
            .with_at("/directory/not_ready", json!(not_ready));
        let gateway = gateway(kind, policy, service.directory());
        for _ in 0..3 {
            assert_eq!(seen(&*gateway, service.keys.of("pro")), BTreeSet::from([expected]), "{not_ready}");
            gateway.wait(INTERVAL);
        }
        let unavailable = gateway.send(&get("/links").key(service.keys.of("pro")));
        let retry_after = unavailable.number("retry-after").is_some();
        assert_eq!(retry_after, expected == Seen::Unavailable, "{not_ready}: {unavailable}");
        let keyless = [(); 2].map(|()| gateway.send(&get("/links")).status());
        assert_eq!(keyless, [200, 429], "{not_ready}: who has no key is no customer");

        service.backend.start_again().unwrap();
        assert_seen_within(kind, &*gateway, service.keys.of("pro"), Seen::Known, INTERVAL + TIMEOUT);
    }
}

fn a_backend_that_starts_late_is_polled_again_long_before_an_interval_has_passed(kind: Kind) {
    let mut service = Service::start().unwrap();
    service.backend.stop();
    let policy = policy().with_at("/directory/interval", json!("10m"));
    let gateway = gateway(kind, policy, service.directory());
    while gateway.counter(Event::DirectoryFailed.metric()) < 3 {
        gateway.wait(INTERVAL / 10);
    }
    service.backend.start_again().unwrap();
    // The fourth pause is 4 s.
    assert_seen_within(kind, &*gateway, service.keys.of("pro"), Seen::Known, Duration::from_secs(5));
}

fn a_list_over_capacity_is_known_up_to_it_and_revocations_in_it_hold(kind: Kind) {
    let service = Service::start().unwrap();
    let last_known = service.create_key("free").unwrap();
    let capacity = service.keys.iter().count() + 1;
    let gateway =
        gateway(kind, policy().with_at("/directory/capacity", json!(capacity)), service.directory());
    wait_for_directory(&*gateway);
    let [rows, refused, ..] = GAUGES;
    assert_eq!((gateway.gauge(rows), gateway.gauge(refused)), (capacity as u64, 0));

    let beyond = service.create_key("free").unwrap();
    while gateway.gauge(refused) == 0 {
        gateway.wait(INTERVAL / 10);
    }
    assert_eq!((gateway.gauge(rows), gateway.gauge(refused)), (capacity as u64, 1));
    for (key, expected) in [(&last_known.key, Seen::Known), (&beyond.key, Seen::Unknown)] {
        assert_eq!(seen(&*gateway, key), BTreeSet::from([expected]));
    }

    service.revoke_key(&last_known).unwrap();
    assert_seen_within(kind, &*gateway, &last_known.key, Seen::Unknown, INTERVAL + TIMEOUT);
    // The place is free once the row has gone, and the next poll asks for all rows again.
    assert_seen_within(kind, &*gateway, &beyond.key, Seen::Known, INTERVAL + TIMEOUT);
    assert_eq!(gateway.counter(Event::DirectoryFailed.metric()), 0);
}

fn while_the_backend_is_down_its_last_keys_stay_known(kind: Kind) {
    let mut service = Service::start().unwrap();
    let gateway = gateway(kind, policy(), service.directory());
    wait_for_directory(&*gateway);
    let later = service.create_key("pro").unwrap();
    assert_seen_within(kind, &*gateway, &later.key, Seen::Known, INTERVAL + TIMEOUT);

    service.backend.stop();
    service.revoke_key(&later).unwrap();
    let failed = || gateway.counter(Event::DirectoryFailed.metric());
    let said = || gateway.logged("its last keys stay known") as u64;
    while failed() < 3 || said() == 0 {
        gateway.wait(INTERVAL);
    }
    for key in [service.keys.of("free"), &later.key] {
        assert_eq!(seen(&*gateway, key), BTreeSet::from([Seen::Known]));
    }
    let leaders = gateway.counter(Event::DirectoryLed.metric());
    assert!(said() <= leaders, "a leader says so once, not at each of {} failures: {leaders}", failed());

    service.backend.start_again().unwrap();
    assert_seen_within(kind, &*gateway, &later.key, Seen::Unknown, INTERVAL + TIMEOUT);
}

fn keys_that_are_too_old_are_not_believed(kind: Kind) {
    const MAX_STALE: Duration = Duration::from_secs(6);
    let mut service = Service::start().unwrap();
    let policy = policy()
        .with_at("/directory/max_stale", json!("6s"))
        .with_at("/directory/not_ready", json!("unavailable"));
    let gateway = gateway(kind, policy, service.directory());
    wait_for_directory(&*gateway);
    let key = service.keys.of("pro").to_owned();
    service.backend.stop();
    gateway.wait(2 * INTERVAL);
    assert_eq!(seen(&*gateway, &key), BTreeSet::from([Seen::Known]));
    // Looked at on each tick, in whole seconds.
    assert_seen_within(kind, &*gateway, &key, Seen::Unavailable, MAX_STALE);
    service.backend.start_again().unwrap();
    assert_seen_within(kind, &*gateway, &key, Seen::Known, INTERVAL + TIMEOUT);
}

fn a_wrong_token_is_told_in_the_log_and_opens_nothing(kind: Kind) {
    let service = Service::start().unwrap();
    let directory = Directory { token: "guessed".to_owned(), ..service.directory() };
    let gateway = gateway(kind, policy(), directory);
    while gateway.counter(Event::DirectoryFailed.metric()) == 0 {
        gateway.wait(INTERVAL / 10);
    }
    assert_eq!(seen(&*gateway, service.keys.of("pro")), BTreeSet::from([Seen::Passed]));
    assert!(gateway.logged("directory: answered status 401; no list is complete yet") > 0);
    assert_eq!(
        gateway.logged(&service.directory().token) + gateway.logged("guessed"),
        0,
        "a token is no log line"
    );
}

fn a_key_of_a_plan_that_is_not_configured_is_unknown_and_counted(kind: Kind) {
    let service = Service::start().unwrap();
    let gold = service.create_key("gold").unwrap();
    let gateway = gateway(kind, policy(), service.directory());
    wait_for_directory(&*gateway);
    assert_eq!(seen(&*gateway, &gold.key), BTreeSet::from([Seen::Unknown]));
    assert_eq!(seen(&*gateway, service.keys.of("pro")), BTreeSet::from([Seen::Known]));
    gateway.wait(INTERVAL);
    assert!(gateway.counter(Event::DirectorySkipped.metric()) > 0);
}

fn what_the_backend_lists_is_taken_as_subscribers(kind: Kind) {
    let service = Service::start().unwrap();
    let subscribers: Value = service.subscribers().unwrap();
    let policy = Policy::contract().unwrap().with("subscribers", subscribers);
    let gateway = gateway::start(kind, Setup::new(policy, Upstream::DirectResponse)).unwrap();
    for (plan, key) in service.keys.iter() {
        let answer = gateway.send(&get("/links").key(key));
        assert!(answer.header("x-ratelimit-limit").is_some(), "{plan}: {answer}");
    }
}

on_both_gateways! {
    a_key_made_later_is_known_within_interval_and_timeout
    a_revoked_key_is_unknown_within_interval_and_timeout
    until_the_first_answer_no_customer_is_limited_as_a_stranger
    a_backend_that_starts_late_is_polled_again_long_before_an_interval_has_passed
    a_list_over_capacity_is_known_up_to_it_and_revocations_in_it_hold
    while_the_backend_is_down_its_last_keys_stay_known
    keys_that_are_too_old_are_not_believed
    a_wrong_token_is_told_in_the_log_and_opens_nothing
    a_key_of_a_plan_that_is_not_configured_is_unknown_and_counted
    what_the_backend_lists_is_taken_as_subscribers
}

#[test]
fn a_new_configuration_knows_the_keys_at_once_while_the_backend_is_down() {
    let mut service = Service::start().unwrap();
    let setup = Setup::new(policy(), Upstream::DirectResponse).keys_from(service.directory());
    let mut envoy = Envoy::start(setup.live_updates()).unwrap();
    wait_for_directory(&envoy);
    service.backend.stop();
    assert!(envoy.update(policy().with_at("/plans/pro/standard", json!(["700/minute"]))).unwrap());
    let in_force = |answer: &tests::exchange::Answer| answer.number("x-ratelimit-limit") == Some(700 * 60);
    tests::clock::eventually("the new limit", Duration::from_secs(10), || {
        let answers = (0..16).map(|_| envoy.send_anew(&get("/links").key(service.keys.of("pro"))));
        let answers: Vec<_> = answers.collect();
        assert!(answers.iter().all(|answer| answer.header("x-ratelimit-limit").is_some()), "{answers:?}");
        answers.iter().all(in_force).then_some(())
    })
    .unwrap();
}

/// The same module with a custom section, which makes another image of it.
fn another_image(folder: &Path) -> PathBuf {
    let mut module = std::fs::read(artifacts::filter_wasm()).unwrap();
    module.extend([0, 5, 4, b'n', b'o', b't', b'e']);
    let path = folder.join("filter.wasm");
    std::fs::write(&path, module).unwrap();
    path
}

#[test]
fn a_new_image_forgets_nobody_also_while_the_backend_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start().unwrap();
    let policy = policy().with_at("/plans/pro/standard", json!(["1000000/month"]));
    let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(service.directory());
    let mut envoy = Envoy::start(setup.live_updates()).unwrap();
    wait_for_directory(&envoy);
    service.backend.stop();
    let key = service.keys.of("pro").to_owned();
    // Without headers a request has passed uncounted, because its key was not known yet.
    let (address, done) = (envoy.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let client = Client::to(address).unwrap();
            let mut answers = Vec::new();
            while !done.load(Ordering::SeqCst) {
                let answer = client.send(&get("/links").key(&key)).unwrap();
                answers.push((answer.status(), answer.header("x-ratelimit-limit").is_some()));
            }
            answers
        });
        assert!(envoy.update_module(&another_image(folder.path())).unwrap());
        tests::clock::pass(Duration::from_secs(2));
        done.store(true, Ordering::SeqCst);
        let answers = requests.join().unwrap();
        let others = answers.iter().filter(|answer| **answer != (200, true)).count();
        assert!(answers.len() > 100 && others == 0, "{others} of {}", answers.len());
    });
    let guess = (0..16).map(|_| envoy.send_anew(&get("/links").key("guess")).status());
    assert_eq!(guess.collect::<BTreeSet<_>>(), BTreeSet::from([401]), "and nobody is known who was not");
}

#[test]
fn a_wrong_token_in_a_new_configuration_leaves_the_polls_to_the_old_one_while_that_drains() {
    let service = Service::start().unwrap();
    let setup = Setup::new(policy(), Upstream::DirectResponse).keys_from(service.directory());
    let setup = setup.updates(Updates::Listener).drain(Duration::from_secs(600));
    let mut envoy = Envoy::start(setup).unwrap();
    wait_for_directory(&envoy);
    // A connection that stays open keeps the old listener.
    let old = Client::to(envoy.address()).unwrap();
    assert_eq!(old.send(&get("/links").key(service.keys.of("pro"))).unwrap().status(), 200);
    let wrong = policy().with_at("/directory/bearer", json!("guessed"));
    assert!(envoy.update(wrong).unwrap());
    tests::clock::eventually("a poll with the wrong token", Duration::from_secs(60), || {
        (envoy.logged("directory: answered status 401; its last keys stay known") > 0).then_some(())
    })
    .unwrap();
    let later = service.create_key("pro").unwrap();
    tests::clock::eventually("the new key on all workers", Duration::from_secs(60), || {
        (seen(&envoy, &later.key) == BTreeSet::from([Seen::Known])).then_some(())
    })
    .unwrap();
    assert_eq!(seen(&envoy, service.keys.of("free")), BTreeSet::from([Seen::Known]));
}
