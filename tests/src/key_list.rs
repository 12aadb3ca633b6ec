//! A directory of very many keys: the rows that the backend would answer, made once, so that serving them costs nothing that would be measured
//! along with the filter.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};

use crate::backend::Directory;
use crate::policy::hash;
use crate::server::{Response, Server};

/// Rows of a page, as many as the backend's have.
const PAGE: usize = 20_000;

/// The keys `key-0`, `key-1` and so on, of which the last changes its plan again and again.
#[derive(Debug)]
pub struct KeyList {
    /// The rows of each page, as JSON.
    pages: Vec<String>,
    /// The row of the last key with each of its plans.
    last: [String; 2],
    changes: AtomicUsize,
    is_revoked: AtomicBool,
    served: AtomicU64,
    /// Whether there are pages and changes, or one document.
    has_pages: bool,
}

fn row(key: usize, subscriber: usize, plan: &str) -> String {
    let hash = hash(&format!("key-{key}"));
    let sha256 = hash.trim_start_matches("sha256:");
    // Ids are as long as the backend's.
    format!(r#"{{"sha256":"{sha256}","subscriber":"key_{subscriber:026}","plan":"{plan}","limits":{{}}}}"#)
}

impl KeyList {
    /// `keys` keys of plan `pro`, each of another subscriber, in one document.
    #[must_use]
    pub fn of(keys: usize) -> Arc<Self> {
        Arc::new(Self::new(keys, 1, false))
    }

    /// Keys of plan `pro` in pages, several of each subscriber.
    #[must_use]
    pub fn in_pages(keys: usize, of_subscriber: usize) -> Arc<Self> {
        Arc::new(Self::new(keys, of_subscriber, true))
    }

    fn new(keys: usize, of_subscriber: usize, has_pages: bool) -> Self {
        let mut rows: Vec<_> = (0..keys - 1).map(|key| row(key, key / of_subscriber, "pro")).collect();
        let last = ["pro", "business"].map(|plan| row(keys - 1, (keys - 1) / of_subscriber, plan));
        // The last row is apart.
        rows.push(String::new());
        let page = if has_pages { PAGE } else { keys };
        let pages = rows.chunks(page).map(|rows| rows.join(",")).collect();
        let (changes, is_revoked, served) = Default::default();
        Self { pages, last, changes, is_revoked, served, has_pages }
    }

    /// From here on the last key has its other plan.
    pub fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// From here on a document has the last key no more.
    pub fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        self.change();
    }

    /// Bytes of all bodies so far.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// The answer to a poll: its status, its ETag and its body. 304 if the list is there already.
    #[must_use]
    pub fn answer(&self, path: &str, if_none_match: Option<&[u8]>) -> (StatusCode, String, Bytes) {
        let changes = self.changes.load(Ordering::SeqCst);
        let etag = format!("\"{changes}\"");
        if if_none_match == Some(etag.as_bytes()) {
            return (StatusCode::NOT_MODIFIED, etag, Bytes::new());
        }
        let number = |name: &str| path.split_once(&format!("{name}="))?.1.parse::<usize>().ok();
        let last = &self.last[changes % 2];
        let mut body = String::from("{");
        if self.has_pages {
            // Writing to a String cannot fail.
            let _ = write!(body, r#""version":"{changes}","#);
        }
        if let (true, Some(since)) = (self.has_pages, number("since")) {
            let row = if since == changes { "" } else { last };
            let _ = write!(body, r#""since":"{since}","removed":[],"keys":[{row}]}}"#);
        } else {
            let page = number("cursor").unwrap_or(0);
            let _ = write!(body, r#""keys":[{}"#, self.pages[page]);
            let is_last = page + 1 == self.pages.len();
            let _ = match is_last {
                true if self.is_revoked.load(Ordering::SeqCst) => {
                    body.truncate(body.trim_end_matches(',').len());
                    write!(body, "]}}")
                }
                true => write!(body, "{last}]}}"),
                false => write!(body, r#"],"next":"{}"}}"#, page + 1),
            };
        }
        self.served.fetch_add(body.len() as u64, Ordering::SeqCst);
        (StatusCode::OK, etag, body.into())
    }
}

/// Serves a list to a gateway.
#[derive(Debug)]
pub struct KeyListServer(Server);

impl KeyListServer {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(list: Arc<KeyList>) -> anyhow::Result<Self> {
        let server = Server::start(move |request| {
            let known = request.headers().get(IF_NONE_MATCH).map(HeaderValue::as_bytes);
            let path = request.uri().path_and_query().map_or("", |path| path.as_str());
            let (status, etag, body) = list.answer(path, known);
            let mut answer = Response::new(body.into());
            *answer.status_mut() = status;
            if let Ok(etag) = HeaderValue::from_str(&etag) {
                answer.headers_mut().insert(ETAG, etag);
            }
            answer
        })?;
        Ok(Self(server))
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory { address: self.0.address(), token: "any".to_owned() }
    }
}
