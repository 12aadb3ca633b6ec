//! Analytics queries that exceed their time limit.

use std::time::Duration;

use axum::http::Method;
use backend::{Analytics, Click};
use serde_json::json;
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::service::{Answer, Service};

on_both_databases! {
    a_query_that_takes_too_long_is_interrupted_and_answered_503,
}

fn within(timeout: Duration) -> Analytics {
    Analytics { timeout, ..Analytics::default() }
}

fn assert_interrupted(answer: &Answer) {
    let message =
        "The query took too long and was interrupted. Narrow its range or filters, or try again later.";
    assert_eq!(answer.error(), (503, "service_unavailable", message));
    assert_eq!(answer.headers["retry-after"], "1");
}

async fn a_query_that_takes_too_long_is_interrupted_and_answered_503(database: Database) {
    let service = Service::with_analytics(database, within(Duration::from_millis(1))).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let clicks: Vec<Click> = (0..20_000)
        .map(|n| {
            let mut click = Click::new(link["id"].as_str().unwrap(), service.now());
            click.details.referer_url = format!("https://referer.test/{n}").into();
            click
        })
        .collect();
    service.backend.store().record_clicks(&clicks).await.unwrap();
    let query = "/analytics?groupBy=referer_urls&interval=all";
    // More often than there are readers.
    for _ in 0..10 {
        assert_interrupted(&service.get(query).await);
        assert_eq!(service.get("/links/info?domain=s.test&key=k").await.status, 200);
        assert_eq!(service.follow(Method::GET, "/r/k", "Googlebot/2.1").await.status, 302);
    }
}

#[tokio::test]
async fn a_statement_of_postgresql_has_the_time_that_the_earlier_ones_have_left() {
    let timeout = Duration::from_secs(1);
    let service = Service::with_analytics(Database::postgres().await, within(timeout)).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[1]).await;
    let lock = async |table: &str| {
        let mut connection = service.database().connect().await;
        let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
        connection
    };
    // The first and the last statement of the query wait for these, each for less than the time limit.
    let locks = [lock("retention").await, lock("links").await];
    let unlock = async {
        service.database().waits_for_locks(1).await;
        for connection in locks {
            tokio::time::sleep(timeout * 7 / 10).await;
            drop(connection);
        }
    };
    let (answer, ()) = tokio::join!(service.get("/analytics?groupBy=top_links"), unlock);
    assert_interrupted(&answer);
}
