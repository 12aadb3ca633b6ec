//! HTTP calls of the filter.

use std::time::Duration;

use host_sim::{
    End, Host, Plugin, Request, Response,
    driver::{Connection, Direction, Frame, Part},
};

use crate::{host_of, lines, ok};

fn with_auth(answer: Response) -> Host {
    let builder = Host::builder().cluster("auth", move |_| answer.clone());
    host_of("callouts", builder, Plugin::default())
}

#[test]
fn a_paused_request_goes_on_when_the_answer_lets_it() {
    let host = with_auth(Response::ok().body("yes"));
    let outcome = host.send(Request::get("/"), ok);
    assert_eq!((outcome.end(), outcome.status()), (End::Forwarded, 200));
    assert_eq!(
        lines(&host),
        [
            "call 0",
            "answer of 1 headers and 3 bytes under 1",
            "get_status 0",
            "body yes",
            "unknown context 2",
            "context 0",
            "continue 0",
            "response for 2",
        ]
    );
}

#[test]
fn the_cluster_sees_the_call_as_the_filter_made_it() {
    let builder = Host::builder().cluster("auth", |request: &Request| {
        assert_eq!(
            (request.method(), request.path(), request.body_bytes().as_ref()),
            ("GET", "/check", &b"ask"[..])
        );
        assert_eq!(request.header_str("content-length"), Some("3"));
        Response::new(200)
    });
    assert_eq!(host_of("callouts", builder, Plugin::default()).send(Request::get("/"), ok).status(), 200);
}

#[test]
fn the_filter_replies_from_the_callback_on_a_stream_that_it_chose() {
    let host = with_auth(Response::new(401));
    let outcome = host.send(Request::get("/"), ok);
    assert_eq!((outcome.end(), outcome.status(), outcome.details()), (End::LocalReply, 403, "denied"));
}

#[test]
fn a_call_that_a_cluster_does_not_answer_is_answered_503_by_the_gateway() {
    let host = with_auth(Response::reset());
    assert_eq!(host.send(Request::get("/"), ok).status(), 403);
    let body = "body upstream connect error or disconnect/reset before headers. reset reason: connection termination";
    assert_eq!(lines(&host)[1..4], ["answer of 3 headers and 95 bytes under 1", "get_status 0", body]);
}

#[test]
fn an_answer_that_breaks_off_is_told_by_get_status() {
    let host = with_auth(Response::silence());
    let driver = host.driver().unwrap();
    let mut worker = driver.workers()[0].lock();
    let stream = worker.open(&Connection {
        source: "127.0.0.1:5000".into(),
        destination: "127.0.0.1:80".into(),
        protocol: "HTTP/1.1",
        id: 1,
    });
    let headers = Part::Headers { headers: Request::get("/").headers().clone(), end: true };
    worker.feed(stream, Frame { direction: Direction::Request, part: headers });
    let call = worker.take_work().callouts[0].call;
    worker.finish_callout(call, Response::reset());
    drop(worker);
    let said = lines(&host);
    assert_eq!(said[1..4], ["answer of 0 headers and 0 bytes under 1", "get_status 11", "body status 1"]);
}

#[test]
fn an_answer_beyond_32_mebibytes_is_broken_off() {
    const MOST: usize = 32 << 20;
    //  the answer's size, the status, what the filter sees
    let rows = [
        (MOST, 200, ["answer of 1 headers and 33554432 bytes under 1", "get_status 0"]),
        (MOST + 1, 403, ["answer of 0 headers and 0 bytes under 1", "get_status 11"]),
    ];
    for (size, status, said) in rows {
        let host = with_auth(Response::ok().body(vec![b'x'; size]));
        assert_eq!(host.send(Request::get("/"), ok).status(), status, "{size} bytes");
        let warned = host.logs().contains("has more than 32 MiB, and is broken off");
        let lines = lines(&host);
        assert!(said.iter().all(|line| lines.iter().any(|found| found == line)), "{size}: {lines:?}");
        assert_eq!(warned, size > MOST);
    }
}

#[test]
fn a_call_that_nobody_answers_pauses_the_stream_until_it_times_out_with_504() {
    let host = with_auth(Response::silence());
    assert_eq!(host.send(Request::get("/"), ok).end(), End::Paused);

    let mut stream = host.stream(&Request::get("/"), true);
    host.advance(Duration::from_millis(4999));
    stream.poll();
    assert!(!stream.is_over());
    host.advance(Duration::from_millis(1));
    stream.poll();
    assert!(stream.is_over());
    assert_eq!(stream.finish().status(), 403);
    assert!(lines(&host).contains(&"body upstream request timeout".to_owned()));
}

#[test]
fn a_call_is_answered_as_late_as_its_cluster_says_unless_it_times_out_before() {
    // The guest waits for five seconds.
    for (milliseconds, answered_after, status) in
        [(20, 20, 200), (4999, 4999, 200), (5000, 5000, 403), (9000, 5000, 403)]
    {
        let host = with_auth(Response::ok().after(Duration::from_millis(milliseconds)));
        let mut stream = host.stream(&Request::get("/"), true);
        host.advance(Duration::from_millis(answered_after - 1));
        stream.poll();
        assert!(!stream.is_forwarded() && !stream.is_over(), "{milliseconds}");
        host.advance(Duration::from_millis(1));
        stream.poll();
        assert_eq!(stream.is_forwarded(), status == 200, "{milliseconds}");
        assert_eq!(stream.is_over(), status == 403, "{milliseconds}");
    }
}

#[test]
fn a_call_that_cannot_be_made_answers_bad_argument() {
    let host = with_auth(Response::ok());
    for (path, said) in
        [("/unknown", "unknown cluster 2"), ("/incomplete", "incomplete 2"), ("/negative", "negative 2")]
    {
        assert_eq!(host.send(Request::get(path), ok).status(), 200);
        assert_eq!(lines(&host)[0], said);
    }
}
