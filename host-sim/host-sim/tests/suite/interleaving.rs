//! VMs that run at the same time: seeds, faults, threads.

use std::collections::BTreeSet;

use host_sim::{Fault, Host, Outcome, Plugin, Request, Status};

use crate::{host_of, ok};

const LIMIT: usize = 5;

fn limiter(workers: usize) -> Host {
    host_of("limiter", Host::builder().workers(workers), Plugin::default())
}

/// Sixteen requests of one key over eight workers, all at once.
fn race(path: &'static str, seed: u64) -> Vec<u16> {
    let host = limiter(8);
    let jobs = (0..16).map(|job| (job % 8, Request::get(path)));
    host.interleave(seed, jobs, ok).iter().map(Outcome::status).collect()
}

fn admitted(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn a_limiter_that_creates_its_counter_with_care_admits_exactly_its_limit_under_every_seed() {
    for seed in 0..40 {
        assert_eq!(admitted(&race("/sound", seed)), LIMIT, "seed {seed}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long the search took is told, not judged")]
fn the_race_of_a_careless_limiter_is_found_by_a_seed_and_replays_from_it() {
    let started = std::time::Instant::now();
    let (seed, found) = (0..1000)
        .map(|seed| (seed, race("/broken", seed)))
        .find(|(_, statuses)| admitted(statuses) > LIMIT)
        .expect("a seed shows the race");
    println!(
        "seed {seed} lets {} of {LIMIT} requests pass; found after {:?}",
        admitted(&found),
        started.elapsed()
    );
    for _ in 0..3 {
        assert_eq!(race("/broken", seed), found, "seed {seed} replays");
    }
}

#[test]
fn seeds_give_different_runs() {
    let runs: BTreeSet<_> = (0..20).map(|seed| race("/sound", seed)).collect();
    assert!(runs.len() > 5, "{} different runs of 20 seeds", runs.len());
}

#[test]
fn outcomes_come_in_the_order_of_the_jobs() {
    let host = limiter(2);
    let jobs = (0..6).map(|job| (job % 2, Request::get(format!("/{job}"))));
    let outcomes = host.interleave(1, jobs, ok);
    let paths: Vec<_> =
        outcomes.iter().map(|outcome| outcome.forwarded().unwrap().path().to_owned()).collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/3", "/4", "/5"]);
}

#[test]
fn threads_share_one_store_and_the_limit_holds() {
    let host = limiter(4);
    let admitted: usize = host
        .threads(|worker| {
            (0..50).filter(|_| host.worker(worker).send(Request::get("/k"), ok).status() == 200).count()
        })
        .into_iter()
        .sum();
    assert_eq!(admitted, LIMIT);
}

#[test]
fn a_planned_fault_answers_in_the_calls_place() {
    let host = limiter(2);
    // A mismatch makes the guest try again; a status that it does not know makes it trap.
    host.fail_next("proxy_set_shared_data", Status::CasMismatch).unwrap();
    assert_eq!(host.send(Request::get("/k"), ok).status(), 200);
    assert_eq!(host.shared_data().get("", "/k").map(|(value, _)| value), Some(vec![1, 0, 0, 0]));

    host.inject(Fault::new("proxy_get_shared_data", Status::InternalFailure).every().on_worker(1)).unwrap();
    assert_eq!(host.send(Request::get("/k"), ok).status(), 200);
    assert_eq!(host.worker(1).send(Request::get("/k"), ok).status(), 503);
    host.clear_faults();
    assert!(host.fail_next("proxy_set_share_data", Status::Ok).is_err());
}
