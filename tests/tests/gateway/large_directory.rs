//! A directory of very many keys: what its list takes of memory, how soon it is there, how long a worker stands still for it, and what it adds
//! to a request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filter::directory::GAUGES;
use host_sim::{Flavour, Host, Module, Request, Response};
use serde_json::json;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{module, plugin, wait_for_directory};
use tests::key_list::{KeyList, KeyListServer};
use tests::policy::Policy;
use tests::{clock, flood, soak};

/// Most bytes of shared data for each key: its row, without what the host adds for an entry.
const MOST_BYTES_PER_KEY: usize = 88;
/// Most writes of a tick: those of a thousand rows, of the head and of a record of metrics.
const MOST_WRITES_OF_A_TICK: usize = 1004;
/// Most writes of a callback in which a page is read.
const MOST_WRITES_OF_AN_ANSWER: usize = 1;

/// A configuration whose quotas are too large for these tests to use up.
fn policy(interval: &str) -> Policy {
    Policy::deployed()
        .unwrap()
        .without("usage")
        .with_at("/plans/pro/standard", json!(["4000000000/month"]))
        .with_at("/directory/interval", json!(interval))
        .with_at("/directory/bearer", json!("any"))
        .with("unknown_key", json!({"action": "reject"}))
}

/// A simulated gateway with a list, and the most writes to shared data of a callback in which a page is read, and of a tick.
struct Simulated {
    host: Host,
    list: Arc<KeyList>,
    reading: Arc<AtomicUsize>,
    ticking: Arc<AtomicUsize>,
}

impl Simulated {
    fn start(module: &Module, list: Arc<KeyList>, workers: usize, flavour: Flavour) -> Self {
        let served = Arc::clone(&list);
        let [reading, ticking] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (answers, ticks) = (Arc::clone(&reading), Arc::clone(&ticking));
        let mut host = Host::builder()
            .workers(workers)
            .flavour(flavour)
            .cluster("backend-internal", move |request| {
                let etag = request.headers().get("if-none-match").map(|etag| &etag[..]);
                let (status, etag, body) = served.answer(request.path(), etag);
                Response::new(status.as_u16()).header("etag", etag).body(body)
            })
            .on_trace(move |callback| {
                let most = match callback.callback {
                    "proxy_on_http_call_response" => &answers,
                    "proxy_on_tick" => &ticks,
                    _ => return,
                };
                let writes = callback.calls.iter().filter(|call| call.call == "proxy_set_shared_data");
                most.fetch_max(writes.count(), Ordering::SeqCst);
            })
            .build();
        host.load(module, plugin(&policy("1s"))).unwrap();
        Self { host, list, reading, ticking }
    }

    fn status(&self, worker: usize, key: &str) -> u16 {
        let request = Request::get("/links").header("authorization", format!("Bearer {key}"));
        self.host.worker(worker).send(request, |_| Response::ok()).status()
    }

    /// Waits until the list is complete and has this many rows. Returns how long it took.
    fn wait_for(&self, rows: usize) -> Duration {
        let since = self.host.clock().wall();
        let [all, _, _, answered, _] = GAUGES;
        while self.host.metrics().gauge(all) < rows as u64 || self.host.metrics().gauge(answered) == 0 {
            assert!(
                self.host.clock().wall() - since < Duration::from_secs(60),
                "{:?}",
                self.host.logs().lines()
            );
            self.host.advance(Duration::from_millis(50));
        }
        self.host.clock().wall() - since
    }
}

#[test]
fn the_list_is_in_memory_once_however_many_workers_there_are_and_however_often_it_changes() {
    const KEYS: usize = 100_000;
    for workers in [1, 4] {
        let simulated = Simulated::start(module(), KeyList::in_pages(KEYS, 3), workers, Flavour::default());
        let without = simulated.host.guest_memory();
        simulated.wait_for(KEYS);
        let list = simulated.host.shared_data().bytes();
        assert!(list <= MOST_BYTES_PER_KEY * KEYS, "{workers} workers: {} bytes a key", list / KEYS);
        // The VM that polls has two pages at a time, and the others have nothing of it.
        let of_vms = simulated.host.guest_memory() - without;
        assert!(of_vms < 32 << 20, "{workers} workers: {of_vms}");
        for _ in 0..10 {
            simulated.list.change();
            simulated.host.advance(Duration::from_millis(1500));
        }
        assert_eq!(simulated.host.guest_memory() - without, of_vms);
        // An entry of each client's record, and the same list.
        assert!(simulated.host.shared_data().bytes().abs_diff(list) < 1000);
        for key in (0..KEYS).step_by(997).chain([KEYS - 1]) {
            let status = simulated.status(key % workers, &format!("key-{key}"));
            assert_eq!(status, 200, "key {key}, {workers} workers");
        }
        assert_eq!([simulated.status(0, "key-100000"), simulated.status(workers - 1, "key")], [401, 401]);
        soak::row(
            "directory: the list in shared data",
            format_args!("{KEYS} keys, {workers} workers, simulator"),
            format_args!("{} bytes a key, and {of_vms} bytes of all VMs", list / KEYS),
        );
    }
}

#[test]
fn no_callback_does_more_than_read_a_page_or_store_a_thousand_rows() {
    for list in [KeyList::in_pages(50_000, 3), KeyList::of(20_000)] {
        let simulated = Simulated::start(module(), list, 2, Flavour::default());
        simulated.wait_for(20_000);
        for _ in 0..3 {
            simulated.list.change();
            simulated.host.advance(Duration::from_millis(1500));
        }
        assert_eq!(simulated.status(1, "key-19999"), 200);
        let [reading, ticking] =
            [&simulated.reading, &simulated.ticking].map(|most| most.load(Ordering::SeqCst));
        assert_eq!(reading, MOST_WRITES_OF_AN_ANSWER);
        assert!((1000..=MOST_WRITES_OF_A_TICK).contains(&ticking), "{ticking}");
    }
}

#[test]
fn a_change_among_many_keys_moves_few_bytes_and_every_worker_sees_it_in_time() {
    let simulated = Simulated::start(module(), KeyList::in_pages(50_000, 3), 3, Flavour::default());
    simulated.wait_for(50_000);
    simulated.host.advance(Duration::from_secs(2));
    let limit = |worker: usize| {
        let request = Request::get("/links").header("authorization", "Bearer key-49999");
        let outcome = simulated.host.worker(worker).send(request, |_| Response::ok());
        outcome.header("x-ratelimit-limit").map(str::to_owned)
    };
    for change in 0..6 {
        let before = [0, 1, 2].map(limit);
        assert!(before.iter().all(|limit| limit.is_some() && *limit == before[0]), "{before:?}");
        let served = simulated.list.served();
        simulated.list.change();
        // The interval, and twice the tick on which VMs look.
        simulated.host.advance(Duration::from_millis(1200));
        let after = [0, 1, 2].map(limit);
        assert!(after.iter().zip(&before).all(|(after, before)| after != before), "{change}: {after:?}");
        let moved = simulated.list.served() - served;
        assert!(moved < 10_000, "{moved} bytes");
    }
}

#[test]
fn a_key_that_is_revoked_in_the_longest_document_is_unknown_as_soon_as_the_book_says() {
    // The interval, two looks of 0.1 s, and 1 s to store 20,000 rows. The simulated service answers at once.
    const BOUND: Duration = Duration::from_millis(1000 + 200 + 1000);
    const STEP: Duration = Duration::from_millis(50);
    for offset in [0, 300, 600, 900] {
        let simulated = Simulated::start(module(), KeyList::of(20_000), 3, Flavour::default());
        simulated.wait_for(20_000);
        simulated.host.advance(Duration::from_millis(2000 + offset));
        let statuses = || [0, 1, 2].map(|worker| simulated.status(worker, "key-19999"));
        assert_eq!(statuses(), [200; 3]);
        simulated.list.revoke();
        let since = simulated.host.clock().wall();
        while statuses() != [401; 3] {
            let passed = simulated.host.clock().wall() - since;
            assert!(passed <= BOUND, "after {passed:?}");
            simulated.host.advance(STEP);
        }
        assert_eq!(simulated.status(0, "key-19998"), 200, "and no other is");
    }
}

#[test]
fn where_ticks_can_be_set_but_once_and_where_nothing_is_shared_the_list_is_loaded_all_the_same() {
    for (flavour, keys) in [(Flavour::Ngx, 50_000), (Flavour::NoSharedData, 20_000)] {
        let simulated = Simulated::start(module(), KeyList::in_pages(keys, 3), 2, flavour);
        let took = simulated.wait_for(keys);
        simulated.host.advance(Duration::from_secs(1));
        let last = format!("key-{}", keys - 1);
        for worker in 0..2 {
            let statuses = [last.as_str(), "key-0", "key"].map(|key| simulated.status(worker, key));
            assert_eq!(statuses, [200, 200, 401], "{flavour:?}, worker {worker}, after {took:?}");
        }
        let failures = [0, 1]
            .map(|worker| simulated.host.worker(worker).vm_failure().map(|failure| failure.to_string()));
        assert_eq!(failures, [None, None], "{flavour:?}");
    }
}

/// Latencies of requests that are sent at a steady rate over some connections while `meanwhile` runs, sorted.
fn latencies(envoy: &Envoy, rate: u32, meanwhile: impl FnOnce()) -> Vec<Duration> {
    const CONNECTIONS: u32 = 8;
    let (done, all) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (done, all) = (&done, &all);
            scope.spawn(move || {
                let client = Client::to(envoy.address()).unwrap();
                let every = Duration::from_secs(1) * CONNECTIONS / rate;
                let mut took = Vec::new();
                while !done.load(Ordering::SeqCst) {
                    let key = format!("key-{}", took.len() * 8 + connection as usize);
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "how long a request takes is what is measured"
                    )]
                    let started = Instant::now();
                    assert_eq!(client.send(&get("/links").key(&key)).unwrap().status(), 200);
                    took.push(started.elapsed());
                    clock::pass(every.saturating_sub(started.elapsed()));
                }
                all.lock().unwrap().extend(took);
            });
        }
        meanwhile();
        done.store(true, Ordering::SeqCst);
    });
    let mut all = all.into_inner().unwrap();
    all.sort_unstable();
    all
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// An Envoy that has taken the list, and how long that took.
fn envoy_with(list: &Arc<KeyList>, interval: &str, workers: usize) -> (Envoy, KeyListServer, Duration) {
    let server = KeyListServer::start(Arc::clone(list)).unwrap();
    let setup = Setup::new(policy(interval), Upstream::DirectResponse).keys_from(server.directory());
    let envoy = Envoy::start(setup.workers(workers)).unwrap();
    let since = clock::now();
    wait_for_directory(&envoy);
    let took = clock::now() - since;
    (envoy, server, took)
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn many_keys_in_a_real_envoy() {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for keys in [300_000, 1_000_000] {
        let (few, many) = (KeyList::in_pages(10, 1), KeyList::in_pages(keys, 3));
        for workers in [2, 8] {
            let (with_few, _few_server, _) = envoy_with(&few, "1s", workers);
            clock::pass(Duration::from_secs(2));
            let base = with_few.resident_memory().unwrap();
            drop(with_few);
            let (envoy, _server, took) = envoy_with(&many, "1s", workers);
            clock::pass(Duration::from_secs(2));
            let more = envoy.resident_memory().unwrap().saturating_sub(base);
            soak::row(
                "directory: many keys in Envoy",
                format_args!("{keys} keys, {workers} workers, beside 10 keys"),
                format_args!("ready {took:.1?} after the start, {:.1} MiB more resident", megabytes(more)),
            );
            if keys == 300_000 {
                assert!(took < Duration::from_secs(5), "{took:?}");
                assert!(more < 60 << 20, "{more} bytes");
            }
        }
    }
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn a_change_each_second_among_many_keys_in_a_real_envoy() {
    const SECONDS: u64 = 60;
    for (workers, rate) in [(2, 500), (2, 2000), (8, 500), (8, 2000)] {
        let list = KeyList::in_pages(300_000, 3);
        let (envoy, _server, _) = envoy_with(&list, "1s", workers);
        clock::pass(Duration::from_secs(2));
        let mut differences = Vec::new();
        for _ in 0..3 {
            let calm = latencies(&envoy, rate, || clock::pass(Duration::from_secs(SECONDS)));
            let served = list.served();
            let changing = latencies(&envoy, rate, || {
                for _ in 0..SECONDS {
                    list.change();
                    clock::pass(Duration::from_secs(1));
                }
            });
            assert!((list.served() - served) / SECONDS < 10_000);
            differences.push((percentile(&changing, 99), percentile(&calm, 99)));
        }
        differences.sort_by_key(|(changing, calm)| changing.saturating_sub(*calm));
        let (changing, calm) = differences[1];
        assert!(changing < calm + Duration::from_millis(3), "{differences:?}");
        soak::row(
            "directory: the 99th percentile of requests",
            format_args!("300,000 keys, {workers} workers, {rate} requests a second"),
            format_args!("{changing:.1?} while a key changes each second, {calm:.1?} while none does"),
        );
    }
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn what_a_hundred_thousand_keys_add_to_a_request_in_a_real_envoy() {
    const KEYS: usize = 100_000;
    const REQUESTS: usize = 50_000;
    const ALTERNATIONS: usize = 5;
    // Asked once a day, so that nothing but requests is measured.
    let lists = [10, KEYS].map(|keys| KeyList::in_pages(keys, 1));
    let envoys = lists.each_ref().map(|list| envoy_with(list, "1d", 1));
    let cost = |envoy: &Envoy, keys: usize| {
        // So far apart that no key follows its neighbour.
        let requests =
            (0..REQUESTS).map(move |i| ((), get("/links").key(&format!("key-{}", i * 7919 % keys))));
        let before = envoy.cpu_time().unwrap();
        let counts = flood::send(envoy.address(), 16, requests).unwrap();
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(((), 200), REQUESTS)]);
        (envoy.cpu_time().unwrap() - before).as_secs_f64() * 1e6 / REQUESTS as f64
    };
    //  which Envoy, how many of its keys call
    let forms = [(0, 10), (1, 10), (1, KEYS)];
    let mut samples = forms.map(|_| Vec::new());
    for _ in 0..ALTERNATIONS {
        for ((envoy, keys), samples) in forms.into_iter().zip(&mut samples) {
            samples.push(cost(&envoys[envoy].0, keys));
        }
    }
    let [small, same_callers, all_callers] = samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 4]
    });
    soak::row(
        "directory: added request cost",
        format_args!(
            "{KEYS} keys beside 10, CPU of Envoy, {ALTERNATIONS} × {REQUESTS} requests each, lower quartile"
        ),
        format_args!(
            "{:+.2} µs where the same 10 keys call, {:+.2} µs where all do, of {small:.1} µs",
            same_callers - small,
            all_callers - small
        ),
    );
}
