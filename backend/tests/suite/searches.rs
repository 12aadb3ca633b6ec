//! Searches in links.

use backend::{PublicUrl, Settings};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    a_search_finds_short_links_as_responses_show_them,
}

async fn a_search_finds_short_links_as_responses_show_them(database: Database) {
    let public_url = PublicUrl::parse("http://S.test:8080/go%C3%A9").unwrap();
    let settings = Settings { public_url, ..settings() };
    let service = Service::with_settings_on_domains(database, settings, &["go.test"]).await;
    let mut shown = Vec::new();
    for (domain, key) in [("s.test", "docs"), ("s.test", "Акция/東京-😀"), ("go.test", "docs")] {
        let link =
            service.link(&json!({"url": "https://example.com/%2F", "domain": domain, "key": key})).await;
        shown.push(link["shortLink"].as_str().unwrap().to_owned());
    }
    let [docs, encoded, other] = <[String; 3]>::try_from(shown).unwrap();
    assert_eq!(docs, "http://s.test:8080/go%C3%A9/r/docs");
    assert_eq!(other, "http://go.test/r/docs");
    //  text, and the short links that have it
    let table: [(&str, &[&str]); 17] = [
        (&docs, &[&docs]),
        (&docs.to_uppercase(), &[&docs]),
        (&encoded, &[&encoded]),
        (&other, &[&other]),
        ("http://s.test:8080/goé/r/Акция/東", &[&encoded]),
        ("%D0%BA%D1%86%D0%B8%D1%8F/%E6%9D%B1", &[&encoded]),
        ("-%f0%9f%98%80", &[&encoded]),
        ("http://", &[&other, &encoded, &docs]),
        ("/r/", &[&other, &encoded, &docs]),
        ("test/r/docs", &[&other]),
        (":8080/go", &[&encoded, &docs]),
        // Of the destination.
        ("example.com/%2F", &[&other, &encoded, &docs]),
        // Not as responses show them.
        ("s.test/docs", &[]),
        ("https://go.test", &[]),
        ("http://s.test/r/docs", &[]),
        ("%2Fr%2F", &[]),
        ("/r/%64ocs", &[]),
    ];
    for (text, expected) in table {
        let search = utf8_percent_encode(text, NON_ALPHANUMERIC);
        assert_eq!(
            service.get(&format!("/links?search={search}")).await.each("shortLink"),
            expected,
            "{text}"
        );
        assert_eq!(
            service.get(&format!("/links/count?search={search}")).await.body,
            expected.len(),
            "{text}"
        );
    }
}
