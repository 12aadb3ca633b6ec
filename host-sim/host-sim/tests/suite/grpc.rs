//! gRPC calls and streams of the filter.

use host_sim::{Host, Plugin, Request, Response};

use crate::{host, host_of, lines, ok};

fn with_greeter(answer: impl FnMut(&Request) -> Response + Send + 'static) -> Host {
    host_of("grpc", Host::builder().cluster("greeter", answer), Plugin::default())
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
fn a_service_without_a_cluster_is_a_bad_argument() {
    let host = host("grpc");
    host.send(Request::get("/no-client"), ok);
    assert_eq!(lines(&host), ["no client 2"]);
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
