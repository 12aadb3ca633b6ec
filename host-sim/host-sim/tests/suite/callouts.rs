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
