//! The live gateway, over real sockets.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use host_sim::{Clock, FailurePolicy, Host, Module, Plugin};
use host_sim_cli::gateway::{Gateway, Options};

use crate::{
    guests,
    http::{
        Message, PATIENCE, connect, echo, gateway, gateway_with, get, read_chunk, read_head, read_message,
        send, upstream,
    },
};

#[test]
fn a_request_reaches_the_upstream_with_its_client_in_x_forwarded_for() {
    let gateway = gateway("limiter");
    let request = b"POST /a?b HTTP/1.1\r\nhost: example.com\r\nx-forwarded-for: 198.51.100.1\r\nconnection: keep-alive\r\n\
                    x-raw: \xff\r\ncontent-length: 5\r\n\r\nhello";
    let answer = send(gateway.address(), request);
    let text = answer.text();
    assert_eq!(
        (answer.status(), text.lines().next(), text.lines().last()),
        (200, Some("POST /a?b HTTP/1.1"), Some("hello"))
    );
    for line in [
        "host: example.com",
        "x-forwarded-for: 198.51.100.1,127.0.0.1",
        "x-forwarded-proto: http",
        "x-raw: ÿ",
    ] {
        assert!(text.lines().any(|given| given == line), "{line} in {text}");
    }
    assert!(!text.contains("connection:"), "{text}");
}

#[test]
fn a_connection_serves_one_request_after_the_other_and_the_filter_limits_them() {
    let gateway = gateway("limiter");
    let (mut stream, mut reader) = connect(gateway.address());
    let statuses = [(); 7].map(|()| {
        stream.write_all(b"GET /k HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        read_message(&mut reader).unwrap().status()
    });
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[test]
fn responses_stream_to_the_client_as_they_come() {
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = upstream(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_message(&mut reader).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").unwrap();
        wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").unwrap();
    });
    let gateway = gateway_with("limiter", upstream, None);
    let (mut stream, mut reader) = connect(gateway.address());
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_eq!(read_head(&mut reader).unwrap().status(), 200);
    assert_eq!(read_chunk(&mut reader).unwrap(), b"first");
    go_on.send(()).unwrap();
    assert_eq!(read_chunk(&mut reader).unwrap(), b"second");
}

#[test]
fn requests_stream_to_the_upstream_as_they_come() {
    let (arrived, arrives) = mpsc::channel();
    let arrived = Mutex::new(arrived);
    let upstream = upstream(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        while let Some(chunk) = read_chunk(&mut reader) {
            arrived.lock().unwrap().send(chunk.clone()).unwrap();
            if chunk.is_empty() {
                break;
            }
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let gateway = gateway_with("limiter", upstream, None);
    let (mut stream, mut reader) = connect(gateway.address());
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n").unwrap();
    assert_eq!(arrives.recv_timeout(PATIENCE).unwrap(), b"a");
    stream.write_all(b"1\r\nb\r\n").unwrap();
    assert_eq!(arrives.recv_timeout(PATIENCE).unwrap(), b"b");
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(read_message(&mut reader).unwrap().status(), 204);
}

/// Writes as much of 128 MiB as is taken, and returns how much that is.
fn fill(mut stream: &TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (piece, mut written) = ([b'x'; 64 << 10], 0);
    while written < ENDLESS
        && let Ok(more) = stream.write(&piece)
    {
        written += more;
    }
    written
}

const ENDLESS: usize = 128 << 20;

#[test]
fn whoever_does_not_read_stops_whoever_writes() {
    let (told, hear) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let (told, ends) = (Mutex::new(told), Mutex::new(ends));
    let upstream = upstream(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let head = read_head(&mut reader).unwrap();
        if head.start.starts_with("GET") {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {ENDLESS}\r\n\r\n").unwrap();
            told.lock().unwrap().send(fill(&stream)).unwrap();
        } else {
            // It reads no further until the sender is dropped.
            assert!(ends.lock().unwrap().recv_timeout(PATIENCE).is_err());
        }
    });
    let gateway = gateway_with("limiter", upstream, None);
    let (mut stream, mut reader) = connect(gateway.address());
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_eq!(read_head(&mut reader).unwrap().status(), 200);
    let written = hear.recv_timeout(PATIENCE).unwrap();
    assert!(written < ENDLESS, "the upstream has written all of it");

    let (mut stream, _reader) = connect(gateway.address());
    write!(stream, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {ENDLESS}\r\n\r\n").unwrap();
    let written = fill(&stream);
    drop(end);
    assert!(written < ENDLESS, "the client has written all of it");
}

/// Sends 4 MiB to a path, and reads the answer's head and as much of its body as there is.
fn send_large(gateway: &Gateway, path: &'static str) -> (Message, usize) {
    const SIZE: usize = 4 << 20;
    let (mut stream, mut reader) = connect(gateway.address());
    let sending = thread::spawn(move || {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n");
        // A refused body is cut off while it is sent.
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; SIZE]))
    });
    let answer = read_head(&mut reader).unwrap();
    let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let read = std::io::copy(&mut reader.take(length), &mut std::io::sink()).unwrap_or(0);
    drop(sending.join().unwrap());
    (answer, usize::try_from(read).unwrap())
}

#[test]
fn a_large_body_passes() {
    let (answer, read) = send_large(&gateway("bodies"), "/pass");
    assert!(answer.status() == 200 && read > 4 << 20, "{} with {read} bytes", answer.status());
}

#[test]
fn a_body_that_the_filter_wants_whole_is_refused_beyond_a_mebibyte() {
    assert_eq!(send_large(&gateway("bodies"), "/buffer").0.status(), 413);
}

#[test]
fn a_response_that_breaks_off_is_not_taken_for_whole() {
    let upstream = upstream(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_message(&mut reader).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!").unwrap();
    });
    let gateway = gateway_with("limiter", upstream, None);
    let (mut stream, mut reader) = connect(gateway.address());
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert!(read_message(&mut reader).is_none());
}

#[test]
fn odd_requests_get_a_clear_answer_and_the_vm_lives_on() {
    let gateway = gateway("limiter");
    let large = format!("GET /large HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(61 * 1024));
    let rows: [(&str, &[u8], u16); 4] = [
        ("headers beyond 60 KiB", large.as_bytes(), 431),
        ("no header but host", b"GET /none HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        (
            "two authorizations",
            b"GET /two HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nauthorization: b\r\n\r\n",
            200,
        ),
        ("bytes that are no UTF-8", b"GET /raw HTTP/1.1\r\nhost: a\r\nauthorization: \xff\xfe\r\n\r\n", 200),
    ];
    for (what, request, status) in rows {
        assert_eq!(send(gateway.address(), request).status(), status, "{what}");
    }
    for worker in 0..2 {
        assert_eq!(gateway.host().worker(worker).vm_failure(), None);
    }
}

#[test]
fn the_admin_address_tells_readiness_and_counters() {
    let gateway = gateway("timers");
    let admin = gateway.admin_address().unwrap();
    assert_eq!((get(admin, "/ready").status(), get(admin, "/nothing").status()), (200, 404));
    get(gateway.address(), "/");
    let stats = get(admin, "/stats").text();
    assert!(stats.contains("http.ingress_http.downstream_rq_total: 1\n"), "{stats}");
    // The timers of the main VM and of both workers run by the real clock.
    let (mut ticks, clock) = (0, Clock::real());
    while ticks < 3 {
        assert!(clock.monotonic() < PATIENCE, "{ticks} ticks");
        let text = get(admin, "/stats/prometheus").text();
        let line = text.lines().find_map(|line| line.strip_prefix("ticks{} ")).unwrap().parse().unwrap();
        assert!(line >= ticks);
        ticks = line;
    }
}

#[test]
fn the_admin_address_counts_vms_that_were_started_anew() {
    let host = Host::builder().clock(Clock::real()).build();
    let plugin = Plugin::default().name("guest").failure_policy(FailurePolicy::FailReload);
    let module = Module::compile(guests::guest("traps")).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let gateway = Gateway::start(host, [(&module, plugin)], options).unwrap();
    let admin = gateway.admin_address().unwrap();
    // The backoff is a second and a half at most: until then each request meets it.
    assert_eq!(get(gateway.address(), "/unreachable").status(), 503);
    let (mut refused, clock) = (0, Clock::real());
    while get(gateway.address(), "/ok").status() == 503 {
        refused += 1;
        assert!(clock.monotonic() < PATIENCE, "{refused} requests");
    }
    let stats = get(admin, "/stats").text();
    for line in [
        format!("vm_reload_backoff: {refused}"),
        "vm_reload_success: 1".into(),
        "vm_reload_failure: 0".into(),
    ] {
        assert!(stats.contains(&format!("wasm.guest.{line}\n")), "{line} in {stats}");
    }
}

#[test]
fn an_update_is_taken_while_the_gateway_serves() {
    let mut gateway = gateway("configuration");
    gateway.update("two").unwrap();
    assert_eq!(get(gateway.address(), "/").header("x-configuration"), Some("two"));
    assert!(gateway.update("bad").is_err());
    assert_eq!(get(gateway.address(), "/").header("x-configuration"), Some("two"));
}

#[test]
fn h2c_is_served() {
    use http_body_util::{BodyExt, Full};
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};

    let gateway = gateway("limiter");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let request = http::Request::post(format!("http://{}/h2?q", gateway.address()))
            .body(Full::<bytes::Bytes>::from("streamed"))
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
        response.into_body().collect().await.unwrap().to_bytes()
    });
    assert!(text.starts_with(b"POST /h2?q HTTP/1.1\n") && text.ends_with(b"streamed"), "{text:?}");
}

#[test]
fn a_shutdown_under_load_loses_no_request() {
    let gateway = gateway("replies");
    let address = gateway.address();
    let (answered, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (answered, lost) = (Arc::clone(&answered), Arc::clone(&lost));
            thread::spawn(move || {
                let (mut stream, mut reader) = connect(address);
                loop {
                    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
                    let Some(answer) = read_message(&mut reader) else {
                        lost.fetch_add(1, Ordering::Relaxed);
                        return;
                    };
                    assert_eq!(answer.status(), 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                    if answer.header("connection") == Some("close") {
                        return;
                    }
                }
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 1000 {
        thread::yield_now();
    }
    gateway.shutdown();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    assert!(TcpStream::connect(address).is_err(), "nothing listens any more");
}

/// A gRPC service over h2c that sends each message back, and closes with status 0 when its client has closed.
fn grpc_echo() -> SocketAddr {
    use http_body_util::BodyExt;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(|request: http::Request<hyper::body::Incoming>| async {
                    let end =
                        http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    let body = request.into_body().with_trailers(async move { Some(Ok(end)) });
                    let response =
                        http::Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, std::convert::Infallible>(response.unwrap())
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(async move { connection.serve_connection(TokioIo::new(stream), service).await });
            }
        });
    });
    address
}

#[test]
fn grpc_calls_and_streams_go_to_their_cluster_over_h2c() {
    let host = Host::builder().clock(Clock::real()).system_randomness().build();
    let module = Module::compile(guests::guest("grpc")).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.clusters.insert("greeter".to_owned(), format!("http://{}", grpc_echo()).parse().unwrap());
    let gateway = Gateway::start(host, [(&module, Plugin::default())], options).unwrap();
    let rows: [(&str, &[&str]); 2] = [
        ("/call", &["call 0", "kind 1", "received Ada"]),
        ("/stream", &["received one", "received two", "trailing metadata 0", "closed 0"]),
    ];
    for (path, expected) in rows {
        assert_eq!(get(gateway.address(), path).status(), 200);
        let mut said = Vec::new();
        let clock = Clock::real();
        while !expected.iter().all(|line| said.iter().any(|given| given == line)) {
            said.extend(gateway.host().logs().take().into_iter().map(|line| line.message));
            assert!(clock.monotonic() < PATIENCE, "{said:?}");
            thread::yield_now();
        }
    }
}
