//! What deciding a request costs, in guest instructions and host calls of the built module. Neither depends on the machine, so a change that
//! makes the filter slower by one per cent fails here.
//!
//! The budgets are in `budgets.json`. They only go down, unless a commit says why. With `WEIR_BUDGETS=write` the test writes what it finds, with `trace` it prints
//! what each callback took.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use host_sim::{CodeCache, Compiler, Host, Module, Plugin, Request, Response};
use serde_json::{Value, json};
use tests::artifacts;
use tests::key_list::KeyList;
use tests::policy::Policy;

/// What one request may cost, over all callbacks of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    instructions: u64,
    host_calls: u64,
}

/// A kind of request: a configuration, and requests of this kind.
struct Case {
    name: &'static str,
    configuration: Value,
    /// The key that the request of this number has; `None` for a request without a key.
    key: fn(u32) -> Option<String>,
    metadata: &'static [(&'static [&'static str], &'static str)],
    /// Requests before the one that is measured.
    before: u32,
    status: u16,
}

/// The tolerance of a budget in percent: a compiler may count a little differently from run to run of another version.
const TOLERANCE: u64 = 1;

/// Percent below a budget at which it is to be lowered.
const TO_LOWER: u64 = 3;

const KEY: &str = "3zdKvP5ZqLmN8rTwXyB2cH4jFgS7uQaE";

fn one_key(_: u32) -> Option<String> {
    Some(KEY.to_owned())
}

fn cases() -> Vec<Case> {
    // The contract, with headers as `envoy.yaml` has them: three headers are added.
    let contract = |plan: &str| {
        let policy = Policy::contract().expect("the contract").subscriber("acme", plan, KEY);
        let mut configuration: Value = serde_json::from_str(&policy.to_string()).expect("JSON");
        configuration["headers"] = json!({"ietf": false, "expose_cors": false, "upstream": "absent"});
        configuration
    };
    let with = |mut configuration: Value, field: &str, value: Value| {
        *configuration.pointer_mut(field).expect(field) = value;
        configuration
    };
    let millions = json!(["1000000000/month"]);
    let plain = with(contract("pro"), "/plans/pro/standard", json!(["1000000/minute"]));
    let case = |name, configuration| Case {
        name,
        configuration,
        key: one_key,
        metadata: &[],
        before: 50,
        status: 200,
    };
    let mut all_headers = plain.clone();
    all_headers["headers"] = json!({"upstream": "absent"});
    let mut by_metadata = plain.clone();
    by_metadata["subscribers"] = json!([]);
    by_metadata["key_sources"] = json!([{"metadata": ["jwt", "sub"]}]);
    by_metadata["plan_source"] = json!({"metadata": ["jwt", "plan"]});
    let mut by_query = plain.clone();
    by_query["key_sources"] = json!([{"query": "api_key"}]);
    vec![
        case("plain", plain.clone()),
        case(
            "two quotas",
            with(plain.clone(), "/plans/pro/standard", json!(["1000000/minute", "1000000000/month"])),
        ),
        case(
            "a rate",
            with(
                plain.clone(),
                "/plans/pro/standard",
                json!([{"rate": "1000000/second", "burst": 1_000_000}]),
            ),
        ),
        case(
            "a request in flight",
            with(plain.clone(), "/plans/pro/standard", json!(["1000000/minute", {"in_flight": 100}])),
        ),
        case("all headers", all_headers),
        case("a month and all headers", {
            let mut month = with(plain.clone(), "/plans/pro/standard", millions);
            month["headers"] = json!({"upstream": "absent"});
            month
        }),
        Case { status: 429, ..case("429", with(plain.clone(), "/plans/pro/standard", json!(["10/month"]))) },
        Case {
            key: |number| Some(format!("nobody-{number}")),
            ..case("a stranger", with_strangers(plain.clone()))
        },
        Case {
            metadata: &[(&["metadata", "jwt", "sub"], "alice"), (&["metadata", "jwt", "plan"], "pro")],
            ..case("plan_source", by_metadata)
        },
        case("a key in the query", by_query),
        case("plain, with usage", {
            let mut usage = plain.clone();
            usage["usage"] = json!({"cluster": "usage", "path": "/usage"});
            usage
        }),
        case("units held in a fleet", {
            let mut fleet = plain.clone();
            fleet["fleet"] = json!({"cluster": "ledger"});
            fleet
        }),
    ]
}

fn with_strangers(mut configuration: Value) -> Value {
    configuration["unknown_key"] = json!({"action": "limit", "quotas": ["1000000/minute"]});
    configuration
}

/// The cost of a request of this kind.
fn measured(case: &Case, module: &Module) -> Cost {
    let cost = Arc::new(Mutex::new(Cost { instructions: 0, host_calls: 0 }));
    let (sink, name) = (Arc::clone(&cost), case.name);
    let mut host = Host::builder().on_trace(move |callback| {
        if std::env::var_os("WEIR_BUDGETS").is_some_and(|value| value == "trace") {
            println!(
                "{name} {}: {:?}, {} calls",
                callback.callback,
                callback.instructions,
                callback.host_calls()
            );
        }
        let mut cost = sink.lock().expect("the cost");
        cost.instructions += callback.instructions.expect("a metered module");
        cost.host_calls += callback.host_calls();
    });
    host = host.cluster("ledger", |call| {
        // All that is wished for is granted.
        let asked: Value = serde_json::from_slice(call.body_bytes()).expect("JSON");
        let items = asked["items"].as_array().expect("statements").iter().map(|item| {
            let units = |field: &str| item[field].as_u64().unwrap_or(0);
            json!({"share": units("used") + units("hold"), "others": 0, "reset": item["reset"]})
        });
        let items: Vec<_> = items.collect();
        let answer = json!({"epoch": "0".repeat(32), "now": asked["now"], "items": items});
        Response::ok().body(answer.to_string())
    });
    for (path, value) in case.metadata {
        host = host.property(path.iter().copied(), *value);
    }
    let mut host = host.build();
    host.load(module, plugin(&case.configuration)).expect("the filter");
    let send = |number: u32| {
        let key = (case.key)(number);
        let path = match &key {
            Some(key) if case.name == "a key in the query" => format!("/links?api_key={key}"),
            _ => "/links".to_owned(),
        };
        // Ten headers, as a gateway hands them over.
        let mut request = Request::get(path)
            .header("user-agent", "curl/8.5.0")
            .header("accept", "application/json")
            .header("accept-encoding", "gzip, br")
            .header("x-forwarded-proto", "https")
            .header("x-request-id", "0d2f3c8e-7b1a-4f6e-9c55-2f8a6f4f6d11");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        *cost.lock().expect("the cost") = Cost { instructions: 0, host_calls: 0 };
        let outcome = host.send(request, |_| Response::ok());
        let status = outcome.status();
        (status, *cost.lock().expect("the cost"))
    };
    for number in 0..case.before {
        send(number);
    }
    // Of some, because a hash may find its place at once or not.
    let costs = (0..20).map(|number| {
        let (status, cost) = send(case.before + number);
        assert_eq!(status, case.status, "{}", case.name);
        cost
    });
    let mut costs: Vec<_> = costs.collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// The built module, compiled to count its instructions.
fn metered() -> Module {
    let bytes = std::fs::read(artifacts::filter_wasm()).expect("the built filter");
    let kept = CodeCache::at(artifacts::root().join("target/compiled"));
    Module::compile_cached(bytes, Compiler::Metered, &kept).expect("the built filter").0
}

fn plugin(configuration: &Value) -> Plugin {
    Plugin::new(configuration.to_string()).name("weir").root_id("weir").vm_id("weir")
}

fn file() -> PathBuf {
    artifacts::root().join("tests/tests/gateway/budgets.json")
}

#[test]
fn a_request_costs_no_more_than_its_budget() {
    let module = metered();
    let found: BTreeMap<_, _> =
        cases().iter().map(|case| (case.name.to_owned(), measured(case, &module))).collect();
    if std::env::var("WEIR_BUDGETS").is_ok_and(|value| value == "write") {
        let costs = found.iter().map(|(name, cost)| {
            let cost = json!({"instructions": cost.instructions, "host_calls": cost.host_calls});
            (name.clone(), cost)
        });
        let text = serde_json::to_string_pretty(&Value::Object(costs.collect())).expect("JSON");
        std::fs::write(file(), text + "\n").expect("the budgets");
        return;
    }
    let budgets = std::fs::read_to_string(file()).expect("the budgets");
    let budgets: BTreeMap<String, Value> = serde_json::from_str(&budgets).expect("budgets");
    let budget = |name: &str, what: &str| budgets[name][what].as_u64().expect("a whole number");
    assert_eq!(budgets.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    let mut misses = Vec::new();
    for (name, cost) in &found {
        let [instructions, host_calls] = ["instructions", "host_calls"].map(|what| budget(name, what));
        let budget = Cost { instructions, host_calls };
        println!(
            "{name:<24} {:>6} instructions of {:>6}, {:>2} host calls of {:>2}",
            cost.instructions, budget.instructions, cost.host_calls, budget.host_calls
        );
        if cost.host_calls > budget.host_calls
            || cost.instructions * 100 > budget.instructions * (100 + TOLERANCE)
        {
            misses.push(format!("{name}: {cost:?} is more than {budget:?}"));
        } else if cost.host_calls < budget.host_calls
            || cost.instructions * 100 < budget.instructions * (100 - TO_LOWER)
        {
            misses.push(format!("{name}: {cost:?} is less than {budget:?}: lower the budget"));
        }
    }
    assert!(misses.is_empty(), "{misses:#?}\nWEIR_BUDGETS=write writes the file anew");
}

/// A busy VM decides as fast as an idle one: 50,000 keys in turn cost little more than 4,000.
#[test]
fn many_busy_keys_cost_little_more_than_a_few() {
    let module = metered();
    let per_request = |keys: u32| {
        let list = KeyList::in_pages(keys as usize, keys as usize);
        // Each key is a subscriber's of the directory; inline they would be too many.
        let configuration = json!({
            "plans": {"pro": {"standard": ["1000000/minute"]}},
            "directory": {"cluster": "keys", "path": "/keys"},
            "headers": {"ietf": false, "expose_cors": false, "upstream": "absent"},
        });
        let instructions = Arc::new(Mutex::new(0_u64));
        let sink = Arc::clone(&instructions);
        let mut host = Host::builder()
            .cluster("keys", move |request| Response::ok().body(list.answer(request.path(), None).2))
            .on_trace(move |callback| *sink.lock().expect("the sum") += callback.instructions.unwrap_or(0))
            .build();
        host.load(&module, plugin(&configuration)).expect("the filter");
        // The list is stored a part on each tick.
        host.advance(std::time::Duration::from_secs(3));
        let round = |requests: u32| {
            *instructions.lock().expect("the sum") = 0;
            for number in 0..requests {
                let key = format!("key-{}", number % keys);
                let request = Request::get("/links").header("authorization", format!("Bearer {key}"));
                let outcome = host.send(request, |_| Response::ok());
                assert_eq!(outcome.status(), 200);
            }
            *instructions.lock().expect("the sum") / u64::from(requests)
        };
        round(keys);
        round(keys)
    };
    let [few, many] = [4_000, 50_000].map(per_request);
    println!("4,000 keys: {few} instructions, 50,000: {many}");
    assert!(many * 10 <= few * 13, "{few} and {many}");
}
