//! The service of a directory: answers the polls of a configuration with a document.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use filter::config::{Config, digest, hex};
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::keys::Keys;

/// A service on a free port of the loopback interface.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
}

/// What is answered, and to whom.
#[derive(Debug)]
struct Answer {
    cluster: String,
    path: String,
    authorization: Option<String>,
    keys: Keys,
    etag: String,
}

impl Answer {
    fn new(keys: Keys, config: &Config) -> Self {
        let directory = config.settings.directory.as_ref();
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let bearer = directory.and_then(|directory| directory.bearer.as_ref());
        Self {
            cluster: text(directory.map(|directory| &*directory.cluster)),
            path: text(directory.map(|directory| &*directory.path)),
            authorization: bearer.map(|token| format!("Bearer {}", token.expose())),
            etag: format!("\"{}\"", hex(&digest(&keys.document))),
            keys,
        }
    }

    fn to<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let (status, body) = match () {
            () if path != self.path => (StatusCode::NOT_FOUND, Bytes::new()),
            () if request.method() != Method::GET => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
            () if self.authorization.is_some() && header(AUTHORIZATION) != self.authorization.as_deref() => {
                (StatusCode::UNAUTHORIZED, Bytes::new())
            }
            () if header(IF_NONE_MATCH) == Some(&self.etag) => (StatusCode::NOT_MODIFIED, Bytes::new()),
            () => (StatusCode::OK, self.keys.document.clone()),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        if matches!(status, StatusCode::OK | StatusCode::NOT_MODIFIED) {
            let fields = [(CONTENT_TYPE, "application/json"), (ETAG, &self.etag)];
            let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?)));
            response.headers_mut().extend(fields);
        }
        response
    }
}

impl Server {
    /// Listens. The document is answered from [`serve`](Self::serve) on.
    pub(super) async fn start(keys: Keys, config: &Config) -> io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, answer: Arc::new(Mutex::new(Answer::new(keys, config))) })
    }

    /// What a cluster is connected to.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers with another document, or for another configuration, from now on.
    pub(super) fn take(&self, keys: Keys, config: &Config) {
        *lock(&self.answer) = Answer::new(keys, config);
    }

    pub(super) async fn serve(&self) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let answer = Arc::clone(&self.answer);
            let service = service_fn(move |request| {
                let response = lock(&answer).to(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(async move {
                // A connection that breaks concerns its worker alone, which polls again.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = lock(&self.answer);
        write!(f, "{}, as {} of cluster {:?}", answer.keys.told, answer.path, answer.cluster)
    }
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_answered_by_its_path_its_token_and_what_it_has_already() {
        let config = br#"{"plans": {"free": {"standard": ["60/minute"]}},
            "directory": {"cluster": "keys", "path": "/internal/keys?all", "bearer": "token"}}"#;
        let config = Config::from_json(config).unwrap();
        let keys = |document: &'static str| Keys { document: document.into(), told: String::new() };
        let answer = Answer::new(keys(r#"{"keys": []}"#), &config);
        let (etag, other) = (answer.etag.clone(), Answer::new(keys(r#"{"keys": [1]}"#), &config).etag);
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag != other, "{etag} {other}");
        //  method, path, authorization, if-none-match, status
        let rows = [
            ("GET", "/internal/keys?all", "Bearer token", "", 200),
            ("GET", "/internal/keys?all", "Bearer token", &other, 200),
            ("GET", "/internal/keys?all", "Bearer token", &etag, 304),
            ("GET", "/internal/keys?all", "Bearer other", &etag, 401),
            ("GET", "/internal/keys?all", "", "", 401),
            ("POST", "/internal/keys?all", "Bearer token", "", 405),
            ("GET", "/internal/keys", "Bearer token", "", 404),
        ];
        for (method, path, token, known, status) in rows {
            let request = Request::builder().method(method).uri(path);
            let request = request.header(AUTHORIZATION, token).header(IF_NONE_MATCH, known).body(()).unwrap();
            let response = answer.to(&request);
            assert_eq!(response.status(), status, "{method} {path} {token} {known}");
            let told = response.headers().get(ETAG).map(|value| value.to_str().unwrap());
            assert_eq!(told, (status < 400).then_some(&*etag), "{method} {path} {token} {known}");
        }
    }
}
