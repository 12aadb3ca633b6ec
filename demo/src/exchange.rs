//! A request and its answer, as both gateways take and give them.

use std::fmt::Write as _;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;

/// A request to the gateway. Header values are bytes, and a name may occur more than once.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its header lines.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Request {
    /// A request without body; `path` goes out as it is, with its query.
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// Adds a header line.
    ///
    /// # Panics
    /// When HTTP/1.1 cannot carry the name or the value.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a header value");
        self.headers.append(name, value);
        self
    }

    /// Adds the key, as the published clients send it.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    /// Sets a JSON body and its content type.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self.header("content-type", "application/json")
    }
}

/// `GET path`
#[must_use]
pub fn get(path: impl Into<String>) -> Request {
    Request::new(Method::GET, path)
}

/// `POST path`, still without a body.
#[must_use]
pub fn post(path: impl Into<String>) -> Request {
    Request::new(Method::POST, path)
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status line's code.
    pub status: StatusCode,
    /// The header lines.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The header's value, if it is there exactly once.
    ///
    /// # Panics
    /// When it is repeated or no text, which no header of the contract may be.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} is repeated in {self}");
        Some(value.to_str().expect("text in a header"))
    }

    /// The header's value as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none; the answer is in the error.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON in {self}"))
    }

    /// `error.code` of an error envelope.
    #[must_use]
    pub fn error_code(&self) -> Option<String> {
        Some(self.json().ok()?.pointer("/error/code")?.as_str()?.to_owned())
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        writeln!(text, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        write!(f, "{text}\n{}", String::from_utf8_lossy(&self.body))
    }
}
