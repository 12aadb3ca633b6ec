//! The floor, which `make bench` compares the filter with, asks as much of the host as the filter does.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host_sim::{Argument, Host, Plugin, Request, Response, Shown, TracedCall};
use serde_json::Value;
use tests::{artifacts, bench};

/// Requests before the one that is compared.
const BEFORE: usize = 50;

/// The callbacks of a request and of the seconds after it, each with its host calls.
fn callbacks(wasm: &Path, configuration: &Value) -> Vec<String> {
    let module = artifacts::compiled(&std::fs::read(wasm).expect("a module")).expect("a module");
    let traced = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&traced);
    let mut host = Host::builder()
        .workers(1)
        .on_trace(move |callback| {
            let mut traced = sink.lock().expect("the trace");
            traced.push(callback.callback.to_owned());
            add_calls(&mut traced, &callback.calls, 1);
        })
        .build();
    host.load(&module, Plugin::new(configuration.to_string())).expect("the guest");
    let send = || {
        let request = Request::get(bench::PATH).header("authorization", format!("Bearer {}", bench::key(0)));
        let outcome = host.send(request, |_| Response::ok());
        assert_eq!(outcome.status(), 200);
    };
    (0..BEFORE).for_each(|_| send());
    traced.lock().expect("the trace").clear();
    send();
    host.advance(Duration::from_secs(2));
    std::mem::take(&mut *traced.lock().expect("the trace"))
}

/// Adds a line for each call, and one for each call of the guest's allocator that the host makes within it.
fn add_calls(lines: &mut Vec<String>, calls: &[TracedCall], depth: usize) {
    for TracedCall { call, arguments, answer, results, calls, .. } in calls {
        let [given, results] = [arguments, results].map(|shown| shown.iter().map(what).collect::<Vec<_>>());
        lines.push(format!("{:depth$}{call} {given:?}: {answer} {results:?}", ""));
        add_calls(lines, calls, depth + 1);
    }
}

/// What the cost of a call depends on: words and sizes. Other numbers, such as a metric's, differ between filters.
fn what(argument: &Argument) -> String {
    let Argument { name, value } = argument;
    match value {
        Shown::Text(text) => format!("{name}: {} bytes", bytes(text)),
        Shown::Word(word) => format!("{name}: {word}"),
        Shown::Pairs(pairs) => format!("{name}: {pairs:?}"),
        Shown::Number(_) => (*name).to_owned(),
    }
}

/// The number of bytes that a trace shows as this text, in which `\x00`, `\n` and the like are one byte each.
fn bytes(text: &str) -> usize {
    let (mut text, mut bytes) = (text.bytes(), 0);
    while let Some(byte) = text.next() {
        bytes += 1;
        if byte == b'\\' && text.next() == Some(b'x') {
            text.nth(1);
        }
    }
    bytes
}

#[test]
fn the_floor_makes_the_calls_of_the_filter() {
    let weir = bench::configuration(1, &bench::three_headers());
    let filter = callbacks(artifacts::filter_wasm(), &weir);
    let floor = callbacks(&artifacts::guest_wasm("floor").expect("the guest"), &Value::Null);
    assert_eq!(floor, filter, "the filter makes these calls: {filter:#?}");
}
