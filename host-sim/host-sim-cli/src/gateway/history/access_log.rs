//! The access log, in Envoy's default format.

use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

use super::record::{End, Record, Upstream, text};

/// Destination of the access log. A line is written when a request ends.
#[derive(Clone)]
pub struct AccessLog(Arc<Mutex<Box<dyn Write + Send>>>);

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog")
    }
}

impl AccessLog {
    /// Writes the access log to `out` and flushes it after each line.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(out))))
    }

    pub(in crate::gateway) fn write(&self, record: &Record) -> io::Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(line(record).as_bytes())?;
        out.flush()
    }
}

/// `%RESPONSE_FLAGS%`, as far as this gateway has reasons for them.
fn flags(record: &Record) -> &'static str {
    match (&record.upstream, record.end) {
        (_, End::ClientGone) => "DC",
        (Upstream::Unreachable, _) => "UF",
        (Upstream::Late, _) => "UT",
        (Upstream::Broken, _) | (Upstream::Answered(_), End::Broken) => "UC",
        _ => "-",
    }
}

fn line(record: &Record) -> String {
    let header = |name| record.header(name).unwrap_or_else(|| "-".to_owned());
    let time = i64::try_from(record.started.as_millis())
        .ok()
        .and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let path = record.header("x-envoy-original-path").unwrap_or_else(|| header(":path"));
    let time_of_service = text(&record.answer.headers, "x-envoy-upstream-service-time");
    format!(
        "[{}] \"{} {path} {}\" {} {} {} {} {} {} \"{}\" \"{}\" \"{}\" \"{}\" \"{}\"\n",
        time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}")),
        header(":method"),
        record.protocol,
        record.status(),
        flags(record),
        record.request.size,
        record.answer.size,
        record.took.as_millis(),
        time_of_service.unwrap_or_else(|| "-".to_owned()),
        header("x-forwarded-for"),
        header("user-agent"),
        header("x-request-id"),
        header(":authority"),
        record.upstream_address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
    )
}
