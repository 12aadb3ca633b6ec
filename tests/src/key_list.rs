//! A directory of very many keys: the document that the backend would answer, made once, so that serving it costs nothing that
//! would be measured along with the filter.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};

use crate::backend::Directory;
use crate::policy::hash;
use crate::server::{Response, Server};

/// The keys `key-0`, `key-1` and so on, and another such list that differs in one key's plan, to be told apart from it.
#[derive(Debug)]
pub struct KeyList {
    documents: [Bytes; 2],
    changes: AtomicUsize,
}

impl KeyList {
    /// So many keys of plan `pro`, each of a subscriber of its own.
    #[must_use]
    pub fn of(keys: usize) -> Arc<Self> {
        let documents = ["pro", "business"].map(|plan_of_the_last| {
            let mut document = String::from(r#"{"keys":["#);
            for key in 0..keys {
                let is_last = key + 1 == keys;
                let plan = if is_last { plan_of_the_last } else { "pro" };
                let hash = hash(&format!("key-{key}"));
                let sha256 = hash.trim_start_matches("sha256:");
                // Ids are as long as the backend's. Writing to a String cannot fail.
                let _ = write!(
                    document,
                    r#"{{"sha256":"{sha256}","subscriber":"key_{key:026}","plan":"{plan}","limits":{{}}}}{}"#,
                    if is_last { "]}" } else { "," }
                );
            }
            Bytes::from(document)
        });
        Arc::new(Self { documents, changes: AtomicUsize::new(0) })
    }

    /// From here on it is the other list.
    pub fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Bytes of the document.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.documents[0].len()
    }

    /// The document, or 304 for who has it already: its status, its ETag and its body.
    #[must_use]
    pub fn answer(&self, if_none_match: Option<&[u8]>) -> (StatusCode, String, Bytes) {
        let changes = self.changes.load(Ordering::SeqCst);
        let etag = format!("\"{changes}\"");
        match if_none_match == Some(etag.as_bytes()) {
            true => (StatusCode::NOT_MODIFIED, etag, Bytes::new()),
            false => (StatusCode::OK, etag, self.documents[changes % 2].clone()),
        }
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
            let (status, etag, body) = list.answer(known);
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
