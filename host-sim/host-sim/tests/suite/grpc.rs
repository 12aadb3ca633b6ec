//! gRPC calls and streams of the filter.

use host_sim::{Host, Plugin, Request, Response};

use crate::{host, host_of, lines, ok};

fn with_greeter(answer: impl FnMut(&Request) -> Response + Send + 'static) -> Host {
    host_of("grpc", Host::builder().cluster("greeter", answer), Plugin::default())
}

fn hello(request: &Request) -> Response {
    assert_eq!(
        (request.path(), request.header_str("content-type")),
        ("/g.Greeter/Hello", Some("application/grpc"))
    );
    let messages = request.grpc_messages();
    Response::grpc([b"hello ", messages[0].as_ref()].concat())
}

#[test]
fn a_unary_call_is_answered_with_one_message() {
    let host = with_greeter(|request| {
        assert_eq!(
            (request.header_str("x-m"), request.header_str("grpc-timeout")),
            (Some("1"), Some("5000m"))
        );
        hello(request)
    });
    host.send(Request::get("/call"), ok);
    assert_eq!(lines(&host), ["call 0", "kind 1", "received hello Ada"]);
}

#[test]
fn a_service_can_be_named_by_a_message_too() {
    let host = with_greeter(hello);
    host.send(Request::get("/message"), ok);
    assert_eq!(lines(&host), ["by message 0", "received hello Ada"]);
}

#[test]
fn a_call_that_fails_is_closed_with_its_status() {
    let rows = [
        (Response::grpc_status(7, "not you"), "closed 7", "because not you"),
        (Response::new(503), "closed 14", "because via_upstream"),
        (Response::reset(), "closed 14", "because upstream reset"),
    ];
    for (answer, closed, because) in rows {
        let host = with_greeter(move |_| answer.clone());
        host.send(Request::get("/call"), ok);
        assert_eq!(lines(&host)[2..], [closed, because]);
    }
}

#[test]
fn a_call_that_was_taken_back_is_not_answered() {
    let host = with_greeter(hello);
    host.send(Request::get("/cancel"), ok);
    assert_eq!(lines(&host), ["cancel 0", "cancel again 1", "cancel no gRPC 2"]);
}

#[test]
fn a_cluster_that_does_not_exist_is_a_parse_failure_and_a_service_without_one_a_bad_argument() {
    let host = host("grpc");
    host.send(Request::get("/unknown"), ok);
    host.send(Request::get("/no-client"), ok);
    assert_eq!(lines(&host), ["unknown 4", "no client 2"]);
}

#[test]
fn a_stream_tells_metadata_messages_and_its_end() {
    let host = with_greeter(|request| match request.grpc_messages().first() {
        Some(message) => Response::grpc_stream().grpc_message([b"you said ", message.as_ref()].concat()),
        None => Response::grpc_stream().trailer("grpc-status", "0").trailer("grpc-message", "bye"),
    });
    host.send(Request::get("/stream"), ok);
    assert_eq!(
        lines(&host),
        [
            "stream 0",
            "send 0",
            "send 0",
            "close 0",
            "send to a call 2",
            "send to nothing 1",
            "initial metadata 2",
            "content-type application/grpc",
            "received you said one",
            "received you said two",
            "trailing metadata 0",
            "closed 0",
            "because bye",
        ]
    );
}

#[test]
fn foreign_functions_do_their_work_and_unknown_ones_are_not_found() {
    let host = host("foreign");
    host.send(Request::get("/"), ok);
    assert_eq!(
        lines(&host),
        [
            "compress 0",
            "shorter 1",
            "uncompress 0",
            "plain aaaaaaaaaaaaaaaaaaaaaaaa",
            "no zlib 3",
            "route cache 0",
            "no such name 1",
            "set 0",
            "set again 2",
        ]
    );
}
