//! VMs, configurations and their updates.

use std::time::Duration;

use host_sim::{Host, LoadError, Module, Plugin, Request, Response, VmError, VmName};

use crate::{guests, lines, ok};

fn load(configuration: &'static str, workers: usize) -> Result<Host, LoadError> {
    let module = Module::compile(guests::guest("configuration")).unwrap();
    let mut host = Host::builder().workers(workers).build();
    let plugin = Plugin::new(configuration).vm_configuration("vm");
    host.load(&module, plugin).map(|()| host)
}

#[test]
fn a_configuration_runs_on_the_canary_the_main_vm_and_every_worker() {
    let host = load("one", 2).unwrap();
    let configured: Vec<_> = host
        .logs()
        .lines()
        .iter()
        .filter(|line| line.message == "configure one")
        .map(|line| line.vm)
        .collect();
    assert_eq!(configured, [VmName::Canary, VmName::Main, VmName::Worker(0), VmName::Worker(1)]);
    let of_main: Vec<_> = host
        .logs()
        .lines()
        .into_iter()
        .filter(|line| line.vm == VmName::Main)
        .map(|line| line.message)
        .collect();
    assert_eq!(
        of_main,
        ["create 1 under 0", "vm start vm", "plugin configuration too early 1", "configure one"]
    );
}

#[test]
fn a_refused_configuration_tells_what_the_filter_logged() {
    let error = load("bad one", 1).unwrap_err();
    let LoadError::Refused { vm, reason, log, .. } = &error else { panic!("{error}") };
    assert_eq!((*vm, reason), (VmName::Canary, &VmError::ConfigureRefused));
    assert!(log.iter().any(|line| line.message == "configure bad one"));
    assert!(error.to_string().contains("\n  [info][canary] configure bad one"), "{error}");
}

#[test]
fn a_configuration_that_traps_is_refused() {
    let error = load("trap", 1).unwrap_err();
    assert!(matches!(error, LoadError::Refused { reason: VmError::Trapped { .. }, .. }), "{error}");
}

#[test]
fn an_update_gets_a_new_root_in_the_same_vm_and_the_old_one_ends_with_its_last_stream() {
    let mut host = load("one", 1).unwrap();
    let mut old = host.stream(&Request::get("/"), true);
    host.logs().take();
    host.update("two").unwrap();
    let of_worker: Vec<_> = host
        .logs()
        .take()
        .into_iter()
        .filter(|line| line.vm == VmName::Worker(0))
        .map(|line| line.message)
        .collect();
    assert_eq!(of_worker[0], "create 3 under 0", "contexts of a VM are numbered in one row");
    assert!(!of_worker.iter().any(|line| line.starts_with("done")));

    let new = host.send(Request::get("/"), ok);
    assert_eq!(new.header("x-configuration"), Some("two"));
    host.logs().take();
    old.respond(Response::ok());
    old.finish();
    assert_eq!(
        lines(&host),
        [
            "done 2",
            "proxy_done for what is not pending 1",
            "delete 2",
            "done 1",
            "proxy_done for what is not pending 1",
            "delete 1",
        ]
    );
}

/// What the guest has logged on the first worker since the last time.
fn lines_of_worker(host: &Host) -> Vec<String> {
    let lines = host.logs().take().into_iter().filter(|line| line.vm == VmName::Worker(0));
    lines.map(|line| line.message).collect()
}

#[test]
fn a_configuration_whose_root_still_lives_is_in_force_again_without_being_told() {
    let mut host = load("one", 1).unwrap();
    let mut old = host.stream(&Request::get("/"), true);
    host.update("two").unwrap();
    host.logs().take();
    host.update("one").unwrap();
    let said = host.logs().take();
    assert!(!said.iter().any(|line| line.vm == VmName::Canary), "the canary knows it: {said:?}");
    let of_worker: Vec<_> = said.iter().filter(|line| line.vm == VmName::Worker(0)).collect();
    let of_worker: Vec<_> = of_worker.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(of_worker, ["done 3", "proxy_done for what is not pending 1", "delete 3"]);

    host.send(Request::get("/"), ok);
    assert_eq!(lines_of_worker(&host)[0], "create 4 under 1");
    old.respond(Response::ok());
    old.finish();
    let ended = lines_of_worker(&host);
    assert!(!ended.contains(&"delete 1".to_owned()), "it is in force: {ended:?}");
}

#[test]
fn a_configuration_that_the_canary_refused_is_refused_again_without_being_run() {
    let mut host = load("one", 1).unwrap();
    for (time, runs) in [("first", 1), ("second", 0)] {
        host.logs().take();
        let error = host.update("bad two").unwrap_err();
        assert!(matches!(error, LoadError::Refused { reason: VmError::ConfigureRefused, .. }), "{error}");
        let ran = lines(&host).iter().filter(|line| *line == "configure bad two").count();
        assert_eq!(ran, runs, "the {time} time");
    }
}

#[test]
fn a_root_whose_configuration_was_replaced_ticks_as_long_as_its_streams_keep_it() {
    let source = r#"(module
        (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
          (drop (call $period (i32.const 1000)))
          (i32.const 1))
        (func (export "proxy_on_tick") (param $root i32) (call $note (str "tick of") (local.get $root)))
        (func (export "proxy_on_delete") (param $id i32) (call $note (str "delete") (local.get $id))))"#;
    let module = Module::compile(guests::assemble(source).unwrap()).unwrap();
    let mut host = Host::builder().build();
    host.load(&module, Plugin::default()).unwrap();
    let stream = host.stream(&Request::get("/"), true);
    host.update("two").unwrap();
    host.advance(Duration::from_secs(1));
    assert_eq!(lines_of_worker(&host), ["tick of 1", "tick of 3"]);
    stream.finish();
    host.advance(Duration::from_secs(1));
    assert_eq!(lines_of_worker(&host), ["delete 2", "delete 1", "tick of 3"]);
}

#[test]
fn another_module_serves_new_streams_while_old_ones_end_with_theirs() {
    let mut host = load("one", 1).unwrap();
    let mut old = host.stream(&Request::get("/"), true);
    let [other, bad] = ["chain", "configuration"].map(|guest| Module::compile(guests::guest(guest)).unwrap());
    let named = |name: &'static str| Plugin::new(name);
    host.replace_chain([(&other, named("x"))]).unwrap();
    assert_eq!(host.worker(0).vms(), 2, "the old stream keeps its VM");
    host.logs().take();
    assert!(host.replace_chain([(&other, named("x")), (&bad, named("bad"))]).is_err());
    let said = lines_of_worker(&host);
    assert!(said.is_empty(), "the workers heard nothing of what was refused: {said:?}");
    assert_eq!(host.send(Request::get("/"), ok).header("x-answered"), Some("x"));

    old.respond(Response::ok());
    let answer = old.finish();
    assert_eq!(answer.header("x-configuration"), Some("one"));
    assert_eq!(host.worker(0).vms(), 1, "the old VM went with its last stream");
    assert!(lines_of_worker(&host).contains(&"delete 1".to_owned()));
}

#[test]
fn a_filter_of_a_replaced_chain_keeps_what_has_not_changed() {
    let module = Module::compile(guests::guest("configuration")).unwrap();
    let other = Module::compile(guests::guest("chain")).unwrap();
    let named = |name: &'static str| Plugin::new(name);
    let mut host = Host::builder().build();
    host.load_chain([(&module, named("one")), (&other, named("a"))]).unwrap();
    //  what the second filter becomes, VMs of the worker: the first one hears nothing
    let rows = [(&other, "b", 2), (&module, "two", 1), (&module, "one", 1), (&other, "a", 2)];
    for (second, configuration, vms) in rows {
        host.logs().take();
        host.replace_chain([(&module, named("one")), (second, named(configuration))]).unwrap();
        let said = lines_of_worker(&host);
        assert_eq!(host.worker(0).vms(), vms, "{configuration}: {said:?}");
        assert!(!said.contains(&"configure one".to_owned()), "{configuration}: {said:?}");
    }
}

#[test]
fn what_a_filter_asks_for_when_it_is_loaded_or_updated_is_the_drivers_work() {
    let source = r#"(module
        (import "env" "proxy_http_call"
          (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
          (call $note (str "call") (call $call (str "auth")
            (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\04\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00POST\00:authority\00auth\00")
            (str "") (str "") (i32.const 5000) (i32.const 24)))
          (i32.const 1)))"#;
    let module = Module::compile(guests::assemble(source).unwrap()).unwrap();
    let mut host = Host::builder().cluster("auth", |_| Response::ok()).build();
    host.drive([]);
    host.load(&module, Plugin::default()).unwrap();
    let driver = host.driver().unwrap();
    let asked = || driver.workers()[0].lock().take_work().callouts.len();
    assert_eq!(asked(), 1, "{:?}", lines(&host));
    host.update("two").unwrap();
    assert_eq!(asked(), 1, "{:?}", lines(&host));
}

#[test]
fn a_refused_update_keeps_the_old_configuration() {
    let mut host = load("one", 2).unwrap();
    assert!(host.update("bad two").is_err());
    for worker in 0..2 {
        assert_eq!(host.worker(worker).send(Request::get("/"), ok).header("x-configuration"), Some("one"));
    }
}

#[test]
fn shared_data_and_metrics_outlive_the_filter_and_belong_to_a_vm_id() {
    let module = Module::compile(guests::guest("limiter")).unwrap();
    let mut host = Host::builder().build();
    let plugin = |vm_id: &str| Plugin::default().vm_id(vm_id);
    //  vm_id, statuses of three requests after it was loaded
    let rows = [("a", [200, 200, 200]), ("b", [200, 200, 200]), ("a", [200, 200, 429])];
    for (vm_id, statuses) in rows {
        host.load(&module, plugin(vm_id)).unwrap();
        let given = [(); 3].map(|()| host.send(Request::get("/k"), ok).status());
        assert_eq!(given, statuses, "{vm_id}");
    }
    assert_eq!((host.shared_data().entries(), host.shared_data().keys("a")), (2, vec![b"/k".to_vec()]));
}
