//! Filters of clicks find what links and clicks have, exactly as it is stored.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::Request;
use backend::{Click, ClickDetails};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_known_city_or_region_counts_in_its_group_though_what_it_is_in_is_unknown,
    referers_of_apps_are_found_in_upper_and_lower_case,
    each_campaign_parameter_is_a_filter_and_a_grouping,
    a_click_counts_by_where_it_led_whatever_becomes_of_its_link,
    white_space_at_the_ends_of_a_text_counts,
    white_space_of_an_external_id_decides_which_link_is_deleted,
}

/// The number of clicks that a filter selects, as the total, the events, the time series and the links have it.
async fn clicks(service: &Service, filter: &str) -> [usize; 4] {
    let sum = |list: &[&Value]| list.iter().map(|n| n.as_u64().unwrap()).sum::<u64>() as usize;
    let count = service.get(&format!("/analytics?{filter}")).await;
    let events = service.get(&format!("/events?{filter}")).await;
    let series = service.get(&format!("/analytics?groupBy=timeseries&{filter}")).await;
    let links = service.get(&format!("/analytics?groupBy=top_links&{filter}")).await;
    let count = count.body["clicks"].as_u64().unwrap_or_else(|| panic!("{filter}: {}", count.body)) as usize;
    [count, events.each("event").len(), sum(&series.each("clicks")), sum(&links.each("clicks"))]
}

/// The groups of the clicks: their values in some fields, and their clicks.
async fn groups(service: &Service, query: &str, fields: &[&str]) -> Vec<(Vec<String>, u64)> {
    let answer = service.get(&format!("/analytics?{query}")).await;
    let group = |group: &Value| {
        let values = fields.iter().map(|field| group[*field].as_str().unwrap().to_owned()).collect();
        (values, group["clicks"].as_u64().unwrap())
    };
    answer.body.as_array().unwrap_or_else(|| panic!("{query}: {}", answer.body)).iter().map(group).collect()
}

async fn a_known_city_or_region_counts_in_its_group_though_what_it_is_in_is_unknown(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let places = [
        ["DE", "Unknown", "Berlin"],
        ["DE", "DE-BE", "Berlin"],
        ["Unknown", "Unknown", "Paris"],
        ["Unknown", "Unknown-CA", "Unknown"],
        ["US", "US-CA", "Unknown"],
        ["US", "Unknown", "Unknown"],
        ["Unknown", "Unknown", "Unknown"],
    ];
    let clicks_at = places.map(|place| {
        let mut click = Click::new(link["id"].as_str().unwrap(), service.now());
        let details: &mut ClickDetails = &mut click.details;
        [details.country, details.region, details.city] = place.map(Cow::Borrowed);
        click
    });
    service.backend.store().record_clicks(&clicks_at).await.unwrap();
    let fields = ["country", "region", "city"];
    //  groupBy, the groups, and the filters that select the clicks of all of them
    let table: [(&str, &[[&str; 3]], &str); 3] = [
        (
            "cities",
            &[["DE", "DE-BE", "Berlin"], ["DE", "Unknown", "Berlin"], ["Unknown", "Unknown", "Paris"]],
            "city=-Unknown",
        ),
        (
            "regions",
            &[["DE", "DE-BE", "*"], ["US", "US-CA", "*"], ["Unknown", "Unknown-CA", "*"]],
            "region=-Unknown",
        ),
        ("countries", &[["DE", "*", "*"], ["US", "*", "*"]], "country=-Unknown"),
    ];
    for (group_by, expected, filter) in table {
        let found = groups(&service, &format!("groupBy={group_by}"), &fields).await;
        let places: Vec<&[String]> = found.iter().map(|(values, _)| values.as_slice()).collect();
        assert_eq!(places, expected, "{group_by}");
        let sum: u64 = found.iter().map(|(_, clicks)| clicks).sum();
        assert_eq!(clicks(&service, filter).await, [sum as usize; 4], "{group_by}");
    }
    let berlin = groups(&service, "groupBy=cities&city=Berlin", &fields).await;
    assert_eq!(berlin.iter().map(|(_, clicks)| clicks).sum::<u64>(), 2);
    assert_eq!(clicks(&service, "city=Berlin").await, [2; 4]);
}

async fn referers_of_apps_are_found_in_upper_and_lower_case(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for referer in ["android-app://com.Slack/", "android-app://WWW.com.Slack/", "HTTPS://T.co/1"] {
        let request = Request::get("/r/k").header("referer", referer).body(Body::empty()).unwrap();
        assert_eq!(service.send(request).await.status, 302);
    }
    service.backend.flush_clicks().await;
    let found = groups(&service, "groupBy=referers", &["referer"]).await;
    assert_eq!(found, [(vec!["com.slack".to_owned()], 2), (vec!["t.co".to_owned()], 1)]);
    //  filter                      clicks
    let table = [
        ("referer=com.slack", 2),
        ("referer=com.Slack", 2),
        ("referer=WWW.COM.SLACK", 2),
        ("referer=-com.Slack", 1),
        ("referer=T.co", 1),
    ];
    for (filter, expected) in table {
        assert_eq!(clicks(&service, filter).await, [expected; 4], "{filter}");
    }
}

/// Follows a short link from a page.
async fn follow(service: &Service, path: &str, referer: &str) {
    let request = Request::get(path).header("referer", referer).body(Body::empty()).unwrap();
    assert_eq!(service.send(request).await.status, 302, "{path}");
}

async fn a_click_counts_by_where_it_led_whatever_becomes_of_its_link(database: Database) {
    let service = Service::start(database).await;
    let link = json!({"url": "https://example.com/p", "key": "u", "utm_medium": "mail"});
    let link = service.link(&link).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    for (page, query) in
        [("https://a.test/x?1", "?utm_source=news"), ("https://a.test/x?2", "?utm_source=n%C3%A9"), ("", "")]
    {
        follow(&service, &format!("/r/u{query}"), page).await;
    }
    let late = json!({"utm_source": "late", "utm_medium": "print", "url": "https://example.com/q"});
    assert_eq!(service.patch(&path, &late).await.status, 200);
    follow(&service, "/r/u", "").await;
    follow(&service, "/r/u?utm_source=news", "").await;
    service.backend.flush_clicks().await;
    for when in ["while the link is there", "after another change"] {
        //  groupBy, field, and the values with their clicks
        for (group_by, field, values) in [
            ("utm_sources", "utm_source", "news 2, late 1, né 1"),
            ("utm_mediums", "utm_medium", "mail 3, print 2"),
            ("referer_urls", "refererUrl", "(direct) 3, https://a.test/x 2"),
            ("top_base_urls", "url", "https://example.com/p 3, https://example.com/q 2"),
        ] {
            let found = groups(&service, &format!("groupBy={group_by}"), &[field]).await;
            let found: Vec<String> =
                found.iter().map(|(value, clicks)| format!("{} {clicks}", value[0])).collect();
            assert_eq!(found.join(", "), values, "{group_by}, {when}");
        }
        //  filter, and its clicks
        for (filter, expected) in [
            ("utm_source=news", 2),
            ("utm_source=-news", 3),
            ("utm_source=late", 1),
            ("utm_source=n%C3%A9,late", 2),
            ("utm_medium=mail&utm_source=news", 1),
            ("utm_medium=print", 2),
            ("url=https://example.com/p", 3),
            ("url=https://example.com/p?utm_medium=mail", 1),
            ("refererUrl=https://a.test/x", 2),
            ("refererUrl=https://a.test/x?1", 1),
        ] {
            assert_eq!(clicks(&service, filter).await, [expected; 4], "{filter}, {when}");
        }
        let url = json!({"url": "https://example.com/r", "utm_source": null, "utm_medium": null});
        assert_eq!(service.patch(&path, &url).await.status, 200);
    }
}

async fn each_campaign_parameter_is_a_filter_and_a_grouping(database: Database) {
    let service = Service::start(database).await;
    let parameters = ["source", "medium", "campaign", "term", "content"];
    let link = async |key: &str, clicks: usize| {
        let mut body = json!({"url": "https://example.com", "key": key});
        for parameter in parameters {
            body[format!("utm_{parameter}")] = json!(format!("{parameter}-{key}"));
        }
        service.link(&body).await;
        for _ in 0..clicks {
            follow(&service, &format!("/r/{key}"), "").await;
        }
        service.backend.flush_clicks().await;
    };
    link("a", 3).await;
    link("b", 2).await;
    let plain = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(plain["id"].as_str().unwrap(), &[1]).await;
    for parameter in parameters {
        let name = format!("utm_{parameter}");
        let (a, b) = (format!("{parameter}-a"), format!("{parameter}-b"));
        let other = format!("{}-a", if parameter == "source" { "medium" } else { "source" });
        //  filter, and its clicks
        let table = [
            (a.clone(), 3),
            (b.clone(), 2),
            (format!("-{a}"), 3),
            (format!("-{b}"), 4),
            (format!("{a},{b}"), 5),
            (format!("-{a},{b}"), 1),
            (other, 0),
        ];
        for (value, expected) in table {
            assert_eq!(clicks(&service, &format!("{name}={value}")).await, [expected; 4], "{name}={value}");
        }
        let found = groups(&service, &format!("groupBy={name}s"), &[&name]).await;
        assert_eq!(found, [(vec![a], 3), (vec![b], 2)], "{name}");
    }
}

async fn white_space_at_the_ends_of_a_text_counts(database: Database) {
    let service = Service::start(database).await;
    for (clicks, text) in [(1, "a"), (2, "a "), (4, " a")] {
        let body = json!({
            "url": "https://example.com", "tenantId": text, "partnerId": text, "programId": text, "utm_source": text,
            "utm_medium": text, "utm_campaign": text, "utm_term": text, "utm_content": text,
        });
        let link = service.link(&body).await;
        let click = || {
            let mut click = Click::new(link["id"].as_str().unwrap(), service.now());
            click.details.city = text.into();
            click.details.url = link["url"].as_str().unwrap().to_owned().into();
            click
        };
        let made: Vec<Click> = std::iter::repeat_with(click).take(clicks).collect();
        service.backend.store().record_clicks(&made).await.unwrap();
    }
    let names = [
        "tenantId",
        "partnerId",
        "programId",
        "utm_source",
        "utm_medium",
        "utm_campaign",
        "utm_term",
        "utm_content",
        "city",
    ];
    for name in names {
        //  values, and their clicks
        let table = [
            ("a", 1),
            ("a%20", 2),
            ("%20a", 4),
            ("-a", 6),
            ("-a%20", 5),
            ("-%20a", 3),
            ("%20a,a%20", 6),
            // The one after a comma separates the values.
            ("x,%20a", 1),
            ("a%20,%20a", 3),
            ("-a%20,%20a", 4),
            ("%20", 0),
        ];
        for (values, expected) in table {
            assert_eq!(clicks(&service, &format!("{name}={values}")).await, [expected; 4], "{name}={values}");
        }
        // A repeated parameter is a list too.
        assert_eq!(clicks(&service, &format!("{name}=a&{name}=%20a")).await, [5; 4], "{name}");
    }
    let sources = groups(&service, "groupBy=utm_sources", &["utm_source"]).await;
    assert_eq!(sources, [(vec![" a".to_owned()], 4), (vec!["a ".to_owned()], 2), (vec!["a".to_owned()], 1)]);
    // Codes have no white space.
    assert_eq!(clicks(&service, "trigger=%20link%20,%20qr").await, [7; 4]);
    for filter in ["country=%20", "country=-%20,", "tenantId=,%20,"] {
        assert_eq!(service.get(&format!("/analytics?{filter}")).await.error().0, 422, "{filter}");
    }
    // A filter of links has one value.
    for (tenant, links) in [("a", 1), ("a%20", 1), ("a%20,a", 0)] {
        assert_eq!(service.get(&format!("/links/count?tenantId={tenant}")).await.body, links, "{tenant}");
    }
}

async fn white_space_of_an_external_id_decides_which_link_is_deleted(database: Database) {
    let service = Service::start(database).await;
    for external_id in ["a", "a ", " a"] {
        service.link(&json!({"url": "https://example.com", "externalId": external_id})).await;
    }
    let left = async || {
        let links = service.get("/links").await;
        links.each("externalId").iter().map(|id| id.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let deleted = service.delete("/links/bulk?linkIds=ext_a%20").await;
    assert_eq!(
        (deleted.body, left().await),
        (json!({"deletedCount": 1}), vec![" a".to_owned(), "a".to_owned()])
    );
    let deleted = service.delete("/links/bulk?linkIds=ext_b,%20ext_a").await;
    assert_eq!((deleted.body, left().await), (json!({"deletedCount": 1}), vec![" a".to_owned()]));
}
