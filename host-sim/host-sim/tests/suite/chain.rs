//! Several filters: their order, their VMs, and what becomes of one when another fails.

use host_sim::{FailurePolicy, Host, LoadError, LogLine, Module, Plugin, Request, Response, VmName};

use crate::{guests, ok};

fn module(guest: &str) -> Module {
    Module::compile(guests::guest(guest)).unwrap()
}

fn plugin(name: &str, vm_id: &str) -> Plugin {
    Plugin::new(name.to_owned()).name(name).vm_id(vm_id)
}

/// Two filters of the guest `chain`, "a" and "b", whose VMs have these ids.
fn pair(builder: host_sim::Builder, vm_ids: [&str; 2]) -> Host {
    let mut host = builder.build();
    let module = module("chain");
    let filters = [plugin("a", vm_ids[0]), plugin("b", vm_ids[1])];
    host.load_chain(filters.map(|plugin| (&module, plugin))).unwrap();
    host
}

fn said(lines: &[LogLine], part: &str) -> usize {
    lines.iter().filter(|line| line.message.contains(part)).count()
}

#[test]
fn plugins_share_a_vm_where_all_that_makes_a_vm_is_alike() {
    let module = module("chain");
    let other = Module::compile(guests::assemble("(module ;; prelude\n)").unwrap()).unwrap();
    let alike = plugin("b", "v");
    let capabilities = guests_capabilities();
    //  what differs, the second filter, VMs of a worker
    let rows = [
        ("nothing but the name", &module, alike.clone(), 1),
        ("the vm_id", &module, plugin("b", "w"), 2),
        ("the module", &other, alike.clone(), 2),
        ("the VM's configuration", &module, alike.clone().vm_configuration("x"), 2),
        ("the environment", &module, alike.clone().environment("A", "b"), 2),
        ("the capabilities", &module, alike.clone().allowed_capabilities(capabilities), 2),
        ("the failure policy", &module, alike.failure_policy(FailurePolicy::FailOpen), 1),
    ];
    for (what, second, plugin_b, vms) in rows {
        let mut host = Host::builder().build();
        host.load_chain([(&module, plugin("a", "v")), (second, plugin_b)]).unwrap();
        assert_eq!(host.worker(0).vms(), vms, "{what}");
    }
}

/// All that the guest calls and is called.
fn guests_capabilities() -> std::collections::BTreeSet<String> {
    ["proxy_log", "proxy_on_configure", "proxy_get_buffer_bytes"].map(str::to_owned).into()
}

#[test]
fn plugins_that_are_alike_in_everything_have_one_root_context() {
    let module = module("chain");
    let mut host = Host::builder().build();
    host.load_chain([(&module, plugin("a", "v")), (&module, plugin("a", "v"))]).unwrap();
    // The canary, the main VM and the worker configure the one root.
    assert_eq!(said(&host.logs().take(), "a configured 1"), 3);
    assert_eq!(host.send(Request::get("/"), ok).header("x-answered"), Some("a"));
    assert_eq!(said(&host.logs().take(), "a request headers"), 2);
}

#[test]
fn filters_of_two_modules_pass_a_request_on() {
    let mut host = Host::builder().build();
    host.load_chain([(&module("chain"), plugin("a", "")), (&module("limiter"), plugin("limits", ""))])
        .unwrap();
    let statuses = [(); 6].map(|()| host.send(Request::get("/k"), ok).status());
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let refused = host.send(Request::get("/k"), ok);
    assert_eq!((refused.header("x-answered"), refused.details()), (Some("a"), "limited"));
}

#[test]
fn a_request_that_is_driven_by_hand_stops_where_a_filter_holds_it() {
    let builder = Host::builder().cluster("auth", |_| Response::silence());
    let host = pair(builder, ["v", "v"]);
    let mut stream = host.stream(&Request::get("/").header("x-b", "ask"), true);
    assert!(!stream.is_forwarded());
    host.advance(std::time::Duration::from_secs(5));
    stream.poll();
    assert_eq!(stream.forwarded().and_then(|request| request.header_str("x-seen")), Some("a"));
    stream.respond(Response::ok());
    assert_eq!(stream.finish().status(), 200);
}

#[test]
fn each_filter_goes_by_its_own_failure_policy() {
    let module = module("chain");
    let mut host = Host::builder().build();
    let open = plugin("b", "w").failure_policy(FailurePolicy::FailOpen);
    host.load_chain([(&module, plugin("a", "v")), (&module, open)]).unwrap();
    assert_eq!(host.send(Request::get("/").header("x-b", "trap"), ok).status(), 503);
    let later = host.send(Request::get("/"), ok);
    assert_eq!((later.status(), later.header("x-answered")), (200, Some("a")), "the second is passed by");
    assert_eq!(host.send(Request::get("/").header("x-a", "trap"), ok).status(), 503);
    assert_eq!(host.send(Request::get("/"), ok).status(), 503, "the first stays closed");
}

#[test]
fn filters_of_one_vm_come_back_together() {
    let module = module("chain");
    let mut host = Host::builder().build();
    let reloads = |name| plugin(name, "v").failure_policy(FailurePolicy::FailReload);
    host.load_chain([(&module, reloads("a")), (&module, reloads("b"))]).unwrap();
    assert_eq!(host.send(Request::get("/").header("x-b", "trap"), ok).status(), 503);
    assert_eq!(host.send(Request::get("/"), ok).status(), 503);
    host.advance(std::time::Duration::from_secs(2));
    host.logs().take();
    assert_eq!(host.send(Request::get("/"), ok).status(), 200);
    let lines = host.logs().take();
    assert_eq!((said(&lines, "a configured"), said(&lines, "b configured"), host.worker(0).vms()), (1, 1, 1));
    assert_eq!((host.worker(0).reloads().success, host.worker(0).reloads().backoff), (2, 2));
}

#[test]
fn one_filter_of_a_chain_is_updated_and_the_other_stays() {
    let mut host = pair(Host::builder(), ["v", "v"]);
    host.logs().take();
    host.update_filter(1, "c").unwrap();
    let lines = host.logs().take();
    assert_eq!((said(&lines, "c configured"), said(&lines, "a configured")), (3, 0));
    assert_eq!(said(&lines, "b done"), 2, "the old root ends in the main VM and the worker's");
    assert_eq!(host.send(Request::get("/"), ok).header("x-answered"), Some("c"));
    let error = host.update_filter(2, "d").unwrap_err();
    assert_eq!(error.to_string(), "filter 2 of 2: filters are counted from 0");
}

#[test]
fn a_refused_filter_is_named() {
    let (chain, strict) = (module("chain"), module("configuration"));
    let mut host = Host::builder().build();
    let bad = Plugin::new("bad").name("strict");
    let error = host.load_chain([(&chain, plugin("a", "")), (&strict, bad)]).unwrap_err();
    assert!(matches!(&error, LoadError::Refused { vm: VmName::Canary, .. }), "{error}");
    assert!(error.to_string().starts_with("\"strict\", canary VM: the filter refused"), "{error}");
}

#[test]
fn a_reply_from_a_body_callback_passes_all_that_have_seen_the_request() {
    let host = pair(Host::builder(), ["v", "v"]);
    //  who replies, the body that each filter adds its name to, in the response's order
    for (who, body) in [("x-b", "bba"), ("x-a", "aba")] {
        let outcome = host.send(Request::post("/").header(who, "late").body("x"), ok);
        assert_eq!((outcome.status(), outcome.text().as_str()), (403, body), "{who}");
    }
}
