//! One line of an access log.

use host_sim::Request;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Names under which the formats of Envoy and Istio, and common others, log a field; the first that a line has counts.
const TIME: &[&str] = &["start_time", "timestamp", "@timestamp", "time"];
const METHOD: &[&str] = &["method", "request_method"];
const PATH: &[&str] = &["path", "x-envoy-original-path", "request_path", "uri"];
const AUTHORITY: &[&str] = &["authority", "host", "request_authority"];
const STATUS: &[&str] = &["response_code", "status"];
const SOURCE: &[&str] =
    &["downstream_remote_address", "source_address", "remote_address", "downstream_direct_remote_address"];

/// A line that is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is no object of JSON.
    #[error("not a JSON object: {0}")]
    Syntax(String),
    /// It lacks a field.
    #[error("none of {}", names.join(", "))]
    Missing {
        /// The names under which it was looked for.
        names: &'static [&'static str],
    },
    /// Its time is none.
    #[error("{text:?} is no time: expected 2026-01-01T00:00:00Z")]
    Time {
        /// The time as given.
        text: String,
    },
}

/// A request as the log has it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When it began.
    pub time: Timestamp,
    /// Its path without the query.
    pub path: String,
    /// Its client's address without the port; empty when the log does not say.
    pub client: String,
    /// What it was answered; 200 when the log does not say.
    pub status: u16,
    /// The request.
    pub request: Request,
}

/// Where a log keeps what.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    headers: Vec<(String, String)>,
}

fn first<'a>(line: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    // Envoy writes "-" for what there is not, and null in typed JSON.
    names.iter().find_map(|name| line.get(*name)?.as_str().filter(|text| *text != "-"))
}

impl Fields {
    /// The request header `name` was logged as `field`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, field: impl Into<String>) -> Self {
        self.headers.push((name.into(), field.into()));
        self
    }

    /// Reads a line.
    ///
    /// # Errors
    /// When it is no JSON object, or says neither when nor what.
    pub fn read(&self, line: &[u8]) -> Result<Entry, LineError> {
        let line: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| LineError::Syntax(error.to_string()))?;
        let required =
            |names: &'static [&'static str]| first(&line, names).ok_or(LineError::Missing { names });
        let time = required(TIME)?;
        let time = time.parse().map_err(|_| LineError::Time { text: time.to_owned() })?;
        let path = required(PATH)?;

        let mut request = Request::new(first(&line, METHOD).unwrap_or("GET").to_owned(), path.to_owned());
        if let Some(authority) = first(&line, AUTHORITY) {
            request = request.authority(authority.to_owned());
        }
        if let Some(agent) = first(&line, &["user_agent"]) {
            request = request.header("user-agent", agent.to_owned());
        }
        for (name, field) in &self.headers {
            if let Some(value) = first(&line, &[field]) {
                request = request.header(name.clone(), value.to_owned());
            }
        }
        let source = first(&line, SOURCE).or_else(|| first(&line, &["x_forwarded_for"])?.rsplit(',').next());
        let source = source.unwrap_or_default().trim();
        let (client, with_port) = split_port(source);
        if !client.is_empty() {
            request = request.source(with_port);
        }
        let status = STATUS.iter().find_map(|name| match line.get(*name)? {
            Value::Number(status) => status.as_u64(),
            Value::String(status) => status.parse().ok(),
            _ => None,
        });
        Ok(Entry {
            time,
            path: path.split(['?', '#']).next().unwrap_or_default().to_owned(),
            client,
            // 0 is a client that went away before the answer.
            status: status
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| *status >= 100)
                .unwrap_or(200),
            request,
        })
    }
}

/// An address without its port, and with one.
fn split_port(source: &str) -> (String, String) {
    if source.parse::<std::net::SocketAddr>().is_ok() {
        let client = source.rsplit_once(':').map_or(source, |(client, _)| client);
        return (client.trim_matches(['[', ']']).to_owned(), source.to_owned());
    }
    match source.parse::<std::net::IpAddr>() {
        Ok(address) => (source.to_owned(), std::net::SocketAddr::new(address, 0).to_string()),
        Err(_) => (source.to_owned(), source.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_under_the_names_that_gateways_use() {
        let envoy = r#"{"start_time":"2026-01-01T00:00:01.5Z","method":"POST","path":"/a?b","authority":"api","response_code":201,
            "downstream_remote_address":"203.0.113.9:5000","key":"Bearer k","user_agent":"-"}"#;
        let istio = r#"{"start_time":"2026-01-01T00:00:01.5Z","path":"/a?b","x_forwarded_for":"198.51.100.1, 2001:db8::1",
            "response_code":"0","authority":null}"#;
        let fields = Fields::default().header("authorization", "key");
        //  line   status  client         source                 authorization
        let rows = [
            (envoy, 201, "203.0.113.9", "203.0.113.9:5000", Some("Bearer k")),
            (istio, 200, "2001:db8::1", "[2001:db8::1]:0", None),
        ];
        for (line, status, client, source, authorization) in rows {
            let entry = fields.read(line.as_bytes()).unwrap();
            assert_eq!((entry.status, entry.client.as_str(), entry.path.as_str()), (status, client, "/a"));
            assert_eq!(entry.time.as_millisecond(), 1_767_225_601_500);
            assert_eq!(entry.request.source_address(), source);
            assert_eq!(
                (entry.request.path(), entry.request.header_str("authorization")),
                ("/a?b", authorization)
            );
            assert_eq!(entry.request.header_str("user-agent"), None);
        }
    }

    #[test]
    fn a_line_that_is_no_request_says_why() {
        let rows = [
            ("[]", "not a JSON object: "),
            (r#"{"path":"/"}"#, "none of start_time, timestamp"),
            (r#"{"start_time":"2026-01-01T00:00:00Z"}"#, "none of path, "),
            (r#"{"start_time":"noon","path":"/"}"#, "\"noon\" is no time"),
        ];
        for (line, expected) in rows {
            let error = Fields::default().read(line.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
