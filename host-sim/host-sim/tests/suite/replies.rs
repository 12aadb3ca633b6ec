//! Local replies.

use host_sim::{End, Request, Response};

use crate::{host, lines};

fn never(_: &Request) -> Response {
    panic!("the upstream is not called")
}

#[test]
fn a_reply_passes_through_the_filters_own_response_callbacks() {
    let host = host("replies");
    let outcome = host.send(Request::get("/request"), never);
    assert_eq!((outcome.end(), outcome.status(), outcome.text().as_str()), (End::LocalReply, 429, "{}"));
    assert_eq!(outcome.details(), "too__many");
    assert_eq!(outcome.header("content-type"), Some("application/json"));
    assert_eq!(outcome.header("x-seen"), Some("yes"));
    assert_eq!(
        lines(&host),
        ["reply 0", "request map in the response phase 0", "response body 2"],
        "request headers stay open: the request's callback never let them go on"
    );
}

#[test]
fn a_grpc_request_gets_its_reply_in_headers_alone() {
    let host = host("replies");
    let request = Request::post("/request").header("content-type", "application/grpc+proto").body("x");
    let outcome = host.send(request, never);
    assert_eq!(
        (outcome.status(), outcome.header("grpc-status"), outcome.header("grpc-message")),
        (200, Some("8"), Some("{}"))
    );
    assert_eq!((outcome.header("content-type"), outcome.text().as_str()), (Some("application/grpc"), ""));
}

#[test]
fn only_the_first_reply_counts() {
    let host = host("replies");
    let outcome = host.send(Request::get("/twice"), never);
    assert_eq!((outcome.status(), lines(&host)[..2].join(", ").as_str()), (429, "reply 0, reply again 0"));
}

#[test]
fn an_empty_reply_has_neither_type_nor_length() {
    let outcome = host("replies").send(Request::get("/empty"), never);
    assert_eq!(
        (outcome.status(), outcome.header("content-type"), outcome.header("content-length")),
        (401, None, None)
    );
}

#[test]
fn a_head_request_gets_no_body() {
    let outcome = host("replies").send(Request::head("/request"), never);
    assert_eq!(
        (outcome.status(), outcome.header("content-length"), outcome.text().as_str()),
        (429, Some("2"), "")
    );
}

#[test]
fn a_reply_from_the_body_callback_comes_after_the_headers_went_on() {
    let outcome = host("replies").send(Request::post("/body").body("x"), never);
    assert_eq!(
        (outcome.status(), outcome.is_local_reply(), outcome.forwarded().is_some()),
        (429, true, true)
    );
}

#[test]
fn a_reply_from_the_response_headers_takes_the_responses_place_without_callbacks() {
    let host = host("replies");
    let outcome = host.send(Request::get("/response-headers"), |_| Response::ok().body("upstream's"));
    assert_eq!((outcome.status(), outcome.text().as_str(), outcome.header("x-seen")), (429, "{}", None));
    assert!(!lines(&host).iter().any(|line| line.starts_with("response body")));
}

#[test]
fn a_reply_from_the_response_body_is_too_late_and_cuts_the_stream() {
    let outcome = host("replies").send(Request::get("/response-body"), |_| Response::ok().body("x"));
    assert_eq!((outcome.end(), outcome.status()), (End::Reset, 200));
}

#[test]
fn a_closed_stream_is_cut_and_says_why() {
    let outcome = host("replies").send(Request::get("/close"), never);
    assert_eq!((outcome.end(), outcome.details()), (End::Reset, "wasm_close_stream"));
}

#[test]
fn failures_of_the_upstream_are_replies_that_the_filter_sees() {
    for (failure, status, details) in [
        (Response::reset(), 503, "upstream_reset_before_response_started{connection_termination}"),
        (Response::silence(), 504, "response_timeout"),
    ] {
        let outcome = host("replies").send(Request::get("/"), |_| failure.clone());
        assert_eq!(
            (outcome.status(), outcome.details(), outcome.header("x-seen")),
            (status, details, Some("yes"))
        );
    }
}
