//! A directory of 100,000 keys: what it takes of memory, how long a worker stands still for it, and what it adds to a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use filter::decide::metric::Event;
use host_sim::{Host, Request, Response};
use serde_json::json;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{Gateway as _, module, plugin, wait_for_directory};
use tests::key_list::{KeyList, KeyListServer};
use tests::policy::Policy;
use tests::{clock, flood, soak};

const KEYS: usize = 100_000;
/// Most bytes of a VM's linear memory for each key, after the list has been replaced again and again: two lists while one replaces
/// the other, and the document. A VM's memory never shrinks.
const MOST_BYTES_PER_KEY: usize = 640;

/// Quotas that nobody uses up here.
fn policy(interval: &str) -> Policy {
    Policy::deployed()
        .unwrap()
        .with_at("/plans/pro/standard", json!(["4000000000/month"]))
        .with_at("/directory/interval", json!(interval))
        .with_at("/directory/bearer", json!("any"))
        .with("unknown_key", json!({"action": "reject"}))
}

#[test]
fn a_hundred_thousand_keys_take_a_bounded_number_of_bytes_each_however_often_they_change() {
    let list = KeyList::of(KEYS);
    let served = Arc::clone(&list);
    let mut host = Host::builder()
        .workers(1)
        .cluster("backend-internal", move |request| {
            let (status, etag, body) =
                served.answer(request.headers().get("if-none-match").map(|etag| &etag[..]));
            Response::new(status.as_u16()).header("etag", etag).body(body)
        })
        .build();
    host.load(module(), plugin(&policy("1s"))).unwrap();
    let without = host.guest_memory();
    let taken = |times: u64| {
        host.advance(Duration::from_millis(1250));
        assert_eq!(
            host.metrics().counter(Event::DirectoryUpdated.metric()),
            2 * times,
            "{:?}",
            host.logs().lines()
        );
        host.guest_memory() - without
    };
    let first = taken(1);
    let mut last = first;
    for change in 2..10 {
        list.change();
        last = taken(change);
    }

    let send = |key: &str| {
        let request = Request::get("/links").header("authorization", format!("Bearer {key}"));
        host.send(request, |_| Response::ok()).status()
    };
    for key in (0..KEYS).step_by(997).chain([KEYS - 1]) {
        assert_eq!(send(&format!("key-{key}")), 200, "key {key}");
    }
    assert_eq!([send("key-100000"), send("key")], [401, 401]);

    soak::row(
        "directory: a VM's linear memory",
        format_args!("{KEYS} keys, a document of {} bytes, simulator", list.bytes()),
        format_args!(
            "{} bytes a key after the first answer, {} after nine; {:.1} MB in all",
            first / KEYS,
            last / KEYS,
            last as f64 / 1e6
        ),
    );
    assert!(last <= MOST_BYTES_PER_KEY * KEYS, "{} bytes a key", last / KEYS);
}

/// The longest of many requests, sent one after the other over a connection while `meanwhile` runs, and how many there were.
fn longest_request(envoy: &Envoy, meanwhile: impl FnOnce()) -> (Duration, Duration, usize) {
    let done = AtomicBool::new(false);
    let client = Client::to(envoy.address()).unwrap();
    let request = get("/links").key("key-7");
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut took = Vec::new();
            while !done.load(Ordering::SeqCst) {
                #[expect(clippy::disallowed_methods, reason = "how long a request takes is what is measured")]
                let started = Instant::now();
                assert_eq!(client.send(&request).unwrap().status(), 200);
                took.push(started.elapsed());
            }
            took
        });
        meanwhile();
        done.store(true, Ordering::SeqCst);
        let mut took = requests.join().unwrap();
        took.sort_unstable();
        (took[took.len() / 2], took[took.len() - 1], took.len())
    })
}

/// An Envoy of one worker that has taken the list.
fn envoy_with(list: &Arc<KeyList>, interval: &str) -> (Envoy, KeyListServer) {
    let server = KeyListServer::start(Arc::clone(list)).unwrap();
    let setup = Setup::new(policy(interval), Upstream::DirectResponse).keys_from(server.directory());
    let envoy = Envoy::start(setup.workers(1)).unwrap();
    wait_for_directory(&envoy);
    (envoy, server)
}

/// Has the list change, and waits until every VM has taken it.
fn change(list: &KeyList, envoy: &Envoy) {
    let updates = || envoy.prometheus("weir_directory_updated_total").unwrap();
    let before = updates();
    list.change();
    let taken = || updates() >= before + envoy.vms();
    clock::eventually("the new list", Duration::from_secs(60), || taken().then_some(())).unwrap();
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn a_hundred_thousand_keys_in_a_real_envoy() {
    const CHANGES: usize = 10;
    let (few, many) = (KeyList::of(10), KeyList::of(KEYS));

    let (with_few, _few_server) = envoy_with(&few, "1s");
    let base = with_few.resident_memory().unwrap();
    let (envoy, _many_server) = envoy_with(&many, "1s");
    let first = envoy.resident_memory().unwrap();
    let (median, calm, quiet) = longest_request(&envoy, || clock::pass(Duration::from_secs(10)));
    let (_, longest, requests) = longest_request(&envoy, || (0..CHANGES).for_each(|_| change(&many, &envoy)));
    let last = envoy.resident_memory().unwrap();
    let megabytes = |bytes: u64| (bytes.saturating_sub(base)) as f64 / 1e6;
    soak::row(
        "directory: memory of Envoy's process",
        format_args!("{KEYS} keys, 1 worker and so 2 VMs, beside 10 keys"),
        format_args!(
            "{:.1} MB more after the first answer, {:.1} MB after {CHANGES} changes: {} bytes a key and VM",
            megabytes(first),
            megabytes(last),
            last.saturating_sub(base) / (2 * KEYS as u64)
        ),
    );
    soak::row(
        "directory: longest pause of a worker",
        format_args!("{KEYS} keys, {CHANGES} changes, {requests} requests one after the other"),
        format_args!(
            "{longest:.1?} while lists are replaced; {calm:.1?} of {quiet} requests while none is, median {median:.0?}"
        ),
    );
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn what_a_hundred_thousand_keys_add_to_a_request_in_a_real_envoy() {
    const REQUESTS: usize = 50_000;
    const ALTERNATIONS: usize = 5;
    // Asked once a day, so that nothing but requests is measured.
    let lists = [10, KEYS].map(KeyList::of);
    let envoys = lists.each_ref().map(|list| envoy_with(list, "1d"));
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
