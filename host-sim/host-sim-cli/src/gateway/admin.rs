//! The admin address: `/ready`, `/stats`, `/stats/prometheus`.

use std::{convert::Infallible, net::TcpListener, rc::Rc, sync::Arc};

use bytes::Bytes;
use host_sim::Metrics;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use super::{Stats, thread::Phase};

pub(super) struct Admin {
    pub(super) listener: TcpListener,
    pub(super) metrics: Metrics,
    pub(super) stats: Arc<Stats>,
}

impl Admin {
    /// Answers until the thread ends.
    pub(super) async fn serve(self, phase: watch::Receiver<Phase>) {
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let (metrics, stats) = (Rc::new(self.metrics), self.stats);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let (metrics, stats, phase) = (Rc::clone(&metrics), Arc::clone(&stats), phase.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let ready = *phase.borrow() == Phase::Serving;
                let response = answer(request.uri().path(), ready, &metrics, &stats);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::task::spawn_local(async move {
                // A connection that breaks concerns its client alone.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

fn answer(path: &str, ready: bool, metrics: &Metrics, stats: &Stats) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/ready" if ready => (StatusCode::OK, "LIVE\n".to_owned()),
        "/ready" => (StatusCode::SERVICE_UNAVAILABLE, "DRAINING\n".to_owned()),
        "/stats" => (StatusCode::OK, stats.to_text() + &metrics.to_text()),
        "/stats/prometheus" => (StatusCode::OK, stats.to_prometheus() + &metrics.to_prometheus()),
        _ => (StatusCode::NOT_FOUND, "there is /ready, /stats and /stats/prometheus\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=UTF-8"));
    response
}
