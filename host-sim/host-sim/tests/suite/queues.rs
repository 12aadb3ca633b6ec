//! Shared queues.

use host_sim::{Flavour, Host, Module, Plugin, Request, VmName};

use crate::{guests, host_of, ok};

#[test]
fn what_one_worker_enqueues_is_told_to_the_last_who_registered() {
    let host = host_of("queues", Host::builder().workers(3), Plugin::default());
    host.send(Request::get("/job"), ok);
    let said: Vec<_> = host.logs().take().into_iter().map(|line| (line.vm, line.message)).collect();
    let expected = [
        (VmName::Worker(0), "resolve 0"),
        (VmName::Worker(0), "enqueue 0"),
        (VmName::Worker(0), "enqueue elsewhere 1"),
        (VmName::Worker(2), "ready /job"),
    ];
    assert_eq!(said, expected.map(|(vm, line)| (vm, line.to_owned())));
}

#[test]
fn a_queue_is_found_by_its_name_and_keeps_its_token_in_every_vm() {
    let mut host = Host::builder().workers(2).build();
    host.load(&Module::compile(guests::guest("queues")).unwrap(), Plugin::default()).unwrap();
    let said: Vec<_> = host.logs().take().into_iter().map(|line| line.message).collect();
    assert_eq!(said, ["unknown queue 1", "register 0", "token 1", "nothing in it 7"].repeat(4));
}

#[test]
fn queues_work_under_every_interleaving() {
    let host = host_of("queues", Host::builder().workers(4), Plugin::default());
    for seed in 0..20 {
        let jobs = (0..8).map(|job| (job % 4, Request::get(format!("/{job}"))));
        host.interleave(seed, jobs, ok);
        let mut told: Vec<_> = host.logs().take().into_iter().map(|line| line.message).collect();
        told.retain(|line| line.starts_with("ready"));
        told.sort_unstable();
        assert_eq!(told, (0..8).map(|job| format!("ready /{job}")).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_host_without_shared_data_has_no_queues_either() {
    let builder = Host::builder().flavour(Flavour::NoSharedData);
    let host = host_of("queues", builder, Plugin::default());
    host.send(Request::get("/"), ok);
    let said: Vec<_> = host.logs().take().into_iter().map(|line| line.message).collect();
    assert_eq!(said, ["resolve 12", "enqueue 12", "enqueue elsewhere 12"]);
}
