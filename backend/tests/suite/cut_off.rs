//! Bulk calls that are cut off between their transactions: by the time limit of requests, and by the end of the process. A client that
//! vanishes does not cut its call off.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::Settings;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Row};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::database::{Database, on_both_databases};
use crate::process::{Caller, Process, make_key};
use crate::service::{Service, settings};

on_both_databases! {
    a_bulk_call_that_times_out_leaves_its_first_transactions,
    a_bulk_call_whose_client_vanishes_is_completed,
    a_bulk_call_of_a_killed_process_leaves_its_first_transactions,
}

/// Links of a call.
const LINKS: usize = 100;
/// Attempts to cut a call off between its first and its last transaction.
const ATTEMPTS: usize = 40;
/// Connections on which another customer creates links meanwhile.
const OTHERS: usize = 2;
/// The longest that a write of another customer may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
enum Call {
    Create,
    Update,
    Delete,
}

fn external_ids(round: usize) -> Vec<String> {
    (0..LINKS).map(|n| format!("large-{round}-{n}")).collect()
}

/// The request of a call. The links are so large that a transaction has only some of them.
fn request(call: Call, round: usize) -> (Method, String, Value) {
    let ids = external_ids(round);
    match call {
        Call::Create => {
            let url = format!("https://example.com/{}", "u".repeat(30_000));
            let link = |id: &String| json!({"url": url, "comments": "c".repeat(30_000), "externalId": id});
            (Method::POST, "/links/bulk".to_owned(), ids.iter().map(link).collect())
        }
        Call::Update => {
            let body = json!({"externalIds": ids, "data": {"comments": "d".repeat(30_000)}});
            (Method::PATCH, "/links/bulk".to_owned(), body)
        }
        Call::Delete => {
            let ids: Vec<String> = ids.iter().map(|id| format!("ext_{id}")).collect();
            (Method::DELETE, format!("/links/bulk?linkIds={}", ids.join(",")), Value::Null)
        }
    }
}

/// The external ids of a round's links that the database has, in the order of their creation. With [`Call::Update`], only of
/// those that the call has updated.
async fn stored(database: &mut AnyConnection, call: Call, round: usize) -> Vec<String> {
    let updated = if matches!(call, Call::Update) { r#"%"comments":"ddd%"# } else { "%" };
    let query = "SELECT external_id FROM links WHERE external_id LIKE $1 AND details LIKE $2 ORDER BY seq";
    let query = sqlx::query(query).bind(format!("large-{round}-%")).bind(updated);
    query.fetch_all(database).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Number of links that a call has written.
async fn written(database: &mut AnyConnection, call: Call, round: usize) -> usize {
    let stored = stored(database, call, round).await.len();
    if matches!(call, Call::Delete) { LINKS - stored } else { stored }
}

/// Checks the answer to the same call after at least `before` of its links were written, and that all are written now. The
/// transaction in which the call was cut off may still have been committed.
async fn assert_completed(
    database: &mut AnyConnection,
    call: Call,
    round: usize,
    before: usize,
    (status, answer): (StatusCode, Value),
) {
    assert_eq!(status, StatusCode::OK, "{call:?}");
    match call {
        Call::Create => {
            let results = answer.as_array().unwrap();
            let is_refused = |result: &Value| result["code"] == "conflict";
            let refused = results.iter().take_while(|result| is_refused(result)).count();
            assert!((before..LINKS).contains(&refused), "{refused} conflicts after {before} links");
            assert!(results[refused..].iter().all(|link| link["id"].is_string()));
            assert_eq!(stored(database, call, round).await, external_ids(round));
        }
        Call::Update => assert_eq!(answer.as_array().unwrap().len(), LINKS),
        Call::Delete => {
            let deleted = answer["deletedCount"].as_u64().unwrap();
            assert!(
                (1..=LINKS - before).contains(&usize::try_from(deleted).unwrap()),
                "{deleted} after {before}"
            );
        }
    }
    assert_eq!(written(database, call, round).await, LINKS, "{call:?}");
}

async fn a_bulk_call_that_times_out_leaves_its_first_transactions(database: Database) {
    let mut service = Service::start(database).await;
    let (_, other) = service.new_workspace("other").await;
    let mut connection = service.database().connect().await;
    let (_, path, body) = request(Call::Create, 0);
    let began = Instant::now();
    assert_eq!(service.post(&path, &body).await.status, StatusCode::OK);
    let mut request_timeout = began.elapsed() / 2;
    // The limit follows how fast the machine is now. Its two steps are unequal, so that it does not alternate between two
    // values that are both wrong.
    for round in 1..=ATTEMPTS {
        service = service.restart_with(Settings { request_timeout, ..settings() }).await;
        let (_, path, body) = request(Call::Create, round);
        let status = service.post(&path, &body).await.status;
        service = service.restart_with(settings()).await;
        let left = stored(&mut connection, Call::Create, round).await;
        assert_eq!(left, external_ids(round)[..left.len()], "the first links of the call");
        if left.len() == LINKS {
            request_timeout = request_timeout * 4 / 5;
            continue;
        }
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        if left.is_empty() {
            request_timeout = request_timeout * 9 / 8;
        } else {
            let one = json!({"url": "https://example.com"});
            let one = service.call_as(&other, Method::POST, "/links", Some(&one));
            let one = tokio::time::timeout(PATIENCE, one).await.expect("another customer is answered");
            assert_eq!(one.status, StatusCode::OK);
            let again = service.post(&path, &body).await;
            let again = (again.status, again.body);
            return assert_completed(&mut connection, Call::Create, round, left.len(), again).await;
        }
    }
    panic!("no call was cut off between its transactions");
}

/// A service in its own process with two customers. One of them sends large bulk calls.
struct Customers {
    /// None while it is killed.
    process: Option<Process>,
    database: Database,
    connection: AnyConnection,
    bulk: Caller,
    other: Caller,
    /// The ids of the other customer's links, whose creation was acknowledged.
    acknowledged: BTreeSet<String>,
    /// Number of the last call.
    round: usize,
}

impl Customers {
    async fn new(database: Database) -> Self {
        let (bulk, other) = (Caller::new(make_key(&database.url)), Caller::new(make_key(&database.url)));
        let process = Some(Process::start(&database.url));
        let connection = database.connect().await;
        Self { process, database, connection, bulk, other, acknowledged: BTreeSet::new(), round: 0 }
    }

    fn url(&self, path: &str) -> String {
        self.process.as_ref().unwrap().url(path)
    }

    async fn call(&self, call: Call) -> (StatusCode, Value) {
        let (method, path, body) = request(call, self.round);
        self.bulk.call(method, self.url(&path), &body).await.unwrap()
    }

    /// Begins a call and cuts it off once it has written some of its links, while the other customer creates links. Returns how
    /// many were written when it was cut off, which may be all.
    async fn cut_off(&mut self, call: Call, cut: Cut) -> usize {
        let (method, path, body) = request(call, self.round);
        let (bulk, url) = (self.bulk.clone(), self.url(&path));
        let calling = tokio::spawn(async move { bulk.call(method, url, &body).await });
        let mut others = JoinSet::new();
        for _ in 0..OTHERS {
            let (other, url) = (self.other.clone(), self.url("/links"));
            others.spawn(async move {
                let mut created = Vec::new();
                loop {
                    let link = json!({"url": "https://example.com"});
                    let link = other.json(Method::POST, url.clone(), &link);
                    // The process may be gone.
                    match tokio::time::timeout(PATIENCE, link).await.expect("another customer is answered") {
                        Some(link) => created.push(link["id"].as_str().unwrap().to_owned()),
                        None => return created,
                    }
                    if created.len() == OTHERS * LINKS {
                        return created;
                    }
                }
            });
        }
        while !calling.is_finished() && written(&mut self.connection, call, self.round).await == 0 {}
        match cut {
            Cut::Vanish => calling.abort(),
            Cut::Kill => {
                self.process = None;
                self.process = Some(Process::start(&self.database.url));
            }
        }
        let written = written(&mut self.connection, call, self.round).await;
        for created in others.join_all().await {
            self.acknowledged.extend(created);
        }
        // The answer of a call that is complete does not matter.
        let _gone = calling.await;
        written
    }

    async fn assert_nothing_is_lost(&self) {
        for id in &self.acknowledged {
            let found = self.other.json(Method::GET, self.url(&format!("/links/{id}")), &Value::Null);
            assert_eq!(found.await.unwrap()["id"], json!(id));
        }
    }
}

/// How a call ends before it is complete.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Vanish,
    Kill,
}

impl Customers {
    /// Cuts a call off between its first and its last transaction. Returns the number of the links that were written by then.
    async fn cut_off_in_the_middle(&mut self, call: Call, cut: Cut) -> usize {
        for _ in 0..ATTEMPTS {
            self.round += 1;
            if !matches!(call, Call::Create) {
                self.call(Call::Create).await;
            }
            let before = self.cut_off(call, cut).await;
            if (1..LINKS).contains(&before) {
                return before;
            }
        }
        panic!("no {call:?} was cut off between its transactions");
    }
}

async fn a_bulk_call_whose_client_vanishes_is_completed(database: Database) {
    let mut customers = Customers::new(database).await;
    for call in [Call::Create, Call::Update, Call::Delete] {
        customers.cut_off_in_the_middle(call, Cut::Vanish).await;
        let completed = async {
            while written(&mut customers.connection, call, customers.round).await < LINKS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let completed = tokio::time::timeout(Duration::from_secs(60), completed).await;
        completed.unwrap_or_else(|_| panic!("{call:?} was not completed"));
        customers.assert_nothing_is_lost().await;
    }
}

async fn a_bulk_call_of_a_killed_process_leaves_its_first_transactions(database: Database) {
    let mut customers = Customers::new(database).await;
    let before = customers.cut_off_in_the_middle(Call::Create, Cut::Kill).await;
    let left = stored(&mut customers.connection, Call::Create, customers.round).await;
    assert_eq!(left, external_ids(customers.round)[..left.len()], "the first links of the call");
    let again = customers.call(Call::Create).await;
    assert_completed(&mut customers.connection, Call::Create, customers.round, before, again).await;
    customers.assert_nothing_is_lost().await;
}
