//! One line of an access log as a request.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use host_sim::Request;
use jiff::{SignedDuration, Timestamp};

use super::record::Record;
use super::told::Told;

/// What a replay reads of a line, and the names under which gateways log it; the first that a line has counts.
const NAMES: [(&str, &str); 9] = [
    ("time", "start_time timestamp @timestamp msec time_iso8601 time_local time ts"),
    ("duration", "duration duration_ms request_time"),
    ("method", "method request_method :method"),
    ("path", "path x-envoy-original-path x-envoy-origin-path request_path request_uri uri :path"),
    (
        "client",
        "downstream_remote_address client client_ip source_address remote_address remote_addr downstream_direct_remote_address",
    ),
    ("forwarded_for", "x_forwarded_for x-forwarded-for http_x_forwarded_for"),
    ("status", "response_code status"),
    ("details", "response_code_details details"),
    ("weir", "weir"),
];

/// How details of Weir's own answers begin.
const OWN: &str = "weir_";

/// A line that is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is in no format that is known.
    #[error("not an access log's line: {0}")]
    Syntax(String),
    /// It lacks what was looked for under these names.
    #[error("no {0}: none of {names}; --field {0}=NAME names the field that has it", names = .1.join(", "))]
    Missing(&'static str, Vec<String>),
    /// Its time is none.
    #[error(
        "{0:?} is no time: expected 2026-01-01T00:00:00Z, 01/Jan/2026:00:00:00 +0000 or seconds since 1970"
    )]
    Time(String),
}

/// A request as the log has it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When it began.
    pub time: Timestamp,
    /// How long it took; `None` when the log does not say, and where Weir refused it.
    pub took: Option<SignedDuration>,
    /// Its path without the query.
    pub path: String,
    /// Its client's address without the port; empty when the log does not say.
    pub client: String,
    /// What the upstream answered; 200 when the log does not say, and where Weir answered itself.
    pub status: u16,
    /// The request without the headers below.
    pub request: Request,
    /// Headers that were logged.
    pub headers: Vec<(String, String)>,
    /// What the filter said of the request when it was logged.
    pub told: Option<Told>,
}

impl Entry {
    /// When it ended; when it began, if the log does not say how long it took.
    pub(super) fn ends(&self) -> Timestamp {
        self.time.checked_add(self.took.unwrap_or_default()).unwrap_or(self.time)
    }
}

/// Where a log keeps what.
#[derive(Debug, Clone)]
pub struct Fields {
    /// Request headers, and the fields that they were logged as.
    pub(super) headers: Vec<(String, String)>,
    names: BTreeMap<&'static str, Vec<String>>,
}

impl Default for Fields {
    fn default() -> Self {
        let names = |(what, names): (_, &str)| (what, names.split(' ').map(str::to_owned).collect());
        Self { headers: Vec::new(), names: NAMES.into_iter().map(names).collect() }
    }
}

impl Fields {
    /// The request header `name` was logged as `field`.
    #[must_use]
    pub fn header(mut self, name: &str, field: &str) -> Self {
        self.headers.push((name.to_ascii_lowercase(), field.to_owned()));
        self
    }

    /// Reads `what` from `field`.
    ///
    /// # Errors
    /// When `what` is nothing that is read: with what is.
    pub fn field(mut self, what: &str, field: &str) -> Result<Self, String> {
        let Some(names) = self.names.get_mut(what) else {
            let known = NAMES.map(|(known, _)| known).join(", ");
            return Err(format!("--field {what}: expected one of {known}"));
        };
        *names = vec![field.to_owned()];
        Ok(self)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// When it is in no known format, or says neither when nor what.
    pub fn read(&self, line: &[u8]) -> Result<Entry, LineError> {
        let record = Record::read(line.trim_ascii()).map_err(LineError::Syntax)?;
        let names = |what| self.names.get(what).into_iter().flatten();
        let find = |what| names(what).find_map(|name| record.get(name));
        let missing = |what| LineError::Missing(what, names(what).cloned().collect());
        let text = find("time").ok_or_else(|| missing("time"))?;
        let mut time = instant(text).ok_or_else(|| LineError::Time(text.to_owned()))?;
        let took = find("duration").and_then(duration);
        // The times of nginx, which has this field, are those at which requests ended.
        if let (Some(took), Some(_)) = (took, record.get("request_time")) {
            time = time.checked_sub(took).unwrap_or(time);
        }
        // nginx's $request has method, path and protocol.
        let mut line = record.get("request").unwrap_or_default().split(' ');
        let (method, target) = (line.next().filter(|method| !method.is_empty()), line.next());
        let path = find("path").or(target).ok_or_else(|| missing("path"))?;
        let method = find("method").or(method).unwrap_or("GET");

        let mut request = Request::new(method.to_owned(), path.to_owned());
        let source = find("client").or_else(|| find("forwarded_for")?.rsplit(',').next());
        let (client, with_port) = split_port(source.unwrap_or_default().trim());
        if !client.is_empty() {
            request = request.source(with_port);
        }
        let logged = |(name, field): &(String, String)| Some((name.clone(), record.get(field)?.to_owned()));
        let told = find("weir").and_then(Told::read);
        let is_own = find("details").is_some_and(|details| details.starts_with(OWN))
            || told.as_ref().is_some_and(Told::is_answered);
        // 0 is a client that went away before the answer.
        let status = find("status").and_then(|status| status.parse().ok());
        Ok(Entry {
            time,
            took: took.filter(|_| !is_own),
            path: path.split(['?', '#']).next().unwrap_or_default().to_owned(),
            client,
            status: status.filter(|status| *status >= 100 && !is_own).unwrap_or(200),
            request,
            headers: self.headers.iter().filter_map(logged).collect(),
            told,
        })
    }

    /// The names of a line's fields, where the line can be read at all.
    pub(super) fn names_of(line: &[u8]) -> String {
        let record = Record::read(line.trim_ascii()).unwrap_or_default();
        record.names().collect::<Vec<_>>().join(", ")
    }
}

/// A duration as gateways write it: whole milliseconds as Envoy, and seconds with a decimal point as nginx.
fn duration(text: &str) -> Option<SignedDuration> {
    let took = match text.parse() {
        Ok(milliseconds) => SignedDuration::from_millis(milliseconds),
        Err(_) => SignedDuration::try_from_secs_f64(text.parse().ok()?).ok()?,
    };
    Some(took).filter(|took| !took.is_negative())
}

/// A time as gateways write it.
fn instant(text: &str) -> Option<Timestamp> {
    let Ok(number) = text.parse::<f64>() else {
        return text.parse().or_else(|_| Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text)).ok();
    };
    // Seconds, milliseconds, microseconds: by what lies nearest to this century.
    let seconds = [1.0, 1e3, 1e6].into_iter().map(|unit| number / unit).find(|seconds| *seconds < 1e11)?;
    Timestamp::UNIX_EPOCH.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
}

/// An address without its port, and with one.
fn split_port(source: &str) -> (String, String) {
    let address = source.parse().or_else(|_| source.parse().map(|client: IpAddr| SocketAddr::new(client, 0)));
    let given = |_| (source.to_owned(), source.to_owned());
    address.map_or_else(given, |address| (address.ip().to_string(), address.to_string()))
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
        let gateway = r#"{"start_time":"2026-01-01T00:00:01.500Z","x-envoy-origin-path":"/a?b",":authority":"api","x-forwarded-for":"203.0.113.9"}"#;
        let shipped = r#"{"time":"2026-01-01T00:00:01.500Z","client":"203.0.113.9","path":"/a?b","status":429,"details":"weir_rate_limited"}"#;
        let msec = r#"{"msec":"1767225602.000","request_time":"0.500","request_uri":"/a?b","remote_addr":"203.0.113.9","status":"404"}"#;
        let combined = r#"203.0.113.9 - - [01/Jan/2026:00:00:01 +0000] "GET /a?b HTTP/1.1" 404 2 "-" "curl""#;
        let fields = Fields::default().header("authorization", "key");
        //  line   status  client         source                 authorization, milliseconds
        let rows = [
            (envoy, 201, "203.0.113.9", "203.0.113.9:5000", Some("Bearer k"), 500),
            (istio, 200, "2001:db8::1", "[2001:db8::1]:0", None, 500),
            (gateway, 200, "203.0.113.9", "203.0.113.9:0", None, 500),
            (shipped, 200, "203.0.113.9", "203.0.113.9:0", None, 500),
            (msec, 404, "203.0.113.9", "203.0.113.9:0", None, 500),
            (combined, 404, "203.0.113.9", "203.0.113.9:0", None, 0),
        ];
        for (line, status, client, source, authorization, milliseconds) in rows {
            let entry = fields.read(line.as_bytes()).unwrap();
            assert_eq!(
                (entry.status, entry.client.as_str(), entry.path.as_str()),
                (status, client, "/a"),
                "{line}"
            );
            assert_eq!(entry.time.as_millisecond(), 1_767_225_601_000 + milliseconds, "{line}");
            assert_eq!(entry.request.source_address(), source, "{line}");
            assert_eq!(entry.request.path(), "/a?b", "{line}");
            let header = entry.headers.first().map(|(name, value)| (name.as_str(), value.as_str()));
            assert_eq!(header, authorization.map(|value| ("authorization", value)), "{line}");
        }
    }

    #[test]
    fn any_field_can_be_named() {
        let line = br#"{"when":1767225601500,"what":"/x","path":"/y"}"#;
        let fields = Fields::default().field("time", "when").unwrap().field("path", "what").unwrap();
        let entry = fields.read(line).unwrap();
        assert_eq!((entry.path.as_str(), entry.time.as_millisecond()), ("/x", 1_767_225_601_500));
        let refused = Fields::default().field("uri", "x").unwrap_err();
        assert!(refused.starts_with("--field uri: expected one of time, duration, method, "), "{refused}");
    }

    #[test]
    fn a_line_that_is_no_request_says_why() {
        let rows = [
            ("[]", "not an access log's line: neither a JSON object nor "),
            (r#"{"path":"/"}"#, "no time: none of start_time, timestamp, "),
            (r#"{"start_time":"2026-01-01T00:00:00Z"}"#, "no path: none of path, x-envoy-original-path, "),
            (r#"{"start_time":"noon","path":"/"}"#, "\"noon\" is no time"),
        ];
        for (line, expected) in rows {
            let error = Fields::default().read(line.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
