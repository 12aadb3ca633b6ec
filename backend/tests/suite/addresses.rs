//! How much of a visitor's address is kept.

use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use backend::{ClickRules, KeptAddress, Settings};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::process::{BROWSER, Caller, Process, make_key};
use crate::receiver::Receiver;
use crate::service::{Service, settings};

on_both_databases! {
    as_much_of_an_address_is_stored_and_sent_as_the_operator_says,
    repeats_are_told_by_the_whole_address,
    no_file_holds_more_of_an_address_than_is_kept,
    without_a_proxy_the_address_is_that_of_the_connection,
}

fn keeping(ip: KeptAddress) -> Settings {
    let clicks = ClickRules { ip, trusted_hops: 1, ..ClickRules::default() };
    Settings { clicks, ..settings() }
}

/// Follows the short link `k` from an address.
async fn follow_from(service: &Service, address: &str) {
    let request = Request::get("/r/k").header("user-agent", BROWSER).header("x-forwarded-for", address);
    assert_eq!(service.send(request.body(Body::empty()).unwrap()).await.status, 302);
    service.backend.flush_clicks().await;
}

/// Makes the short link `k` and a webhook that hears of its clicks, and returns the webhook's id.
async fn link_and_webhook(service: &Service, receiver: &Receiver) -> String {
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let webhook = json!({
        "name": "rx", "url": receiver.url("/"), "triggers": ["link.clicked"], "linkScope": "workspace",
    });
    service.post("/webhooks", &webhook).await.body["id"].as_str().unwrap().to_owned()
}

async fn as_much_of_an_address_is_stored_and_sent_as_the_operator_says(database: Database) {
    let mut receiver = Receiver::start().await;
    let mut service = Service::start(database).await;
    link_and_webhook(&service, &receiver).await;
    //  what is kept, address, and what is stored of it
    let table = [
        (KeptAddress::default(), "192.0.2.77", "192.0.2.0"),
        (KeptAddress::Truncated, "::ffff:192.0.2.77", "192.0.2.0"),
        (KeptAddress::Truncated, "2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        (KeptAddress::Truncated, "nonsense", ""),
        (KeptAddress::Full, "192.0.2.77", "192.0.2.77"),
        (KeptAddress::Full, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),
        (KeptAddress::None, "192.0.2.77", ""),
        (KeptAddress::None, "2001:db8:1:2:3:4:5:6", ""),
    ];
    for (kept, address, expected) in table {
        service = service.restart_with(keeping(kept)).await;
        service.clock.advance(Duration::from_secs(1));
        follow_from(&service, address).await;
        let event = &service.get("/events?limit=1").await.body[0];
        assert_eq!((&event["ip"], &event["click"]["ip"]), (&json!(expected), &json!(expected)), "{kept:?}");
        assert_eq!(receiver.next().await.json()["data"]["click"]["ip"], expected, "{kept:?} {address}");
    }
}

async fn repeats_are_told_by_the_whole_address(database: Database) {
    let mut service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let mut expected = 0;
    for kept in [KeptAddress::Full, KeptAddress::Truncated, KeptAddress::None] {
        let mut settings = keeping(kept);
        settings.clicks.once_per_hour = true;
        service = service.restart_with(settings).await;
        // Two of the same network, and one that comes again.
        for (address, counts) in [("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.1", 0)] {
            follow_from(&service, address).await;
            expected += counts;
            assert_eq!(service.get("/analytics").await.body["clicks"], expected, "{kept:?} {address}");
        }
    }
}

/// Whether a file of a folder has these bytes.
fn is_in_a_file(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().any(|file| {
        let bytes = std::fs::read(file).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

async fn no_file_holds_more_of_an_address_than_is_kept(database: Database) {
    let mut service = Service::start(database).await;
    let folder = service.click_log_folder().to_owned();
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for (kept, address, stored) in [
        (KeptAddress::Truncated, "198.51.100.77", Some("198.51.100.0")),
        (KeptAddress::None, "198.51.100.78", None),
        (KeptAddress::Full, "198.51.100.79", Some("198.51.100.79")),
    ] {
        service = service.restart_with(keeping(kept)).await;
        follow_from(&service, address).await;
        assert_eq!(is_in_a_file(&folder, address), stored == Some(address), "{kept:?}");
        if let Some(stored) = stored {
            assert!(is_in_a_file(&folder, stored), "{kept:?}");
        }
    }
}

async fn without_a_proxy_the_address_is_that_of_the_connection(database: Database) {
    let caller = Caller::new(make_key(&database.url));
    //  trusted proxies, X-Forwarded-For, address
    let table = [
        ("0", None, "127.0.0.1"),
        ("0", Some("192.0.2.7"), "127.0.0.1"),
        ("1", None, "127.0.0.1"),
        ("1", Some("192.0.2.7"), "192.0.2.7"),
    ];
    let key = |number: usize| format!("k{number}");
    for (number, (trusted_hops, forwarded, expected)) in table.into_iter().enumerate() {
        let options = ["--ip", "full", "--trusted-hops", trusted_hops];
        let process = Process::start_with(&database.url, &options);
        let link = json!({"url": "https://example.com", "key": key(number)});
        let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
        let path = format!("/r/{}", key(number));
        assert_eq!(caller.visit(process.url(&path), forwarded).await.unwrap(), StatusCode::FOUND);
        let events = process.url(&format!("/events?linkId={}", link["id"].as_str().unwrap()));
        let recorded = async {
            loop {
                let events = caller.json(Method::GET, events.clone(), &Value::Null).await.unwrap();
                if let Some(event) = events.get(0) {
                    return event["ip"].clone();
                }
            }
        };
        let address = tokio::time::timeout(Duration::from_secs(20), recorded).await.expect("it is recorded");
        assert_eq!(address, expected, "{trusted_hops} {forwarded:?}");
    }
}
