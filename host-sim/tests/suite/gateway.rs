//! The live gateway, over real sockets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use host_sim::{
    Clock, FailurePolicy, Host, Module, Plugin,
    gateway::{Gateway, Options},
};

use crate::guests;

const PATIENCE: Duration = Duration::from_secs(20);

/// A message as it came over the wire.
#[derive(Debug)]
struct Message {
    start: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Message {
    fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One line without its end, its bytes read as Latin-1; `None` at the end of the connection.
fn line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).ok().filter(|read| *read > 0)?;
    Some(line.into_iter().filter(|byte| !b"\r\n".contains(byte)).map(char::from).collect())
}

/// Reads the start line and the headers.
fn read_head(stream: &mut impl BufRead) -> Option<Message> {
    let start = line(stream)?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Message { start, headers, body: Vec::new() })
}

/// Reads one chunk of a chunked body; an empty one is the last.
fn read_chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let size = usize::from_str_radix(&line(stream)?, 16).ok()?;
    let mut chunk = vec![0; size];
    stream.read_exact(&mut chunk).ok()?;
    line(stream)?;
    Some(chunk)
}

fn read_message(stream: &mut impl BufRead) -> Option<Message> {
    let mut message = read_head(stream)?;
    if message.header("transfer-encoding") == Some("chunked") {
        loop {
            let chunk = read_chunk(stream)?;
            if chunk.is_empty() {
                return Some(message);
            }
            message.body.extend(chunk);
        }
    }
    let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    message.body.resize(length, 0);
    stream.read_exact(&mut message.body).ok()?;
    Some(message)
}

/// An upstream whose every connection `serve` handles.
fn upstream(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers every request with 200 and what it received: the start line, the headers, the body.
fn echo(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read_message(&mut reader) {
        let headers: String =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let body = format!("{}\n{headers}\n{}", request.start, request.text());
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// A gateway in front of `upstream` whose admin address is open, with a cluster "auth".
fn gateway_with(guest: &str, upstream: SocketAddr, cluster: Option<SocketAddr>) -> Gateway {
    let mut host = Host::builder().workers(2).clock(Clock::real()).system_randomness().build();
    host.load(&Module::compile(guests::guest(guest)).unwrap(), Plugin::default()).unwrap();
    let url = |address: SocketAddr| format!("http://{address}").parse().unwrap();
    let mut options = Options::new(url(upstream));
    options.clusters.extend(cluster.map(|address| ("auth".to_owned(), url(address))));
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Gateway::start(host, options).unwrap()
}

fn gateway(guest: &str) -> Gateway {
    gateway_with(guest, upstream(echo), None)
}

fn connect(address: SocketAddr) -> (TcpStream, BufReader<TcpStream>) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    (stream, reader)
}

/// Sends one request on a connection of its own.
fn send(address: SocketAddr, request: &[u8]) -> Message {
    let (mut stream, mut reader) = connect(address);
    stream.write_all(request).unwrap();
    read_message(&mut reader).unwrap()
}

fn get(address: SocketAddr, path: &str) -> Message {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n").as_bytes())
}

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
    let wait = std::sync::Mutex::new(wait);
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
    let arrived = std::sync::Mutex::new(arrived);
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
fn a_callout_goes_to_its_cluster_and_the_paused_request_goes_on() {
    let cluster = upstream(echo);
    let gateway = gateway_with("callouts", upstream(echo), Some(cluster));
    assert_eq!(get(gateway.address(), "/").status(), 200);
    let said = gateway.host().logs().take();
    assert!(said.iter().any(|line| line.message.starts_with("body GET /check HTTP/1.1")), "{said:?}");
}

#[test]
fn an_upstream_or_a_cluster_that_is_not_there_is_answered_503() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = get(gateway_with("limiter", free, None).address(), "/");
    assert_eq!(answer.status(), 503);
    assert!(answer.text().starts_with("upstream connect error"), "{}", answer.text());

    let gateway = gateway_with("callouts", upstream(echo), Some(free));
    assert_eq!(get(gateway.address(), "/").status(), 403, "the filter saw 503 and refused");
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
        assert_eq!(gateway.host().vm_failure(worker), None);
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
    let mut host = Host::builder().clock(Clock::real()).build();
    let plugin =
        Plugin { name: "guest".into(), failure_policy: FailurePolicy::FailReload, ..Plugin::default() };
    host.load(&Module::compile(guests::guest("traps")).unwrap(), plugin).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let gateway = Gateway::start(host, options).unwrap();
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
    let mut host = Host::builder().clock(Clock::real()).system_randomness().build();
    host.load(&Module::compile(guests::guest("grpc")).unwrap(), Plugin::default()).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.clusters.insert("greeter".to_owned(), format!("http://{}", grpc_echo()).parse().unwrap());
    let gateway = Gateway::start(host, options).unwrap();
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
