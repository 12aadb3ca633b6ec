//! What a VM holds on to: streams and configurations that are alive, and none that have ended.

use host_sim::{Host, Request, Response};
use tests::gateway::{module, plugin};
use tests::policy::Policy;

fn request() -> Request {
    Request::get("/links").header("authorization", "Bearer key")
}

fn policy() -> Policy {
    Policy::contract().unwrap().subscriber("acme", "pro", "key")
}

/// Configurations that differ in one limit. Only it is written again, because a list of thousands takes longer to write than to read.
fn of_limits(policy: &Policy, place: &str) -> impl Fn(usize) -> String {
    const LIMIT: &str = "987654321/minute";
    let configuration = policy.clone().with_at(place, serde_json::json!([LIMIT])).to_string();
    assert_eq!(configuration.matches(LIMIT).count(), 1);
    move |limit| configuration.replace(LIMIT, &format!("{limit}/minute"))
}

fn host(policy: &Policy) -> Host {
    let mut host = Host::builder().workers(1).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

#[test]
fn streams_that_end_without_a_response_leave_nothing_and_cost_no_other_stream_its_headers() {
    const ABANDONED: usize = 50_000;
    let host = host(&policy().with_at("/plans/pro/standard", serde_json::json!(["4000000000/month"])));
    let mut waiting = host.stream(&request(), true);
    let abandon = || (0..ABANDONED).for_each(|_| drop(host.stream(&request(), true)));
    abandon();
    let (memory, contexts) = (host.guest_memory(), host.contexts());
    abandon();
    assert_eq!((host.guest_memory(), host.contexts()), (memory, contexts));

    waiting.respond(Response::ok());
    let outcome = waiting.finish();
    let left = outcome.headers().get("x-ratelimit-remaining").map(|left| left.to_vec());
    assert_eq!(left.as_deref(), Some(&b"3999999999"[..]), "{outcome:?}");
}

#[test]
fn configurations_that_have_ended_leave_nothing() {
    const SUBSCRIBERS: usize = 2_000;
    let policy = (0..SUBSCRIBERS).fold(policy(), |policy, number| {
        policy.subscriber(&format!("subscriber-{number}"), "pro", &format!("key-{number}"))
    });
    let mut host = host(&policy);
    let with_limit = of_limits(&policy, "/plans/pro/standard");
    let mut update = |number: usize| {
        host.update(with_limit(1000 + number)).unwrap();
        // A tick finds that the configuration before is gone.
        host.advance(std::time::Duration::from_secs(1));
        assert_eq!(host.send(request(), |_| Response::ok()).status(), 200);
        host.guest_memory()
    };
    // An allocator takes its time to find the pieces it goes on with.
    let settled = (0..400).map(&mut update).last();
    assert_eq!((400..600).map(&mut update).last(), settled);
}

#[test]
fn configurations_with_open_streams_share_what_is_equal() {
    const SUBSCRIBERS: usize = 9_000;
    const UPDATES: usize = 40;
    /// Most bytes of a configuration that differs from one before in a limit: a subscriber has 32 of its key alone.
    const MOST_BYTES: usize = 8 << 10;
    let policy = (0..SUBSCRIBERS).fold(policy(), |policy, number| {
        policy.subscriber(&format!("subscriber-{number}"), "pro", &format!("key-{number}"))
    });
    let with_limit = of_limits(&policy, "/plans/business/standard");
    let mut host = host(&policy);
    let mut open = Vec::new();
    let mut memory = Vec::new();
    for update in 0..3 * UPDATES {
        open.push(host.stream(&request(), true));
        host.update(with_limit(1000 + update)).unwrap();
        memory.push(host.guest_memory());
    }
    assert!(open.iter().all(host_sim::Stream::is_forwarded));
    // The first ones make room for what is read. Later, when small pieces have taken of that room, it is made once more.
    let grown = memory[3 * UPDATES - 1] - memory[UPDATES - 1];
    let room = with_limit(1000).len();
    assert!(grown < 2 * UPDATES * MOST_BYTES + room, "{grown} bytes: {memory:?}");
}
