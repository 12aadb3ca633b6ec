//! What the admin address shows of the recent requests: a page without scripts, which needs no network.

use askama::Template;
use host_sim::Headers;

use super::{
    recent::{Entry, Recent, State},
    record::{Message, Record, Upstream},
};

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

impl Recent {
    /// The requests as a page.
    pub(in crate::gateway) fn page(&self) -> askama::Result<String> {
        Page { state: &self.lock() }.render()
    }
}

impl Page<'_> {
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
    let kept = message.body.len();
    let is_cut = message.size > kept as u64;
    let note = if is_cut { format!("The first {kept} of {} bytes.", message.size) } else { String::new() };
    Section { title, text: text.trim_end().to_owned(), note }
}

fn fields(headers: &Headers) -> String {
    let line = |(name, value): (&bytes::Bytes, &bytes::Bytes)| {
        format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    headers.iter().map(line).collect()
}
