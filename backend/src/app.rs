//! The assembled service: its state, routes and background tasks.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::front::Front;
use crate::api::places::Places;
use crate::api::redirect::known_domains::KnownDomains;
use crate::api::redirect::rules::Repeats;
use crate::api::redirect::targets::Targets;
use crate::api::state::{App, Shared};
use crate::api::{
    analytics, caller, domains, events, internal, labels, links, places, qr, redirect, usage, webhooks,
};
use crate::clicks::{Recorder, RecorderTask};
use crate::deliver::Deliverer;
use crate::domain::agent::Agents;
use crate::domain::clock::Clock;
use crate::domain::public_url::PublicUrl;
use crate::domain::retention::Retention;
use crate::http::error::{ApiError, Code};
use crate::http::scope::{self, RequestScope};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::store::{Store, checkpoint};
use crate::sweep::{self, Background};

/// Maximum number of QR codes that are drawn at once.
const DRAWING: usize = 1;

/// Time limit for the last clicks during a shutdown. What is in the click log by then is recorded by the next process, so that waiting
/// longer for a database that does not answer gains nothing.
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
    stop: watch::Sender<bool>,
}

impl Backend {
    /// Starts the background tasks. Requires a tokio runtime.
    #[must_use]
    pub fn start(store: Store, clock: Clock, settings: Settings) -> Self {
        let metrics = Metrics::new();
        let announced = Arc::new(Notify::new());
        let (stop, stopped) = watch::channel(false);
        let (recorder, recorder_task) =
            Recorder::start(store.clone(), Arc::clone(&announced), metrics.clone());
        let deliverer = Deliverer::new(
            store.clone(),
            clock.clone(),
            settings.webhook_addresses.clone(),
            settings.public_url.clone(),
            Arc::clone(&announced),
            metrics.clone(),
        );
        let deliverer = tokio::spawn(deliverer.run(stopped.clone()));
        let (deleted, retention) = (Arc::new(Notify::new()), Retention::new(settings.retention));
        let background = Background {
            store: store.clone(),
            clock: clock.clone(),
            public: settings.public_url.clone(),
            metrics: metrics.clone(),
            retention,
        };
        let sweeper = tokio::spawn(sweep::run(background, Arc::clone(&deleted), stopped.clone()));
        let checkpoints = tokio::spawn(checkpoint::run(store.clone(), stopped));
        let scope = Arc::new(RequestScope::new(metrics.clone(), settings.request_timeout));
        let places = Places::new(store.analytics().readers as usize, settings.request_timeout);
        let default = settings.public_url.default_domain();
        let domains = KnownDomains::new(default, store.clone(), stop.subscribe());
        let app = App {
            targets: Targets::new(store.clone(), clock.clone(), settings.max_stale),
            domains,
            store,
            clock,
            public_url: settings.public_url,
            webhook_addresses: settings.webhook_addresses,
            recorder,
            places,
            drawing: Arc::new(Semaphore::new(DRAWING)),
            click_rules: settings.clicks,
            repeats: Repeats::default(),
            agents: Agents::default(),
            internal_token: settings.internal_token,
            max_webhooks: settings.max_webhooks,
            retention,
            metrics,
            counting: Arc::new(Semaphore::new(1)),
            announced,
            deleted,
        };
        let (app, recorder) = (Arc::new(app), recorder_task);
        Self { app, scope, recorder, deliverer, sweeper, checkpoints, stop }
    }

    /// The public routes: the API, redirects and `/healthz`.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .merge(links::router())
            .merge(labels::router())
            .merge(domains::router())
            .merge(webhooks::router())
            .merge(analytics::router())
            .merge(events::router())
            .merge(usage::router())
            .route_layer(from_fn_with_state(Arc::clone(&self.app), places::in_place))
            .route_layer(from_fn_with_state(Arc::clone(&self.app), caller::authenticated))
            .merge(qr::router())
            .merge(redirect::router());
        let router = router.route("/openapi.json", routing::get(openapi));
        router
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(from_fn_with_state(Arc::clone(&self.scope), scope::within))
    }

    /// The public listener's handler. It serves redirects without the router.
    pub fn front(&self) -> Front {
        Front { app: Arc::clone(&self.app), scope: Arc::clone(&self.scope), router: self.router() }
    }

    /// The internal routes, for a listener that clients cannot reach.
    pub fn internal_router(&self) -> Router {
        Router::new()
            .merge(internal::router())
            .merge(usage::internal_router())
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(from_fn_with_state(Arc::clone(&self.scope), scope::within))
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

    /// Returns when all clicks before the call are in the database.
    pub async fn flush_clicks(&self) {
        self.app.recorder.flush().await;
    }

    /// The number of clicks that the next process will record if this one ends now. The result goes on to tell it after
    /// [`Self::shut_down`].
    pub fn logged_clicks(&self) -> impl Fn() -> u64 + use<> {
        let app = Arc::clone(&self.app);
        move || app.recorder.logged()
    }

    /// Stops the background tasks: writes the accepted clicks, finishes running deliveries and closes the database. Call
    /// it after the last request. It takes at most 30 s, whatever the database does.
    pub async fn shut_down(self) {
        self.recorder.finish(LAST_CLICKS).await;
        self.stop.send_replace(true);
        let tasks = [
            (self.deliverer, "webhook deliveries"),
            (self.sweeper, "the deletion of rows"),
            (self.checkpoints, "the checkpoints"),
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

/// The description of the API.
async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("../openapi.json"))
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
    use axum::body::Body;
    use axum::http::{Method, Request, StatusCode};
    use axum::response::Response;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use super::*;
    use crate::store::{Analytics, Terms};

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
        let (_, key) = store.create_key(&workspace, &Terms::of_plan("pro"), clock.now()).await.unwrap();
        // A request waits for a third of it.
        let request_timeout = Duration::from_secs(6);
        let backend = Backend::start(store, clock, Settings { request_timeout, ..Settings::new(public) });
        let (app, router) = (Arc::clone(&backend.app), backend.router());

        let document = send(&router, &Method::GET, "/openapi.json", "").await;
        let document = document.into_body().collect().await.unwrap().to_bytes();
        let document: Value = serde_json::from_slice(&document).unwrap();
        let paths = document["paths"].as_object().unwrap().keys();

        for route in places::QUERIES {
            assert!(document["paths"][route]["get"].is_object(), "{route}");
        }
        let _all_places = app.places.take_all(workspace.seq);
        let mut waits = Vec::new();
        for path in paths.filter(|path| !OPEN.contains(&path.as_str())) {
            for method in METHODS {
                let refused = send(&router, &method, path, "unknown").await.status();
                if refused == StatusCode::METHOD_NOT_ALLOWED {
                    continue;
                }
                assert_eq!(refused, StatusCode::UNAUTHORIZED, "{method} {path}");
                let (router, key) = (&router, &key);
                waits.push(async move {
                    let answer = send(router, &method, path, key).await;
                    assert_eq!(
                        answer.status(),
                        StatusCode::SERVICE_UNAVAILABLE,
                        "{method} {path} did not wait"
                    );
                });
            }
        }
        assert!(waits.len() > 40, "{} requests", waits.len());
        futures_util::future::join_all(waits).await;
    }
}
