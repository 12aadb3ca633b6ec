//! Analytics of clicks at known instants.

use std::borrow::Cow;

use backend::{Click, ClickDetails};
use jiff::SignedDuration;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    relative_and_absolute_ranges_are_exact_and_events_agree,
    a_click_counts_up_to_the_millisecond_of_its_range,
    top_links_are_ordered_by_clicks_and_named,
    a_day_is_a_series_of_25_hours_from_zero,
    what_cannot_be_understood_is_refused_by_name,
    events_come_in_pages_in_either_direction,
    clicks_are_grouped_by_whatever_is_known_of_them,
    filters_take_lists_and_their_negation_and_events_agree,
    intervals_and_time_zones_are_the_readers,
}

async fn relative_and_absolute_ranges_are_exact_and_events_agree(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let id = link["id"].as_str().unwrap();
    service.click_hours_ago(id, &[25, 23, 1]).await;
    let ago = |hours| (service.now() - SignedDuration::from_hours(hours)).to_string();
    let day = ago(24);
    let two_hours = ago(2);
    //  range                                                     clicks in it, hours ago
    let table: [(String, &[i64]); 11] = [
        ("start=24+hours+ago".into(), &[1, 23]),
        ("start=24%20hours%20ago&end=2%20hours%20ago".into(), &[23]),
        (format!("start={day}"), &[1, 23]),
        (format!("start={day}&end={two_hours}"), &[23]),
        ("start=23+hours+ago".into(), &[1, 23]),
        ("start=1439+minutes+ago&end=61+minutes+ago".into(), &[23]),
        ("start=2+days+ago".into(), &[1, 23, 25]),
        ("start=1+week+ago&end=1+day+ago".into(), &[25]),
        ("end=24+hours+ago".into(), &[25]),
        ("".into(), &[1, 23]),
        ("start=2026-03-14&end=2026-03-14".into(), &[23, 25]),
    ];
    for (range, hours) in table {
        let count = hours.len();
        let top = service.get(&format!("/analytics?groupBy=top_links&{range}")).await;
        assert_eq!(top.each("clicks"), vec![&json!(count)], "top_links {range}");
        assert_eq!(top.each("link"), [id], "top_links {range}");
        assert_eq!(service.get(&format!("/analytics?{range}")).await.body["clicks"], count, "count {range}");
        let series = service.get(&format!("/analytics?groupBy=timeseries&{range}")).await;
        let sum: i64 = series.each("clicks").iter().map(|clicks| clicks.as_i64().unwrap()).sum();
        assert_eq!(sum, i64::try_from(count).unwrap(), "timeseries {range}");
        let instants: Vec<_> = hours.iter().map(|hours| json!(ago(*hours))).collect();
        assert_eq!(
            service.get(&format!("/events?{range}")).await.each("timestamp"),
            instants.iter().collect::<Vec<_>>(),
            "events {range}"
        );
    }
}

async fn a_click_counts_up_to_the_millisecond_of_its_range(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[2]).await;
    //  the click is at 10:34:56.789
    let table = [
        ("start=2026-03-15T10:34:56.789Z", 1),
        ("start=2026-03-15T10:34:56.790Z", 0),
        ("start=2026-03-15T10:34:56.7891Z", 0),
        ("start=2026-03-15T10:00:00Z&end=2026-03-15T10:34:56.789Z", 1),
        ("start=2026-03-15T10:00:00Z&end=2026-03-15T10:34:56.788Z", 0),
        ("start=2026-03-15T12:34:56.789%2B02:00", 1),
    ];
    for (range, clicks) in table {
        assert_eq!(service.get(&format!("/analytics?{range}")).await.body["clicks"], clicks, "{range}");
    }
}

async fn top_links_are_ordered_by_clicks_and_named(database: Database) {
    let service = Service::start(database).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        let link = service
            .link(&json!({"url": format!("https://example.com/{key}"), "key": key, "title": key}))
            .await;
        ids.push(link["id"].as_str().unwrap().to_owned());
    }
    service.click_hours_ago(&ids[0], &[1]).await;
    service.click_hours_ago(&ids[2], &[1, 2, 3]).await;
    let top = service.get("/analytics?groupBy=top_links").await;
    assert_eq!(
        top.body[0],
        json!({
            "link": ids[2], "id": ids[2], "domain": "s.test", "key": "c", "shortLink": "https://s.test/r/c",
            "url": "https://example.com/c", "title": "c", "comments": null, "folderId": null, "partnerId": null,
            "createdAt": "2026-03-15T12:34:56.789Z", "clicks": 3, "leads": 0, "sales": 0, "saleAmount": 0,
        })
    );
    assert_eq!(top.each("key"), ["c", "a"]);
}

async fn a_day_is_a_series_of_25_hours_from_zero(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[0, 24]).await;
    let series = service.get("/analytics?groupBy=timeseries").await;
    assert_eq!(series.each("start").len(), 25);
    assert_eq!(
        series.body[0],
        json!({"start": "2026-03-14T12:00:00.000Z", "clicks": 1, "leads": 0, "sales": 0, "saleAmount": 0})
    );
    assert_eq!(series.body[1]["clicks"], 0);
    assert_eq!(series.body[24]["clicks"], 1);
}

async fn what_cannot_be_understood_is_refused_by_name(database: Database) {
    let service = Service::start(database).await;
    let table = [
        (
            "start=yonder",
            "custom: start: Invalid date: expected RFC 3339 such as 2026-01-05T10:00:00Z, a day such as 2026-01-05, or a \
             time such as 24 hours ago, 1 day 2 hours ago, last 7 days, in 2 hours, now, today or yesterday",
        ),
        (
            "end=24+hours",
            "custom: end: Invalid date: expected RFC 3339 such as 2026-01-05T10:00:00Z, a day such as 2026-01-05, or a \
             time such as 24 hours ago, 1 day 2 hours ago, last 7 days, in 2 hours, now, today or yesterday",
        ),
        ("start=1+hour+ago&end=2+hours+ago", "custom: start: Invalid range: start is after end"),
        ("timezone=Mars/Base", "custom: timezone: Invalid IANA time zone"),
    ];
    for (query, message) in table {
        for path in ["/analytics", "/events"] {
            let answer = service.get(&format!("{path}?{query}")).await;
            assert_eq!(answer.error(), (422, "unprocessable_entity", message));
        }
    }
    let answer = service.get("/analytics?groupBy=moon").await;
    assert!(
        answer.error().2.starts_with("invalid_value: groupBy: Invalid type value. Valid values are: count, ")
    );
}

async fn events_come_in_pages_in_either_direction(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[5, 4, 3, 2, 1]).await;
    let hours = |answer: &crate::service::Answer| {
        let hour = |event: &&serde_json::Value| event.as_str().unwrap()[11..13].to_owned();
        answer.each("timestamp").iter().map(hour).collect::<Vec<_>>()
    };
    assert_eq!(hours(&service.get("/events").await), ["11", "10", "09", "08", "07"]);
    assert_eq!(hours(&service.get("/events?limit=2&page=2").await), ["09", "08"]);
    // What the published clients send along.
    assert_eq!(hours(&service.get("/events?limit=2&sortOrder=asc&order=desc").await), ["07", "08"]);
    let event = &service.get("/events?limit=1").await.body[0];
    assert_eq!(
        (&event["event"], &event["qr"], &event["click"]["qr"]),
        (&json!("click"), &json!(0), &json!(false))
    );
    assert_eq!(event["link"]["clicks"], 5);
    assert_eq!(event["click_id"], event["click"]["id"]);
    assert_eq!(service.get("/events?limit=1001").await.error().0, 422);
}

/// A click with some details set.
fn click(service: &Service, id: &str, set: impl FnOnce(&mut ClickDetails)) -> Click {
    let mut click = Click::new(id, service.now());
    set(&mut click.details);
    click
}

/// Two links and five clicks that differ in everything.
async fn varied(database: Database) -> Service {
    let service = Service::start(database).await;
    service.tags(&["x", "y"]).await;
    let folder = service.folder("f").await;
    let a = json!({
        "url": "https://example.com/a?utm_source=news", "key": "a", "externalId": "a", "tenantId": "t", "folderId": folder,
        "tagNames": ["x", "y"], "partnerId": "p",
    });
    let a = service.link(&a).await;
    let b = json!({"url": "https://example.com/b", "key": "b", "tagNames": ["y"], "programId": "q"});
    let b = service.link(&b).await;
    let (a, b) = (a["id"].as_str().unwrap(), b["id"].as_str().unwrap());
    let place = |details: &mut ClickDetails, place: [&'static str; 4]| {
        let [continent, country, region, city] = place.map(Cow::Borrowed);
        (details.continent, details.country, details.region, details.city) =
            (continent, country, region, city);
    };
    let clicks = [
        click(&service, a, |details| {
            place(details, ["EU", "DE", "DE-BE", "Berlin"]);
            details.url = "https://example.com/a?utm_source=news".into();
        }),
        click(&service, a, |details| {
            place(details, ["EU", "FR", "FR-75", "Paris"]);
            details.device = "Mobile".into();
            details.browser = "Safari".into();
            details.os = "iOS".into();
            details.url = "https://example.com/a?utm_source=news".into();
        }),
        click(&service, a, |details| details.url = "https://example.com/a?x=1&utm_source=news".into()),
        click(&service, b, |details| {
            place(details, ["NA", "US", "US-CA", "San Jose"]);
            details.referer = "t.co".into();
            details.referer_url = "https://t.co/1?q".into();
        }),
        click(&service, b, |details| {
            details.trigger = "qr".into();
            details.url = "https://example.com/a?x=2".into();
        }),
    ];
    service.backend.store().record_clicks(&clicks).await.unwrap();
    service
}

/// A grouping, the fields of its groups, and their clicks and values.
type Grouping = (&'static str, &'static [&'static str], &'static [(i64, &'static [&'static str])]);

async fn clicks_are_grouped_by_whatever_is_known_of_them(database: Database) {
    let service = varied(database).await;
    //  groupBy            fields of the groups                  their clicks and values, most first
    let table: [Grouping; 16] = [
        ("continents", &["continent"], &[(2, &["EU"]), (1, &["NA"])]),
        (
            "countries",
            &["country", "region", "city"],
            &[(1, &["DE", "*", "*"]), (1, &["FR", "*", "*"]), (1, &["US", "*", "*"])],
        ),
        (
            "regions",
            &["country", "region", "city"],
            &[(1, &["DE", "DE-BE", "*"]), (1, &["FR", "FR-75", "*"]), (1, &["US", "US-CA", "*"])],
        ),
        (
            "cities",
            &["country", "city"],
            &[(1, &["DE", "Berlin"]), (1, &["FR", "Paris"]), (1, &["US", "San Jose"])],
        ),
        ("devices", &["device"], &[(1, &["Mobile"])]),
        ("browsers", &["browser"], &[(1, &["Safari"])]),
        ("os", &["os"], &[(1, &["iOS"])]),
        ("triggers", &["trigger"], &[(4, &["link"]), (1, &["qr"])]),
        ("trigger", &["trigger"], &[(4, &["link"]), (1, &["qr"])]),
        ("referers", &["referer"], &[(4, &["(direct)"]), (1, &["t.co"])]),
        ("referer_urls", &["refererUrl"], &[(4, &["(direct)"]), (1, &["https://t.co/1"])]),
        (
            "top_urls",
            &["url"],
            &[
                (2, &["https://example.com/a?utm_source=news"]),
                (1, &["https://example.com/a?x=1&utm_source=news"]),
                (1, &["https://example.com/a?x=2"]),
            ],
        ),
        ("top_base_urls", &["url"], &[(4, &["https://example.com/a"])]),
        ("top_domains", &["domain"], &[(5, &["s.test"])]),
        ("utm_sources", &["utm_source"], &[(3, &["news"])]),
        ("utm_mediums", &["utm_medium"], &[]),
    ];
    for (group_by, fields, expected) in table {
        let answer = service.get(&format!("/analytics?groupBy={group_by}")).await;
        let groups: Vec<(i64, Vec<&str>)> = answer
            .body
            .as_array()
            .unwrap_or_else(|| panic!("{group_by}: {}", answer.body))
            .iter()
            .map(|group| {
                let values = fields.iter().map(|field| group[*field].as_str().unwrap()).collect();
                (group["clicks"].as_i64().unwrap(), values)
            })
            .collect();
        let expected: Vec<(i64, Vec<&str>)> =
            expected.iter().map(|(clicks, values)| (*clicks, values.to_vec())).collect();
        assert_eq!(groups, expected, "{group_by}");
    }
    let tags = service.get("/analytics?groupBy=top_link_tags").await;
    assert_eq!(tags.each("clicks"), [5, 3]);
    assert_eq!(tags.body[0]["tag"]["name"], "y");
    let folders = service.get("/analytics?groupBy=top_folders").await;
    let folder = &service.get("/links/ext_a").await.body["folderId"];
    let expected = json!([{
        "folderId": folder, "folder": {"id": folder, "name": "f"}, "clicks": 3, "leads": 0, "sales": 0, "saleAmount": 0,
    }]);
    assert_eq!(folders.body, expected);
}

async fn filters_take_lists_and_their_negation_and_events_agree(database: Database) {
    let service = varied(database).await;
    let info = async |key: &str| service.get(&format!("/links/info?domain=s.test&key={key}")).await.body;
    let (a, b) = (info("a").await, info("b").await);
    let (a_id, x) = (a["id"].as_str().unwrap(), a["tags"][0]["id"].as_str().unwrap());
    let y = b["tags"][0]["id"].as_str().unwrap();
    let folder = a["folderId"].as_str().unwrap();
    //  filter                                       clicks
    let table = [
        ("country=DE".to_owned(), 1),
        ("country=de,FR".to_owned(), 2),
        ("country=-DE,FR".to_owned(), 3),
        ("country=DE&city=Paris".to_owned(), 0),
        ("continent=EU&device=mobile".to_owned(), 1),
        ("region=US-CA".to_owned(), 1),
        ("browser=Safari&os=iOS".to_owned(), 1),
        ("browser=safari&os=IOS&device=MOBILE".to_owned(), 1),
        ("browser=-safari".to_owned(), 4),
        ("os=iPhone".to_owned(), 0),
        ("region=ca".to_owned(), 1),
        ("country=Unknown".to_owned(), 2),
        ("country=-unknown".to_owned(), 3),
        ("country=DE,Unknown".to_owned(), 3),
        ("continent=-Unknown".to_owned(), 3),
        ("region=-Unknown".to_owned(), 3),
        ("region=Unknown".to_owned(), 2),
        ("city=-Unknown".to_owned(), 3),
        ("referer=WWW.T.co".to_owned(), 1),
        ("trigger=-QR".to_owned(), 4),
        ("region=-CA,FR-75".to_owned(), 3),
        ("region=US".to_owned(), 0),
        ("qr=true".to_owned(), 1),
        ("qr=false".to_owned(), 4),
        ("trigger=qr,link".to_owned(), 5),
        ("referer=-t.co".to_owned(), 4),
        ("refererUrl=https%3A%2F%2Ft.co%2F1".to_owned(), 1),
        ("refererUrl=https%3A%2F%2Ft.co%2F1%3Fq".to_owned(), 1),
        ("refererUrl=https%3A%2F%2Ft.co%2F1%3Fp".to_owned(), 0),
        ("url=https%3A%2F%2Fexample.com%2Fa".to_owned(), 4),
        ("url=-https%3A%2F%2Fexample.com%2Fa".to_owned(), 1),
        ("url=https%3A%2F%2Fexample.com%2Fa%3Fx%3D2".to_owned(), 1),
        ("url=-https%3A%2F%2Fexample.com%2Fa%3Fx%3D2".to_owned(), 4),
        ("url=https%3A%2F%2Fexample.com%2F".to_owned(), 0),
        ("domain=s.test".to_owned(), 5),
        ("domain=-s.test".to_owned(), 0),
        ("domain=s.test&key=B".to_owned(), 2),
        ("externalId=ext_a".to_owned(), 3),
        (format!("linkId={a_id}"), 3),
        (format!("linkId=-{a_id}"), 2),
        ("linkId=link_nobody".to_owned(), 0),
        ("tenantId=t".to_owned(), 3),
        ("tenantId=-t".to_owned(), 2),
        (format!("folderId={folder}"), 3),
        (format!("folderId=-{folder}"), 2),
        ("folderId=fold_nobody".to_owned(), 0),
        ("tagId=tag_nobody".to_owned(), 0),
        ("utm_source=news".to_owned(), 3),
        ("utm_source=-news".to_owned(), 2),
        (format!("tagId={x}"), 3),
        (format!("tagIds={x},{y}"), 5),
        (format!("tagId=-{x}"), 2),
        (format!("tagId={x}&country=DE"), 1),
        (format!("tagId={x}&tagIds={y}"), 3),
        ("domain=s.test&key=a&externalId=ext_a".to_owned(), 3),
        // No click has what these ask for.
        ("groupId=grp_1".to_owned(), 0),
        ("groupId=-grp_1".to_owned(), 5),
        ("partnerTagId=ptag_1".to_owned(), 0),
        ("partnerTagId=-ptag_1".to_owned(), 5),
        ("eventName=Signup".to_owned(), 0),
        ("eventName=-Signup".to_owned(), 5),
        ("partnerId=p".to_owned(), 3),
        ("partnerId=-p".to_owned(), 2),
        ("programId=q".to_owned(), 2),
        ("programId=nobody".to_owned(), 0),
        ("customerId=cus_1".to_owned(), 0),
        ("saleType=new".to_owned(), 0),
        ("saleType=recurring".to_owned(), 0),
        ("root=true".to_owned(), 0),
        ("root=false".to_owned(), 5),
    ];
    for (filter, clicks) in table {
        let count = service.get(&format!("/analytics?{filter}")).await;
        assert_eq!(count.body["clicks"], clicks, "{filter}");
        let events = service.get(&format!("/events?{filter}")).await;
        assert_eq!(events.each("event").len(), clicks, "{filter}");
        let top = service.get(&format!("/analytics?groupBy=top_links&{filter}")).await;
        assert_eq!(
            top.each("clicks").iter().map(|n| n.as_u64().unwrap()).sum::<u64>(),
            clicks as u64,
            "{filter}"
        );
        let series = service.get(&format!("/analytics?groupBy=timeseries&{filter}")).await;
        assert_eq!(
            series.each("clicks").iter().map(|n| n.as_u64().unwrap()).sum::<u64>(),
            clicks as u64,
            "{filter}"
        );
    }
    let refused = [
        ("domain=s.test&key=nobody", 404),
        ("externalId=ext_nobody", 404),
        ("key=a", 400),
        ("query=metadata['plan']:'pro'", 422),
        ("saleType=old", 422),
        ("root=maybe", 422),
        // A filter without a value would select everything.
        ("country=", 422),
        ("country=,", 422),
        ("country=-", 422),
        ("tagIds=", 422),
        ("linkId=,,", 422),
        ("domain=", 422),
        ("domain=s.test&key=", 422),
        ("externalId=", 422),
        ("customerId=", 422),
    ];
    for (filter, status) in refused {
        assert_eq!(service.get(&format!("/analytics?{filter}")).await.error().0, status, "{filter}");
    }
}

async fn intervals_and_time_zones_are_the_readers(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let days: Vec<i64> = [0, 6, 8, 29, 60, 100, 380].map(|days| days * 24).to_vec();
    service.click_hours_ago(link["id"].as_str().unwrap(), &days).await;
    //  the clock shows 2026-03-15; interval, clicks, buckets
    let table = [
        ("24h", 1, 25),
        ("7d", 2, 7),
        ("30d", 4, 30),
        ("90d", 5, 90),
        ("1y", 6, 13),
        ("mtd", 3, 15),
        ("qtd", 5, 74),
        ("ytd", 5, 3),
        ("all", 7, 14),
    ];
    for (interval, clicks, buckets) in table {
        assert_eq!(
            service.get(&format!("/analytics?interval={interval}")).await.body["clicks"],
            clicks,
            "{interval}"
        );
        for zone in ["UTC", "Asia/Kolkata"] {
            let path = format!("/analytics?groupBy=timeseries&interval={interval}&timezone={zone}");
            let series = service.get(&path).await;
            let sum: i64 = series.each("clicks").iter().map(|clicks| clicks.as_i64().unwrap()).sum();
            assert_eq!(sum, clicks, "{interval} in {zone}");
            assert_eq!(series.each("start").len(), buckets, "{interval} in {zone}");
        }
    }
    let series = service.get("/analytics?groupBy=timeseries&start=2026-03-15&timezone=Asia/Kolkata").await;
    assert_eq!(series.body[0]["start"], "2026-03-14T18:30:00.000Z");
    assert_eq!(service.get("/analytics?groupBy=timeseries&event=leads").await.each("clicks").len(), 25);
}
