//! The admin address: `/ready`, `/stats`, `/stats/prometheus` and `/requests`.

use std::{convert::Infallible, net::TcpListener, rc::Rc, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use host_sim::Metrics;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
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
                std::future::ready(Ok::<_, Infallible>(pages.answer(request.uri())))
            });
            tokio::task::spawn_local(async move {
                // A connection that breaks concerns its client alone.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

/// What adds requests to the page as they end.
const SCRIPT: &str = include_str!("../../templates/requests.js");

/// What clients have sent stands in the page: nothing of it may run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; form-action 'self'";

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Pages {
    fn answer(&self, uri: &Uri) -> Response<Body> {
        let Self { metrics, common } = self;
        let driver = &common.driver;
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let recent = common.options.recent.as_ref();
        match (path, recent) {
            ("/requests", Some(recent)) => {
                if let Ok(page) = recent.page(query) {
                    let mut response = of(page, "text/html; charset=UTF-8");
                    let policy = HeaderValue::from_static(POLICY);
                    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
                    return response;
                }
            }
            ("/requests.js", Some(_)) => return of(SCRIPT.to_owned(), "text/javascript; charset=UTF-8"),
            ("/requests/events", Some(recent)) => return events(recent.clone(), query),
            _ => {}
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

/// The requests that end from now on, or after as many as the query says, as server-sent events.
fn events(recent: Recent, query: &str) -> Response<Body> {
    let ended = query.split('&').find_map(|pair| pair.strip_prefix("ended=")?.parse().ok());
    let watch = recent.watch();
    let ended = ended.unwrap_or_else(|| *watch.borrow());
    // The first event is a comment, so that the client knows that the connection is open.
    let begin = (recent, query.to_owned(), watch, ended, ": open\n\n".to_owned());
    let events = stream::unfold(begin, |(recent, query, mut watch, ended, mut text)| async move {
        let mut now = ended;
        while text.is_empty() {
            watch.wait_for(|number| *number > now).await.ok()?;
            (text, now) = recent.events(&query, now);
        }
        let frame = Frame::data(Bytes::from(std::mem::take(&mut text)));
        Some((Ok::<_, Infallible>(frame), (recent, query, watch, now, text)))
    });
    answer(StreamBody::new(events).boxed_unsync(), "text/event-stream")
}

fn of(body: String, content_type: &'static str) -> Response<Body> {
    answer(Full::from(body).boxed_unsync(), content_type)
}

fn answer(body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
