//! Domains: listed, and assigned to a workspace.

use axum::http::Method;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    domains_are_listed_as_the_published_api_shows_them,
    links_on_an_assigned_domain_are_its_workspaces_alone,
    a_domain_is_assigned_to_one_workspace,
    a_domain_comes_with_the_keys_that_were_kept_for_another_workspace,
    a_host_leads_to_the_links_of_its_own_domain_only,
    an_assignment_takes_effect_while_the_service_runs,
    the_default_domain_may_be_assigned_too,
}

async fn domains_are_listed_as_the_published_api_shows_them(database: Database) {
    let service = Service::on_domains(database, &["go.test", "b.test"]).await;
    let domain = |name: &str, primary: bool| {
        json!({
            "id": format!("dom_{name}"), "slug": name, "verified": true, "primary": primary, "archived": false,
            "placeholder": null, "expiredUrl": null, "notFoundUrl": null, "logo": null, "assetLinks": null,
            "appleAppSiteAssociation": null, "createdAt": "2026-03-15T12:34:56.789Z",
            "updatedAt": "2026-03-15T12:34:56.789Z", "registeredDomain": null,
        })
    };
    let (s, go, b) = (domain("s.test", true), domain("go.test", false), domain("b.test", false));
    for (query, expected) in [
        ("", json!([s, b, go])),
        ("archived=true", json!([s, b, go])),
        ("search=GO", json!([go])),
        ("pageSize=2", json!([s, b])),
        ("pageSize=2&page=2", json!([go])),
        ("pageSize=2&page=3", json!([])),
    ] {
        assert_eq!(service.get(&format!("/domains?{query}")).await.body, expected, "{query}");
    }
    for query in ["archived=maybe", "pageSize=51", "page=0"] {
        assert_eq!(service.get(&format!("/domains?{query}")).await.error().0, 422, "{query}");
    }
}

async fn links_on_an_assigned_domain_are_its_workspaces_alone(database: Database) {
    let service = Service::on_domains(database, &["go.test"]).await;
    let (_, other) = service.new_workspace("other").await;
    let link = |domain: &str, key: &str| json!({"url": "https://example.com/", "domain": domain, "key": key});
    let own = service.link(&link("go.test", "own")).await;
    assert_eq!(own["shortLink"], "https://go.test/r/own");
    let elsewhere = service.call_as(&other, Method::POST, "/links", Some(&link("s.test", "k"))).await.body;

    let refused = (403, "forbidden", "Domain does not belong to workspace.");
    let path = format!("/links/{}", elsewhere["id"].as_str().unwrap());
    for (method, path, body) in [
        (Method::POST, "/links", link("go.test", "x")),
        (Method::POST, "/links", link("GO.test", "x")),
        (Method::POST, "/links", link("nobody.test", "x")),
        (Method::PUT, "/links/upsert", json!({"url": "https://example.com/new", "domain": "go.test"})),
        (Method::PATCH, path.as_str(), json!({"domain": "go.test"})),
        (Method::PATCH, path.as_str(), json!({"domain": "nobody.test"})),
    ] {
        assert_eq!(service.call_as(&other, method, path, Some(&body)).await.error(), refused, "{body}");
    }
    // In a bulk call, only the item is refused.
    let items = json!([link("go.test", "x"), link("s.test", "x"), link("not a domain", "x")]);
    let bulk = service.call_as(&other, Method::POST, "/links/bulk", Some(&items)).await;
    assert_eq!(bulk.each("code"), [&json!("forbidden"), &Value::Null, &json!("forbidden")]);
    assert_eq!(bulk.each("link"), [&items[0], &Value::Null, &items[2]]);
    assert_eq!(bulk.body[1]["shortLink"], "https://s.test/r/x");

    let slugs = async |key: &str| {
        let listed = service.call_as(key, Method::GET, "/domains", None).await;
        listed.each("slug").into_iter().map(|slug| slug.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(slugs(service.key()).await, ["s.test", "go.test"]);
    assert_eq!(slugs(&other).await, ["s.test"]);
}

async fn a_domain_is_assigned_to_one_workspace(database: Database) {
    let service = Service::on_domains(database, &["go.test"]).await;
    let (store, now) = (service.backend.store(), service.now());
    let owner = store.assigned_domains().await.unwrap().remove(0).workspace;
    let link = json!({"url": "https://example.com/", "domain": "go.test", "key": "k"});
    let link = service.link(&link).await;
    let (second, _) = service.new_workspace("second").await;
    let conflict = async || store.assign_domain(&second, "go.test", now).await.unwrap_err().to_string();
    let expected = format!("the domain go.test is assigned to the workspace {owner}; remove it first");
    assert_eq!(conflict().await, expected);
    assert!(store.remove_domain("go.test").await.unwrap());
    assert!(!store.remove_domain("go.test").await.unwrap());
    let expected =
        format!("the workspace {owner} has links on the domain go.test; it must delete them first");
    assert_eq!(conflict().await, expected);
    // A link keeps the domain that its workspace no longer has, but not for a new key.
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    assert_eq!(service.patch(&path, &json!({"domain": "go.test", "title": "t"})).await.status, 200);
    assert_eq!(service.patch(&path, &json!({"key": "new"})).await.error().0, 403);
    assert_eq!(service.delete(&path).await.status, 200);
    store.assign_domain(&second, "go.test", now).await.unwrap();
    store.assign_domain(&second, "go.test", now).await.unwrap();
}

async fn a_domain_comes_with_the_keys_that_were_kept_for_another_workspace(database: Database) {
    let service = Service::on_domains(database, &["go.test"]).await;
    let (second, key) = service.new_workspace("second").await;
    let sale = |title: &str| json!({"url": "https://example.com", "domain": "go.test", "key": "sale", "title": title});
    let link = service.link(&sale("of the first")).await;
    service.delete(&format!("/links/{}", link["id"].as_str().unwrap())).await;
    let store = service.backend.store();
    assert!(store.remove_domain("go.test").await.unwrap());
    store.assign_domain(&second, "go.test", service.now()).await.unwrap();
    let created = service.call_as(&key, Method::POST, "/links", Some(&sale("of the second"))).await;
    assert_eq!((created.status.as_u16(), &created.body["title"]), (200, &json!("of the second")));
    let path = format!("/links/{}", created.body["id"].as_str().unwrap());
    for new in ["other", "sale"] {
        let renamed = service.call_as(&key, Method::PATCH, &path, Some(&json!({"key": new}))).await;
        assert_eq!(renamed.status, 200, "{new}");
    }
}

async fn a_host_leads_to_the_links_of_its_own_domain_only(database: Database) {
    let service = Service::on_domains(database, &["go.test"]).await;
    let (_, other) = service.new_workspace("other").await;
    service.link(&json!({"url": "https://example.com/mine", "domain": "go.test", "key": "promo"})).await;
    let theirs = json!({"url": "https://example.com/theirs", "key": "promo"});
    assert_eq!(service.call_as(&other, Method::POST, "/links", Some(&theirs)).await.status, 200);
    //  host, and the destination. The domain is known to each process that is started later.
    let table = [
        ("go.test", Some("https://example.com/mine")),
        ("GO.test.", Some("https://example.com/mine")),
        ("go.test.:8080", Some("https://example.com/mine")),
        ("s.test", Some("https://example.com/theirs")),
        ("s.test.", Some("https://example.com/theirs")),
        ("127.0.0.1:8080", Some("https://example.com/theirs")),
        ("[::1]", Some("https://example.com/theirs")),
        ("elsewhere.test", None),
        ("go.test..", None),
        ("localhost", None),
    ];
    let check = async |service: &Service| {
        for (host, expected) in table {
            let answer = service.visit(host, "/r/promo").await;
            let location = answer.headers.get("location").map(|location| location.to_str().unwrap());
            assert_eq!((answer.status == 302, location), (expected.is_some(), expected), "{host}");
        }
    };
    check(&service).await;
    check(&service.restart().await).await;
}

async fn an_assignment_takes_effect_while_the_service_runs(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    assert_eq!(service.visit("go.test", "/r/k").await.status, 302, "every name is the public one's");
    let (owner, key) = service.new_workspace("owner").await;
    service.backend.store().assign_domain(&owner, "go.test", service.now()).await.unwrap();
    let link = json!({"url": "https://example.com/go", "domain": "go.test", "key": "k"});
    assert_eq!(service.call_as(&key, Method::POST, "/links", Some(&link)).await.status, 200);
    let assigned = async {
        while service.visit("go.test", "/r/k").await.headers["location"] != "https://example.com/go" {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), assigned).await.unwrap();
    assert_eq!(service.visit("elsewhere.test", "/r/k").await.status, 404);
    // A domain that is removed serves nobody's links, although no other is assigned.
    assert!(service.backend.store().remove_domain("go.test").await.unwrap());
    let removed = async {
        while service.visit("go.test", "/r/k").await.status != 404 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), removed).await.unwrap();
}

async fn the_default_domain_may_be_assigned_too(database: Database) {
    let service = Service::on_domains(database, &["s.test"]).await;
    let (_, other) = service.new_workspace("other").await;
    let new = json!({"url": "https://example.com/new", "key": "new"});
    for (method, path) in [(Method::POST, "/links"), (Method::PUT, "/links/upsert")] {
        let answer = service.call_as(&other, method, path, Some(&new)).await;
        assert_eq!(answer.error(), (403, "forbidden", "Domain does not belong to workspace."));
    }
    assert_eq!(service.call_as(&other, Method::GET, "/domains", None).await.body, json!([]));
    assert_eq!(service.link(&new).await["shortLink"], "https://s.test/r/new");
}
