//! Lists that exceed the time limit of queries.

use std::time::Duration;

use backend::Analytics;
use serde_json::json;
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_list_that_takes_too_long_is_interrupted_and_answered_503,
}

/// Rows of each kind, which take much longer than a millisecond to read.
const ROWS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO links (id, workspace_seq, domain, key, key_folded, url, archived, details, created_at, updated_at)
    SELECT 'link_' || i, 1, 's.test', 'k' || i, 'k' || i, 'https://example.com', 0, '{}', 0, 0 FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO tags (id, workspace_seq, name, color) SELECT 'tag_' || i, 1, 'tag' || i, 'red' FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO folders (workspace_seq, id, name, created_at, updated_at)
    SELECT 1, 'fold_' || i, 'folder' || i, 0, 0 FROM n;
    INSERT INTO link_tags (link_seq, tag_seq) SELECT l.seq, g.seq FROM links l JOIN tags g ON g.id = 'tag_1';
    INSERT INTO webhook_events (id, workspace_seq, event, payload, created_at)
    SELECT 'evt_' || l.id, 1, 'link.created', '{}', 1773578000000 FROM links l WHERE l.id <> 'link_1';
    INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts) SELECT e.seq, 1, 0 FROM webhook_events e;
";

async fn a_list_that_takes_too_long_is_interrupted_and_answered_503(database: Database) {
    let within = |timeout| Analytics { timeout, ..Analytics::default() };
    let service = Service::with_analytics(database, within(Duration::from_secs(60))).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "usual"})).await;
    let webhook = json!({"name": "rx", "url": "https://rx.test", "triggers": ["link.deleted"]});
    assert_eq!(service.post("/webhooks", &webhook).await.status, 201);
    service.database().connect().await.execute(sqlx::raw_sql(ROWS)).await.unwrap();
    let paths = [
        "/links?sortBy=clicks",
        "/links?domain=s.test&sortBy=lastClicked",
        "/links?page=10&tenantId=unknown",
        "/links?withTags=true&sortBy=clicks",
        "/links/count",
        "/links/count?search=example",
        "/links/count?groupBy=domain",
        "/links/count?groupBy=tagId",
        "/tags?search=unknown",
        "/folders?search=unknown",
    ];
    for path in paths {
        assert_eq!(service.get(path).await.status, 200, "{path}");
    }
    let service = service.restart_with_analytics(within(Duration::from_millis(1))).await;
    for path in paths {
        let answer = service.get(path).await;
        let message =
            "The query took too long and was interrupted. Narrow its range or filters, or try again later.";
        assert_eq!(answer.error(), (503, "service_unavailable", message), "{path}");
        assert_eq!(answer.headers["retry-after"], "1", "{path}");
        let one = format!("/links/{}", link["id"].as_str().unwrap());
        assert_eq!(service.get(&one).await.status, 200, "after {path}");
    }
}
