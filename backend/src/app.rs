//! The service put together: its state, its routes and its background work.

use std::sync::Arc;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::admission::Admission;
use crate::click_rules::Repeats;
use crate::clock::Clock;
use crate::error::{ApiError, Code};
use crate::links::PublicUrl;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::recorder::{Recorder, RecorderTask};
use crate::redirect::Front;
use crate::request_scope::RequestScope;
use crate::settings::Settings;
use crate::state::{App, Shared};
use crate::store::Store;
use crate::targets::Targets;
use crate::visitor::Agents;
use crate::webhooks::delivery::Deliverer;
use crate::{analytics, events, internal, links, packer, qr, redirect, request_scope, sweeper, webhooks};

/// QR codes that are drawn at once.
const DRAWING: usize = 1;

/// The running service: a router to be served, and the work behind it.
#[derive(Debug)]
pub struct Backend {
    app: Shared,
    scope: Arc<RequestScope>,
    recorder: RecorderTask,
    deliverer: JoinHandle<()>,
    packer: JoinHandle<()>,
    sweeper: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Backend {
    /// Starts the background work. Needs a tokio runtime.
    #[must_use]
    pub fn start(store: Store, clock: Clock, settings: Settings) -> Self {
        let metrics = Metrics::new();
        let announced = Arc::new(Notify::new());
        let (stop, stopped) = watch::channel(false);
        let (recorder, recorder_task) = Recorder::start(
            store.clone(),
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
        let packer = tokio::spawn(packer::run(store.clone(), clock.clone(), stopped.clone()));
        let deleted = Arc::new(Notify::new());
        let sweeper = sweeper::run(store.clone(), clock.clone(), Arc::clone(&deleted), stopped);
        let sweeper = tokio::spawn(sweeper);
        let scope = Arc::new(RequestScope::new(metrics.clone(), settings.request_timeout));
        let admission = Admission::new(store.analytics().readers);
        let places = Places::new(store.connections() / 2);
        let app = App {
            targets: Targets::new(store.clone(), clock.clone(), settings.max_stale),
            store,
            clock,
            public_url: settings.public_url,
            webhook_addresses: settings.webhook_addresses,
            recorder,
            admission,
            places,
            drawing: Semaphore::new(DRAWING),
            click_rules: settings.clicks,
            repeats: Repeats::default(),
            agents: Agents::default(),
            internal_token: settings.internal_token,
            max_webhooks: settings.max_webhooks,
            metrics,
            announced,
            deleted,
        };
        Self { app: Arc::new(app), scope, recorder: recorder_task, deliverer, packer, sweeper, stop }
    }

    /// The public routes: the API, the redirects and `/healthz`.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .merge(links::routes::router())
            .merge(analytics::router())
            .merge(events::router())
            .merge(webhooks::routes::router())
            .merge(qr::router())
            .merge(redirect::router());
        #[cfg(feature = "openapi")]
        let router = router.route("/openapi.json", routing::get(crate::openapi::document));
        router
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&self.scope), request_scope::within))
    }

    /// The public routes as they are to be served.
    pub fn front(&self) -> Front {
        Front { app: Arc::clone(&self.app), scope: Arc::clone(&self.scope), router: self.router() }
    }

    /// The routes for operators, to be served where clients cannot reach them.
    pub fn internal_router(&self) -> Router {
        Router::new()
            .merge(internal::router())
            .route("/healthz", routing::get(healthz))
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_method)
            .with_state(Arc::clone(&self.app))
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&self.scope), request_scope::within))
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.app.store
    }

    /// Where short links live.
    #[must_use]
    pub fn public_url(&self) -> &PublicUrl {
        &self.app.public_url
    }

    /// Returns once every click made before the call is stored.
    pub async fn flush_clicks(&self) {
        self.app.recorder.flush().await;
    }

    /// Stops the background work: stores the clicks that are queued, finishes the deliveries that are under way, and
    /// closes the database. Call it once no request is served any more.
    pub async fn shut_down(self) {
        self.recorder.finish().await;
        self.stop.send_replace(true);
        for (task, what) in [
            (self.deliverer, "webhook deliveries"),
            (self.packer, "the packing of clicks"),
            (self.sweeper, "the deletion of rows"),
        ] {
            if let Err(error) = task.await {
                tracing::error!(%error, what, "a background task ended abnormally");
            }
        }
        self.app.store.close().await;
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
