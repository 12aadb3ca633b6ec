//! What is left of the promises on a host that has less than Envoy. (The contract itself runs on all kinds of hosts.)

use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Flavour, Host, Request, Response};
use serde_json::json;
use tests::gateway::{module, plugin};
use tests::policy::Policy;

#[test]
fn without_shared_data_each_vm_counts_by_itself_and_says_so() {
    const WORKERS: usize = 3;
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["2/month"]));
    let mut host = Host::builder().workers(WORKERS).flavour(Flavour::NoSharedData).build();
    host.load(module(), plugin(&policy.subscriber("acme", "pro", "key"))).unwrap();
    for worker in 0..WORKERS {
        let request = || Request::get("/links").header("authorization", "Bearer key");
        let statuses = [(); 3].map(|()| host.send(worker, request(), |_| Response::ok()).status());
        assert_eq!(statuses, [200, 200, 429], "worker {worker}");
    }
    let said = "this host has no shared data: each VM counts by itself, so a quota applies to each VM";
    let lines = host.logs().lines().into_iter().filter(|line| line.message.contains(said));
    let vms: Vec<_> = lines.map(|line| line.vm.to_string()).collect();
    assert_eq!(vms.len(), WORKERS, "once in each VM that counts: {vms:?}");
    host.advance(Duration::from_secs(1));
    assert_eq!(host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error)), 0);
}
