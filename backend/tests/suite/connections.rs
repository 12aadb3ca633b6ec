//! What a listener grants its clients.

use std::time::Duration;

use axum::{Router, routing};
use backend::Settings;
use backend::server::{self, Answer, Bounds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::database::Database;
use crate::service::{Service, settings};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: s.test\r\n\r\n";
/// More than the system takes of an answer that nobody reads.
const LARGE: usize = 64 << 20;

async fn serve(bounds: Bounds, router: impl Answer) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server::serve(listener, router, bounds, stopped));
    (address, stop)
}

async fn is_answered(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 1024];
    let read = timeout(Duration::from_millis(500), stream.read(&mut bytes)).await;
    read.is_ok_and(|read| bytes[..read.unwrap()].starts_with(b"HTTP/1.1 200"))
}

#[tokio::test]
async fn a_connection_beyond_the_bound_waits_until_another_is_closed() {
    let bounds = Bounds { connections: 2, ..Bounds::default() };
    let (address, _stop) = serve(bounds, Router::new().route("/", routing::get(|| async { "ok" }))).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        streams.push(stream);
    }
    for (stream, answered) in streams.iter_mut().zip([true, true, false]) {
        assert_eq!(is_answered(stream).await, answered);
    }
    streams.remove(0);
    assert!(is_answered(&mut streams[1]).await);
}

#[tokio::test]
async fn fruitless_connections_are_accepted_at_a_pace_and_requests_on_open_ones_answered_meanwhile() {
    const PACED: u32 = 200;
    let (address, _stop) =
        serve(Bounds::default(), Router::new().route("/", routing::get(|| async { "ok" }))).await;
    let mut open = TcpStream::connect(&address).await.unwrap();
    open.write_all(REQUEST).await.unwrap();
    assert!(is_answered(&mut open).await);
    let before = Instant::now();
    for n in 0..PACED {
        let mut fruitless = TcpStream::connect(&address).await.unwrap();
        let request = b"GET /none HTTP/1.1\r\nhost: s.test\r\nconnection: close\r\n\r\n";
        fruitless.write_all(request).await.unwrap();
        let mut answer = String::new();
        fruitless.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{n}: {answer}");
        open.write_all(REQUEST).await.unwrap();
        assert!(is_answered(&mut open).await, "{n}");
    }
    // The first two are accepted without a pause: the server waits for the second one before the first one ends.
    assert!(before.elapsed() >= Duration::from_millis(1) * (PACED - 2), "{:?}", before.elapsed());
}

#[tokio::test]
async fn a_client_that_reads_nothing_of_its_answer_is_given_up() {
    let bounds = Bounds { write_timeout: Duration::from_millis(200), ..Bounds::default() };
    let router = Router::new().route("/", routing::get(|| async { vec![b'x'; LARGE] }));
    let (address, _stop) = serve(bounds, router).await;
    let read = async |pause| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        tokio::time::sleep(pause).await;
        let (mut buffer, mut read) = (vec![0; 1 << 16], 0);
        // A connection that was given up ends, or breaks.
        while let Ok(Ok(bytes @ 1..)) = timeout(Duration::from_secs(5), stream.read(&mut buffer)).await {
            read += bytes;
            if read > LARGE {
                break;
            }
        }
        read
    };
    assert!(read(Duration::ZERO).await > LARGE);
    assert!(read(Duration::from_secs(2)).await < LARGE);
}

/// To the server, a client that vanished without closing its connection is one that neither sends nor takes anything.
#[tokio::test]
async fn the_connection_of_a_client_that_vanished_is_closed() {
    const PATIENCE: Duration = Duration::from_millis(300);
    let settings = Settings { request_timeout: PATIENCE, ..settings() };
    let service = Service::with_settings(Database::sqlite(), settings).await;
    let router = service.backend.router().route("/large", routing::get(|| async { vec![b'x'; LARGE] }));
    let bounds = Bounds { connections: 1, write_timeout: PATIENCE, header_timeout: PATIENCE };
    let (address, _stop) = serve(bounds, router).await;
    let healthz = "GET /healthz HTTP/1.1\r\nhost: s.test\r\n\r\n";
    let body = format!(
        "POST /links HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{",
        service.key()
    );
    //  when it vanished, what it had sent, and whether it had taken an answer
    let table = [
        ("before its request", "", false),
        ("within the headers", "GET /healthz HTTP/1.1\r\nhost: s", false),
        ("within the body", &body, false),
        ("within the answer", "GET /large HTTP/1.1\r\nhost: s.test\r\n\r\n", false),
        ("after the answer", healthz, true),
    ];
    for (vanished, sent, is_answered_before) in table {
        let mut gone = TcpStream::connect(&address).await.unwrap();
        gone.write_all(sent.as_bytes()).await.unwrap();
        if is_answered_before {
            assert!(is_answered(&mut gone).await);
        }
        // There is room for one connection.
        let mut next = TcpStream::connect(&address).await.unwrap();
        next.write_all(healthz.as_bytes()).await.unwrap();
        let mut bytes = [0; 12];
        let answered = timeout(Duration::from_secs(10), next.read_exact(&mut bytes)).await;
        answered.unwrap_or_else(|_| panic!("{vanished}: the connection is kept")).unwrap();
        assert_eq!(&bytes, b"HTTP/1.1 200", "{vanished}");
        drop(gone);
    }
}
