//! The admin address: `/ready`, `/stats`, `/stats/prometheus` and `/requests`.

use std::{convert::Infallible, net::TcpListener, rc::Rc, sync::Arc};

use bytes::Bytes;
use host_sim::Metrics;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use super::{
    Stats,
    history::{Recent, Shown},
    thread::Phase,
};

pub(super) struct Admin {
    pub(super) listener: TcpListener,
    pub(super) pages: Pages,
}

/// What there is at the address.
pub(super) struct Pages {
    pub(super) metrics: Metrics,
    pub(super) stats: Arc<Stats>,
    pub(super) recent: Option<Recent>,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=UTF-8");

impl Admin {
    /// Answers until the thread ends.
    pub(super) async fn serve(self, phase: watch::Receiver<Phase>) {
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let pages = Rc::new(self.pages);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let (pages, phase) = (Rc::clone(&pages), phase.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let ready = *phase.borrow() == Phase::Serving;
                let response = pages.answer(request.uri().path(), ready);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::task::spawn_local(async move {
                // A connection that breaks concerns its client alone.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

impl Pages {
    fn answer(&self, path: &str, ready: bool) -> Response<Full<Bytes>> {
        let Self { metrics, stats, recent } = self;
        if let Some(shown) = recent.as_ref().and_then(|recent| recent.at(path)) {
            return shown_as(shown);
        }
        let (status, body) = match path {
            "/ready" if ready => (StatusCode::OK, "LIVE\n".to_owned()),
            "/ready" => (StatusCode::SERVICE_UNAVAILABLE, "DRAINING\n".to_owned()),
            "/stats" => (StatusCode::OK, stats.to_text() + &metrics.to_text()),
            "/stats/prometheus" => (StatusCode::OK, stats.to_prometheus() + &metrics.to_prometheus()),
            _ if recent.is_some() => (
                StatusCode::NOT_FOUND,
                "there is /ready, /requests, /stats and /stats/prometheus\n".to_owned(),
            ),
            _ => (StatusCode::NOT_FOUND, "there is /ready, /stats and /stats/prometheus\n".to_owned()),
        };
        let mut response = of(body, TEXT);
        *response.status_mut() = status;
        response
    }
}

fn of(body: String, content_type: HeaderValue) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

fn shown_as(shown: Shown) -> Response<Full<Bytes>> {
    let (body, content_type, name, value) = match shown {
        // What clients have sent stands in the page: nothing of it may run.
        Shown::Page(page) => {
            let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
            (page, HTML, header::CONTENT_SECURITY_POLICY, Some(policy))
        }
        Shown::Scenario { name, text } => {
            let attachment = HeaderValue::from_maybe_shared(format!("attachment; filename=\"{name}\"")).ok();
            (text, JSON, header::CONTENT_DISPOSITION, attachment)
        }
    };
    let mut response = of(body, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().extend(value.map(|value| (name, value)));
    response
}
