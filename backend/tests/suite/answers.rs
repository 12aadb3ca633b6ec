//! Large answers: few of a workspace are in memory at once.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::server::{self, Bounds};
use backend::{Click, Settings};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    an_answer_with_large_links_is_whole_and_top_links_end_at_8_mib,
    answers_that_clients_do_not_read_take_the_places_of_their_workspace_only,
}

/// Makes links, of 62 KB each if they are large.
async fn links(service: &Service, number: usize, are_large: bool) -> Vec<String> {
    let letters = if are_large { 31_000 } else { 10 };
    let url = format!("https://example.com/{}", "u".repeat(letters));
    let body: Value = (0..number).map(|_| json!({"url": url, "comments": "c".repeat(letters)})).collect();
    let answer = service.post("/links/bulk", &body).await;
    answer.each("id").into_iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

async fn an_answer_with_large_links_is_whole_and_top_links_end_at_8_mib(database: Database) {
    let service = Service::start(database).await;
    let ids = [links(&service, 100, true).await, links(&service, 100, true).await].concat();
    let ids = [ids, links(&service, 100, true).await].concat();
    let click = |(index, id): (usize, &String)| {
        let minutes = i64::try_from(1_000 - index).unwrap();
        Click::new(id.clone(), service.now() - SignedDuration::from_mins(minutes))
    };
    let clicks: Vec<Click> = ids.iter().enumerate().map(click).collect();
    service.backend.store().record_clicks(&clicks).await.unwrap();
    // In the order of their creation, as links with equal clicks.
    let top_links = service.get("/analytics?groupBy=top_links&interval=all").await;
    let found: Vec<&str> = top_links.each("id").into_iter().map(|id| id.as_str().unwrap()).collect();
    // Links are read in groups of 250, and each has 62 KB.
    assert_eq!(found, ids[..250]);
    let events = service.get("/events?limit=1000&sortOrder=asc&interval=all").await;
    let events = events.body.as_array().unwrap();
    assert_eq!(events.iter().map(|event| event["link"]["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
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

async fn answers_that_clients_do_not_read_take_the_places_of_their_workspace_only(database: Database) {
    // A request that waits is refused after a third of this.
    let settings = Settings { request_timeout: Duration::from_secs(30), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let ids = links(&service, 100, false).await;
    // An answer is larger than what the system takes of it.
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
    for n in 0..2 {
        let (stream, status) = ask(&address, service.key()).await;
        assert_eq!(status, "HTTP/1.1 200", "{n}");
        unread.push(stream);
    }
    // There is no place for a third.
    let (_, other) = service.new_workspace("other").await;
    let others = async {
        let link = json!({"url": "https://example.com"});
        assert_eq!(service.call_as(&other, Method::POST, "/links", Some(&link)).await.status, StatusCode::OK);
        assert_eq!(service.call_as(&other, Method::GET, "/links", None).await.each("id").len(), 1);
    };
    let (refused, ()) = tokio::join!(service.get("/links"), others);
    let message = "Your workspace has too many requests at once. Try again later.";
    assert_eq!(refused.error(), (503, "service_unavailable", message));
    assert_eq!(refused.headers["retry-after"], "1");
    // Other requests than queries have theirs.
    let link = service.get(&format!("/links/{}", ids[0])).await;
    assert_eq!(link.body["comments"], "c");

    // A client that goes gives its place back.
    unread.pop();
    assert_eq!(ask(&address, service.key()).await.1, "HTTP/1.1 200");
    drop(unread);
    assert_eq!(service.get("/links/count").await.body, 100);
}
