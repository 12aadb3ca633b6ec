//! What the admin address shows of the recent requests: a page that needs no network.

use askama::Template;
use host_sim::Headers;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use super::{
    recent::{Entry, Recent},
    record::{Message, Record, Upstream},
};

/// The page, the latest request first. Without scripts it is reloaded; with them, requests are added as they end.
#[derive(Template)]
#[template(path = "requests.html")]
struct Page<'a> {
    begun: u64,
    /// The columns, with what they are filtered by.
    columns: Vec<(&'static str, String)>,
    query: &'a str,
    /// How many requests had ended, after which others are added.
    ended: u64,
    requests: Vec<Request<'a>>,
}

/// A request of the page.
#[derive(Template)]
#[template(path = "request.html")]
struct Request<'a> {
    entry: &'a Entry,
}

/// A part of what is shown of a request; its text and its note may be empty.
struct Section {
    title: String,
    text: String,
    note: String,
}

impl Recent {
    /// The requests as a page; of those that have ended, the ones that the query names by their columns.
    pub(in crate::gateway) fn page(&self, query: &str) -> askama::Result<String> {
        let state = self.lock();
        let wanted = self.wanted(query);
        let shown = state.requests.iter().rev().filter(|entry| is_wanted(entry, &wanted));
        let requests = shown.map(|entry| Request { entry }).collect();
        let columns = self.names().iter().copied().zip(wanted.iter().cloned().map(Option::unwrap_or_default));
        Page { begun: state.begun, columns: columns.collect(), query, ended: state.ended, requests }.render()
    }

    /// The requests that have ended after the first `ended`, each as an event; and how many have ended.
    pub(in crate::gateway) fn events(&self, query: &str, ended: u64) -> (String, u64) {
        let state = self.lock();
        let wanted = self.wanted(query);
        let mut later: Vec<_> = state.requests.iter().filter(|entry| entry.ended > ended).collect();
        later.sort_by_key(|entry| entry.ended);
        let shown = later.into_iter().filter(|entry| is_wanted(entry, &wanted));
        // A request whose page cannot be rendered is not shown.
        let texts = shown.filter_map(|entry| Some((entry.ended, Request { entry }.render().ok()?)));
        let event = |(ended, text): (u64, String)| {
            let lines: String = text.lines().map(|line| format!("data: {line}\n")).collect();
            format!("id: {ended}\n{lines}\n")
        };
        (texts.map(event).collect(), state.ended)
    }

    /// What each column must be, by a query.
    fn wanted(&self, query: &str) -> Vec<Option<String>> {
        let of = |name: &&str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(field, _)| field == name)?;
            let value = percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        self.names().iter().map(of).collect()
    }
}

fn is_wanted(entry: &Entry, wanted: &[Option<String>]) -> bool {
    let is_meant = |(index, wanted): (usize, &Option<String>)| {
        wanted.as_ref().is_none_or(|wanted| entry.cells.get(index) == Some(wanted))
    };
    wanted.iter().enumerate().all(is_meant)
}

impl Request<'_> {
    /// The time of day in UTC at which it arrived.
    fn time(&self, record: &Record) -> String {
        let time = i64::try_from(record.started.as_millis()).ok();
        let time = time.and_then(|millis| Timestamp::from_millisecond(millis).ok());
        time.map(|time| time.strftime("%H:%M:%S").to_string()).unwrap_or_default()
    }

    fn sections(&self, record: &Record) -> Vec<Section> {
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
        if !self.entry.trace.is_empty() {
            let lines: Vec<String> = self.entry.trace.iter().map(ToString::to_string).collect();
            let more = (self.entry.untraced > 0).then(|| format!("{} more callbacks.", self.entry.untraced));
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
