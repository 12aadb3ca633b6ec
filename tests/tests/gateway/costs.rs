//! Costs that are known after the response: a request reserves units, its response settles what it is charged, and failures are refunded.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use filter::event::Event;
use host_sim::{Fault, Host, Response, Status};
use serde_json::{Value, json};
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::gateway::{self, Kind, module, plugin};
use tests::policy::Policy;
use tests::server::Server;
use tests::{clock, on_both_gateways, ratelimit};
use tokio::net::TcpSocket;

const KEY: &str = "key";
/// Units that a request reserves.
const RESERVE: usize = 10;
/// VMs of the simulator.
const VMS: usize = 8;
/// The quotas of the class, by their windows, which none of the tests outlasts. (One may end in the middle: then the test fails once a week,
/// at midnight UTC.)
const QUOTAS: [&str; 2] = ["chat-month", "chat-604800s"];

fn by_header() -> Value {
    json!({"response_header": "x-cost"})
}

/// A class `chat` with refunds, and a quota of a month beside one of a week that is not refunded.
fn policy(actual: &Value, [month, week]: [usize; 2]) -> Policy {
    let chat = json!({
        "name": "chat",
        "cost": {"reserve": RESERVE, "actual": actual},
        "refund": {"statuses": ["5xx", 408]},
        "match": [{"path": "/chat"}],
    });
    let quotas = json!([format!("{month}/month"), {"limit": week, "window": "7d", "refundable": false}]);
    Policy::contract()
        .unwrap()
        .with("plans", json!({"pro": {"standard": ["4000000000/month"], "chat": quotas}}))
        .with("classes", json!([chat]))
        .subscriber("acme", "pro", KEY)
}

/// Status and cost of the upstream's answer to a path such as `/chat?status=503&cost=4`.
fn wanted(path: &str) -> (u16, Option<&str>) {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let status = parameter("status=").map_or(200, |status| status.parse().unwrap());
    (status, parameter("cost="))
}

/// Units left of both quotas.
fn left(value: Option<&str>) -> [usize; 2] {
    QUOTAS.map(|quota| {
        value.and_then(|value| ratelimit::left(value, quota)).unwrap_or_else(|| panic!("{value:?}"))
    })
}

fn left_of(answer: &Answer) -> [usize; 2] {
    left(answer.header("ratelimit"))
}

fn a_response_says_what_is_left_once_it_has_settled_its_request(kind: Kind) {
    let upstream = Server::start(|request| {
        let path = request.uri().to_string();
        let (status, cost) = wanted(&path);
        let response = cost
            .into_iter()
            .fold(http::Response::builder().status(status), |response, cost| response.header("x-cost", cost));
        response.body(bytes::Bytes::new().into()).unwrap()
    })
    .unwrap();
    let setup = Setup::new(policy(&by_header(), [1000, 5000]), Upstream::At(upstream.address()));
    let gateway = gateway::start(kind, setup.workers(kind.workers())).unwrap();
    let rows = [
        // path, status, left of the month and of the week
        ("/chat?cost=4", 200, [996, 4996]),
        ("/chat", 200, [986, 4986]),
        ("/chat?cost=nothing", 200, [976, 4976]),
        ("/chat?cost=40", 200, [936, 4936]),
        ("/chat?status=503&cost=4", 503, [936, 4926]),
        ("/chat?status=408", 408, [936, 4916]),
        ("/chat?status=404&cost=0", 404, [936, 4916]),
        ("/chat?cost=2000", 200, [0, 2916]),
        ("/chat?cost=1", 429, [0, 2916]),
    ];
    for (path, status, expected) in rows {
        let answer = gateway.send(&get(path).key(KEY));
        assert_eq!((answer.status(), left_of(&answer)), (status, expected), "{path}: {answer}");
    }
    assert_eq!(gateway.send(&get("/links").key(KEY)).status(), 200, "another class");
}

on_both_gateways! {
    a_response_says_what_is_left_once_it_has_settled_its_request
}

fn simulator(policy: &Policy) -> Host {
    let mut host = Host::builder().workers(VMS).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

fn simulated(path: impl Into<String>) -> host_sim::Request {
    host_sim::Request::get(path.into()).header("authorization", format!("Bearer {KEY}"))
}

fn respond(request: &host_sim::Request) -> Response {
    let (status, cost) = wanted(request.path());
    cost.into_iter().fold(Response::new(status), |response, cost| response.header("x-cost", cost.to_owned()))
}

/// A request that is refunded, so that its response says what is left without it.
const PROBE: &str = "/chat?status=500";

/// The path of a request, and what it leaves charged of both quotas if it is admitted.
fn story(place: usize) -> (String, [usize; 2]) {
    match place % 5 {
        0 => ("/chat?status=503".to_owned(), [0, RESERVE]),
        1 => ("/chat".to_owned(), [RESERVE; 2]),
        2 => ("/chat?cost=0".to_owned(), [0; 2]),
        _ => (format!("/chat?cost={}", place % RESERVE), [place % RESERVE; 2]),
    }
}

#[test]
fn whatever_the_interleaving_eight_vms_settle_each_request_once_and_admit_no_more_than_the_quota() {
    const REQUESTS: usize = 160;
    let by_metadata = json!({"metadata": ["filter_metadata", "llm", "tokens"]});
    for seed in 0..60 {
        let (actual, limits) =
            if seed % 2 == 0 { (by_header(), [300, 100_000]) } else { (by_metadata.clone(), [100_000, 400]) };
        let host = simulator(&policy(&actual, limits));
        let jobs = (0..REQUESTS).map(|place| {
            let path = story(place).0;
            let tokens = wanted(&path).1.map(|cost| cost.parse::<f64>().unwrap());
            let request = tokens.into_iter().fold(simulated(path.as_str()), |request, tokens| {
                request.property(["metadata", "filter_metadata", "llm", "tokens"], tokens)
            });
            (place % VMS, request)
        });
        let outcomes = host.interleave(seed, jobs, respond);
        let mut charged = [0; 2];
        for (place, outcome) in outcomes.iter().enumerate() {
            assert!([200, 429, 503].contains(&outcome.status()), "{outcome:?}");
            if outcome.status() != 429 {
                let (_, [month, week]) = story(place);
                charged = [charged[0] + month, charged[1] + week];
            }
        }
        let refused = outcomes.iter().filter(|outcome| outcome.status() == 429).count();
        assert!(refused > 0, "seed {seed}: the quota was not used up");
        // No request cost more than it had reserved.
        assert!(charged[0] <= limits[0] && charged[1] <= limits[1], "seed {seed}: {charged:?} of {limits:?}");
        // The answer to a request that is refused, or refunded, says what is left without it.
        let probe = host.send(simulated(PROBE), respond);
        let probed = if probe.status() == 429 { 0 } else { RESERVE };
        let expected = [limits[0] - charged[0], limits[1] - charged[1] - probed];
        assert_eq!(left(probe.header("ratelimit")), expected, "seed {seed}");
        host.advance(Duration::from_secs(1));
        assert_eq!(host.metrics().counter(Event::CostUnsettled.metric()), 0, "seed {seed}");
    }
}

#[test]
fn a_settlement_that_fails_is_counted_and_the_reserve_stands() {
    let host = simulator(&policy(&by_header(), [1000, 5000]));
    let mut stream = host.stream(&simulated("/chat"), true);
    assert!(stream.is_forwarded());
    host.inject(Fault::new("proxy_set_shared_data", Status::InternalFailure).every()).unwrap();
    stream.respond(Response::ok().header("x-cost", "4"));
    let outcome = stream.finish();
    host.clear_faults();
    assert_eq!((outcome.status(), left(outcome.header("ratelimit"))), (200, [990, 4990]));
    let probe = host.worker(1).send(simulated(PROBE), respond);
    assert_eq!(left(probe.header("ratelimit")), [990, 4980]);
    host.advance(Duration::from_secs(1));
    let events = [Event::CostUnsettled.metric(), Event::CostRefunded.metric(), Event::CostUnknown.metric()];
    assert_eq!(events.map(|name| host.metrics().counter(name)), [1, 1, 0]);
}

#[test]
fn a_request_without_a_response_keeps_its_reserve() {
    let host = simulator(&policy(&by_header(), [1000, 5000]));
    drop(host.stream(&simulated("/chat"), true).finish());
    let probe = host.worker(1).send(simulated(PROBE), respond);
    assert_eq!(left(probe.header("ratelimit")), [990, 4980]);
}

#[test]
fn a_window_that_ends_before_the_response_is_not_settled() {
    let host =
        simulator(&policy(&by_header(), [1000, 5000]).with_at("/plans/pro/chat", json!(["1000/minute"])));
    let units = |outcome: &host_sim::Outcome| ratelimit::left(outcome.header("ratelimit").unwrap(), "chat");
    let mut stream = host.stream(&simulated("/chat"), true);
    host.advance(Duration::from_secs(60));
    assert_eq!(units(&host.worker(1).send(simulated("/chat?cost=7"), respond)), Some(993));
    stream.respond(Response::ok().header("x-cost", "500"));
    assert_eq!(units(&stream.finish()), Some(993));
}

/// A filter that knows no cost after the response does what it did: the header map, the time, the swap, and three headers.
#[test]
fn only_a_class_that_is_settled_makes_host_calls_for_it() {
    let calls = |path: &str, policy: &Policy| {
        gateway::host_calls(policy, |host| {
            assert_eq!(host.send(simulated(path), respond).status(), wanted(path).0);
        })
    };
    let settled = policy(&by_header(), [100_000, 500_000]);
    let plain = settled.clone().with("classes", json!([{"name": "chat", "match": [{"path": "/chat"}]}]));
    assert_eq!(calls("/chat", &plain), 6000);
    assert_eq!(calls("/links", &settled), 6000);
    // The response's header map, the time and the swap.
    assert_eq!(calls("/chat?cost=4", &settled), 9000);
    assert_eq!(calls("/chat?cost=10", &settled), 7000, "nothing is to be settled");
}

/// An upstream that answers with costs, breaks off, or never answers, by the query of the path.
fn unreliable_upstream() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(misbehave(stream)));
        }
    });
    address
}

fn misbehave(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    match path.split_once('?').map_or("", |(_, query)| query) {
        "reset" => {}
        // Until Envoy gives up.
        "hang" => drop(stream.read(&mut [0])?),
        "die" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx-cost: 4\r\ncontent-length: 100\r\n\r\nhalf of it")?;
        }
        _ => {
            let (status, cost) = wanted(path);
            let cost = cost.map_or_else(String::new, |cost| format!("x-cost: {cost}\r\n"));
            let head = format!("HTTP/1.1 {status} X\r\n{cost}content-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes())?;
        }
    }
    Ok(())
}

const ROUTE: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
const HTTP_FILTERS: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// An Envoy whose route has these fields as well.
fn envoy(policy: Policy, upstream: SocketAddr, route: &Value) -> Envoy {
    let setup = Setup::new(policy, Upstream::At(upstream)).workers(4);
    let amended = Envoy::start_amended(setup, |bootstrap, _| {
        let fields = bootstrap.pointer_mut(ROUTE).and_then(Value::as_object_mut).unwrap();
        fields.extend(route.as_object().unwrap().clone());
        Ok(())
    });
    amended.unwrap()
}

/// Sends requests over 64 connections. The number of answers of each status; 0 where there was none.
fn send_all(envoy: &Envoy, requests: usize, path: impl Fn(usize) -> String + Sync) -> Vec<(u16, usize)> {
    let next = AtomicUsize::new(0);
    let statuses = std::thread::scope(|scope| {
        let send = || {
            let client = Client::to(envoy.address()).unwrap();
            let mut statuses = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::SeqCst);
                if place >= requests {
                    return statuses;
                }
                let answer = client.send(&get(path(place)).key(KEY));
                statuses.push(answer.map_or(0, |answer| answer.status()));
            }
        };
        let senders: Vec<_> = (0..64).map(|_| scope.spawn(send)).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect::<Vec<_>>()
    });
    let mut counted = std::collections::BTreeMap::new();
    statuses.into_iter().for_each(|status| *counted.entry(status).or_insert(0) += 1);
    counted.into_iter().collect()
}

#[test]
fn a_thousand_answers_resets_hangs_and_deaths_each_are_charged_exactly() {
    const EACH: usize = 1000;
    const LIMITS: [usize; 2] = [1_000_000, 2_000_000];
    let upstream = unreliable_upstream();
    let envoy = envoy(policy(&by_header(), LIMITS), upstream, &json!({"timeout": "0.3s"}));
    let cost = |place: usize| place % 25;
    let costs: usize = (0..EACH).map(cost).sum();
    let rows = [
        // query, status, what the month and the week are charged
        ("", 200, [costs, costs]),
        ("reset", 503, [0, EACH * RESERVE]),
        ("hang", 504, [0, EACH * RESERVE]),
        // The response had begun: what its head says stands.
        ("die", 0, [EACH * 4, EACH * 4]),
    ];
    let mut left = LIMITS;
    for (query, status, [month, week]) in rows {
        let path = |place| match query {
            "" => format!("/chat?cost={}", cost(place)),
            query => format!("/chat?{query}"),
        };
        assert_eq!(send_all(&envoy, EACH, path), [(status, EACH)], "{query}");
        let probe = envoy.send(&get(PROBE).key(KEY)).unwrap();
        left = [left[0] - month, left[1] - week - RESERVE];
        assert_eq!(left_of(&probe), left, "{query}");
    }
    // Clients that go away before there is a response.
    let request = format!("GET /chat?hang HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n");
    for _ in 0..20 {
        let mut client = TcpStream::connect(envoy.address()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        clock::pass(Duration::from_millis(20));
    }
    let events = |name: &str| envoy.stat(&format!("wasmcustom.{name}")).unwrap();
    clock::eventually("the reserves of clients that went away", Duration::from_secs(10), || {
        (events(Event::CostUnknown.metric()) == 20).then_some(())
    })
    .unwrap();
    let probe = envoy.send(&get(PROBE).key(KEY)).unwrap();
    assert_eq!(left_of(&probe), [left[0] - 20 * RESERVE, left[1] - 21 * RESERVE]);
    clock::eventually("the refunds", Duration::from_secs(10), || {
        (events(Event::CostRefunded.metric()) == 2 * EACH as u64 + 5).then_some(())
    })
    .unwrap();
    assert_eq!(events(Event::CostUnsettled.metric()), 0);
}

#[test]
fn a_thousand_requests_to_an_upstream_that_is_not_there_are_refunded() {
    const EACH: usize = 1000;
    // Its port is taken, so that no other server gets it, and refuses connections.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = nobody.local_addr().unwrap();
    let envoy = envoy(policy(&by_header(), [1_000_000, 2_000_000]), address, &json!({}));
    assert_eq!(send_all(&envoy, EACH, |_| "/chat".to_owned()), [(503, EACH)]);
    let probe = envoy.send(&get(PROBE).key(KEY)).unwrap();
    assert_eq!(left_of(&probe), [1_000_000, 2_000_000 - (EACH + 1) * RESERVE]);
}

#[test]
fn after_a_retry_the_final_response_decides() {
    let answers = AtomicUsize::new(0);
    let upstream = Server::start(move |_| {
        let response = http::Response::builder();
        let response = match answers.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => response.status(503).header("x-cost", "7"),
            _ => response.status(200).header("x-cost", "4"),
        };
        response.body(bytes::Bytes::new().into()).unwrap()
    })
    .unwrap();
    let retries = json!({"retry_policy": {"retry_on": "5xx", "num_retries": 1}});
    let envoy = envoy(policy(&by_header(), [1000, 5000]), upstream.address(), &retries);
    for sent in 1..=3 {
        let answer = envoy.send(&get("/chat").key(KEY)).unwrap();
        assert_eq!((answer.status(), left_of(&answer)), (200, [1000 - 4 * sent, 5000 - 4 * sent]));
    }
}

/// An Envoy with another filter between this one and the router.
fn envoy_with(filter: Value, policy: Policy, upstream: SocketAddr) -> Envoy {
    let setup = Setup::new(policy, Upstream::At(upstream)).workers(4);
    let amended = Envoy::start_amended(setup, |bootstrap, _| {
        let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).unwrap();
        filters.insert(filters.len() - 1, filter);
        Ok(())
    });
    amended.unwrap()
}

/// Envoy takes the tokens that a language model has used out of its answer. The request that follows sees them charged.
#[test]
fn tokens_that_envoy_finds_in_the_answer_of_a_language_model_are_the_cost() {
    let upstream = Server::start(|_| {
        let usage = json!({"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29});
        let answer = json!({"object": "chat.completion", "model": "m", "choices": [], "usage": usage});
        let response = http::Response::builder().header("content-type", "application/json");
        response.body(bytes::Bytes::from(answer.to_string()).into()).unwrap()
    })
    .unwrap();
    let tokens = json!({
        "name": "envoy.filters.http.ai_protocol_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager",
            "response_handling": {"token_usage": {
                "include_unconfigured_routes": true,
                "default_llm_protocol": "OPENAI_CHAT_COMPLETIONS",
            }},
        },
    });
    let actual = json!({"metadata": ["typed_filter_metadata", "envoy.ai.token_usage", "total_tokens"]});
    let envoy = envoy_with(tokens, policy(&actual, [1000, 5000]), upstream.address());
    for sent in 0..3 {
        let expected = [1000, 5000].map(|limit| limit - 29 * sent - RESERVE);
        let answer = envoy.send(&get("/chat").key(KEY)).unwrap();
        assert_eq!((answer.status(), left_of(&answer)), (200, expected), "request {sent}: {answer}");
        // A stream ends a moment after its client has the response.
        clock::pass(Duration::from_millis(100));
    }
}

/// Another filter of the chain writes the metadata, from a header of the response.
#[test]
fn metadata_that_another_filter_writes_has_the_cost() {
    const EACH: usize = 1000;
    const LIMITS: [usize; 2] = [1_000_000, 2_000_000];
    let actual = json!({"metadata": ["filter_metadata", "llm", "tokens"]});
    let to_metadata = json!({
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "response_rules": [{
                "header": "x-cost",
                "on_header_present": {"metadata_namespace": "llm", "key": "tokens", "type": "NUMBER"},
            }],
        },
    });
    let envoy = envoy_with(to_metadata, policy(&actual, LIMITS), unreliable_upstream());
    let cost = |place: usize| place % 25;
    let costs: usize = (0..EACH).map(cost).sum();
    assert_eq!(send_all(&envoy, EACH, |place| format!("/chat?cost={}", cost(place))), [(200, EACH)]);
    assert_eq!(send_all(&envoy, EACH, |_| "/chat".to_owned()), [(200, EACH)]);
    let mut probes = 0;
    // A stream ends a moment after its client has the response.
    clock::eventually("the ends of all streams", Duration::from_secs(10), || {
        probes += 1;
        let left = left_of(&envoy.send(&get(PROBE).key(KEY)).unwrap());
        let spent = costs + EACH * RESERVE;
        (left == [LIMITS[0] - spent, LIMITS[1] - spent - probes * RESERVE]).then_some(())
    })
    .unwrap();
    clock::eventually("the unknown costs", Duration::from_secs(10), || {
        let unknown = envoy.stat(&format!("wasmcustom.{}", Event::CostUnknown.metric())).unwrap();
        (unknown == EACH as u64).then_some(())
    })
    .unwrap();
}
