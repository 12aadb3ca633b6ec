//! The same in the simulator, whose VMs run in any order, and on threads of their own.

use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Flavour, Host};
use serde_json::json;
use tests::gateway::{module, plugin};
use tests::key_list::KeyList;
use tests::policy::Policy;

use super::policy;

const VMS: usize = 8;

fn simulator(flavour: Flavour, policy: &Policy) -> Host {
    let mut host = Host::builder().workers(VMS).flavour(flavour).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

fn simulated(key: usize) -> host_sim::Request {
    host_sim::Request::get("/links").header("authorization", format!("Bearer key-{key}"))
}

fn admitted(outcomes: &[host_sim::Outcome]) -> usize {
    assert!(outcomes.iter().all(|outcome| matches!(outcome.status(), 200 | 429)), "{outcomes:?}");
    outcomes.iter().filter(|outcome| outcome.status() == 200).count()
}

/// What departs from exactness is counted, and nothing was.
fn assert_no_errors(host: &Host) {
    host.advance(Duration::from_secs(1));
    assert_eq!(host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error)), 0);
}

#[test]
fn eight_vms_on_threads_of_their_own_share_600_exactly() {
    let host = simulator(Flavour::default(), &policy(600, 1));
    let outcomes = host.threads(|worker| {
        let answers =
            (0..6000 / VMS).map(|_| host.worker(worker).send(simulated(0), |_| host_sim::Response::ok()));
        answers.collect::<Vec<_>>()
    });
    assert_eq!(admitted(&outcomes.concat()), 600);
    assert_no_errors(&host);
}

#[test]
fn a_hundred_thousand_keys_that_live_at_once_get_each_exactly_their_limit() {
    const KEYS: usize = 100_000;
    const LIMIT: u32 = 2;
    let (list, policy) = (KeyList::in_pages(KEYS, 1), policy(LIMIT, 0));
    let policy = policy.with("directory", json!({"cluster": "keys", "path": "/keys"}));
    let page =
        move |request: &host_sim::Request| host_sim::Response::ok().body(list.answer(request.path(), None).2);
    let mut host = Host::builder().workers(VMS).cluster("keys", page).build();
    host.load(module(), plugin(&policy)).unwrap();
    // The list is stored a part on each tick.
    host.advance(Duration::from_secs(4));
    for round in 0..=LIMIT {
        // Every key has had its turn before one has another, and then in another VM.
        let outcomes = host.threads(|worker| {
            let of_worker = (0..KEYS).filter(|key| (key + round as usize) % VMS == worker);
            let answers =
                of_worker.map(|key| host.worker(worker).send(simulated(key), |_| host_sim::Response::ok()));
            admitted(&answers.collect::<Vec<_>>())
        });
        let expected = if round < LIMIT { KEYS } else { 0 };
        assert_eq!(outcomes.iter().sum::<usize>(), expected, "request {} of each key", round + 1);
    }
    assert_no_errors(&host);
}

#[test]
fn whatever_the_interleaving_eight_vms_use_up_every_quota_exactly() {
    const KEYS: usize = 3;
    const PER_KEY: usize = 40;
    const LIMIT: u32 = 25;
    for seed in 0..50 {
        let host = simulator(Flavour::default(), &policy(LIMIT, KEYS));
        let jobs = (0..KEYS * PER_KEY).map(|job| (job % VMS, simulated(job % KEYS)));
        let outcomes = host.interleave(seed, jobs, |_| host_sim::Response::ok());
        for key in 0..KEYS {
            let of_key: Vec<_> = outcomes.iter().skip(key).step_by(KEYS).cloned().collect();
            assert_eq!(admitted(&of_key), LIMIT as usize, "key {key}, seed {seed}");
        }
        assert_no_errors(&host);
    }
}

#[test]
fn a_race_of_eight_vms_to_create_a_counter_loses_no_count_on_any_kind_of_host() {
    const LIMIT: u32 = 5;
    for flavour in [Flavour::default(), Flavour::Ngx] {
        for seed in 0..30 {
            let host = simulator(flavour, &policy(LIMIT, 1));
            let jobs = (0..VMS).map(|worker| (worker, simulated(0)));
            let outcomes = host.interleave(seed, jobs, |_| host_sim::Response::ok());
            assert_eq!(admitted(&outcomes), LIMIT as usize, "{flavour:?}, seed {seed}");
            assert_no_errors(&host);
        }
    }
}
