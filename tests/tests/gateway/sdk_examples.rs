//! What one writes first with an SDK runs unchanged in the simulator and in Envoy, and does the same there.

use std::path::Path;

use tests::artifacts;
use tests::differential::{Case, scenario};
use tests::soak;

/// Runs a scenario with a guest of the Rust SDK.
fn compare(example: &str, steps: &str) {
    compare_guest(example, &artifacts::guest_wasm("sdk-examples").expect("the built guest"), steps);
}

/// Runs a scenario with a guest of another language's SDK.
fn compare_in(language: &str, steps: &str) {
    compare_guest(language, &artifacts::foreign_guest_wasm(language).expect("the built guest"), steps);
}

fn compare_guest(root_id: &str, wasm: &Path, steps: &str) {
    let wasm = std::fs::read(wasm).expect("the built guest");
    let name = root_id.to_owned();
    let case =
        scenario(steps).map(|scenario| Case { root_id: name.clone(), name, wasm, message: None, scenario });
    if let Err(error) = case.and_then(|case| case.compare()) {
        panic!("{error:#}");
    }
}

#[test]
fn hello_world() {
    compare(
        "hello_world",
        r#"
steps:
- advance: 1s
  expect: {log: ["Hello, world", "tick 1, more than fifty", "tick 2, more than fifty"]}
- request: {path: /}
  expect: {status: 200}
"#,
    );
}

#[test]
fn headers() {
    compare(
        "headers",
        r#"
upstream: {headers: {x-upstream: "yes", set-cookie: [a, b]}, body: from the upstream}
steps:
- name: every header is told
  request: {path: /, headers: {x-one: "1", x-two: ["2", "3"]}}
  expect:
    status: 200
    body: from the upstream
    log: ["-> :path: /", "-> x-one: 1", "-> x-two: 2", "-> x-two: 3", "<- :status: 200", "<- set-cookie: b", completed]
- name: one path is answered by the filter
  request: {path: /hello}
  expect:
    status: 200
    body: "Hello, world!\n"
    headers: {hello: World, x-powered-by: proxy-wasm, content-type: text/plain, x-upstream: null}
    log: ["<- hello: World", completed]
"#,
    );
}

#[test]
fn body() {
    compare(
        "body",
        r#"
upstream: {headers: {x-upstream: "yes"}, body: this is a secret, chunked: true}
steps:
- name: a secret is not told
  request: {path: /}
  expect: {status: 200, body: "16 bytes redacted\n", log: [a body of 16 bytes]}
"#,
    );
    compare(
        "body",
        r#"
upstream: {body: nothing special}
steps:
- name: any other body passes
  request: {method: POST, path: /, body: x}
  expect: {status: 200, body: nothing special, log: [a body of 15 bytes]}
"#,
    );
}

#[test]
fn callout_auth() {
    compare(
        "callout_auth",
        r#"
clusters: {auth: {body: "yes, it may"}}
steps:
- name: a request that may go on does
  request: {path: /}
  expect: {status: 200, headers: {x-asked: "yes"}, log: ['asked: Some("200") "yes, it may"']}
- name: a service that there is not
  request: {path: /nobody}
  expect: {status: 503, log: ["cannot ask: BadArgument"]}
"#,
    );
    compare(
        "callout_auth",
        r#"
clusters: {auth: {status: 401, body: "no"}}
steps:
- name: a request that may not is refused
  request: {path: /}
  expect:
    status: 403
    body: "Access forbidden.\n"
    headers: {x-refused-by: auth, x-asked: "yes"}
    log: ['asked: Some("401") "no"']
"#,
    );
}

#[test]
fn configuration() {
    compare(
        "configuration",
        r#"
config: first
steps:
- request: {path: /}
  expect: {status: 200, headers: {x-configured: first}}
- name: a value that is none is refused
  update: "two words"
  expect: {refused: true}
- name: another one is taken
  update: second
- request: {path: /}
  expect: {headers: {x-configured: second}}
"#,
    );
}

#[test]
fn grpc_callout() {
    compare(
        "grpc_callout",
        r#"
clusters: {greeter: {grpc_message: hello}}
steps:
- name: a greeting comes with the request
  request: {path: /}
  expect: {status: 200, forwarded_headers: {x-greeting: hello}, log: ["greeted: hello"]}
"#,
    );
    compare(
        "grpc_callout",
        r#"
clusters: {greeter: {grpc_status: 13}}
steps:
- name: without one the request is refused
  request: {path: /}
  expect: {status: 502, body: "no greeting\n", log: ["not greeted: 13"]}
"#,
    );
}

/// What the guests of other languages do alike. `name` is what they call themselves, `fatal` the path that ends the VM, and
/// `last_words` what is logged then.
fn everything(name: &str, fatal: &str, last_words: &str) -> String {
    format!(
        r#"
config: first, tick
upstream: {{headers: {{x-upstream: "yes", set-cookie: [a, b]}}, body: from the upstream}}
clusters: {{auth: {{body: "yes, it may"}}, broken: {{reset: true}}}}
steps:
- name: a timer fires until it is stopped
  advance: 1s
  expect: {{log: ["{name} configured with", tick 1, tick 2]}}
- name: headers are told and changed, and a body grows
  request: {{path: /, headers: {{x-one: "1", x-two: ["2", "3"], x-gone: "4"}}}}
  expect:
    status: 200
    body: from the upstream and more
    headers: {{x-served-by: {name}, x-upstream: "yes", content-length: null}}
    forwarded_headers: {{x-one: first, x-two: "2,3", x-gone: null, x-guest: {name}}}
    log: ["-> :path: /", "-> x-one: 1", "-> x-two: 2", "-> x-two: 3", "-> x-gone: 4"]
- name: a body is replaced
  request: {{method: POST, path: /, body: all in lower case}}
  expect: {{status: 200, log: [all in lower case, "replaced: 0"]}}
- name: one path is answered by the filter
  request: {{path: /hello}}
  expect: {{status: 200, headers: {{hello: world, x-served-by: {name}}}}}
- name: a request that another service lets go on does
  request: {{path: /call}}
  expect: {{status: 200, forwarded_headers: {{x-asked: "yes, it may"}}, log: ["continued: 0"]}}
- name: a service that does not answer
  request: {{path: /fails}}
  expect: {{status: 403, log: ["connection termination"]}}
- name: a service that there is not
  request: {{path: /nobody}}
  expect: {{status: 500}}
- name: a configuration that is none is refused
  update: refuse
  expect: {{refused: true}}
- name: another one is taken
  update: second
- request: {{path: /}}
  expect: {{status: 200}}
- name: a panic ends the VM
  request: {{path: {fatal}}}
  expect: {{status: 503, body: "", details: wasm_fail_stream, log: ["{last_words}"]}}
- name: for every later request
  request: {{path: /}}
  expect: {{status: 503}}
"#
    )
}

#[test]
fn assemblyscript() {
    compare_in("assemblyscript", &everything("assemblyscript", "/abort", "asked for"));
}

#[test]
fn go() {
    compare_in("go", &everything("go", "/panic", "main.onRequestHeaders"));
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn cpp() {
    compare_in("cpp", &everything("cpp", "/abort", "asked for"));
    soak::row("guests beside Envoy", "C++ SDK", "the same answers and log lines");
}
