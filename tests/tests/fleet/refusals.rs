//! What a refusal says: no quota is named that has units left, and no client is sent away for longer than it must wait.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tests::client::Connection;
use tests::exchange::{Answer, get};
use tests::policy::Policy;
use tests::ratelimit;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::clients::opened;
use crate::fleet::{Fleet, Shape, Store};

/// Customers of a plan with a short window, which they use up again and again, and a long one, which they do not.
#[derive(Clone, Copy)]
struct Kind {
    plan: &'static str,
    quotas: [&'static str; 2],
    /// Requests at once.
    burst: usize,
    /// Between two bursts.
    mean: Duration,
}

const KINDS: [Kind; 2] = [
    Kind { plan: "one", quotas: ["2/second", "1000/month"], burst: 1, mean: Duration::from_millis(75) },
    Kind { plan: "four", quotas: ["4/second", "10000/day"], burst: 4, mean: Duration::from_millis(140) },
];
const CUSTOMERS: usize = 20;
const FAR: Duration = Duration::from_millis(20);

fn key(kind: Kind, number: usize) -> String {
    format!("{}-{number}", kind.plan)
}

fn policy() -> Policy {
    let plans = KINDS.map(|kind| (kind.plan.to_owned(), json!({"standard": kind.quotas})));
    let policy = Policy::contract().unwrap().with("plans", plans.into_iter().collect());
    let customers = KINDS.into_iter().flat_map(|kind| (0..CUSTOMERS).map(move |number| (kind, number)));
    customers.fold(policy, |policy, (kind, number)| {
        let key = key(kind, number);
        policy.subscriber(&key, kind.plan, &key)
    })
}

/// The quotas that a refusal names.
fn named(refusal: &Answer) -> Vec<String> {
    let body = refusal.json().unwrap();
    let names = body["violated-policies"].as_array().unwrap().iter();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Whether a refusal sends its client away for no longer than the short window, which it names alone.
fn is_short(refusal: &Answer) -> bool {
    named(refusal) == ["standard-second"] && refusal.number("retry-after").is_some_and(|seconds| seconds <= 1)
}

/// Whether nothing is left of the quota that it names.
fn is_used_up(refusal: &Answer) -> bool {
    let left = |name: &String| ratelimit::left(refusal.header("ratelimit")?, name);
    named(refusal).iter().all(|name| left(name) == Some(0))
        && refusal.number("x-ratelimit-remaining") == Some(0)
}

fn assert_right(refusals: &[Answer], answers: usize, is_right: impl Fn(&Answer) -> bool) {
    let wrong: Vec<_> = refusals.iter().filter(|refusal| !is_right(refusal)).collect();
    println!("{} of {answers} answers are refusals, and {} of these are wrong", refusals.len(), wrong.len());
    assert!(refusals.len() > answers / 4, "{} refusals", refusals.len());
    assert!(wrong.is_empty(), "{} of {answers}, one of them:\n{}", wrong.len(), wrong[0]);
}

/// Sends a customer's bursts, each to one of the gateways. Returns the number of answers, and the refusals.
async fn send_bursts(
    gateways: Vec<SocketAddr>,
    kind: Kind,
    key: String,
    time: Duration,
) -> (usize, Vec<Answer>) {
    let (began, mut next) = (Instant::now(), Instant::now());
    let mut connections: Vec<Vec<Connection>> = Vec::new();
    for gateway in gateways {
        connections.push((0..kind.burst).map(|_| opened(gateway)).collect::<JoinSet<_>>().join_all().await);
    }
    let (mut answers, mut refusals) = (0, Vec::new());
    while next < began + time {
        sleep_until(next).await;
        let gateway = rand::random_range(0..connections.len());
        let mut burst = JoinSet::new();
        for mut connection in connections[gateway].drain(..) {
            let request = get("/links").key(&key);
            burst.spawn(async move { (connection.send(&request).await.unwrap(), connection) });
        }
        while let Some(answered) = burst.join_next().await {
            let (answer, connection) = answered.unwrap();
            connections[gateway].push(connection);
            answers += 1;
            if answer.status() == 429 {
                refusals.push(answer);
            }
        }
        next += kind.mean.mul_f64(-(1.0 - rand::random::<f64>()).ln());
    }
    (answers, refusals)
}

/// Sends the bursts of all customers for a time. Returns the number of answers, and the refusals.
fn send_all(fleet: &Fleet, time: Duration) -> (usize, Vec<Answer>) {
    Runtime::new().unwrap().block_on(async {
        let customers = KINDS.into_iter().flat_map(|kind| (0..CUSTOMERS).map(move |number| (kind, number)));
        let sent: JoinSet<_> = customers
            .map(|(kind, number)| send_bursts(fleet.addresses(), kind, key(kind, number), time))
            .collect();
        let sent = sent.join_all().await;
        (
            sent.iter().map(|(answers, _)| answers).sum(),
            sent.into_iter().flat_map(|(_, refusals)| refusals).collect(),
        )
    })
}

#[test]
fn a_refusal_names_no_quota_that_has_units_left() {
    let shape = Shape { store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let fleet = Fleet::start(&policy(), shape);
    let (answers, refusals) = send_all(&fleet, Duration::from_secs(9));
    assert_right(&refusals, answers, |refusal| is_short(refusal) && is_used_up(refusal));
}

#[test]
fn a_refusal_names_no_quota_that_has_units_left_while_a_shard_of_the_store_is_away() {
    let policy = policy().with("fleet", json!({"cluster": "ledger", "on_unavailable": {"local": 10}}));
    let shape = Shape { store: Store::cluster(), round_trip: FAR, ..Shape::default() };
    let mut fleet = Fleet::start(&policy, shape);
    fleet.store.lose_a_shard();
    let (answers, refusals) = send_all(&fleet, Duration::from_secs(6));
    // Some short windows are on that shard: of these, what is left is not known.
    assert_right(&refusals, answers, is_short);
}
