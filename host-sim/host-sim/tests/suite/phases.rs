//! Which callbacks run, in which order, and which header maps are open in each.

use host_sim::{Headers, Host, Plugin, Request, Response};

use crate::{host, host_of, lines, ok};

/// Statuses of reading the request's and the response's headers, and `request.path`.
const BAD_ARGUMENT: u32 = 2;
const NOT_FOUND: u32 = 1;

fn maps(request: u32, response: u32, property: u32) -> String {
    format!("  request {request} response {response} property {property} pairs 0")
}

#[test]
fn two_streams_of_one_vm_can_be_taken_step_by_step_in_any_order() {
    let host = host("phases");
    let mut first = host.stream(&Request::post("/first"), false);
    let mut second = host.stream(&Request::post("/second"), false);
    second.body("2", true);
    first.body("1", false);
    first.trailers(Headers::from_iter([("t", "1")]));
    second.respond(Response::ok());
    assert_eq!(second.finish().status(), 200);
    first.respond(Response::new(204));
    assert_eq!(first.forwarded().map(|request| request.body_bytes().as_ref()), Some(&b"1"[..]));
    assert_eq!(first.finish().status(), 204);
    let ends: Vec<_> = lines(&host).into_iter().filter(|line| line.starts_with("delete")).collect();
    assert_eq!(ends, ["delete 3", "delete 2"]);
}

#[test]
fn a_client_that_goes_away_ends_its_stream() {
    let host = host("phases");
    let before = host.contexts();
    drop(host.stream(&Request::post("/"), false));
    assert!(lines(&host).contains(&"delete 2".to_owned()));
    assert_eq!(host.contexts(), before);
}

#[test]
fn a_request_without_any_header_reaches_the_filter() {
    let host = host("phases");
    let outcome = host.send(Request::from_headers(Headers::new()), ok);
    assert_eq!(outcome.status(), 200);
    assert_eq!(
        lines(&host)[1..3],
        ["request headers 0 end 1".to_owned(), maps(NOT_FOUND, BAD_ARGUMENT, NOT_FOUND)]
    );
}

#[test]
fn a_stream_ends_in_envoys_order_and_without_a_log_where_a_test_asks_for_it() {
    let rows: [(_, &[&str]); 2] = [
        (Host::builder(), &["log 2", "done 2", "delete 2"]),
        (Host::builder().without_stream_logs(), &["done 2", "delete 2"]),
    ];
    for (builder, expected) in rows {
        let host = host_of("phases", builder, Plugin::default());
        host.send(Request::get("/"), ok);
        let mut said = lines(&host);
        said.retain(|line| ["log", "done", "delete"].iter().any(|callback| line.starts_with(callback)));
        assert_eq!(said, expected);
    }
}
