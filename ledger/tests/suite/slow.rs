//! Clients that send nothing, or too slowly.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

use crate::process::Process;

const HEAD: &str = "POST /v1/shares HTTP/1.1\r\nhost: ledger\r\ncontent-length: 200000\r\n\r\n";
/// What a client of HTTP/2 sends first: the preface and empty settings.
const HTTP_2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Within how long the service gives such a client up.
const IDLE: Duration = Duration::from_secs(20);
const REQUEST: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(4);

/// Sends a text, and then a byte each half second. What the service answers, and after how long it closes the connection.
async fn closed_after(ledger: &Process, first: &str, drop: &[u8]) -> (String, Duration) {
    let (began, mut answer) = (Instant::now(), Vec::new());
    let (mut reader, mut writer) = TcpStream::connect(ledger.address()).await.unwrap().into_split();
    writer.write_all(first.as_bytes()).await.unwrap();
    let dripping = async {
        let mut pace = interval(Duration::from_millis(500));
        loop {
            pace.tick().await;
            // An error means that the service has closed the connection, which the reader finds.
            let _sent = writer.write_all(drop).await;
        }
    };
    let reading = timeout(IDLE + SLACK, reader.read_to_end(&mut answer));
    tokio::select! {
        read = reading => {
            // A connection that is closed before all was read may be reset.
            let _closed = read.unwrap_or_else(|_| panic!("still open: {first:?} {drop:?}"));
        }
        () = dripping => {}
    }
    (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
}

#[tokio::test]
async fn a_client_that_is_too_slow_holds_no_connection() {
    let ledger = Process::start(&[]).await;
    let get = "GET /healthz HTTP/1.1\r\nhost: ledger\r\n\r\n";
    //  what is sent first, what is sent each half second, the start of the answer, and when the connection is closed
    let rows = [
        ("nothing", "", &b""[..], "", IDLE),
        ("a head that never ends", "GET /", b"x", "", IDLE),
        ("a request, and then nothing", get, b"", "HTTP/1.1 200 OK", IDLE),
        ("a request, and then a head that never ends", get, b"x", "HTTP/1.1 200 OK", IDLE),
        ("the beginning of HTTP/2, and then nothing", HTTP_2, b"", "", IDLE),
        ("a body that never comes", HEAD, b"", "HTTP/1.1 408 Request Timeout", REQUEST),
        ("a body that never ends", HEAD, b"x", "HTTP/1.1 408 Request Timeout", REQUEST),
    ];
    let closed = rows.map(|(_, first, drop, ..)| closed_after(&ledger, first, drop));
    let closed = futures_util::future::join_all(closed).await;
    for ((what, _, _, start, limit), (answer, after)) in rows.iter().zip(closed) {
        assert!(answer.starts_with(start), "{what}: {answer}");
        assert!((*limit - SLACK / 4..*limit + SLACK).contains(&after), "{what}: {after:?}");
    }
    assert_eq!(ledger.get("/healthz").await.status, 200);
}
