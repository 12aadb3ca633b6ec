//! A service in this process, with a database of its own and a clock that stands still.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::Response;
use backend::{
    AddressPolicy, Analytics, Backend, Click, PublicUrl, Settings, SteppedClock, Store, Terms, Workspace,
};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::database::Database;

/// Where the tests' clocks start: on no boundary of an hour or a day.
pub(crate) const START: &str = "2026-03-15T12:34:56.789Z";

/// The running service and the key that requests are made with.
pub(crate) struct Service {
    pub(crate) backend: Backend,
    pub(crate) clock: SteppedClock,
    router: Router,
    key: String,
    database: Database,
    setup: Setup,
    /// Where the click log is with PostgreSQL. That of SQLite is beside the database.
    click_log: TempDir,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// What may differ from one service to the next.
#[derive(Clone)]
struct Setup {
    settings: Settings,
    analytics: Analytics,
}

impl Default for Setup {
    fn default() -> Self {
        Self { settings: settings(), analytics: Analytics::default() }
    }
}

/// The settings of a test's service: short links at `https://s.test`, webhooks to any address.
pub(crate) fn settings() -> Settings {
    let public_url = PublicUrl::parse("https://s.test").unwrap();
    Settings { webhook_addresses: AddressPolicy::any(), ..Settings::new(public_url) }
}

async fn open(database: &Database, setup: &Setup, click_log: &TempDir) -> Store {
    let store = Store::open_or_create_with(&database.url, setup.analytics).await.unwrap();
    if database.is_sqlite() { store } else { store.with_click_log(click_log.path().join("clicks")) }
}

/// Makes a workspace and a key for it.
async fn make_workspace(store: &Store, name: &str, now: Timestamp) -> (Workspace, String) {
    let workspace = store.create_workspace(name, now).await.unwrap();
    let (_, key) = store.create_key(&workspace, &Terms::of_plan("pro"), now).await.unwrap();
    (workspace, key)
}

impl Service {
    pub(crate) async fn start(database: Database) -> Self {
        Self::with(database, Setup::default()).await
    }

    /// Refuses webhooks to addresses that are not public, as a service does unless told otherwise.
    pub(crate) async fn guarded(database: Database) -> Self {
        let settings = Settings { webhook_addresses: AddressPolicy::public_only(), ..settings() };
        Self::with(database, Setup { settings, ..Setup::default() }).await
    }

    /// The first workspace has domains of its own.
    pub(crate) async fn on_domains(database: Database, domains: &[&str]) -> Self {
        Self::with_domains(database, Setup::default(), domains).await
    }

    pub(crate) async fn with_settings_on_domains(
        database: Database,
        settings: Settings,
        domains: &[&str],
    ) -> Self {
        Self::with_domains(database, Setup { settings, ..Setup::default() }, domains).await
    }

    pub(crate) async fn with_settings(database: Database, settings: Settings) -> Self {
        Self::with(database, Setup { settings, ..Setup::default() }).await
    }

    /// Bounds analytics queries. The time limit of requests is ten minutes.
    pub(crate) async fn with_analytics(database: Database, analytics: Analytics) -> Self {
        let settings = Settings { request_timeout: Duration::from_secs(600), ..settings() };
        Self::with(database, Setup { settings, analytics }).await
    }

    async fn with(database: Database, setup: Setup) -> Self {
        Self::with_domains(database, setup, &[]).await
    }

    async fn with_domains(database: Database, setup: Setup, domains: &[&str]) -> Self {
        let clock = SteppedClock::at(START.parse().unwrap());
        let click_log = TempDir::new().unwrap();
        let (store, now) = (open(&database, &setup, &click_log).await, clock.clock().now());
        let (workspace, key) = make_workspace(&store, "first", now).await;
        for domain in domains {
            store.assign_domain(&workspace, domain, now).await.unwrap();
        }
        let backend = Backend::start(store, clock.clock(), setup.settings.clone());
        Self { router: backend.router(), backend, clock, key, database, setup, click_log }
    }

    /// The folder of the click log.
    pub(crate) fn click_log_folder(&self) -> &Path {
        match self.database.url.strip_prefix("sqlite:") {
            Some(file) => Path::new(file).parent().unwrap(),
            None => self.click_log.path(),
        }
    }

    /// The key of the first workspace.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.clock().now()
    }

    /// Makes a workspace and a key for it.
    pub(crate) async fn new_workspace(&self, name: &str) -> (Workspace, String) {
        make_workspace(self.backend.store(), name, self.now()).await
    }

    /// Follows a short link of a host.
    pub(crate) async fn visit(&self, host: &str, path: &str) -> Answer {
        self.send(Request::get(path).header("host", host).body(Body::empty()).unwrap()).await
    }

    /// Records clicks on a link, one for each number of hours before now.
    pub(crate) async fn click_hours_ago(&self, link_id: &str, hours: &[i64]) {
        let at = |hours: i64| self.now() - SignedDuration::from_hours(hours);
        let clicks: Vec<Click> = hours.iter().map(|hours| Click::new(link_id, at(*hours))).collect();
        let recorded = self.backend.store().record_clicks(&clicks).await.unwrap();
        assert_eq!(recorded, clicks.len());
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// The body of a successful answer, as it came.
    pub(crate) async fn bytes(&self, path: &str) -> Bytes {
        let request = Request::get(path).header("authorization", format!("Bearer {}", self.key));
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap().to_bytes()
    }

    /// The database, for what no request can do.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// A request to the operators' listener.
    pub(crate) async fn send_internal(&self, request: Request<Body>) -> Answer {
        read(self.backend.internal_router().oneshot(request).await.unwrap()).await
    }

    /// The text that operators' tools scrape.
    pub(crate) async fn metrics(&self) -> String {
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        self.send_internal(request).await.body.as_str().unwrap().to_owned()
    }

    /// A request with `key`.
    pub(crate) async fn call_as(
        &self,
        key: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call_as(&self.key, Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call_as(&self.key, Method::POST, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call_as(&self.key, Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call_as(&self.key, Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call_as(&self.key, Method::DELETE, path, None).await
    }

    /// Follows a short link with a user agent.
    pub(crate) async fn follow(&self, method: Method, path: &str, user_agent: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).header("user-agent", user_agent);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Makes a link and returns it.
    pub(crate) async fn link(&self, body: &Value) -> Value {
        let answer = self.post("/links", body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body
    }

    /// Makes tags and returns their ids.
    pub(crate) async fn tags(&self, names: &[&str]) -> Vec<String> {
        let mut ids = Vec::new();
        for name in names {
            let answer = self.post("/tags", &json!({"name": name})).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
            ids.push(answer.body["id"].as_str().unwrap().to_owned());
        }
        ids
    }

    /// Makes a folder and returns its id.
    pub(crate) async fn folder(&self, name: &str) -> String {
        let answer = self.post("/folders", &json!({"name": name})).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.body["id"].as_str().unwrap().to_owned()
    }

    /// Makes a webhook and returns it.
    pub(crate) async fn webhook(&self, url: &str, triggers: &[&str]) -> Value {
        let answer = self.post("/webhooks", &json!({"name": "rx", "url": url, "triggers": triggers})).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.body
    }

    pub(crate) async fn shut_down(self) {
        tokio::time::timeout(Duration::from_secs(20), self.backend.shut_down()).await.unwrap();
    }

    /// Another service on the same database, on a clock of its own, with the same key.
    pub(crate) async fn beside(&self, database: Database) -> Self {
        let mut service = Self::with(database, self.setup.clone()).await;
        service.key.clone_from(&self.key);
        service
    }

    /// As [`Self::restart`], with other settings.
    pub(crate) async fn restart_with(mut self, settings: Settings) -> Self {
        self.setup.settings = settings;
        self.restart().await
    }

    /// As [`Self::restart`], with other bounds of analytics queries.
    pub(crate) async fn restart_with_analytics(mut self, analytics: Analytics) -> Self {
        self.setup.analytics = analytics;
        self.restart().await
    }

    /// Ends the service and starts another on the same database.
    pub(crate) async fn restart(self) -> Self {
        self.backend.shut_down().await;
        let store = open(&self.database, &self.setup, &self.click_log).await;
        let backend = Backend::start(store, self.clock.clock(), self.setup.settings.clone());
        Self { router: backend.router(), backend, ..self }
    }
}

async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { status: parts.status, headers: parts.headers, body }
}

impl Answer {
    /// The code and message of an error, with the status checked to be that of the code.
    pub(crate) fn error(&self) -> (u16, &str, &str) {
        let error = &self.body["error"];
        assert!(error["doc_url"].is_string(), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/json");
        (self.status.as_u16(), error["code"].as_str().unwrap(), error["message"].as_str().unwrap())
    }

    /// The field `name` of every entry of a list.
    pub(crate) fn each(&self, name: &str) -> Vec<&Value> {
        self.body
            .as_array()
            .unwrap_or_else(|| panic!("no list: {}", self.body))
            .iter()
            .map(|entry| &entry[name])
            .collect()
    }
}
