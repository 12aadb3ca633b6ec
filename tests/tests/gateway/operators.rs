//! The operators' listener beside the public one: it shows where a subscriber stands, and resets a quota, by the same counters.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use filter::config::Config;
use host_sim::{Host, Response};
use http::Method;
use serde_json::{Value, json};
use tests::artifacts;
use tests::backend::Service;
use tests::client::Client;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get, post};
use tests::gateway::{module, plugin, wait_for_directory};
use tests::operators;
use tests::policy::{self, Policy};
use tests::process::Process;

const KEY: &str = "the-customers-key";
const TOKEN: &str = "the-operators-token";
const ACME: &str = "/weir/subscribers/acme";
/// The path of the reset of a customer's first quota.
const RESET: &str = "/weir/subscribers/acme/reset?class=standard&quota=standard-month";

/// A month of two quotas in the default class, none of which a test outlasts. (One may end in the middle: then the test fails once a week, at
/// midnight UTC.)
fn policy(month: u32, week: u32) -> Policy {
    let quotas = json!([format!("{month}/month"), {"limit": week, "window": "7d"}]);
    Policy::contract()
        .unwrap()
        .with_at("/plans/pro/standard", quotas)
        .with_at("/plans/pro/analytics", json!(["1/month"]))
        .with("usage_path", json!("/quota"))
        .with("unknown_key", json!({"action": "pass"}))
        .subscriber("acme", "pro", KEY)
}

fn operators_of(policy: &Policy) -> Policy {
    let tokens = json!([{"name": "on-call", "token": policy::hash(TOKEN)}]);
    policy.clone().with("operators", json!({"path": "/weir", "tokens": tokens}))
}

/// An answer's status and body.
type Answered = (u16, Vec<u8>);

/// A gateway with both listeners.
trait Listeners {
    /// Sends a request to the public listener.
    fn call(&mut self, request: &Request) -> Answered;
    /// Sends a request to the operators' listener.
    fn ask(&mut self, request: &Request) -> Answered;
    /// The lines of the log with this text.
    fn logged(&self, text: &str) -> Vec<String>;

    /// Status of a request of the customer.
    fn status_of(&mut self, path: &str) -> u16 {
        self.call(&get(path).key(KEY)).0
    }

    /// Status and document of an operator's request.
    fn operate(&mut self, method: Method, path: &str) -> (u16, Value) {
        let (status, body) = self.ask(&Request::new(method, path).key(TOKEN).header("x-request-id", "4711"));
        (status, serde_json::from_slice(&body).unwrap())
    }
}

/// The simulator has one listener, which takes the configurations in turn, in the same VMs and over the same shared data.
struct Simulated {
    host: Host,
    policy: Policy,
}

impl Simulated {
    fn start(policy: Policy) -> Self {
        let mut host = Host::builder().workers(2).build();
        host.load(module(), plugin(&policy)).unwrap();
        Self { host, policy }
    }
}

impl Listeners for Simulated {
    fn call(&mut self, request: &Request) -> Answered {
        let sent = host_sim::Request::new(request.method.as_str().to_owned(), request.path.clone());
        let sent = request.headers.iter().fold(sent, |sent, (name, value)| {
            sent.header(name.as_str().to_owned(), value.as_bytes().to_vec())
        });
        let outcome = self.host.send(sent, |_| Response::ok());
        (outcome.status(), outcome.body().to_vec())
    }

    fn ask(&mut self, request: &Request) -> Answered {
        self.host.update(operators_of(&self.policy).to_string()).unwrap();
        let answered = self.call(request);
        self.host.update(self.policy.to_string()).unwrap();
        answered
    }

    fn logged(&self, text: &str) -> Vec<String> {
        let lines = self.host.logs().lines();
        lines.iter().filter(|line| line.message.contains(text)).map(|line| line.message.clone()).collect()
    }
}

struct InEnvoy {
    envoy: Envoy,
    operators: Client,
}

impl InEnvoy {
    fn start(setup: Setup) -> Self {
        let (envoy, operators) = operators::start(setup, |public| operators_of(&public));
        Self { envoy, operators }
    }
}

impl Listeners for InEnvoy {
    fn call(&mut self, request: &Request) -> Answered {
        let answer = self.envoy.send(request).unwrap();
        (answer.status(), answer.body().to_vec())
    }

    fn ask(&mut self, request: &Request) -> Answered {
        let answer = self.operators.send(request).unwrap();
        (answer.status(), answer.body().to_vec())
    }

    fn logged(&self, text: &str) -> Vec<String> {
        self.envoy.log().lines().into_iter().filter(|line| line.contains(text)).collect()
    }
}

/// Runs a case on both gateways.
fn on_both(policy: &Policy, case: impl Fn(&mut dyn Listeners)) {
    case(&mut Simulated::start(policy.clone()));
    case(&mut InEnvoy::start(Setup::new(policy.clone(), Upstream::DirectResponse)));
}

/// What is left of the quotas of a class, by the first counter of an answer to an operator.
fn left(state: &Value, class: usize) -> Vec<u64> {
    let quotas = state["counters"][0]["classes"][class]["quotas"].as_array();
    let quotas = quotas.unwrap_or_else(|| panic!("no quotas in {state}"));
    quotas.iter().map(|quota| quota["remaining"].as_u64().unwrap()).collect()
}

#[test]
fn a_refused_customer_goes_on_after_the_reset_of_one_quota() {
    on_both(&policy(3, 5), |gateway| {
        assert_eq!(gateway.status_of("/analytics"), 200);
        assert_eq!([(); 4].map(|()| gateway.status_of("/links")), [200, 200, 200, 429]);

        let (status, state) = gateway.operate(Method::GET, ACME);
        let (_, usage) = gateway.call(&get("/quota").key(KEY));
        let mut seen_by_caller: Value = serde_json::from_slice(&usage).unwrap();
        seen_by_caller["key"] = json!(policy::hash(KEY));
        assert_eq!((status, &state), (200, &json!({"subscriber": "acme", "counters": [seen_by_caller]})));

        let (status, state) = gateway.operate(Method::POST, RESET);
        assert_eq!((status, left(&state, 1), left(&state, 0)), (200, vec![3, 2], vec![0]), "{state}");
        // Of the week, two were left.
        assert_eq!([(); 3].map(|()| gateway.status_of("/links")), [200, 200, 429]);
        assert_eq!(gateway.status_of("/analytics"), 429, "the other class");

        let lines = gateway.logged("audit {");
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let (_, audit) = line.split_once("audit ").unwrap();
        let mut audit: Value = serde_json::from_str(audit).unwrap();
        // Envoy gives a request its id.
        let request_id = audit.as_object_mut().unwrap().remove("request_id");
        assert!(request_id.is_some_and(|id| id.as_str().is_some_and(|id| id.len() >= 4)), "{line}");
        let expected = json!({
            "operator": "on-call", "action": "reset", "subscriber": "acme", "key": policy::hash(KEY)[7..15],
            "class": "standard", "quota": "standard-month", "limit": 3, "used_before": 3, "used_after": 0,
        });
        assert_eq!(audit, expected);
        assert!(gateway.logged(TOKEN).is_empty() && gateway.logged(KEY).is_empty());
    });
}

#[test]
fn without_a_token_nobody_sees_or_resets_anything() {
    on_both(&policy(1, 5), |gateway| {
        assert_eq!([(); 2].map(|()| gateway.status_of("/links")), [200, 429]);
        for token in ["", "Bearer another-token", "Basic dG9rZW4=", &format!("Bearer {KEY}")] {
            for request in [get(ACME), post(RESET)] {
                let request = if token.is_empty() { request } else { request.header("authorization", token) };
                let (status, body) = gateway.ask(&request);
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")), "{token}");
            }
        }
        assert_eq!(gateway.status_of("/links"), 429);
        assert!(gateway.logged("audit {").is_empty());
    });
}

#[test]
fn the_operators_listener_passes_nothing_on_and_the_public_one_does_not_answer_operators() {
    on_both(&policy(3, 5), |gateway| {
        for path in ["/", "/links", "/quota", "/weir", "/weir/subscribers"] {
            assert_eq!(gateway.operate(Method::GET, path).0, 404, "{path}");
        }
        assert_eq!(gateway.operate(Method::PUT, ACME).0, 405);
        assert_eq!(gateway.operate(Method::POST, &RESET.replace("-month", "-day")).0, 422);
        assert_eq!(gateway.operate(Method::GET, "/weir/subscribers/acm%65").0, 200);
        // Ordinary requests of a key without a plan, and of a customer, who pays.
        for (request, what) in [(get(ACME).key(TOKEN), "seen"), (post(RESET).key(TOKEN), "reset")] {
            assert_eq!(gateway.call(&request), (200, Vec::new()), "{what}");
        }
        assert_eq!([(); 4].map(|()| gateway.status_of(ACME)), [200, 200, 200, 429]);
        assert!(gateway.logged("audit {").is_empty());
    });
}

/// Each admitted request is in the count of one generation, and no generation has more than the limit.
#[test]
fn resets_while_requests_are_in_flight_let_no_more_through_than_the_limit_after_each() {
    const LIMIT: u64 = 300;
    const RESETS: usize = 20;
    let mut gateway =
        InEnvoy::start(Setup::new(policy(LIMIT as u32, 1_000_000), Upstream::DirectResponse).workers(4));
    let (admitted, refused, open) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(RESETS));
    let address = gateway.envoy.address();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let client = Client::to(address).unwrap();
                while open.load(Ordering::SeqCst) > 0 {
                    let status = client.send(&get("/links").key(KEY)).unwrap().status();
                    assert!([200, 429].contains(&status), "{status}");
                    let counter = if status == 200 { &admitted } else { &refused };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        while open.load(Ordering::SeqCst) > 0 {
            clock::pass(Duration::from_millis(20));
            // The quota is used up at least once, however slow the machine is.
            while open.load(Ordering::SeqCst) == 1 && refused.load(Ordering::SeqCst) == 0 {
                clock::pass(Duration::from_millis(20));
            }
            assert_eq!(gateway.operate(Method::POST, RESET).0, 200);
            open.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let audits = gateway.logged("audit {");
    let used: Vec<u64> = audits
        .iter()
        .map(|line| line.split_once("audit ").unwrap().1)
        .map(|audit| serde_json::from_str::<Value>(audit).unwrap()["used_before"].as_u64().unwrap())
        .collect();
    assert_eq!(used.len(), RESETS);
    assert!(used.iter().all(|used| *used <= LIMIT) && used.contains(&LIMIT), "{used:?}");
    let (_, state) = gateway.operate(Method::GET, ACME);
    let last = LIMIT - left(&state, 1)[0];
    assert_eq!(
        used.iter().sum::<u64>() + last,
        admitted.load(Ordering::SeqCst) as u64,
        "{used:?} and {last}"
    );
}

/// A class whose requests reserve 10 units and are settled by the response.
fn costs() -> Policy {
    let cost = json!({"reserve": 10, "actual": {"response_header": "x-cost"}});
    let policy = policy(100, 1000).with("classes", json!([{"name": "standard", "cost": cost}]));
    let quotas = policy.as_value()["plans"]["pro"]["standard"].clone();
    policy.with("plans", json!({"pro": {"standard": quotas}}))
}

#[test]
fn a_request_from_before_the_reset_is_not_settled_after_it() {
    let mut gateway = Simulated::start(costs());
    let request = host_sim::Request::get("/chat").header("authorization", format!("Bearer {KEY}"));
    let mut before = gateway.host.stream(&request, true);
    assert!(before.is_forwarded());
    let (status, state) = gateway.operate(Method::POST, RESET);
    assert_eq!((status, left(&state, 0)), (200, vec![100, 990]), "in units");
    let mut after = gateway.host.worker(1).stream(&request, true);
    after.respond(Response::ok().header("x-cost", "7"));
    after.finish();
    before.respond(Response::ok().header("x-cost", "4"));
    let answer = before.finish();
    // 93 of 100 units of the month, and 1000 - 4 - 7 of the week.
    assert!(answer.header("ratelimit").unwrap().contains(r#""standard-month";r=93;"#), "{answer:?}");
    assert!(answer.header("ratelimit").unwrap().contains(r#""standard-604800s";r=989;"#), "{answer:?}");
}

/// An upstream that answers a request to `/wait` only once it may, and states what a request costs.
fn patient_upstream(may: Arc<(Mutex<bool>, Condvar)>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let may = Arc::clone(&may);
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.extend(byte);
                }
                let waits = head.starts_with(b"GET /wait");
                let (lock, turn) = &*may;
                drop(turn.wait_while(lock.lock().unwrap(), |may| waits && !*may).unwrap());
                let cost = if waits { 4 } else { 7 };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(head.as_bytes())
            });
        }
    });
    address
}

#[test]
fn in_envoy_too_requests_from_before_the_reset_are_not_settled_after_it() {
    const WAITING: u64 = 8;
    let may = Arc::new((Mutex::new(false), Condvar::new()));
    let upstream = patient_upstream(Arc::clone(&may));
    let mut gateway = InEnvoy::start(Setup::new(costs(), Upstream::At(upstream)).workers(4));
    let address = gateway.envoy.address();
    let week = |state: &Value| left(state, 0)[1];
    thread::scope(|scope| {
        for _ in 0..WAITING {
            scope.spawn(|| Client::to(address).unwrap().send(&get("/wait").key(KEY)).unwrap());
        }
        clock::eventually("requests that wait", Duration::from_secs(10), || {
            let (_, state) = gateway.operate(Method::GET, ACME);
            (week(&state) == 1000 - 10 * WAITING).then_some(())
        })
        .unwrap();
        assert_eq!(left(&gateway.operate(Method::POST, RESET).1, 0)[0], 100);
        assert_eq!(gateway.status_of("/chat"), 200);
        *may.0.lock().unwrap() = true;
        may.1.notify_all();
    });
    let answer = gateway.envoy.send(&get("/chat").key(KEY)).unwrap();
    let left = |quota: &str| tests::ratelimit::left(answer.header("ratelimit").unwrap(), quota);
    assert_eq!(left("standard-month"), Some(100 - 2 * 7));
    assert_eq!(left("standard-604800s"), Some(1000 - 2 * 7 - WAITING as usize * 4));
}

#[test]
fn a_subscriber_of_the_directory_is_seen_and_reset() {
    let service = Service::start().unwrap();
    let created = service.create_key("free").unwrap();
    let policy = Policy::deployed().unwrap().with_at("/plans/free/standard", json!(["2/month"]));
    let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(service.directory());
    let mut gateway = InEnvoy::start(setup);
    // One list serves the filters of both listeners.
    wait_for_directory(&gateway.envoy);
    let path = format!("/weir/subscribers/{}", created.id);
    let (status, state) = gateway.operate(Method::GET, &path);
    assert_eq!(status, 200, "{state}");
    let counter = &state["counters"][0];
    assert_eq!((&counter["key"], &counter["plan"]), (&json!(policy::hash(&created.key)), &json!("free")));
    let calls = |gateway: &mut InEnvoy| [(); 3].map(|()| gateway.call(&get("/links").key(&created.key)).0);
    assert_eq!(calls(&mut gateway), [200, 200, 429]);
    let reset = format!("{path}/reset?class=standard&quota=standard");
    assert_eq!(gateway.operate(Method::POST, &reset).0, 200);
    assert_eq!(calls(&mut gateway), [200, 200, 429]);
}

/// What `envoy/operators.yaml` has in place of a token's hash.
const PLACEHOLDER: &str = "sha256:put the SHA-256 of a random token here";

#[test]
fn operators_yaml_has_the_configuration_of_envoy_yaml_and_the_operators() {
    let file = policy::yaml("envoy/operators.yaml").unwrap();
    let wasm = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config/config";
    let deployed = policy::bootstrap().unwrap();
    let weir = deployed.pointer(policy::HTTP_FILTERS).and_then(Value::as_array).unwrap();
    let weir = weir.iter().find(|filter| filter["name"] == "weir").unwrap();
    let found = file.pointer(wasm).unwrap();
    assert_eq!(found["vm_config"], weir["typed_config"]["config"]["vm_config"]);
    let configuration = found["configuration"]["value"].as_str().unwrap();
    let mut configuration: Value = serde_json::from_str(configuration).unwrap();
    let expected = Policy::deployed().unwrap();
    let with_token = configuration.to_string().replace(PLACEHOLDER, &policy::hash(TOKEN));
    assert_eq!(Config::from_json(with_token.as_bytes()).err(), None);
    configuration.as_object_mut().unwrap().remove("operators").unwrap();
    assert_eq!(&configuration, expected.as_value());
}

/// As the page says: the first file by its path, the second by its text.
#[test]
fn envoy_merges_operators_yaml_into_envoy_yaml() {
    let text = |file: &str| {
        let text = std::fs::read_to_string(artifacts::root().join(file)).unwrap();
        let wasm = artifacts::filter_wasm().to_str().unwrap();
        let text = text.replace("/etc/envoy/filter.wasm", wasm).replace(PLACEHOLDER, &policy::hash(TOKEN));
        ["9901", "9902", "8080"]
            .iter()
            .fold(text, |text, port| text.replace(&format!("port_value: {port}"), "port_value: 0"))
    };
    let folder = tempfile::tempdir().unwrap();
    let [config, admin] = ["envoy.yaml", "admin"].map(|file| folder.path().join(file));
    std::fs::write(&config, text("envoy/envoy.yaml")).unwrap();
    let mut command = Command::new(artifacts::envoy());
    command.arg("--config-path").arg(&config).arg("--config-yaml").arg(text("envoy/operators.yaml"));
    command.arg("--admin-address-path").arg(&admin).args(["--disable-hot-restart", "--concurrency", "1"]);
    command.env("WEIR_DIRECTORY_TOKEN", "any");
    let process = Process::start("envoy", &mut command).unwrap();
    process.wait_for(|line| line.contains("starting main dispatch loop").then_some(())).unwrap();
    let admin = std::fs::read_to_string(admin).unwrap().trim().parse().unwrap();
    let listeners = Client::to(admin).unwrap().send(&get("/listeners?format=json")).unwrap().json().unwrap();
    let statuses = listeners["listener_statuses"].as_array().unwrap();
    let names: Vec<_> = statuses.iter().map(|listener| &listener["name"]).collect();
    assert_eq!(names, ["api", "operators"]);
}
