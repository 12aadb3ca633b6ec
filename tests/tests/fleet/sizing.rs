//! What the simulation of `fleet-tests` says that a fleet costs, beside real Envoys, a ledger and a Redis.

use std::time::Duration;

use fleet_tests::{Cost, Key, bytes, simulated};
use serde_json::json;
use tests::exchange::get;
use tests::policy::Policy;
use tests::process::cpu_time;
use tests::{clock, flood, soak};

use crate::clients::{Seen, Traffic, send};
use crate::fleet::{Fleet, Shape, Store};

const HOUR: Duration = Duration::from_secs(3_600);
/// How long customers send, in seconds, and how many of them.
const SECONDS: u32 = 60;
const CUSTOMERS: u32 = 40;
/// Requests a second of the first. The second sends half as many, the third a third.
const FIRST: f64 = 65.0;
/// Of each customer in the hour, so that no window ends.
const LIMIT: u32 = 600;
/// Seeds whose mean is compared.
const SEEDS: u64 = 10;
/// What `MEMORY USAGE` leaves out of a counter: its entry among those that expire.
const EXPIRY: f64 = 66.0;

const HELD: &str = "percent of a limit held at the end";
/// What is compared, of all customers.
type Figures = [(&'static str, f64); 6];

fn customers() -> impl Iterator<Item = (String, f64)> {
    (1..=CUSTOMERS).map(|rank| (format!("key-{rank}"), FIRST / f64::from(rank)))
}

/// The mean of the parts of the limit that were used when customers were refused first.
fn mean(parts: impl Iterator<Item = f64>) -> f64 {
    let parts: Vec<_> = parts.collect();
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// What the simulation says.
fn of_simulation(gateways: usize) -> Figures {
    let key =
        |per_second| Key { gateways, per_second, burst: 1, limit: LIMIT, window: 3_600, seconds: SECONDS };
    let costs = (0..SEEDS).flat_map(|seed| customers().map(move |(_, rate)| simulated(&key(rate), seed)));
    let costs: Vec<_> = costs.collect();
    let sum = |of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / SEEDS as f64;
    [
        ("admitted requests", sum(|cost| cost.admitted)),
        ("statements and commands of the store", sum(|cost| cost.statements)),
        ("gateways of all counters", sum(|cost| cost.holders)),
        ("bytes in the store", sum(|cost| bytes(cost.holders))),
        (HELD, 100.0 * sum(|cost| cost.held) / f64::from(CUSTOMERS)),
        ("percent used before the first 429", 100.0 * mean(costs.iter().filter_map(|cost| cost.first_429))),
    ]
}

/// What real customers cost.
fn of_envoys(gateways: usize) -> Figures {
    let plans = json!({"hour": {"standard": [format!("{LIMIT}/hour")]}});
    let policy = Policy::contract().unwrap().with("plans", plans);
    let policy = customers().fold(policy, |policy, (key, _)| policy.subscriber(&key, "hour", &key));
    let mut fleet = Fleet::start(&policy, Shape { gateways, store: Store::redis(), ..Shape::default() });
    clock::wait_for_room(HOUR, Duration::from_secs(120));
    let most = Duration::from_secs(SECONDS.into());
    let traffic = |per_second| Traffic { burst: 1, per_second, most, enough: usize::MAX };
    let traffic: Vec<_> = customers().map(|(key, rate)| (key, traffic(rate))).collect();
    let before = fleet.statements();
    let seen = send(&fleet.addresses(), &traffic);
    // At once: what idle counts hold goes back within two terms.
    let redis = fleet.store.alone();
    // Without the keys by which the ledger knows its store, which have a hash tag.
    let keys = redis.cli("keys weir:*:*");
    let counters: Vec<_> = keys.lines().filter(|key| !key.contains('{')).map(str::to_owned).collect();
    assert_eq!(counters.len(), CUSTOMERS as usize);
    let (mut shares, mut holders, mut bytes) = (0.0, 0.0, 0.0);
    for counter in &counters {
        let fields = redis.cli(&format!("hgetall {counter}"));
        let fields: Vec<_> = fields.lines().collect();
        let sum = fields.chunks(2).find(|field| field[0] == "s").expect("the sum of the shares");
        shares += sum[1].parse::<f64>().unwrap();
        // Beside the reset number and the sum.
        holders += fields.len() as f64 / 2.0 - 2.0;
    }
    for counter in &counters {
        bytes += redis.cli(&format!("memory usage {counter}")).parse::<f64>().unwrap() + EXPIRY;
    }
    let others: usize = seen.iter().flat_map(|seen| seen.others.values()).sum();
    println!("{gateways} gateways: {others} answers were neither 200 nor 429");
    let (admitted, limit) = (seen.iter().map(Seen::passed).sum::<usize>() as f64, f64::from(LIMIT));
    let first_429 = seen.iter().filter_map(|seen| seen.before_a_429);
    [
        ("admitted requests", admitted),
        ("statements and commands of the store", fleet.statements() - before),
        ("gateways of all counters", holders),
        ("bytes in the store", bytes),
        (HELD, 100.0 * (shares - admitted) / limit / f64::from(CUSTOMERS)),
        ("percent used before the first 429", mean(first_429.map(|used| 100.0 * used as f64 / limit))),
    ]
}

#[test]
#[ignore = "long: a minute of traffic for each of three fleets"]
fn real_gateways_cost_what_the_simulation_says() {
    let mut differ = Vec::new();
    for gateways in [2, 4, 8] {
        for ((what, real), (_, simulated)) in of_envoys(gateways).into_iter().zip(of_simulation(gateways)) {
            let form = format!("{gateways} gateways, {what}");
            soak::row("real gateways and simulated ones", &form, format!("{real:.2} and {simulated:.2}"));
            // What is held at one instant of one run varies by as much from seed to seed.
            let least: f64 = if what == HELD { 1.0 } else { 0.0 };
            if (real - simulated).abs() > least.max(0.2 * real.max(simulated)) {
                differ.push(form);
            }
        }
    }
    assert!(differ.is_empty(), "{differ:?}");
}

/// CPU time that the first gateway, the ledger and the store have used, and statements.
fn spent(fleet: &mut Fleet) -> ([Duration; 3], f64) {
    let redis = cpu_time(fleet.store.alone().pid()).unwrap();
    let ledger = cpu_time(fleet.ledgers[0].as_ref().expect("it runs").id()).unwrap();
    ([fleet.gateways[0].cpu_time().unwrap(), ledger, redis], fleet.statements())
}

#[test]
#[ignore = "long: it measures CPU time"]
fn what_a_statement_costs_each_process() {
    const REQUESTS: usize = 30_000;
    const OF_A_KEY: usize = 900;
    const CONNECTIONS: usize = 64;
    // A month of fewer than 1,000 holds nothing in advance, so each request is a statement; of the other one hardly any is.
    let plans = json!({"asks": {"standard": ["999/month"]}, "holds": {"standard": ["4000000000/month"]}});
    let asking = |number: usize| format!("asks-{}", number / OF_A_KEY);
    let policy = Policy::contract().unwrap().with("plans", plans).subscriber("holds", "holds", "holds");
    let fleet = json!({"cluster": "ledger", "on_unavailable": "deny", "timeout": "500ms", "term": "2s"});
    let policy = policy.with("fleet", fleet);
    let keys = (0..REQUESTS).step_by(OF_A_KEY).map(asking);
    let policy = keys.fold(policy, |policy, key| policy.subscriber(&key, "asks", &key));
    let mut fleet = Fleet::start(&policy, Shape { gateways: 1, store: Store::redis(), ..Shape::default() });
    let mut spend = |asks: bool| {
        let key = move |number| if asks { asking(number) } else { "holds".to_owned() };
        let (before, stated) = spent(&mut fleet);
        let requests = (0..REQUESTS).map(move |number| ((), get("/links").key(&key(number))));
        let answers = flood::send(fleet.gateways[0].address(), CONNECTIONS, requests).unwrap();
        assert_eq!(answers.get(&((), 200)), Some(&REQUESTS), "{answers:?}");
        let (after, statements) = spent(&mut fleet);
        let of_a_request = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
        ([0, 1, 2].map(|process| of_a_request(after[process] - before[process])), statements - stated)
    };
    let ((held, few), (asked, many)) = (spend(false), spend(true));
    for (process, name) in ["gateway", "ledger", "store"].into_iter().enumerate() {
        let statement = (asked[process] - held[process]) * REQUESTS as f64 / (many - few);
        let result = format!("{statement:.1} µs, beside {:.1} µs of a request without", held[process]);
        soak::row("CPU time of a statement that a request waits for", name, result);
    }
    assert!(many > 0.9 * REQUESTS as f64 && few < 0.1 * many, "{few} and {many} statements");
}
