//! Sort keys in the index.

use std::path::Path;

use axum::http::Method;
use serde_json::json;

use sqlx::migrate::Migrator;
use sqlx::{AnyPool, AssertSqlSafe, Executor, Row};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    generated_keys_are_adjacent_only_in_the_index,
    links_from_before_sort_keys_still_resolve_and_keep_their_keys,
}

async fn generated_keys_are_adjacent_only_in_the_index(database: Database) {
    let url = database.url.clone();
    let service = Service::start(database).await;
    let pool = AnyPool::connect(&url).await.unwrap();
    for prefix in ["", "Sale/Ü"] {
        let link = json!({"url": "https://example.com/", "prefix": prefix});
        let made = service.post("/links/bulk", &vec![link; 100].into()).await;
        let keys: Vec<&str> = made.each("key").into_iter().map(|key| key.as_str().unwrap()).collect();
        let mut sort_keys = Vec::new();
        for key in &keys {
            let row = sqlx::query("SELECT sort_key FROM links WHERE key = $1").bind((*key).to_owned());
            let sort_key: String = row.fetch_one(&pool).await.unwrap().get(0);
            sort_keys.push(sort_key);
        }
        let number = |text: &str| u64::from_str_radix(text.rsplit('/').next().unwrap(), 36).unwrap();
        let apart = |texts: &[&str]| -> Vec<u64> {
            texts.windows(2).map(|pair| number(pair[0]).abs_diff(number(pair[1]))).collect()
        };
        let sort_keys: Vec<&str> = sort_keys.iter().map(String::as_str).collect();
        assert!(
            sort_keys.iter().all(|sort_key| sort_key.starts_with(&prefix.to_lowercase())),
            "{sort_keys:?}"
        );
        // Unless the range contains the last sort key, which is very unlikely with 36^7 of them.
        assert_eq!(apart(&sort_keys), [1; 99], "{sort_keys:?}");
        // Adjacent random keys are nearly always at least a thousandth of the range apart.
        let near = apart(&keys).into_iter().filter(|apart| *apart < 36_u64.pow(7) / 1_000).count();
        assert!(near < 5, "{keys:?}");
    }
}

async fn links_from_before_sort_keys_still_resolve_and_keep_their_keys(database: Database) {
    sqlx::any::install_default_drivers();
    let (url, migrations, last) = if database.url.starts_with("sqlite:") {
        (format!("{}?mode=rwc", database.url), "migrations/sqlite", 4)
    } else {
        (database.url.clone(), "migrations/postgres", 3)
    };
    let migrations = Migrator::new(Path::new(migrations)).await.unwrap();
    let pool = AnyPool::connect(&url).await.unwrap();
    migrations.run_to(last, &pool).await.unwrap();
    pool.execute(
        "INSERT INTO workspaces (id, name, created_at) VALUES ('ws_old', 'old', 0);
         INSERT INTO packed_workspaces (workspace_seq, packed_until) SELECT seq, 0 FROM workspaces;",
    )
    .await
    .unwrap();
    for key in ["AbCdEfG", "zzzzzzz", "x"] {
        let folded = key.to_lowercase();
        pool.execute(AssertSqlSafe(format!(
            "INSERT INTO links (id, workspace_seq, domain, key, key_folded, url, archived, details, created_at, updated_at)
             SELECT 'link_{key}', seq, 's.test', '{key}', '{folded}', 'https://example.com/{key}', 0, '{{}}', 0, 0 FROM workspaces"
        )))
        .await
        .unwrap();
    }
    pool.close().await;
    let service = Service::start(database).await;
    for key in ["AbCdEfG", "abcdefg", "zzzzzzz", "X"] {
        let answer = service.follow(Method::GET, &format!("/r/{key}"), "curl/8.5.0").await;
        assert_eq!(answer.status, 302, "{key}");
        let again = service.post("/links", &json!({"url": "https://example.com/", "key": key})).await;
        assert_eq!(again.error().0, 409, "{key}");
    }
    let new = service.link(&json!({"url": "https://example.com/new"})).await;
    let path = format!("/r/{}", new["key"].as_str().unwrap().to_uppercase());
    assert_eq!(
        service.follow(Method::GET, &path, "curl/8.5.0").await.headers["location"],
        "https://example.com/new"
    );
}
