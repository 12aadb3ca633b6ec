//! The assembled service: its state, routes and background tasks.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::answers::Answers;
use crate::api::known_domains::KnownDomains;
use crate::api::repeat::Running;
use crate::availability::Availability;
use crate::backlogs::Counting;
use crate::bodies::Bodies;
use crate::click_rules::Repeats;
use crate::clock::Clock;
use crate::error::{ApiError, Code};
use crate::front::Front;
use crate::gate::Gate;
use crate::links::PublicUrl;
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::recorder::{Recorder, RecorderTask};
use crate::request_scope::RequestScope;
use crate::retention::Retention;
use crate::settings::Settings;
use crate::state::{App, Shared};
use crate::store::{Store, checkpoint};
use crate::targets::Targets;
use crate::visitor::Agents;
use crate::webhooks::delivery::Deliverer;
use crate::{
    analytics, auth, domains, events, folders, internal, links, qr, redirect, request_scope, retention,
    sweeper, tags, webhooks,
};

/// Maximum number of QR codes that are drawn at once.
const DRAWING: usize = 1;

/// Time limit for the last clicks during a shutdown. What is spooled by then is recorded by the next process, so that waiting longer for a
/// database that does not answer gains nothing.
const LAST_CLICKS: Duration = Duration::from_secs(5);
/// Time limit for the background tasks during a shutdown. Webhook deliveries take up to 15 s, and then write their results.
const LAST_TASKS: Duration = Duration::from_secs(20);
/// Time limit for the statements that still run at the end of a shutdown.
const LAST_STATEMENTS: Duration = Duration::from_secs(5);

/// The running service: its router and background tasks.
#[derive(Debug)]
pub struct Backend {
    app: Shared,
    scope: Arc<RequestScope>,
    recorder: RecorderTask,
    deliverer: JoinHandle<()>,
    sweeper: JoinHandle<()>,
    checkpoints: JoinHandle<()>,
    retention: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Backend {
    /// Starts the background tasks. Requires a tokio runtime.
    #[must_use]
    pub fn start(store: Store, clock: Clock, settings: Settings) -> Self {
        let metrics = Metrics::new();
        let announced = Arc::new(Notify::new());
        let (stop, stopped) = watch::channel(false);
        let (recorder, recorder_task) = Recorder::start(
            store.clone(),
            clock.clone(),
            settings.public_url.clone(),
            Arc::clone(&announced),
            metrics.clone(),
            settings.when_full,
        );
        let deliverer = Deliverer::new(
            store.clone(),
            clock.clone(),
            settings.webhook_addresses.clone(),
            Arc::clone(&announced),
            metrics.clone(),
        );
        let deliverer = tokio::spawn(deliverer.run(stopped.clone()));
        let deleted = Arc::new(Notify::new());
        let sweeper = sweeper::run(store.clone(), clock.clone(), Arc::clone(&deleted), stopped.clone());
        let sweeper = tokio::spawn(sweeper);
        let checkpoints = tokio::spawn(checkpoint::run(store.clone(), stopped.clone()));
        let retention = Retention::new(settings.retention);
        let deletion = tokio::spawn(retention::run(store.clone(), clock.clone(), retention, stopped));
        let scope = Arc::new(RequestScope::new(metrics.clone(), settings.request_timeout));
        let gate =
            Arc::new(Gate::new(available_parallelism().map_or(1, NonZero::get), store.pause_of_busy()));
        let admission = Admission::new(store.analytics().readers, Arc::clone(&gate));
        let permits = Permits::new(store.connections() / 2, Arc::clone(&gate));
        let availability = Availability::of(store.clone());
        let default = settings.public_url.default_domain();
        let domains = KnownDomains::new(default, store.clone(), stop.subscribe());
        let app = App {
            targets: Targets::new(store.clone(), availability.clone(), clock.clone(), settings.max_stale),
            domains,
            running: Running::default(),
            store,
            availability,
            clock,
            public_url: settings.public_url,
            webhook_addresses: settings.webhook_addresses,
            recorder,
            gate,
            admission,
            permits,
            bodies: Bodies::new(),
            answers: Answers::new(),
            drawing: Arc::new(Semaphore::new(DRAWING)),
            click_rules: settings.clicks,
            repeats: Repeats::default(),
            agents: Agents::default(),
            internal_token: settings.internal_token,
            max_webhooks: settings.max_webhooks,
            retention,
            metrics,
            backlogs: Counting::default(),
            announced,
            deleted,
        };
        let (app, recorder) = (Arc::new(app), recorder_task);
        Self { app, scope, recorder, deliverer, sweeper, checkpoints, retention: deletion, stop }
    }

    /// The public routes: the API, redirects and `/healthz`.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .merge(links::routes::router())
            .merge(tags::router())
            .merge(folders::routes::router())
            .merge(domains::router())
            .merge(webhooks::routes::router())
            .route_layer(from_fn_with_state(Arc::clone(&self.app), auth::permitted))
            .merge(analytics::router())
            .merge(events::router())
            .route_layer(from_fn_with_state(Arc::clone(&self.app), auth::authenticated))
            .merge(qr::router())
            .merge(redirect::router());
        let router = router.route("/openapi.json", routing::get(crate::openapi::document));
        router
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(from_fn_with_state(Arc::clone(&self.scope), request_scope::within))
    }

    /// The public listener's handler. It serves redirects without the router.
    pub fn front(&self) -> Front {
        Front { app: Arc::clone(&self.app), scope: Arc::clone(&self.scope), router: self.router() }
    }

    /// The internal routes, for a listener that clients cannot reach.
    pub fn internal_router(&self) -> Router {
        Router::new()
            .merge(internal::router())
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(from_fn_with_state(Arc::clone(&self.scope), request_scope::within))
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.app.store
    }

    /// The public URL of short links.
    #[must_use]
    pub fn public_url(&self) -> &PublicUrl {
        &self.app.public_url
    }

    /// Returns when all clicks before the call are stored.
    pub async fn flush_clicks(&self) {
        self.app.recorder.flush().await;
    }

    /// The number of clicks that the next process will record if this one ends now. The result goes on to tell it after
    /// [`Self::shut_down`].
    pub fn spooled_clicks(&self) -> impl Fn() -> u64 + use<> {
        let app = Arc::clone(&self.app);
        move || app.recorder.spooled()
    }

    /// Stops the background tasks: stores the queued clicks, finishes running deliveries and closes the database. Call
    /// it after the last request. It takes at most 30 s, whatever the database does.
    pub async fn shut_down(self) {
        self.recorder.finish(LAST_CLICKS).await;
        self.stop.send_replace(true);
        let tasks = [
            (self.deliverer, "webhook deliveries"),
            (self.sweeper, "the deletion of rows"),
            (self.checkpoints, "the checkpoints"),
            (self.retention, "the deletion of expired clicks"),
        ];
        let deadline = Instant::now() + LAST_TASKS;
        for (mut task, what) in tasks {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, what, "a background task panicked"),
                Err(_elapsed) => {
                    tracing::warn!(what, "a background task did not end in time");
                    task.abort();
                }
            }
        }
        if tokio::time::timeout(LAST_STATEMENTS, self.app.store.close()).await.is_err() {
            tracing::warn!("the database did not finish its last statements in time");
        }
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn unknown_route() -> impl IntoResponse {
    ApiError::not_found("No such endpoint.")
}

async fn unknown_method() -> impl IntoResponse {
    ApiError::new(Code::MethodNotAllowed, "The method is not allowed for this endpoint.")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::body::Body;
    use axum::http::{Method, Request, StatusCode};
    use axum::response::Response;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use super::*;
    use crate::store::Analytics;

    /// The routes that need no key.
    const OPEN: [&str; 2] = ["/qr", "/r/{key}"];
    const METHODS: [Method; 6] =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

    async fn send(router: &Router, method: &Method, path: &str, key: &str) -> Response {
        let path = path.replace(['{', '}'], "");
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {key}")).body(Body::from("{}"));
        router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn each_request_with_a_key_waits_for_its_workspace() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let analytics = Analytics { readers: 1, ..Analytics::default() };
        let store = Store::open_or_create_with(&url, analytics).await.unwrap();
        let (clock, public) = (Clock::system(), PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", clock.now()).await.unwrap();
        let (_, key) = store.create_key(&workspace, "pro", None, clock.now()).await.unwrap();
        let backend = Backend::start(store, clock, Settings::new(public));
        let (app, router) = (Arc::clone(&backend.app), backend.router());

        let document = send(&router, &Method::GET, "/openapi.json", "").await;
        let document = document.into_body().collect().await.unwrap().to_bytes();
        let document: Value = serde_json::from_slice(&document).unwrap();
        let paths = document["paths"].as_object().unwrap().keys();

        let _all_permits = app.permits.take_all(workspace.seq);
        let place = app.admission.place(&workspace).unwrap();
        let _query = app.admission.admit(&workspace, place).await.unwrap();
        let uses = || app.permits.uses(workspace.seq) + app.admission.uses(workspace.seq);
        let (before, mut waited) = (uses(), 0);
        for path in paths.filter(|path| !OPEN.contains(&path.as_str())) {
            for method in METHODS {
                let refused = send(&router, &method, path, "unknown").await.status();
                if refused == StatusCode::METHOD_NOT_ALLOWED {
                    continue;
                }
                assert_eq!(refused, StatusCode::UNAUTHORIZED, "{method} {path}");
                let waits = pin!(async {
                    while uses() == before {
                        tokio::task::yield_now().await;
                    }
                });
                tokio::select! {
                    answer = send(&router, &method, path, &key) => {
                        panic!("{method} {path} did not wait: {}", answer.status());
                    }
                    () = waits => waited += 1,
                }
            }
        }
        assert!(waited > 40, "{waited} requests");
    }
}
