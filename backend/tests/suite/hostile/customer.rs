//! The customer who works as usual.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::process::{Caller, Process};
use crate::receiver::Receiver;

/// Pause between two requests of a kind by the customer who works as usual. With [`QUERY_EVERY`], it uses up the quotas
/// of the plan `advanced`: 50 requests a second, and 8 analytics queries.
const PACE: Duration = Duration::from_micros(62_500);
/// Rounds of requests with one analytics query.
const QUERY_EVERY: usize = 2;

/// What the customer who works as usual does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Follow,
    Read,
    Create,
    List,
    Analytics,
}

impl Action {
    pub(super) const ALL: [Self; 5] = [Self::Follow, Self::Read, Self::Create, Self::List, Self::Analytics];
}

/// The customer who works as usual, with a webhook for what happens to its links.
pub(super) struct Customer {
    caller: Caller,
    server: String,
    /// A link that is followed and read.
    link: String,
    receiver: Receiver,
}

/// What a customer did and how long it took.
#[derive(Default)]
pub(super) struct Work {
    pub(super) took: BTreeMap<Action, Vec<Duration>>,
    /// Ids of the links whose creation was acknowledged.
    pub(super) created: BTreeSet<String>,
    pub(super) clicks: usize,
}

impl Customer {
    pub(super) async fn new(process: &Process, key: String) -> Self {
        let caller = Caller::new(key);
        let receiver = Receiver::start().await;
        let webhook = json!({
            "name": "rx", "url": receiver.url("/"), "triggers": ["link.created", "link.clicked"],
        });
        caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
        let link = json!({"url": "https://example.com/", "key": "usual"});
        let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
        let link = link["id"].as_str().unwrap().to_owned();
        Self { caller, server: process.url(""), link, receiver }
    }

    /// Sends requests of each kind at a steady pace, whether or not earlier ones are answered, and waits for all answers.
    #[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
    pub(super) async fn work(&self, time: Duration, work: &mut Work) {
        let mut under_way = JoinSet::new();
        let mut ticks = interval(PACE);
        let end = Instant::now() + time;
        for number in 0.. {
            ticks.tick().await;
            if Instant::now() >= end {
                break;
            }
            for action in Action::ALL {
                if action == Action::Analytics && number % QUERY_EVERY != 0 {
                    continue;
                }
                let (method, path, body) = match action {
                    Action::Follow => (Method::GET, "/r/usual".to_owned(), Value::Null),
                    Action::Read => (Method::GET, format!("/links/{}", self.link), Value::Null),
                    Action::Create => {
                        let body = json!({"url": format!("https://example.com/{number}"), "title": "t"});
                        (Method::POST, "/links".to_owned(), body)
                    }
                    Action::List => (Method::GET, "/links?pageSize=10".to_owned(), Value::Null),
                    Action::Analytics => {
                        (Method::GET, "/analytics?groupBy=top_links".to_owned(), Value::Null)
                    }
                };
                let (caller, url) = (self.caller.clone(), format!("{}{path}", self.server));
                under_way.spawn(async move {
                    let sent = Instant::now();
                    let answer = caller.call(method, url, &body).await;
                    let (status, body) = answer.unwrap_or_else(|| panic!("{action:?} was not answered"));
                    let expected = if action == Action::Follow { StatusCode::FOUND } else { StatusCode::OK };
                    assert_eq!(status, expected, "{action:?}: {body}");
                    (action, sent.elapsed(), body)
                });
            }
        }
        while let Some(answered) = under_way.join_next().await {
            let (action, took, body) = answered.unwrap();
            work.took.entry(action).or_default().push(took);
            match action {
                Action::Follow => work.clicks += 1,
                Action::Create => _ = work.created.insert(body["id"].as_str().unwrap().to_owned()),
                Action::Read | Action::List | Action::Analytics => {}
            }
        }
    }

    /// Looks for everything that was acknowledged.
    #[expect(clippy::disallowed_methods, reason = "a deadline for another process")]
    pub(super) async fn assert_nothing_is_lost(&mut self, work: &Work) {
        let url = |path: &str| format!("{}{path}", self.server);
        for id in &work.created {
            let found = self.caller.json(Method::GET, url(&format!("/links/{id}")), &Value::Null).await;
            assert_eq!(found.unwrap()["id"], json!(id));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut counted = 0;
        while counted < work.clicks && Instant::now() < deadline {
            let answer = self.caller.json(Method::GET, url("/analytics?interval=all"), &Value::Null).await;
            counted = usize::try_from(answer.unwrap()["clicks"].as_u64().unwrap()).unwrap();
        }
        assert_eq!(counted, work.clicks, "clicks counted of those acknowledged");
        let mut created = work.created.clone();
        created.insert(self.link.clone());
        let mut clicks = BTreeSet::new();
        while !created.is_empty() || clicks.len() < work.clicks {
            let event = self.receiver.next().await.json();
            match event["event"].as_str().unwrap() {
                "link.created" => _ = created.remove(event["data"]["id"].as_str().unwrap()),
                "link.clicked" => _ = clicks.insert(event["id"].as_str().unwrap().to_owned()),
                other => panic!("nobody listens to {other}"),
            }
        }
        assert_eq!(clicks.len(), work.clicks, "events of clicks");
    }
}
