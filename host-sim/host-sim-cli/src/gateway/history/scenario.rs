//! Requests as scenarios, to run with `host-sim run` and the gateway's module and configuration.

use std::{collections::BTreeMap, time::Duration};

use host_sim::Headers;
use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::{
    recent::{Entry, RequestId, State},
    record::{End, Message, Record, Upstream, text},
};

/// How long a scenario waits for an upstream that does not answer.
const LATE: Duration = Duration::from_secs(15);

/// Why a request cannot be saved as a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsaved {
    #[error("the gateway no longer has it")]
    NotKept,
    #[error("it came before the filter was reloaded")]
    Older,
    #[error("the gateway refused it before the filter")]
    Refused,
    #[error("its answer is incomplete")]
    Incomplete,
    #[error("a body has more than 64 KiB")]
    TooLarge,
    #[error("it has bytes that are not UTF-8")]
    Binary,
    #[error("the filter called a cluster by gRPC")]
    Grpc,
    #[error("there are several filters")]
    Chain,
}

/// Checks whether a request can be a step of a scenario.
pub(super) fn can_be_saved(state: &State, record: &Record) -> Result<(), Unsaved> {
    let upstream = match &record.upstream {
        Upstream::Answered(answer) => Some(answer),
        _ => None,
    };
    let messages = || std::iter::once(&record.request).chain(upstream);
    let rows = [
        (state.setup.filters > 1, Unsaved::Chain),
        (state.called_grpc, Unsaved::Grpc),
        (record.started < state.setup.loaded, Unsaved::Older),
        (record.end == End::Refused, Unsaved::Refused),
        (record.end != End::Answered, Unsaved::Incomplete),
        (!messages().all(Message::is_whole), Unsaved::TooLarge),
        (!messages().all(Message::is_text), Unsaved::Binary),
    ];
    rows.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, why)| Err(why))
}

/// The scenario that ends with a request, `alone` or after the requests before it.
pub(super) fn of(state: &State, id: RequestId, alone: bool) -> Result<Json, Unsaved> {
    let is_it = |entry: &&Entry| entry.id == id;
    let record = state.requests.iter().find(is_it).and_then(Entry::over).ok_or(Unsaved::NotKept)?;
    can_be_saved(state, record)?;
    let before = state.requests.iter().filter(|entry| !alone && entry.id < id);
    let before = before.filter_map(Entry::over).filter(|record| can_be_saved(state, record).is_ok());

    let mut steps = Vec::new();
    let mut now = state.setup.loaded;
    for earlier in before {
        now = advance(&mut steps, now, earlier.started);
        steps.push(Json::Object(step(earlier, state.setup.workers)));
        now += taken(earlier);
    }
    advance(&mut steps, now, record.started);
    let mut last = step(record, state.setup.workers);
    last.insert("name".to_owned(), record.asked().into());
    last.insert("expect".to_owned(), expected(record));
    steps.push(Json::Object(last));

    let mut clusters = BTreeMap::new();
    for cluster in &state.setup.clusters {
        let answers = state.answers.iter().filter(|answer| {
            let asked = answer.request.is_none_or(|request| request == id || (!alone && request < id));
            asked && answer.cluster == *cluster
        });
        let answers: Vec<&Message> = answers.map(|answer| &answer.message).collect();
        if !answers.iter().all(|answer| answer.is_whole()) {
            return Err(Unsaved::TooLarge);
        }
        if !answers.iter().all(|answer| answer.is_text()) {
            return Err(Unsaved::Binary);
        }
        let answers: Vec<Json> = answers.into_iter().map(answer).collect();
        clusters.insert(cluster, if answers.is_empty() { json!({}) } else { answers.into() });
    }
    let clock = Timestamp::try_from(std::time::UNIX_EPOCH + state.setup.loaded);
    let clock = clock.map_or(Json::Null, |clock| clock.to_string().into());
    Ok(json!({
        "name": record.asked(),
        "workers": state.setup.workers,
        "clock": clock,
        "framing": state.setup.framing.to_string(),
        "clusters": clusters,
        "steps": steps,
    }))
}

/// Adds a step that advances the clock to `then`, unless that is in the past. Returns the clock after it.
fn advance(steps: &mut Vec<Json>, now: Duration, then: Duration) -> Duration {
    let micros = then.saturating_sub(now).as_micros();
    if micros > 0 {
        steps.push(json!({ "advance": format!("{micros}us") }));
    }
    now.max(then)
}

/// How long the step of the request takes on the virtual clock.
fn taken(record: &Record) -> Duration {
    if matches!(record.upstream, Upstream::Late) { LATE } else { Duration::ZERO }
}

/// The step of a request: the request, and what the upstream answers.
fn step(record: &Record, workers: usize) -> Map<String, Json> {
    let header = |name| text(&record.request.headers, name);
    let mut request = fields(&record.request);
    let mut set = |name: &str, value: Json| request.insert(name.to_owned(), value);
    set("method", header(":method").unwrap_or_default().into());
    set("path", header(":path").unwrap_or_default().into());
    set("authority", header(":authority").into());
    set("source", record.client.to_string().into());
    if record.protocol == "HTTP/2" {
        set("http2", true.into());
    }
    if workers > 1 {
        set("worker", record.worker.into());
    }
    let upstream = match &record.upstream {
        Upstream::Unasked | Upstream::Asked => None,
        Upstream::Answered(message) => Some(answer(message)),
        Upstream::Unreachable | Upstream::Broken => Some(json!({ "reset": true })),
        Upstream::Late => Some(json!({ "never": true })),
    };
    let upstream = upstream.map(|upstream| ("upstream".to_owned(), upstream));
    std::iter::once(("request".to_owned(), request.into())).chain(upstream).collect()
}

/// The expectations. Only what is the same in every run is expected: the gateway and the simulator give different details for an
/// upstream that fails.
fn expected(record: &Record) -> Json {
    let mut expected = json!({ "status": record.status() });
    match &record.upstream {
        Upstream::Unasked => {
            expected["local_reply"] = record.local_reply.into();
            expected["details"] = record.details.as_str().into();
            expected["forwarded"] = false.into();
        }
        Upstream::Answered(_) => expected["local_reply"] = record.local_reply.into(),
        Upstream::Asked | Upstream::Unreachable | Upstream::Broken | Upstream::Late => {}
    }
    expected
}

fn answer(message: &Message) -> Json {
    let mut answer = fields(message);
    answer.insert("status".to_owned(), message.headers.status().into());
    answer.into()
}

/// The fields that requests and answers share.
fn fields(message: &Message) -> Map<String, Json> {
    let mut fields = Map::new();
    let regular = message.headers.iter().filter(|(name, _)| !name.starts_with(b":"));
    let mut lines: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for (name, value) in regular {
        lines.entry(shown(name)).or_default().push(shown(value).into());
    }
    let one_or_more = |(name, lines): (String, Vec<Json>)| match <[Json; 1]>::try_from(lines) {
        Ok([line]) => (name, line),
        Err(lines) => (name, lines.into()),
    };
    let lines: Map<String, Json> = lines.into_iter().map(one_or_more).collect();
    fields.insert("headers".to_owned(), lines.into());
    if !message.body.is_empty() {
        fields.insert("body".to_owned(), shown(&message.body).into());
        if message.headers.get("content-length").is_none() {
            fields.insert("chunked".to_owned(), true.into());
        }
    }
    if let Some(trailers) = message.trailers.as_ref().filter(|trailers| !trailers.is_empty()) {
        fields.insert("trailers".to_owned(), json!(by_name(trailers)));
    }
    fields
}

fn by_name(headers: &Headers) -> BTreeMap<String, String> {
    headers.iter().map(|(name, value)| (shown(name), shown(value))).collect()
}

/// Bytes that are known to be UTF-8, as text.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
