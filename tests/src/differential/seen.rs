//! What client, upstream and clusters see of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use host_sim_cli::scenario::{Call, Expect, Lines};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::client::{self, Ending, Manner};
use super::{Contender, PATIENCE};
use crate::exchange::Request;

/// How long a client waits for an answer that does not come.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Headers of a connection or of the gateway itself, not of the message.
const NOT_COMPARED: [&str; 4] = ["connection", "date", "server", "transfer-encoding"];

/// The headers of a message by name, each with its lines.
pub(super) type Fields = BTreeMap<String, Vec<String>>;

/// What client and upstream saw of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether the client waits for more.
    pub(super) waits: bool,
    /// 0 when the connection broke off, or no answer came.
    pub(super) status: u16,
    pub(super) headers: Fields,
    pub(super) body: String,
    /// The request's headers and body at the upstream, if it came there.
    pub(super) forwarded: Option<(Fields, String)>,
    /// The last request to each cluster that was called.
    pub(super) asked: BTreeMap<String, (Fields, String)>,
}

impl Seen {
    /// Takes in what clusters were asked since the last time.
    pub(super) fn hear(&mut self, contender: &dyn Contender) {
        let clusters = contender.clusters().iter();
        self.asked.extend(clusters.filter_map(|(name, server)| Some((name.clone(), server.take()?))));
    }
}

/// Sends a request and gathers what client and upstream saw. The client waits long for an answer that is to end.
pub(super) fn send(contender: &dyn Contender, call: &Call, ends: bool) -> anyhow::Result<Seen> {
    let mut request = Request::new(call.method.parse::<Method>()?, call.path.clone());
    request.headers = header_map(call.headers.iter())?;
    let authority = call.authority.as_deref().unwrap_or("localhost");
    request = request.header("host", authority);
    if call.chunked {
        request = request.header("transfer-encoding", "chunked");
    }
    request.body = call.body.clone().into();
    contender.count();
    let trailers = header_map_of(&call.trailers)?;
    let patience = if ends { PATIENCE } else { IMPATIENCE };
    let manner = Manner { http2: call.http2, trailers, patience };
    let reading = client::send(contender.address(), request, manner)?;
    let forwarded = contender.upstream().take();
    let asked = BTreeMap::new();
    let waits = reading.end == Ending::Waiting;
    Ok(match reading.head.filter(|_| reading.end != Ending::Broken) {
        Some((status, headers)) => Seen {
            waits,
            status: status.as_u16(),
            headers: fields(&headers),
            body: String::from_utf8_lossy(&reading.body).into_owned(),
            forwarded,
            asked,
        },
        None => Seen { waits, status: 0, headers: Fields::new(), body: String::new(), forwarded, asked },
    })
}

pub(super) fn header_map<'a>(
    headers: impl Iterator<Item = (&'a String, &'a Lines)>,
) -> anyhow::Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, lines) in headers {
        for line in lines.iter() {
            map.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(line)?);
        }
    }
    Ok(map)
}

fn header_map_of(fields: &BTreeMap<String, String>) -> anyhow::Result<HeaderMap> {
    fields.iter().map(|(name, value)| Ok((name.parse()?, value.parse()?))).collect()
}

/// Headers to compare: those of the message, with what is another in every run masked.
pub(super) fn fields(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "x-request-id" => "(a random id)".to_owned(),
            // Envoy appends an address of its own for a client on the same machine.
            "x-forwarded-for" => "(the client)".to_owned(),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        fields.entry(name.as_str().to_owned()).or_default().push(value);
    }
    fields
}

pub(super) fn lines(seen: &Seen) -> Vec<String> {
    let of = |fields: &Fields, whose: &str| -> Vec<String> {
        fields.iter().map(|(name, lines)| format!("{whose} {name}: {}", lines.join(" | "))).collect()
    };
    let mut lines = vec![format!("status {}", seen.status)];
    if seen.waits {
        lines.push("the client waits".to_owned());
    }
    lines.extend(of(&seen.headers, "answered"));
    lines.push(format!("body {:?}", seen.body));
    match &seen.forwarded {
        Some((fields, body)) => {
            lines.extend(of(fields, "forwarded"));
            lines.push(format!("forwarded body {body:?}"));
        }
        None => lines.push("not forwarded".to_owned()),
    }
    for (cluster, (fields, body)) in &seen.asked {
        lines.extend(of(fields, &format!("asked of {cluster}")));
        lines.push(format!("asked of {cluster} with body {body:?}"));
    }
    lines
}

/// What Envoy did otherwise than expected.
pub(super) fn unexpected(expect: &Expect, seen: &Seen) -> Vec<String> {
    let mut misses = Vec::new();
    if let Some(ends) = expect.ends.filter(|ends| *ends == seen.waits) {
        misses.push(format!("the answer ends is {}, expected {ends}", !ends));
    }
    let reset = seen.status == 0 && !seen.waits;
    if let Some(expected) = expect.reset.filter(|expected| *expected != reset) {
        misses.push(format!("reset is {reset}, expected {expected}"));
    }
    if let Some(status) = expect.status.filter(|status| *status != seen.status) {
        misses.push(format!("status {}, expected {status}", seen.status));
    }
    if let Some(body) = expect.body.as_ref().filter(|body| **body != seen.body) {
        misses.push(format!("body {:?}, expected {body:?}", seen.body));
    }
    let nothing = Fields::new();
    let forwarded = seen.forwarded.as_ref().map_or(&nothing, |(fields, _)| fields);
    for (expected, found) in [(&expect.headers, &seen.headers), (&expect.forwarded_headers, forwarded)] {
        for (name, value) in expected {
            let found = found.get(name).map(|lines| lines.join(","));
            if found != *value {
                misses.push(format!("{name}: {found:?}, expected {value:?}"));
            }
        }
    }
    misses
}
