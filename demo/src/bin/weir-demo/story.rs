//! The contract, played as a client and shown. Each step fails where the gateway does not keep it.

use std::time::Duration;

use anyhow::ensure;
use demo::client::Client;
use demo::clock;
use demo::exchange::{Answer, Request, get, post};
use demo::receiver::Receiver;
use serde_json::{Value, json};

use crate::World;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// What must be left of a minute for 61 requests, and of a second for three.
const ROOM: (Duration, Duration) = (Duration::from_secs(4), Duration::from_millis(600));
/// The headers that tell a client where it stands.
const SHOWN: [&str; 6] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "retry-after",
    "ratelimit-policy",
    "ratelimit",
];

/// Plays all of it.
pub(crate) fn play(world: &World) -> anyhow::Result<()> {
    let client = &Client::to(world.address)?;
    let (free, pro) = (world.keys.of("free"), world.keys.of("pro"));
    println!("The API is behind the gateway at http://{}.", world.address);

    free_has_60_a_minute(client, free)?;
    free_has_no_analytics(client, free)?;
    pro_has_2_analytics_a_second(client, pro)?;
    a_bulk_call_costs_one(client, pro)?;
    a_webhook_arrives_signed(client, pro)?;
    println!("\nDone: every step behaved as expected.");
    Ok(())
}

fn free_has_60_a_minute(client: &Client, key: &str) -> anyhow::Result<()> {
    title("Free: 60 requests in a minute, and the 61st is refused");
    let left = clock::left_of(MINUTE, clock::now());
    if left < ROOM.0 {
        println!("  (waiting {} s for a fresh minute)", left.as_secs() + 1);
        clock::wait_for_room(MINUTE, ROOM.0);
    }
    for sent in 0..60 {
        let answer = client.send(&get("/links").key(key))?;
        expect(&answer, 200)?;
        let remaining = answer.number("x-ratelimit-remaining");
        ensure!(remaining == Some(59 - sent), "request {}: {answer}", sent + 1);
        if sent == 0 {
            show("GET /links, the 1st", &answer);
        }
    }
    let refused = client.send(&get("/links").key(key))?;
    expect(&refused, 429)?;
    ensure!(refused.header("retry-after").is_some(), "{refused}");
    show("GET /links, the 61st", &refused);
    println!("    {}", message(&refused)?);
    Ok(())
}

fn free_has_no_analytics(client: &Client, key: &str) -> anyhow::Result<()> {
    title("Free: analytics is not in the plan");
    let refused = client.send(&get("/analytics").key(key))?;
    expect(&refused, 403)?;
    show("GET /analytics", &refused);
    println!("    {}", message(&refused)?);
    Ok(())
}

fn pro_has_2_analytics_a_second(client: &Client, key: &str) -> anyhow::Result<()> {
    title("Pro: 2 analytics requests in a second");
    clock::wait_for_room(SECOND, ROOM.1);
    for status in [200, 200, 429] {
        let answer = client.send(&get("/analytics?groupBy=count&start=24+hours+ago").key(key))?;
        expect(&answer, status)?;
        show("GET /analytics", &answer);
    }
    Ok(())
}

fn a_bulk_call_costs_one(client: &Client, key: &str) -> anyhow::Result<()> {
    title("Pro: a bulk call of 100 links is one request");
    let links: Vec<Value> = (0..100).map(|i| json!({"url": format!("https://example.com/{i}")})).collect();
    let before = remaining(client, &get("/links/count").key(key))?;
    let created = client.send(&post("/links/bulk").key(key).json(&Value::Array(links)))?;
    expect(&created, 200)?;
    let created = created.json()?.as_array().map_or(0, Vec::len);
    let after = remaining(client, &get("/links/count").key(key))?;
    ensure!(created == 100, "{created} links were created");
    println!(
        "  POST /links/bulk: {created} links; {before} requests left before; {after} left after the bulk call and one further request"
    );
    ensure!(before < after || before - after == 2, "{before} fell to {after}");
    Ok(())
}

fn a_webhook_arrives_signed(client: &Client, key: &str) -> anyhow::Result<()> {
    title("Pro: a webhook instead of polling");
    let receiver = Receiver::start()?;
    let webhook =
        json!({"name": "demo", "url": receiver.url(), "triggers": ["link.created", "link.clicked"]});
    let webhook = client.send(&post("/webhooks").key(key).json(&webhook))?;
    expect(&webhook, 201)?;
    let secret = webhook.json()?["secret"].as_str().unwrap_or_default().to_owned();

    let link = client.send(&post("/links").key(key).json(&json!({"url": "https://example.com/news"})))?;
    expect(&link, 200)?;
    let link = link.json()?;
    println!("  POST /links: {}", link["shortLink"].as_str().unwrap_or_default());
    let short = format!("/r/{}", link["key"].as_str().unwrap_or_default());
    let click = client
        .send(&get(short.as_str()).header("user-agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"))?;
    expect(&click, 302)?;
    println!("  GET {short}: to {}, and is not counted", click.header("location").unwrap_or_default());

    let deliveries = receiver.wait_for(2, Duration::from_secs(10))?;
    let mut events = Vec::new();
    for delivery in &deliveries {
        let event = delivery.verify(&secret)?["event"].as_str().unwrap_or_default().to_owned();
        println!("  received {event}, signature verified");
        events.push(event);
    }
    events.sort();
    ensure!(events == ["link.clicked", "link.created"], "{events:?} arrived");
    Ok(())
}

fn title(text: &str) {
    println!("\n{text}");
}

fn expect(answer: &Answer, status: u16) -> anyhow::Result<()> {
    ensure!(answer.status() == status, "expected {status}, got {answer}");
    Ok(())
}

fn show(what: &str, answer: &Answer) {
    println!("  {what}: {}", answer.status());
    for name in SHOWN {
        if let Some(value) = answer.header(name) {
            println!("    {name}: {value}");
        }
    }
}

fn message(answer: &Answer) -> anyhow::Result<String> {
    let body = answer.json()?;
    Ok(body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn remaining(client: &Client, request: &Request) -> anyhow::Result<u64> {
    let answer = client.send(request)?;
    expect(&answer, 200)?;
    answer.number("x-ratelimit-remaining").ok_or_else(|| anyhow::anyhow!("no remaining count in {answer}"))
}
