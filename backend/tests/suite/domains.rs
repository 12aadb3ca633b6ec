//! Domains: listed, and assigned to a workspace.

use axum::http::Method;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    domains_are_listed_as_the_published_api_shows_them,
    links_on_an_assigned_domain_are_its_workspaces_alone,
    the_default_domain_may_be_assigned_too,
}

async fn domains_are_listed_as_the_published_api_shows_them(database: Database) {
    let service = Service::on_domains(database, &["go.test", "b.test", "s.test"]).await;
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
        ("", json!([s, go, b])),
        ("archived=true", json!([s, go, b])),
        ("search=GO", json!([go])),
        ("pageSize=2", json!([s, go])),
        ("pageSize=2&page=2", json!([b])),
        ("pageSize=2&page=3", json!([])),
    ] {
        assert_eq!(service.get(&format!("/domains?{query}")).await.body, expected, "{query}");
    }
    for query in ["archived=maybe", "pageSize=51", "page=0"] {
        assert_eq!(service.get(&format!("/domains?{query}")).await.error().0, 422, "{query}");
    }
}

async fn links_on_an_assigned_domain_are_its_workspaces_alone(database: Database) {
    let service = Service::on_domains(database, &["go.test", "free.test"]).await;
    let (workspace, owner) = service.new_workspace("owner").await;
    let store = service.backend.store();
    let link = |domain: &str, key: &str| json!({"url": "https://example.com/", "domain": domain, "key": key});
    // Before the domain is assigned it is everybody's.
    let early = service.link(&link("go.test", "early")).await;
    let other = service.link(&link("free.test", "other")).await;
    store.assign_domain(&workspace, "go.test", service.now()).await.unwrap().unwrap();
    store.assign_domain(&workspace, "go.test", service.now()).await.unwrap().unwrap();

    let refused = (403, "forbidden", "Domain does not belong to workspace.");
    let path = |link: &Value| format!("/links/{}", link["id"].as_str().unwrap());
    for answer in [
        service.post("/links", &link("go.test", "x")).await,
        service.post("/links", &link("GO.test", "x")).await,
        service.put("/links/upsert", &json!({"url": "https://example.com/new", "domain": "go.test"})).await,
        service.patch(&path(&other), &json!({"domain": "go.test"})).await,
    ] {
        assert_eq!(answer.error(), refused);
    }
    let bulk = service.post("/links/bulk", &json!([link("go.test", "x"), link("free.test", "x")])).await;
    assert_eq!(bulk.each("code"), [&json!("forbidden"), &Value::Null]);
    // What is there already works on, and may be changed where it is, but a new key would be a new short link.
    let renamed = json!({"url": "https://example.com/", "domain": "go.test", "key": "late"});
    for answer in [
        service.patch(&path(&early), &json!({"key": "late"})).await,
        service.patch(&path(&early), &json!({"key": "Early", "title": "t"})).await,
        service.put("/links/upsert", &renamed).await,
    ] {
        assert_eq!(answer.error(), refused);
    }
    // A bulk update moves and renames nothing.
    for data in [json!({"key": "late"}), json!({"domain": "go.test"})] {
        let answer = service.patch("/links/bulk", &json!({"linkIds": [early["id"]], "data": data})).await;
        assert_eq!(answer.error().0, 422, "{data}");
    }
    let request =
        axum::http::Request::get("/r/early").header("host", "go.test").body(axum::body::Body::empty());
    assert_eq!(service.send(request.unwrap()).await.status, 302);
    assert_eq!(service.patch(&path(&early), &json!({"title": "t"})).await.status, 200);
    assert_eq!(service.patch(&path(&early), &json!({"domain": "go.test", "title": "u"})).await.status, 200);

    let slugs = async |key: &str| {
        let listed = service.call_as(key, Method::GET, "/domains", None).await;
        listed.each("slug").into_iter().map(|slug| slug.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(slugs(service.key()).await, ["s.test", "free.test"]);
    assert_eq!(slugs(&owner).await, ["s.test", "go.test", "free.test"]);
    let made = service.call_as(&owner, Method::POST, "/links", Some(&link("go.test", "x"))).await;
    assert_eq!(made.body["shortLink"], "https://go.test/r/x");

    let (second, _) = service.new_workspace("second").await;
    let conflict = store.assign_domain(&second, "go.test", service.now()).await.unwrap().unwrap_err();
    let expected =
        format!("the domain go.test is assigned to the workspace {}; release it first", workspace.id);
    assert_eq!(conflict.to_string(), expected);
    assert!(store.release_domain("go.test").await.unwrap());
    assert!(!store.release_domain("go.test").await.unwrap());
    assert_eq!(service.post("/links", &link("go.test", "free")).await.status, 200);
}

async fn the_default_domain_may_be_assigned_too(database: Database) {
    let service = Service::on_domains(database, &["free.test"]).await;
    let early = service.link(&json!({"url": "https://example.com/", "key": "early"})).await;
    let (workspace, owner) = service.new_workspace("owner").await;
    service.backend.store().assign_domain(&workspace, "s.test", service.now()).await.unwrap().unwrap();
    let path = format!("/links/{}", early["id"].as_str().unwrap());
    let new = json!({"url": "https://example.com/new", "key": "new"});
    for answer in [
        service.post("/links", &new).await,
        service.put("/links/upsert", &new).await,
        service.patch(&path, &json!({"key": "new"})).await,
    ] {
        assert_eq!(answer.error(), (403, "forbidden", "Domain does not belong to workspace."));
    }
    assert_eq!(service.patch(&path, &json!({"title": "t"})).await.status, 200);
    assert_eq!(service.patch(&path, &json!({"domain": "free.test", "key": "new"})).await.status, 200);
    let made = service.call_as(&owner, Method::POST, "/links", Some(&new)).await;
    assert_eq!(made.body["shortLink"], "https://s.test/r/new");
}
