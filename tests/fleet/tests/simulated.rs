//! Fleets of gateways in the simulator, with the built module: a hundred of them for an hour, and few whose calls are late or lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::envoyproxy::{Limit, cache_key, status};
use fleet::wire::{Code, RateLimitRequest, RateLimitResponse, Unit};
use host_sim::{Clock, Host, Request, Response};
use prost::Message as _;
use serde_json::{Value, json};
use tests::gateway::{module, plugin};
use tests::policy::{Policy, hash};
use tests::soak;

/// The start of an hour.
const START: Duration = Duration::from_secs(1_764_000_000);
const LIMIT: u32 = 600;
const MINUTE: u64 = 60;

/// envoyproxy/ratelimit's counters, by the clocks of the gateways.
#[derive(Default)]
struct Service {
    /// By name without the window: which window, and what it has come to.
    counters: HashMap<String, (u64, u64)>,
    calls: u64,
}

impl Service {
    /// The answer to a call, in gRPC's frames.
    fn answer(&mut self, frame: &[u8], now: u64) -> Response {
        self.calls += 1;
        let request = RateLimitRequest::decode(&frame[5..]).expect("a RateLimitRequest");
        let descriptor = &request.descriptors[0];
        let allowance = descriptor.limit.as_ref().expect("the limit is sent");
        let unit = Unit::from_number(allowance.unit).expect("a unit");
        let limit = Limit { requests_per_unit: allowance.requests_per_unit, unit, shadow: false };
        let window = now / unit.seconds();
        let counter = self.counters.entry(cache_key(&request.domain, descriptor, unit, 0)).or_default();
        if counter.0 != window {
            *counter = (window, 0);
        }
        counter.1 += u64::from(request.hits_addend);
        let status = status(&limit, counter.1, now);
        assert!([i32::from(Code::Ok), i32::from(Code::OverLimit)].contains(&status.code));
        let answer =
            RateLimitResponse { overall_code: status.code, statuses: vec![status], ..Default::default() };
        let message = answer.encode_to_vec();
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        Response::ok()
            .header("content-type", "application/grpc")
            .body([&[0], &length[..], &message].concat())
            .trailer("grpc-status", "0")
    }
}

type Shared = Arc<Mutex<Service>>;

fn lock(service: &Shared) -> std::sync::MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the way to the service and back does to a call.
#[derive(Clone)]
struct Way {
    random: Arc<Mutex<fastrand::Rng>>,
    /// Milliseconds; 0 and 1 for none.
    slowest: u64,
    /// One of so many calls or answers is lost; 0 for none.
    loses_one_of: u64,
}

impl Way {
    /// One that is late, and loses some calls, as `seed` has it.
    fn of(seed: u64) -> Self {
        Self {
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            slowest: 20 + 40 * (seed % 10),
            loses_one_of: [0, 5, 20][usize::try_from(seed % 3).unwrap_or(0)],
        }
    }
}

fn gateway(policy: &Policy, workers: usize, service: &Shared, way: Way) -> (Host, Clock) {
    let (clock, service) = (Clock::at_unix(START), Arc::clone(service));
    let now = clock.clone();
    let answer = move |request: &Request| {
        let mut random = way.random.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_lost = || way.loses_one_of > 0 && random.u64(..way.loses_one_of) == 0;
        if is_lost() {
            return Response::silence();
        }
        let answer = lock(&service).answer(request.body_bytes(), now.wall().as_secs());
        if is_lost() {
            return Response::silence();
        }
        match way.slowest {
            0 => answer,
            slowest => answer.after(Duration::from_millis(1 + random.u64(..slowest))),
        }
    };
    let mut host = Host::builder().workers(workers).clock(clock.clone()).cluster("ratelimit", answer).build();
    host.load(module(), plugin(policy)).unwrap_or_else(|error| panic!("{error}"));
    (host, clock)
}

fn policy(more: &Value) -> Policy {
    let mut policy = json!({
        "plans": {"pro": {"standard": [format!("{LIMIT}/minute")]}},
        "fleet": {"cluster": "ratelimit"},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        policy[name] = value.clone();
    }
    Policy::from(policy)
}

/// Picks keys so that the n-th is asked for as often as 1 / n to the power of 1.1 says.
struct Zipf(Vec<f64>);

impl Zipf {
    fn over(keys: usize) -> Self {
        let mut sum = 0.0;
        let shares = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        });
        Self(shares.collect())
    }

    fn pick(&self, random: &mut fastrand::Rng) -> usize {
        let at = random.f64() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|share| *share < at)
    }
}

/// What an hour or a day came to.
#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    /// Requests that one gateway for all would have admitted.
    possible: u64,
    admitted: u64,
    /// Of keys that asked for more than their limit, in those minutes: what is possible, and what was admitted.
    exhausted: (u64, u64),
    over: u64,
    calls: u64,
}

/// A hundred gateways, and requests of 10,000 keys that come to any of them.
fn hundred_gateways(rate: u64, minutes: u64) -> Seen {
    const GATEWAYS: usize = 100;
    const KEYS: usize = 10_000;
    let plan = ["filter_metadata", "jwt", "plan"];
    let subject = ["filter_metadata", "jwt", "sub"];
    let policy = policy(&json!({
        "key_sources": [{"metadata": subject}], "plan_source": {"metadata": plan}, "headers": {"ietf": false},
    }));
    let service = Shared::default();
    let still = Way { random: Arc::default(), slowest: 0, loses_one_of: 0 };
    let gateways: Vec<_> = (0..GATEWAYS).map(|_| gateway(&policy, 1, &service, still.clone())).collect();
    let (zipf, mut random) = (Zipf::over(KEYS), fastrand::Rng::with_seed(1));
    let mut seen = Seen::default();
    for minute in 0..minutes {
        // By key: asked and admitted.
        let mut counts = vec![(0_u64, 0_u64); KEYS];
        for turn in 0..rate * MINUTE {
            let now = START
                + Duration::from_secs(minute * MINUTE)
                + Duration::from_nanos(turn * 1_000_000_000 / rate);
            let (host, clock) = &gateways[random.usize(..GATEWAYS)];
            host.advance(now.saturating_sub(clock.wall()));
            let key = zipf.pick(&mut random);
            let request = Request::get("/links")
                .property(["metadata"].into_iter().chain(subject), format!("key-{key}"))
                .property(["metadata"].into_iter().chain(plan), "pro");
            let status = host.send(0, request, |_| Response::ok()).status();
            assert!([200, 429].contains(&status), "{status}");
            counts[key].0 += 1;
            counts[key].1 += u64::from(status == 200);
        }
        for (asked, admitted) in counts {
            let possible = asked.min(LIMIT.into());
            seen.requests += asked;
            seen.possible += possible;
            seen.admitted += admitted;
            seen.over += admitted.saturating_sub(LIMIT.into());
            if asked > LIMIT.into() {
                seen.exhausted.0 += possible;
                seen.exhausted.1 += admitted;
            }
        }
    }
    seen.calls = lock(&service).calls;
    seen
}

fn check_hundred_gateways(form: &str, rate: u64, minutes: u64) {
    let seen = hundred_gateways(rate, minutes);
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    soak::row(
        "100 gateways, 10,000 keys (Zipf 1.1), 600 a minute each",
        format_args!("{form}, {} requests, simulator", seen.requests),
        format_args!(
            "over: {}; admitted {:.2} % of what one gateway would, {:.1} % of keys beyond their limit; {} calls, {:.1} per 1,000 admitted",
            seen.over,
            percent(seen.admitted, seen.possible),
            percent(seen.exhausted.1, seen.exhausted.0),
            seen.calls,
            seen.calls as f64 * 1e3 / seen.admitted as f64,
        ),
    );
    assert_eq!(seen.over, 0, "{seen:?}");
    assert!(percent(seen.admitted, seen.possible) >= 90.0, "{seen:?}");
}

#[test]
fn a_hundred_gateways_never_exceed_a_quota_in_an_hour() {
    check_hundred_gateways("an hour", 100, 60);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn a_hundred_gateways_never_exceed_a_quota_in_a_day() {
    check_hundred_gateways("a day", 150, 24 * 60);
}

/// Two minutes of one key at four gateways of two workers, whose calls are late, lost and out of order as `seed` has it; what was
/// admitted in each minute.
fn disturbed(seed: u64) -> BTreeMap<u64, u64> {
    let service = Shared::default();
    let policy = policy(&json!({"subscribers": [{"id": "s", "plan": "pro", "keys": [hash("k")]}],
        "fleet": {"cluster": "ratelimit", "on_unavailable": "deny"}}));
    let way = Way::of(seed);
    let gateways: Vec<_> = (0..4).map(|_| gateway(&policy, 2, &service, way.clone())).collect();
    let request = Request::get("/links").header("authorization", "Bearer k");
    let mut random = fastrand::Rng::with_seed(!seed);
    let (mut admitted, mut waiting) = (BTreeMap::<u64, u64>::new(), Vec::new());
    let step = Duration::from_millis(10);
    for _ in 0..2 * MINUTE * 100 {
        for (host, _) in &gateways {
            host.advance(step);
        }
        let now = gateways[0].1.wall().as_secs();
        if random.bool() {
            let (host, _) = &gateways[random.usize(..4)];
            waiting.push((host.stream(random.usize(..2), &request, true), now));
        }
        waiting.retain_mut(|(stream, since)| {
            stream.poll();
            if stream.is_forwarded() {
                *admitted.entry(now / MINUTE).or_default() += 1;
            }
            assert!(now - *since <= 2, "seed {seed}: a request waits since {since}");
            !stream.is_forwarded() && !stream.is_over()
        });
    }
    admitted
}

#[test]
fn whatever_happens_to_calls_no_minute_admits_more_than_the_quota_and_nobody_waits_for_long() {
    for seed in 0..24 {
        let admitted = disturbed(seed);
        assert!(admitted.values().all(|admitted| *admitted <= LIMIT.into()), "seed {seed}: {admitted:?}");
        assert!(admitted.values().sum::<u64>() > 0, "seed {seed}");
    }
}

/// Units that a request reserves.
const RESERVE: u64 = 10;

/// The fields of a policy whose requests are charged what their responses say, or nothing if they fail.
fn with_costs() -> Value {
    json!({
        "subscribers": [{"id": "s", "plan": "pro", "keys": [hash("k")]}],
        "classes": [{
            "name": "standard",
            "cost": {"reserve": RESERVE, "actual": {"response_header": "x-cost"}},
            "refund": {"statuses": ["5xx"]},
        }],
    })
}

/// Two minutes of one key at four gateways of two workers, whose calls are late and lost as `seed` has it, and whose responses take a while.
/// What the requests of each minute have cost, and their number.
fn costs_of_a_disturbed_fleet(seed: u64) -> BTreeMap<u64, (u64, u64)> {
    let service = Shared::default();
    let policy = policy(&with_costs());
    let policy = policy.with_at("/fleet/on_unavailable", json!("deny"));
    let way = Way::of(seed);
    let gateways: Vec<_> = (0..4).map(|_| gateway(&policy, 2, &service, way.clone())).collect();
    let request = Request::get("/links").header("authorization", "Bearer k");
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut costs = BTreeMap::<u64, (u64, u64)>::new();
    let (mut waiting, mut served) = (Vec::new(), Vec::new());
    for _ in 0..2 * MINUTE * 100 {
        for (host, _) in &gateways {
            host.advance(Duration::from_millis(10));
        }
        let now = gateways[0].1.wall();
        if random.u32(..4) == 0 {
            let (host, _) = &gateways[random.usize(..4)];
            waiting.push(host.stream(random.usize(..2), &request, true));
        }
        for mut stream in std::mem::take(&mut waiting) {
            stream.poll();
            match (stream.is_forwarded(), stream.is_over()) {
                (true, _) => {
                    let cost = random.u64(..=RESERVE);
                    let of_minute = costs.entry(now.as_secs() / MINUTE).or_default();
                    let fails = random.u32(..4) == 0;
                    *of_minute = (of_minute.0 + if fails { 0 } else { cost }, of_minute.1 + 1);
                    let response =
                        Response::new(if fails { 503 } else { 200 }).header("x-cost", cost.to_string());
                    served.push((now + Duration::from_millis(random.u64(..300)), stream, response));
                }
                (false, true) => {}
                (false, false) => waiting.push(stream),
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = served.into_iter().partition(|(at, ..)| *at <= now);
        served = later;
        for (_, mut stream, response) in due {
            stream.respond(response);
            drop(stream.finish());
        }
    }
    costs
}

#[test]
fn the_requests_of_no_minute_cost_more_than_the_quota_and_what_they_did_not_cost_serves_others() {
    let mut most = 0;
    for seed in 0..24 {
        let costs = costs_of_a_disturbed_fleet(seed);
        assert!(costs.values().all(|(cost, _)| *cost <= LIMIT.into()), "seed {seed}: {costs:?}");
        most = costs.values().map(|(_, requests)| *requests).fold(most, u64::max);
    }
    assert!(most > u64::from(LIMIT) / RESERVE * 3 / 2, "{most} requests in the fullest minute");
}

#[test]
fn what_a_request_cost_beyond_its_lease_is_asked_for_by_the_next_lease() {
    let service = Shared::default();
    let still = Way { random: Arc::default(), slowest: 0, loses_one_of: 0 };
    let (host, _) = gateway(&policy(&with_costs()), 1, &service, still);
    let send = |cost: u64| {
        let request = Request::get("/links").header("authorization", "Bearer k");
        host.send(0, request, |_| Response::ok().header("x-cost", cost.to_string())).status()
    };
    let taken = || lock(&service).counters.values().map(|(_, units)| *units).sum::<u64>();
    assert_eq!(send(300), 200);
    assert!(taken() < 300, "{}", taken());
    assert_eq!(send(1), 200);
    assert!(taken() >= 300 + RESERVE, "{}", taken());
    // What is left does not pay for it: the requests that follow do.
    assert_eq!([send(500), send(1), send(1)], [200, 429, 429]);
}
