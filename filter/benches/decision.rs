//! The decision alone, natively: without a gateway, and with eight threads that count in the same shared data.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use filter::config::{Config, digest};
use filter::count::shared_data::{Cas, HostError, SharedData, Swap};
use filter::count::swap::{CounterHost, LogLevel};
use filter::decide::decision::Decided;
use filter::decide::host::Host;
use filter::decide::limiter::Limiter;
use filter::request::header_pairs::serialize;
use filter::time::Timestamp;

/// Shared data as Envoy keeps it: one lock, one number for all writes.
#[derive(Default)]
struct Data {
    values: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    last: u32,
}

#[derive(Clone, Default)]
struct Worker(Arc<Mutex<Data>>);

impl SharedData for Worker {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        let data = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(data.values.get(name).map(|(value, cas)| (value.clone(), Cas(*cas))))
    }

    fn set(&mut self, name: &[u8], value: &[u8], Cas(cas): Cas) -> Result<Swap, HostError> {
        let mut data = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if data.values.get(name).is_some_and(|(_, current)| cas != 0 && cas != *current) {
            return Ok(Swap::Conflict);
        }
        data.last += 1;
        let last = data.last;
        data.values.insert(name.to_vec(), (value.to_vec(), last));
        Ok(Swap::Stored)
    }
}

impl CounterHost for Worker {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_seconds(1_767_225_600))
    }

    fn log(&mut self, _: LogLevel, _: fmt::Arguments<'_>) {}
}

impl Host for Worker {
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        Ok((path == b"source\0address").then(|| b"192.0.2.1:80".to_vec()))
    }

    fn random(&mut self) -> Result<[u8; 16], HostError> {
        Ok([7; 16])
    }
}

/// The contract's classes and `keys` keys, whose quotas no benchmark uses up.
fn config(keys: usize) -> Arc<Config> {
    let keys: Vec<String> = (0..keys)
        .map(|key| {
            let hash = digest(format!("key-{key}").as_bytes()).map(|byte| format!("{byte:02x}")).concat();
            format!(r#"{{"id": "s{key}", "plan": "pro", "keys": ["sha256:{hash}"]}}"#)
        })
        .collect();
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": ["4000000000/minute"], "analytics": ["4000000000/second", "4000000000/month"]}}}},
            "classes": [{{"name": "analytics", "match": [{{"methods": ["GET"], "path": "/analytics"}}]}}],
            "exempt": [{{"methods": ["OPTIONS"]}}, {{"path_prefix": "/r"}}],
            "unknown_key": {{"action": "limit", "quotas": ["4000000000/minute"]}},
            "subscribers": [{}]}}"#,
        keys.join(",")
    );
    match Config::from_json(json.as_bytes()) {
        Ok(config) => Arc::new(config),
        Err(refused) => unreachable!("{refused}"),
    }
}

fn request(method: &str, path: &str, key: &str) -> Vec<u8> {
    let authorization = format!("Bearer {key}");
    serialize(&[
        (":authority", b"api.example.test"),
        (":path", path.as_bytes()),
        (":method", method.as_bytes()),
        (":scheme", b"https"),
        ("user-agent", b"bench"),
        ("accept", b"*/*"),
        ("authorization", authorization.as_bytes()),
        ("x-request-id", b"5c2e4a5e-8f5e-4b43-9f2a-0e9f5a3d7c11"),
    ])
}

fn decided(limiter: &mut Limiter, host: &mut Worker, request: &[u8]) -> Decided {
    let mut decided = Decided::default();
    limiter.decide(host, request, &mut decided);
    decided
}

fn decision(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    group.throughput(Throughput::Elements(1));
    let rows = [
        ("one quota", request("GET", "/links", "key-0")),
        ("two quotas", request("GET", "/analytics", "key-0")),
        ("a path with several readings", request("GET", "/x/..;/%6cinks//a%2Fb", "key-0")),
        ("60 KiB of several readings", request("GET", &format!("/{}", "links;a/".repeat(7600)), "key-0")),
        (
            "60 KiB of too many readings",
            request("GET", &format!("/{}", "a%2F;\\//b/../".repeat(4700)), "key-0"),
        ),
        ("unknown key", request("GET", "/links", "nobody")),
        ("exempt", request("GET", "/r/abc", "")),
    ];
    for (name, request) in rows {
        let mut limiter = Limiter::new(config(1));
        let mut host = Worker::default();
        group.bench_function(name, |b| b.iter(|| decided(&mut limiter, &mut host, &request)));
    }
    group.finish();
}

/// Eight workers, each deciding on a thousand requests.
fn contention(c: &mut Criterion) {
    const THREADS: usize = 8;
    const REQUESTS: usize = 1000;
    let mut group = c.benchmark_group("contention");
    group.throughput(Throughput::Elements((THREADS * REQUESTS) as u64)).sample_size(20);
    for keys in [1, 1000] {
        let config = config(keys);
        let requests: Vec<_> = (0..keys).map(|key| request("GET", "/links", &format!("key-{key}"))).collect();
        group.bench_function(BenchmarkId::new("keys", keys), |b| {
            b.iter(|| {
                let data = Worker::default();
                std::thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let (mut host, config) = (data.clone(), Arc::clone(&config));
                        let requests = requests.iter().cycle().skip(thread * 31).take(REQUESTS);
                        scope.spawn(move || {
                            let mut limiter = Limiter::new(config);
                            requests.for_each(|request| drop(decided(&mut limiter, &mut host, request)));
                        });
                    }
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decision, contention);
criterion_main!(benches);
