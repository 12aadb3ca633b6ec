//! What the admin address shows of the recent requests: a page without scripts, which needs no network, and scenarios.

use askama::Template;
use host_sim::Headers;
use http::{HeaderName, header};

use super::{
    recent::{Entry, Recent, RequestId, State},
    record::{Message, Record, Upstream},
    scenario::{self, Unsaved},
};

/// An answer of the admin address.
#[derive(Debug)]
pub(in crate::gateway) struct Shown {
    pub(in crate::gateway) content_type: &'static str,
    /// What browsers are told of it beside that.
    pub(in crate::gateway) header: (HeaderName, String),
    pub(in crate::gateway) body: String,
}

/// The answer for a path of the admin address, if it is one of these.
pub(in crate::gateway) fn shown(recent: &Recent, path: &str) -> Option<Shown> {
    let rest = path.strip_prefix("/requests")?;
    let state = recent.lock();
    if rest.is_empty() {
        // What clients have sent stands in the page: nothing of it may run.
        let policy = "default-src 'none'; style-src 'unsafe-inline'".to_owned();
        return Some(Shown {
            content_type: "text/html; charset=UTF-8",
            header: (header::CONTENT_SECURITY_POLICY, policy),
            body: Page { state: &state }.render().ok()?,
        });
    }
    let (id, form) = rest.strip_prefix('/')?.split_once('/')?;
    let id = RequestId(id.parse().ok()?);
    let (alone, kind) = match form {
        "scenario.json" => (false, "scenario"),
        "alone.json" => (true, "alone"),
        _ => return None,
    };
    let scenario = scenario::of(&state, id, alone).ok()?;
    let disposition = format!("attachment; filename=\"request-{id}-{kind}.json\"");
    Some(Shown {
        content_type: "application/json",
        header: (header::CONTENT_DISPOSITION, disposition),
        body: format!("{scenario:#}\n"),
    })
}

/// The page, the latest request first.
#[derive(Template)]
#[template(path = "requests.html")]
struct Page<'a> {
    state: &'a State,
}

/// A part of what is shown of a request; its text and its note may be empty.
struct Section {
    title: String,
    text: String,
    note: String,
}

impl Page<'_> {
    fn unsaved(&self, record: &Record) -> Option<Unsaved> {
        scenario::can_be_saved(self.state, record).err()
    }

    fn sections(&self, entry: &Entry, record: &Record) -> Vec<Section> {
        let from =
            format!("Request from {}, {}, on worker {}", record.client, record.protocol, record.worker);
        let mut sections = vec![message(from, &record.request)];
        let address = record.upstream_address.map_or_else(String::new, |address| format!(" {address}"));
        let failed = |how| Section {
            title: format!("The upstream{address} {how}"),
            text: String::new(),
            note: String::new(),
        };
        sections.extend(match &record.upstream {
            Upstream::Unasked => None,
            Upstream::Answered(answer) => Some(message(format!("Answer of the upstream{address}"), answer)),
            Upstream::Asked => Some(failed("had not answered when the request ended")),
            Upstream::Unreachable => Some(failed("could not be reached")),
            Upstream::Broken => Some(failed("broke off before it answered")),
            Upstream::Late => Some(failed("did not answer in time")),
        });
        if record.status() > 0 {
            let instead = if record.local_reply { ", in the upstream's place" } else { "" };
            sections.push(message(format!("Answer to the client{instead}"), &record.answer));
        }
        if !entry.trace.is_empty() {
            let lines: Vec<String> = entry.trace.iter().map(ToString::to_string).collect();
            let more = (entry.untraced > 0).then(|| format!("{} more callbacks.", entry.untraced));
            let note = more.unwrap_or_default();
            sections.push(Section { title: "Trace".to_owned(), text: lines.join("\n"), note });
        }
        sections
    }
}

fn message(title: String, message: &Message) -> Section {
    let mut text = fields(&message.headers);
    if !message.body.is_empty() {
        text += &format!("\n{}\n", String::from_utf8_lossy(&message.body));
    }
    if let Some(trailers) = &message.trailers {
        text += &format!("\n{}", fields(trailers));
    }
    let cut = || format!("The first {} of {} bytes.", message.body.len(), message.size);
    let note = if message.is_whole() { String::new() } else { cut() };
    Section { title, text: text.trim_end().to_owned(), note }
}

fn fields(headers: &Headers) -> String {
    let line = |(name, value): (&bytes::Bytes, &bytes::Bytes)| {
        format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    headers.iter().map(line).collect()
}
