//! Data is the workspace's: other keys do not know that it exists, whichever endpoint they ask.
//!
//! The endpoints come from the service's own description, and each has to be told what a stranger may get of it, so none
//! can be forgotten.

use axum::http::Method;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::{Answer, START, Service};
use crate::usage::{take, used, with_token};

on_both_databases! {
    two_workspaces_have_nothing_of_each_other_on_any_endpoint,
    two_workspaces_may_use_the_same_names,
}

/// What one workspace has, and another asks for.
struct Owned {
    link: Value,
    tag: String,
    folder: String,
    webhook: String,
    event: String,
}

/// What a stranger asks of one endpoint: query, body, and what there is to get.
type Attempt = (String, Value, Got);

/// What a stranger gets.
#[derive(Clone, Debug)]
enum Got {
    /// A refusal with this status.
    Refused(u16),
    /// An answer that is just this.
    Only(Value),
    /// A list of which each entry is a new link or webhook of the stranger's own.
    New,
}

use Got::{New, Only, Refused};

async fn owned(service: &Service) -> Owned {
    let (tag, folder) = (service.tags(&["mine"]).await.remove(0), service.folder("mine").await);
    let link = json!({
        "url": "https://example.com/mine", "key": "mine", "externalId": "mine", "tenantId": "t", "folderId": folder,
        "tagIds": [tag],
    });
    let link = service.link(&link).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[1, 2]).await;
    let of_key = service.backend.store().keys().await.unwrap().remove(0).id;
    assert_eq!(take(service, &json!([used(&of_key, "a-1-0", START, (2, 3, 4))])).await.status, 204);
    // Nobody listens there, so its events stay in the log.
    let webhook = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.created"]});
    let webhook = service.post("/webhooks", &webhook).await.body["id"].as_str().unwrap().to_owned();
    let event = service.post(&format!("/webhooks/{webhook}/test"), &json!({})).await.body;
    Owned { link, tag, folder, webhook, event: event["id"].as_str().unwrap().to_owned() }
}

/// What a stranger may try on an endpoint. Those that make something come last, since they change what others find.
fn attempts(operation: &str, owned: &Owned) -> Vec<Attempt> {
    let link = owned.link["id"].as_str().unwrap();
    let Owned { tag, folder, .. } = owned;
    let ask = |query: String, got: Got| (query, Value::Null, got);
    let tell = |body: Value, got: Got| (String::new(), body, got);
    let none = || Only(json!({"clicks": 0, "leads": 0, "sales": 0, "saleAmount": 0}));
    let empty = || Only(json!([]));
    let of_link = [
        format!("linkId={link}"),
        format!("tagId={tag}"),
        "tenantId=t".to_owned(),
        format!("folderId={folder}"),
        "domain=s.test".to_owned(),
        "interval=all".to_owned(),
        String::new(),
    ];
    let of_one = ["externalId=ext_mine", "domain=s.test&key=mine"].map(str::to_owned);
    let filters = [
        "search=mine".to_owned(),
        "tagNames=mine".to_owned(),
        format!("tagIds={tag}"),
        format!("folderId={folder}"),
        format!("linkIds={link}"),
        "showArchived=true".to_owned(),
        String::new(),
    ];
    match operation {
        "getLinks" => {
            let mut rows: Vec<Attempt> = filters.map(|filter| ask(filter, empty())).into();
            rows.push(ask(format!("startingAfter={link}"), Refused(422)));
            rows.push(ask(format!("endingBefore={link}"), Refused(422)));
            rows
        }
        "getLinksCount" => {
            let mut rows: Vec<Attempt> = filters.map(|filter| ask(filter, Only(json!(0)))).into();
            for group in ["domain", "tagId", "folderId", "userId"] {
                rows.push(ask(format!("groupBy={group}"), empty()));
            }
            rows
        }
        "getLinkInfo" => {
            let mut rows = vec![ask(format!("linkId={link}"), Refused(404))];
            rows.extend(of_one.map(|query| ask(query, Refused(404))));
            rows
        }
        "getLink" | "deleteLink" | "getWebhook" | "deleteWebhook" | "getDeliveries" => {
            vec![ask(String::new(), Refused(404))]
        }
        "updateLink" | "replaceLink" => vec![tell(json!({"title": "theirs"}), Refused(404))],
        "bulkUpdateLinks" => vec![
            tell(json!({"linkIds": [link], "data": {"title": "theirs"}}), empty()),
            tell(json!({"externalIds": ["mine"], "data": {"title": "theirs"}}), empty()),
        ],
        "bulkDeleteLinks" => vec![ask(format!("linkIds={link},ext_mine"), Only(json!({"deletedCount": 0})))],
        "retrieveAnalytics" => {
            let mut rows: Vec<Attempt> = of_link.clone().map(|filter| ask(filter, none())).into();
            rows.extend(of_one.map(|filter| ask(filter, Refused(404))));
            for group in ["top_links", "top_link_tags", "top_folders", "top_domains", "countries", "triggers"]
            {
                rows.extend(of_link.clone().map(|filter| ask(format!("groupBy={group}&{filter}"), empty())));
            }
            rows
        }
        "retrieveUsage" => {
            let mut rows =
                vec![ask("interval=all".to_owned(), Only(json!({"requests": 0, "units": 0, "refused": 0})))];
            for group in ["day", "hour", "class", "key", "plan"] {
                rows.push(ask(format!("groupBy={group}&interval=all"), empty()));
            }
            rows
        }
        "listEvents" => {
            let mut rows: Vec<Attempt> = of_link.map(|filter| ask(filter, empty())).into();
            rows.extend(of_one.map(|filter| ask(filter, Refused(404))));
            rows
        }
        "getWebhooks" => vec![ask(String::new(), empty())],
        "getTags" => vec![ask(String::new(), empty()), ask(format!("ids={tag}&search=mine"), empty())],
        "listFolders" => vec![ask(String::new(), empty()), ask("search=mine".to_owned(), empty())],
        "updateTag" | "updateFolder" => vec![tell(json!({"name": "theirs"}), Refused(404))],
        "deleteTag" | "deleteFolder" => vec![ask(String::new(), Refused(404))],
        // The service's only one is everybody's.
        "listDomains" => Vec::new(),
        "createTag" | "createFolder" => vec![tell(json!({"name": "mine"}), New)],
        "updateWebhook" => vec![tell(json!({"name": "theirs", "disabled": true}), Refused(404))],
        "testWebhook" | "rotateWebhookSecret" | "replayEvent" | "replayEvents" => {
            vec![tell(json!({}), Refused(404))]
        }
        // It knows nothing but what it is asked to draw, and needs no key.
        "getQRCode" => Vec::new(),
        "createLink" => vec![
            tell(json!({"url": "https://example.com", "key": "mine"}), Refused(409)),
            tell(json!({"url": "https://example.com", "tagIds": [tag]}), Refused(422)),
            tell(json!({"url": "https://example.com", "tagNames": ["mine"]}), Refused(422)),
            tell(json!({"url": "https://example.com", "folderId": folder}), Refused(422)),
            tell(json!({"url": "https://example.com/mine", "externalId": "mine"}), New),
        ],
        "upsertLink" => vec![tell(json!({"url": owned.link["url"], "key": "theirs"}), New)],
        "bulkCreateLinks" => vec![tell(json!([{"url": owned.link["url"]}]), New)],
        "createWebhook" => {
            let mut body = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.created"]});
            let new = tell(body.clone(), New);
            body["linkScope"] = json!("folders");
            body["folderIds"] = json!([folder]);
            let of_folder = tell(body.clone(), Refused(400));
            body["linkScope"] = json!("links");
            body["folderIds"] = Value::Null;
            body["linkIds"] = json!([link]);
            vec![of_folder, tell(body, Refused(400)), new]
        }
        other => panic!("nobody has said what a stranger gets of {other}"),
    }
}

fn assert_got(got: &Got, answer: &Answer, owned: &Owned, what: &str) {
    match got {
        Refused(status) => assert_eq!(answer.error().0, *status, "{what}: {}", answer.body),
        Only(body) => assert_eq!((answer.status.as_u16(), &answer.body), (200, body), "{what}"),
        New => {
            assert!(answer.status.is_success(), "{what}: {}", answer.body);
            let made = answer.body.as_array().cloned().unwrap_or_else(|| vec![answer.body.clone()]);
            for made in made {
                assert!(made["id"].is_string(), "{what}: {made}");
                assert!(made["id"] != owned.link["id"] && made["id"] != *owned.webhook, "{what}: {made}");
                assert!(made["id"] != *owned.tag && made["id"] != *owned.folder, "{what}: {made}");
            }
        }
    }
}

/// Everything that the owner can see of what is theirs.
async fn seen_by_the_owner(service: &Service, owned: &Owned) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in [
        "/links?showArchived=true",
        "/links/count",
        "/analytics?interval=all",
        "/analytics?groupBy=top_links",
        "/events",
        "/usage",
        "/webhooks",
        "/tags",
        "/folders",
    ] {
        seen.push(service.get(path).await.body);
    }
    let log = service.get(&format!("/webhooks/{}/deliveries", owned.webhook)).await;
    seen.push(json!(log.each("eventId")));
    seen
}

async fn two_workspaces_have_nothing_of_each_other_on_any_endpoint(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let (workspace, stranger) = service.new_workspace("second").await;
    let owned = owned(&service).await;
    let before = seen_by_the_owner(&service, &owned).await;
    let document = service.get("/openapi.json").await.body;

    let mut endpoints = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = match path.split('/').nth(1).unwrap() {
                "links" => owned.link["id"].as_str().unwrap(),
                "tags" => &owned.tag,
                "folders" => &owned.folder,
                _ => &owned.webhook,
            };
            let path = path.replace("{id}", id).replace("{event}", &owned.event);
            assert!(!path.contains('{'), "{path} has a variable part that nobody has filled");
            let method: Method = method.to_uppercase().parse().unwrap();
            endpoints.push((method, path, operation["operationId"].as_str().unwrap()));
        }
    }
    // An upsert finds what the stranger has made before, so it comes before what makes something in any case.
    let makes_something = |operation: &str| match operation {
        "upsertLink" => 1,
        "createTag" | "createFolder" => 3,
        operation if operation.to_lowercase().contains("create") => 2,
        _ => 0,
    };
    endpoints.sort_by_key(|(_, _, operation)| makes_something(operation));
    let mut tried = 0;
    for (method, path, operation) in endpoints {
        for (query, body, got) in attempts(operation, &owned) {
            let path = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
            let body = (!body.is_null()).then_some(&body);
            let answer = service.call_as(&stranger, method.clone(), &path, body).await;
            assert_got(&got, &answer, &owned, &format!("{method} {path}"));
            tried += 1;
        }
    }
    assert!(tried > 80, "only {tried} attempts");
    assert_eq!(seen_by_the_owner(&service, &owned).await, before, "the owner's data was touched");
    // What the stranger made is the stranger's.
    let made = service.call_as(&stranger, Method::GET, "/links", None).await;
    assert_eq!(made.each("workspaceId"), vec![&json!(workspace.id); 3]);
}

async fn two_workspaces_may_use_the_same_names(database: Database) {
    let service = Service::start(database).await;
    let (_, stranger) = service.new_workspace("second").await;
    let link = json!({"url": "https://example.com", "externalId": "e", "tagNames": ["t"]});
    for path in ["/tags", "/folders"] {
        for key in [service.key(), &stranger] {
            let made = service.call_as(key, Method::POST, path, Some(&json!({"name": "t"}))).await;
            assert_eq!(made.status, 201, "{path}");
        }
    }
    let mine = service.link(&link).await;
    let theirs = service.call_as(&stranger, Method::POST, "/links", Some(&link)).await.body;
    assert_ne!(mine["tags"][0]["id"], theirs["tags"][0]["id"]);
    for (key, link) in [(service.key().to_owned(), mine), (stranger, theirs)] {
        assert_eq!(service.call_as(&key, Method::GET, "/links/ext_e", None).await.body, link);
    }
}
