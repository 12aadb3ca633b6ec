//! Large answers: they are sent in parts of a bounded size, and few of a workspace are in memory at once.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::server::{self, Bounds};
use backend::{Click, Settings};
use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    top_links_and_events_of_any_size_are_sent_in_parts_of_a_bounded_size,
    answers_that_clients_do_not_read_take_the_memory_of_their_workspace_only,
}

const MIB: usize = 1024 * 1024;

/// Makes links, of 62 KB each if they are large.
async fn links(service: &Service, number: usize, are_large: bool) -> Vec<String> {
    let letters = if are_large { 31_000 } else { 10 };
    let url = format!("https://example.com/{}", "u".repeat(letters));
    let body: Value = (0..number).map(|_| json!({"url": url, "comments": "c".repeat(letters)})).collect();
    let answer = service.post("/links/bulk", &body).await;
    answer.each("id").into_iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// The entries of a JSON array that is sent in parts, with nothing between them but commas.
fn entries(parts: &[Bytes]) -> Vec<Value> {
    let text = parts.concat();
    let entries: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let lengths: usize = entries.iter().map(|entry| entry.to_string().len()).sum();
    assert_eq!(text.len(), lengths + entries.len().max(1) + 1);
    entries
}

async fn top_links_and_events_of_any_size_are_sent_in_parts_of_a_bounded_size(database: Database) {
    let service = Service::start(database).await;
    let (top_links, events) =
        ("/analytics?groupBy=top_links&interval=all", "/events?interval=all&sortOrder=asc&limit=1000");
    let (mut ids, mut asked) = (Vec::new(), 0);
    //  links that are made, whether they are large, the least number of parts in which all are sent
    for (number, are_large, least_parts) in
        [(0, false, 1), (1, false, 1), (16, false, 1), (100, false, 1), (60, true, 3), (100, false, 3)]
    {
        if number > 0 {
            ids.extend(links(&service, number, are_large).await);
        }
        // In the order of their creation, as links with equal clicks.
        let clicks = ids[asked..].iter().enumerate().map(|(index, id)| {
            let minutes = i64::try_from(1_000 - asked - index).unwrap();
            Click::new(id.clone(), service.now() - SignedDuration::from_mins(minutes))
        });
        let clicks: Vec<Click> = clicks.collect();
        service.backend.store().record_clicks(&clicks).await.unwrap();
        if number > 1 {
            let deleted = ids.remove(asked + 7);
            assert_eq!(service.delete(&format!("/links/{deleted}")).await.status, StatusCode::OK);
        }
        asked = ids.len();
        for (path, id) in [(top_links, "/id"), (events, "/link/id")] {
            let parts = service.parts(path).await;
            let largest = parts.iter().map(Bytes::len).max().unwrap();
            assert!(parts.len() >= least_parts && largest < MIB * 3 / 2, "{} {largest}", parts.len());
            let entries = entries(&parts);
            let found: Vec<&str> =
                entries.iter().map(|entry| entry.pointer(id).unwrap().as_str().unwrap()).collect();
            assert_eq!(found, ids, "{path}");
        }
    }
}

/// Asks for the page of links on a new connection and reads the status of the answer.
async fn ask(address: &str, key: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /links HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    (stream, String::from_utf8(status.to_vec()).unwrap())
}

async fn answers_that_clients_do_not_read_take_the_memory_of_their_workspace_only(database: Database) {
    // A request that waits is refused after a third of this.
    let settings = Settings { request_timeout: Duration::from_secs(60), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let ids = links(&service, 100, false).await;
    // As large as links could be before there was a maximum, so that an answer is larger than what the system takes of it, and three exceed the memory of a workspace: 16.3 MiB.
    let mut connection = service.database().connect().await;
    sqlx::query("UPDATE links SET details = $1")
        .bind(json!({"comments": "c", "description": "d".repeat(170_000)}).to_string())
        .execute(&mut connection)
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (_stop, stopped) = watch::channel(false);
    let bounds = Bounds { write_timeout: Duration::from_secs(600), ..Bounds::default() };
    tokio::spawn(server::serve(listener, service.backend.router(), bounds, stopped));

    let mut unread = Vec::new();
    for n in 0..3 {
        let (stream, status) = ask(&address, service.key()).await;
        assert_eq!(status, "HTTP/1.1 200", "{n}");
        unread.push(stream);
    }
    // There is no memory for more, and a bulk call without it writes nothing.
    let (_, other) = service.new_workspace("other").await;
    let change = json!({"linkIds": ids, "data": {"comments": "changed"}});
    let others = async {
        let link = json!({"url": "https://example.com"});
        assert_eq!(service.call_as(&other, Method::POST, "/links", Some(&link)).await.status, StatusCode::OK);
        assert_eq!(service.call_as(&other, Method::GET, "/links", None).await.each("id").len(), 1);
    };
    let (page, change, ()) =
        tokio::join!(service.get("/links"), service.patch("/links/bulk", &change), others);
    for refused in [page, change] {
        let message = "Your workspace has too many requests at once. Try again later.";
        assert_eq!(refused.error(), (503, "service_unavailable", message));
        assert_eq!(refused.headers["retry-after"], "1");
    }
    let link = service.get(&format!("/links/{}", ids[0])).await;
    assert_eq!(link.body["comments"], "c");

    // A client that goes gives its memory back.
    unread.pop();
    assert_eq!(ask(&address, service.key()).await.1, "HTTP/1.1 200");
    drop(unread);
    assert_eq!(service.get("/links/count").await.body, 100);
}
