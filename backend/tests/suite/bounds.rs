//! The largest requests, and those beyond.

use std::time::Duration;

use axum::http::Method;
use backend::{Analytics, Click, Settings};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use sqlx::{AnyConnection, Executor};

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    a_list_has_the_same_maximum_as_a_string_and_as_an_array,
    a_list_of_200_000_names_is_refused_before_any_work,
    a_bulk_creation_of_all_fields_of_100_links_has_few_enough_values,
    each_text_has_a_maximum,
    a_link_has_at_most_64_kib,
    a_link_that_is_too_large_is_refused_while_others_write,
    a_link_that_has_grown_in_the_meantime_is_still_at_most_64_kib,
    urls_of_any_accepted_length_are_found_again,
    filters_of_any_accepted_length_work,
    a_search_of_any_accepted_text_ends_in_time_and_takes_it_literally,
    a_time_series_has_at_most_1200_entries,
}

/// The values `prefix0`, `prefix1` … as an array and as one string.
fn list(prefix: &str, count: usize) -> [Value; 2] {
    let values: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    [json!(values), json!(values.join(","))]
}

async fn a_list_has_the_same_maximum_as_a_string_and_as_an_array(database: Database) {
    let service = Service::start(database).await;
    let too_big =
        |name: &str, max: usize| format!("too_big: {name}: Too big: expected array to have <={max} items");
    //  field and a valid value of it, and how it is used
    type Use = fn(Value) -> (Method, &'static str, Value);
    let table: [(&str, Use); 4] = [
        ("tagNames", |names| {
            (Method::POST, "/links", json!({"url": "https://example.com", "tagNames": names}))
        }),
        ("tagIds", |ids| (Method::POST, "/links", json!({"url": "https://example.com", "tagIds": ids}))),
        ("linkIds", |ids| (Method::PATCH, "/links/bulk", json!({"linkIds": ids, "data": {"title": "t"}}))),
        ("externalIds", |ids| {
            (Method::PATCH, "/links/bulk", json!({"externalIds": ids, "data": {"title": "t"}}))
        }),
    ];
    for (name, request) in table {
        for (count, fits) in [(100, true), (101, false)] {
            for values in list("x", count) {
                let (method, path, body) = request(values);
                let answer = service.call_as(service.key(), method, path, Some(&body)).await;
                let refused = answer.status == 422 && answer.error().2 == too_big(name, 100);
                assert_eq!(refused, !fits, "{count} {name}: {}", answer.body);
            }
        }
    }
    for (path, name, max) in [
        ("/links", "tagIds", 1_000),
        ("/links", "linkIds", 1_000),
        ("/links/count", "tagNames", 1_000),
        ("/analytics", "country", 1_000),
        ("/events", "linkId", 1_000),
    ] {
        for (count, status) in [(max, 200), (max + 1, 422)] {
            let values: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            for query in [
                format!("{name}={}", values.join(",")),
                format!("{name}={}", values.join(&format!("&{name}="))),
            ] {
                let answer = service.get(&format!("{path}?{query}")).await;
                assert_eq!(answer.status, status, "{path} {count} {name}");
                if status == 422 {
                    assert_eq!(answer.error().2, too_big(name, max));
                }
            }
        }
    }
    let ids = vec!["x"; 101].join(",");
    let answer = service.delete(&format!("/links/bulk?linkIds={ids}")).await;
    assert_eq!(answer.error().2, too_big("linkIds", 100));
}

async fn a_list_of_200_000_names_is_refused_before_any_work(database: Database) {
    // Far less than 200,000 tags take, and far more than a refusal does.
    let request_timeout = Duration::from_secs(5);
    let service = Service::with_settings(database, Settings { request_timeout, ..settings() }).await;
    for values in list("name", 200_000) {
        let body = json!({"url": "https://example.com", "tagNames": values});
        assert_eq!(service.post("/links", &body).await.status, 422);
        assert_eq!(service.post("/links/bulk", &json!([body])).await.status, 422);
    }
    assert_eq!(service.get("/links/count").await.body, 0);
}

async fn a_bulk_creation_of_all_fields_of_100_links_has_few_enough_values(database: Database) {
    const COUNTRIES: usize = 249;
    let service = Service::start(database).await;
    let names: Vec<String> = (0..100).map(|n| format!("tag {n}")).collect();
    let tags = service.tags(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let codes = ('A'..='Z').flat_map(|first| ('A'..='Z').map(move |second| format!("{first}{second}")));
    let geo: Value = codes.take(COUNTRIES).map(|code| (code, json!("https://e.test/"))).collect();
    let mut link = service.link(&json!({"url": "https://e.test/", "tagIds": tags, "geo": geo})).await;
    (link["tagIds"], link["tagNames"]) = (json!(tags), json!(names));
    let links: Value = (0..100)
        .map(|n| {
            link["key"] = json!(n.to_string());
            link.clone()
        })
        .collect();
    let answer = service.post("/links/bulk", &links).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    for link in answer.body.as_array().unwrap() {
        let numbers = (link["tags"].as_array().unwrap().len(), link["geo"].as_object().unwrap().len());
        assert_eq!(numbers, (100, COUNTRIES), "{}", link["key"]);
    }
}

async fn each_text_has_a_maximum(database: Database) {
    let service = Service::start(database).await;
    let url = |length: usize| format!("https://e.test/{}", "x".repeat(length - "https://e.test/".len()));
    let text = |length: usize| "x".repeat(length);
    //  field, its maximum in characters, and a value of a length
    type Make<'a> = &'a dyn Fn(usize) -> Value;
    let plain: Make<'_> = &|length| json!(text(length));
    let address: Make<'_> = &|length| json!(url(length));
    let by_country: Make<'_> = &|length| json!({"DE": url(length)});
    let named: Make<'_> = &|length| json!([text(length)]);
    let prefixed: Make<'_> = &|length| json!(format!("ext_{}", "y".repeat(length)));
    let table: [(&str, &str, usize, Make<'_>); 18] = [
        ("url", "url", 32_000, address),
        ("expiredUrl", "expiredUrl", 32_000, address),
        ("ios", "ios", 32_000, address),
        ("android", "android", 32_000, address),
        ("geo", "geo.DE", 32_000, by_country),
        ("title", "title", 32_000, plain),
        ("description", "description", 32_000, plain),
        ("image", "image", 32_000, plain),
        ("video", "video", 32_000, plain),
        ("comments", "comments", 32_000, plain),
        ("externalId", "externalId", 255, plain),
        ("externalId", "externalId", 255, prefixed),
        ("tenantId", "tenantId", 255, plain),
        ("programId", "programId", 255, plain),
        ("utm_source", "utm_source", 255, plain),
        ("folderId", "folderId", 190, plain),
        ("key", "key", 190, plain),
        ("tagNames", "tagNames[0]", 255, named),
    ];
    for (field, path, max, make) in table {
        let too_big = format!("too_big: {path}: Too big: expected string to have <={max} characters");
        for (length, fits) in [(max, true), (max + 1, false)] {
            let mut body = json!({"url": "https://example.com"});
            body[field] = make(length);
            let answer = service.post("/links", &body).await;
            // No tag and no folder has such a name.
            let unknown = ["tagNames", "folderId"].contains(&field);
            let expected = if fits && !unknown { 200 } else { 422 };
            assert_eq!(answer.status, expected, "{field} of {length}");
            if expected == 422 {
                assert_eq!(answer.error().2 == too_big, !fits, "{field} of {length}: {}", answer.body);
            }
        }
    }
}

async fn a_link_has_at_most_64_kib(database: Database) {
    let service = Service::start(database).await;
    let long = |letters: usize| format!("https://e.test/{}", "x".repeat(letters));
    let too_big = "too_big: : Too big: expected the link to have <=65536 bytes";
    let table = [
        (json!({"url": long(30_000), "comments": "x".repeat(32_000)}), true),
        (json!({"url": long(30_000), "comments": "x".repeat(32_000), "title": "x".repeat(9_000)}), false),
        (json!({"url": long(30_000), "title": "é".repeat(20_000)}), false),
        (json!({"url": long(9), "geo": {"DE": long(25_000), "FR": long(25_000), "IT": long(25_000)}}), false),
        // A control character takes six bytes in JSON.
        (json!({"url": long(25_000), "title": "\u{1}".repeat(8_000)}), false),
    ];
    for (body, fits) in table {
        let small = service.link(&json!({"url": "https://example.com"})).await;
        let answers = [
            service.post("/links", &body).await,
            service.put("/links/upsert", &body).await,
            service.patch(&format!("/links/{}", small["id"].as_str().unwrap()), &body).await,
        ];
        for answer in answers {
            match fits {
                true => assert_eq!(answer.status, 200, "{}", answer.body),
                false => assert_eq!((answer.error().0, answer.error().2), (422, too_big)),
            }
        }
        let bulk = service.post("/links/bulk", &json!([{"url": "https://example.com"}, body])).await;
        assert!(bulk.body[0]["id"].is_string());
        let error = if fits { Value::Null } else { json!(too_big) };
        assert_eq!(bulk.body[1]["error"], error);
    }
}

/// Keeps others from writing links until the connection ends its transaction.
async fn block_writing(service: &Service) -> AnyConnection {
    let block = if service.database().is_sqlite() {
        "BEGIN IMMEDIATE"
    } else {
        "BEGIN; LOCK TABLE workspaces, links IN EXCLUSIVE MODE"
    };
    let mut connection = service.database().connect().await;
    connection.execute(sqlx::raw_sql(block)).await.unwrap();
    connection
}

async fn a_link_that_is_too_large_is_refused_while_others_write(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://e.test/known"})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    let long = |letters: usize| format!("https://e.test/{}", "x".repeat(letters));
    let three: Value = json!({"DE": long(25_000), "FR": long(25_000), "IT": long(25_000)});
    // As large as a body may be, in all countries of two letters.
    let codes = ('A'..='Z').flat_map(|first| ('A'..='Z').map(move |second| format!("{first}{second}")));
    let many: Value = codes.take(260).map(|code| (code, json!(long(31_900)))).collect();
    let _block = block_writing(&service).await;
    for (geo, countries) in [(three, 3), (many, 260)] {
        let answers = [
            ("PATCH", service.patch(&path, &json!({"geo": geo})).await),
            ("PUT", service.put(&path, &json!({"geo": geo})).await),
            (
                "upsert",
                service.put("/links/upsert", &json!({"url": "https://e.test/known", "geo": geo})).await,
            ),
            (
                "upsert of a new one",
                service.put("/links/upsert", &json!({"url": "https://e.test/", "geo": geo})).await,
            ),
        ];
        for (what, answer) in answers {
            let message = "too_big: : Too big: expected the link to have <=65536 bytes";
            assert_eq!(answer.error(), (422, "unprocessable_entity", message), "{what} of {countries}");
        }
    }
}

async fn a_link_that_has_grown_in_the_meantime_is_still_at_most_64_kib(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://e.test/known"})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    let change = json!({"url": "https://e.test/known", "comments": "x".repeat(30_000)});
    for upsert in [false, true] {
        let mut block = block_writing(&service).await;
        let grown = json!({"title": "t".repeat(30_000), "description": "d".repeat(30_000)}).to_string();
        sqlx::query("UPDATE links SET details = $1").bind(grown).execute(&mut block).await.unwrap();
        let commit = async {
            // Long enough for the request to have been checked and to wait.
            tokio::time::sleep(Duration::from_millis(200)).await;
            block.execute("COMMIT").await.unwrap();
        };
        let request = async {
            if upsert {
                service.put("/links/upsert", &change).await
            } else {
                service.patch(&path, &change).await
            }
        };
        let (answer, ()) = tokio::join!(request, commit);
        assert_eq!(answer.status, 422, "{}", answer.body);
        let comments = service.get(&path).await.body["comments"].clone();
        assert_eq!(comments, Value::Null, "nothing has changed");
        assert_eq!(service.patch(&path, &json!({"title": null, "description": null})).await.status, 200);
    }
}

async fn urls_of_any_accepted_length_are_found_again(database: Database) {
    let service = Service::start(database).await;
    // Random, so that no index can compress them.
    let url = |length: usize| {
        let letters: String =
            std::iter::repeat_with(|| Click::new("", service.now()).id).take(length.div_ceil(26)).collect();
        format!("https://e.test/{letters}")[..length].to_owned()
    };
    for length in [100, 2_704, 2_705, 8_192, 32_000] {
        let url = url(length);
        let made = service.put("/links/upsert", &json!({"url": url})).await;
        assert_eq!(made.status, 200, "{length}: {}", made.body);
        let found = service.put("/links/upsert", &json!({"url": url, "title": "t"})).await;
        assert_eq!((&found.body["id"], &found.body["title"]), (&made.body["id"], &json!("t")), "{length}");
    }
    assert_eq!(service.get("/links/count").await.body, 5);
}

async fn filters_of_any_accepted_length_work(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": format!("https://e.test/{}", "é".repeat(255))})).await;
    let id = link["id"].as_str().unwrap();
    let search = "%C3%A9".repeat(255);
    assert_eq!(service.get(&format!("/links?search={search}")).await.each("id"), [id]);
    let answer = service.get(&format!("/links?search={search}x")).await;
    assert_eq!(answer.error().2, "too_big: search: Too big: expected string to have <=255 characters");
    let mut ids = vec!["link_nobody"; 999];
    ids.push(id);
    let ids = ids.join(",");
    assert_eq!(service.get(&format!("/links?linkIds={ids}")).await.each("id"), [id]);
    service.click_hours_ago(id, &[1]).await;
    assert_eq!(service.get(&format!("/analytics?linkId={ids}")).await.body["clicks"], 1);
    assert_eq!(service.get(&format!("/analytics?linkId=-{ids}")).await.body["clicks"], 0);
}

async fn a_search_of_any_accepted_text_ends_in_time_and_takes_it_literally(database: Database) {
    let analytics = Analytics { timeout: Duration::from_secs(2), ..Analytics::default() };
    let service = Service::with_analytics(database, analytics).await;
    let odd = "***=a.c(d|e)[f]{2}^$?+*\\%_";
    service.link(&json!({"url": format!("https://e.test/?{odd}"), "key": "odd"})).await;
    // For each letter of the destination, nearly all of the text has to be compared before it is found to differ.
    for _ in 0..40 {
        service.link(&json!({"url": format!("https://e.test/{}", "u".repeat(31_900))})).await;
    }
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let table = [
        ("u".repeat(254) + "x", 0),
        ("x".to_owned() + &"u".repeat(254), 0),
        ("U".repeat(255), 40),
        (odd.to_owned(), 1),
        (odd.to_uppercase(), 1),
        (odd.replace('c', "x"), 0),
        ("TEST/R/ODD".to_owned(), 1),
        ("s.test/odd".to_owned(), 0),
        ("/ODD".to_owned(), 1),
    ];
    for (search, expected) in table {
        let what: String = search.chars().take(12).collect();
        let path = format!("?search={}", encoded(&search));
        assert_eq!(service.get(&format!("/links{path}")).await.each("id").len(), expected, "{what}");
        assert_eq!(service.get(&format!("/links/count{path}")).await.body, expected, "{what}");
        let by = service.get(&format!("/links/count{path}&groupBy=domain")).await;
        let counted: u64 = by.each("_count").iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(usize::try_from(counted).unwrap(), expected, "{what}");
    }
}

async fn a_time_series_has_at_most_1200_entries(database: Database) {
    let service = Service::start(database).await;
    let table = [
        ("start=1926-04-01&end=2026-03-15", Ok(1_200)),
        ("start=1926-03-31&end=2026-03-15", Err(())),
        ("start=-009998-01-01T00:00:00Z&end=9999-12-30T00:00:00Z", Err(())),
        ("interval=all&end=9000-01-01", Err(())),
        ("interval=all", Ok(1)),
    ];
    for (range, expected) in table {
        let answer = service.get(&format!("/analytics?groupBy=timeseries&{range}")).await;
        match expected {
            Ok(entries) => assert_eq!(answer.each("start").len(), entries, "{range}"),
            Err(()) => {
                let message = "custom: start: Invalid range: a time series has at most 1200 months. Choose interval=1y, \
                               or a start at most 100 years before the end.";
                assert_eq!((answer.error().0, answer.error().2), (422, message), "{range}");
            }
        }
        assert_eq!(service.get(&format!("/analytics?{range}")).await.status, 200, "{range}");
    }
}
