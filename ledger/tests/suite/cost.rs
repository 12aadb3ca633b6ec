//! What a statement costs, beside what it costs the store.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tokio::time::Instant;

use crate::process::Process;
use crate::soak;
use crate::statement::{ask, shares};
use crate::store::Redis;

/// Statements of each form.
const STATEMENTS: u32 = 200_000;

/// CPU time that a process has used, in microseconds. The system counts in hundredths of a second.
fn cpu(pid: u32) -> f64 {
    let statistics = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = statistics.rsplit_once(')').unwrap();
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| ticks.parse::<f64>().unwrap() * 10_000.0).sum()
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn a_statement_costs_the_ledger_at_most_three_times_what_it_costs_the_store() {
    let redis = Redis::start().await;
    let ledger = Process::start(&["--store", &redis.url()]).await;
    // Statements in each call, and calls at once.
    for (size, at_once) in [(1, 32), (10, 32), (100, 32), (1_000, 8)] {
        let calls = AtomicU32::new(0);
        // Bodies are made beforehand, so that the client takes little of the processors.
        let bodies: Vec<String> = (0..STATEMENTS / size)
            .map(|call| {
                let items =
                    (0..size).map(|item| ask((call * size + item) % 10_000, 1 + call, call % 50, 3, 20, 600));
                shares(call % 8, &items.collect::<Vec<Value>>()).to_string()
            })
            .collect();
        let (ledger_before, redis_before, began) = (cpu(ledger.pid()), cpu(redis.pid()), Instant::now());
        let caller = async || {
            while let Some(body) = bodies.get(calls.fetch_add(1, Ordering::Relaxed) as usize) {
                let answer = ledger.send("POST", "/v1/shares", &[], body).await;
                assert_eq!(answer.status, 200);
                assert!(!answer.body.contains("error"), "{}", answer.body);
            }
        };
        let callers: Vec<_> = (0..at_once).map(|_| caller()).collect();
        futures_util::future::join_all(callers).await;
        let took = began.elapsed().as_secs_f64();
        let statements = f64::from(STATEMENTS);
        let ledger_cost = (cpu(ledger.pid()) - ledger_before) / statements;
        let redis_cost = (cpu(redis.pid()) - redis_before) / statements;
        soak::row(
            "CPU time of a statement, ledger and store",
            format!("{size} in each call, {at_once} calls at once"),
            format!(
                "{ledger_cost:.1} µs and {redis_cost:.1} µs, {:.2} ×; {:.0} a second",
                ledger_cost / redis_cost,
                statements / took
            ),
        );
        assert!(ledger_cost <= 3.0 * redis_cost);
    }
}
