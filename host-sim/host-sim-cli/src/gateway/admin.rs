//! The admin address: `/ready`, `/stats`, `/stats/prometheus` and `/requests`.

use std::{convert::Infallible, net::TcpListener, rc::Rc, sync::Arc};

use bytes::Bytes;
use host_sim::Metrics;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;

use tokio::time;

use super::{history::Recent, local::Common, thread::REFUSED};

pub(super) struct Admin {
    pub(super) listener: TcpListener,
    pub(super) pages: Pages,
}

/// What there is at the address.
pub(super) struct Pages {
    pub(super) metrics: Metrics,
    pub(super) common: Arc<Common>,
}

impl Admin {
    /// Answers until the thread ends.
    pub(super) async fn serve(self) {
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let pages = Rc::new(self.pages);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                time::sleep(REFUSED).await;
                continue;
            };
            let pages = Rc::clone(&pages);
            let service = service_fn(move |request: Request<Incoming>| {
                std::future::ready(Ok::<_, Infallible>(pages.answer(request.uri().path())))
            });
            tokio::task::spawn_local(async move {
                // A connection that breaks concerns its client alone.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

impl Pages {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let Self { metrics, common } = self;
        let driver = &common.driver;
        let recent = common.options.recent.as_ref();
        if let ("/requests", Some(Ok(page))) = (path, recent.map(Recent::page)) {
            let mut response = of(page, "text/html; charset=UTF-8");
            // What clients have sent stands in the page: nothing of it may run.
            let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            return response;
        }
        let (status, body) = match path {
            "/ready" if common.is_draining() => (StatusCode::SERVICE_UNAVAILABLE, "DRAINING\n".to_owned()),
            "/ready" => (StatusCode::OK, "LIVE\n".to_owned()),
            "/stats" => (StatusCode::OK, common.stats.to_text(driver) + &metrics.to_text()),
            "/stats/prometheus" => {
                (StatusCode::OK, common.stats.to_prometheus(driver) + &metrics.to_prometheus())
            }
            _ => {
                let requests = if recent.is_some() { " /requests," } else { "" };
                let body = format!("there is /ready,{requests} /stats and /stats/prometheus\n");
                (StatusCode::NOT_FOUND, body)
            }
        };
        let mut response = of(body, "text/plain; charset=UTF-8");
        *response.status_mut() = status;
        response
    }
}

fn of(body: String, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
