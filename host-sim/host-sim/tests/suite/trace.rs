//! Traces: what they show of callbacks and host calls, and which cause they give for an answer.

use std::sync::{Arc, Mutex};

use host_sim::{Builder, Compiler, Fault, Host, Module, Plugin, Request, Response, Status, TracedCallback};

use crate::{guests, ok};

/// What a host has traced since the last time.
#[derive(Clone, Default)]
struct Traced(Arc<Mutex<Vec<TracedCallback>>>);

impl Traced {
    fn take(&self) -> Vec<TracedCallback> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn load(module: &Module, builder: Builder) -> (Host, Traced) {
    let traced = Traced::default();
    let sink = traced.clone();
    let mut host = builder.on_trace(move |callback| sink.0.lock().unwrap().push(callback.clone())).build();
    host.load(module, Plugin::default()).unwrap();
    traced.take();
    (host, traced)
}

fn traced(guest: &str, builder: Builder) -> (Host, Traced) {
    load(&Module::compile(guests::guest(guest)).unwrap(), builder)
}

/// A line without the time in brackets at its end.
fn without_time(line: &str) -> &str {
    line.rsplit_once(" [").map_or(line, |(kept, _)| kept)
}

#[test]
fn a_trace_is_a_tree_of_callbacks_and_host_calls() {
    let (host, traced) = traced("replies", Host::builder());
    host.send(Request::get("/plain"), ok);
    let callbacks = traced.take();
    let headers = callbacks.iter().find(|callback| callback.callback == "proxy_on_request_headers").unwrap();
    let text = headers.to_string();
    let first = without_time(text.lines().next().unwrap());
    assert_eq!(
        first,
        "worker 0: proxy_on_request_headers(context: 2, headers: 8, end_of_stream: true) → Continue"
    );
    assert!(
        headers.host_calls() > 0
            && text.contains("\n  proxy_get_header_map_value(map: request headers, name: \":path\")"),
        "{text}"
    );
    let json = serde_json::to_value(headers).unwrap();
    assert_eq!(json["arguments"]["end_of_stream"], "true");
    assert_eq!(json["calls"][0]["results"]["value"], "/plain", "{json}");
}

#[test]
fn a_trace_has_the_memory_that_the_host_asked_for_and_its_growth() {
    let (host, traced) = traced("bodies", Host::builder());
    let body = "x".repeat(200_000);
    host.send(Request::post("/pass").body(body), ok);
    let callbacks = traced.take();
    let body = callbacks.iter().find(|callback| callback.callback == "proxy_on_request_body").unwrap();
    // The guest asks for 99 bytes of each piece.
    assert_eq!((body.host_memory, body.memory_growth), (99, 0));
    assert_eq!(body.instructions, None);
}

#[test]
fn instructions_are_counted_alike_in_every_run_where_the_module_is_compiled_to_count_them() {
    let module = Module::compile_with(guests::guest("limiter"), Compiler::Metered).unwrap();
    let count = || -> Vec<u64> {
        let (host, traced) = load(&module, Host::builder());
        for _ in 0..7 {
            host.send(Request::get("/k"), ok);
        }
        traced.take().into_iter().map(|callback| callback.instructions.unwrap()).collect()
    };
    let first = count();
    assert!(first.iter().any(|instructions| *instructions > 50), "{first:?}");
    assert_eq!(first, count());
}

/// The cause of the first host call of this name that was not simply answered, when `path` is sent.
fn why(guest: &str, path: &'static str, call: &str, prepare: impl FnOnce(&Host)) -> String {
    let (host, traced) = traced(guest, Host::builder().cluster("auth", |_| Response::ok()));
    prepare(&host);
    host.send(Request::post(path).body("abc"), ok);
    let callbacks = traced.take();
    let mut calls =
        callbacks.iter().flat_map(|callback| &callback.calls).filter(|traced| traced.call == call);
    let found = calls.find_map(|call| Some(format!("{}: {}", call.answer, call.why.as_ref()?)));
    found.unwrap_or_else(|| panic!("{guest} {path}: no {call} with a cause"))
}

#[test]
fn an_answer_has_its_cause() {
    let nothing = |_: &Host| {};
    let fault = |host: &Host| host.inject(Fault::new("proxy_get_header_map_value", Status::Empty)).unwrap();
    let rows = [
        ("callouts", "/unknown", "proxy_http_call", "BadArgument: no cluster `nobody`; known: `auth`"),
        ("callouts", "/incomplete", "proxy_http_call", "BadArgument: the headers lack :method, :authority"),
        ("callouts", "/", "proxy_set_effective_context", "BadArgument: no context 999; there are 1, 2"),
        (
            "bodies",
            "/pass",
            "proxy_get_buffer_bytes",
            "Ok: nothing: no request body in proxy_on_request_headers: it is there in proxy_on_request_body",
        ),
        (
            "bodies",
            "/around",
            "proxy_set_buffer_bytes",
            "BadArgument: a body is replaced from 0, or appended to at its end; nothing is put into its middle",
        ),
        ("limiter", "/k", "proxy_get_shared_data", "NotFound: no key \"/k\" under this vm_id"),
    ];
    for (guest, path, call, expected) in rows {
        assert_eq!(why(guest, path, call, nothing), expected);
    }
    assert_eq!(why("callouts", "/", "proxy_get_header_map_value", fault), "Empty: a planned fault");
}

#[test]
fn a_call_that_an_author_has_to_look_at_has_its_place_and_a_header_that_is_absent_has_none() {
    let (host, traced) = traced("callouts", Host::builder());
    host.send(Request::get("/unknown"), ok);
    let callbacks = traced.take();
    let suspects: Vec<_> = callbacks.iter().filter_map(TracedCallback::suspect).collect();
    assert_eq!(suspects.len(), 1, "{suspects:?}");
    assert!(suspects[0].call == "proxy_http_call" && suspects[0].at.is_some(), "{suspects:?}");
}
