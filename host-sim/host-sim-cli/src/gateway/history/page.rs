//! The page of recent requests: HTML without scripts, which needs no network.

use std::fmt::Write as _;

use host_sim::Headers;

use super::{
    recent::{Entry, State},
    record::{End, Message, Record, Upstream, text},
    scenario,
};
use crate::html::{document, escape};

const STYLE: &str = "
:root { color-scheme: light dark; --rule: #8883; --bad: #d9482b; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2.5rem auto; max-width: 1100px; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1rem; margin: 1rem 0 .3rem; } p { margin: .3rem 0; color: GrayText; }
details { border-top: 1px solid var(--rule); padding: .3rem 0; } summary { display: flex; gap: 1rem; cursor: pointer; }
summary b, summary i { font-variant-numeric: tabular-nums; } summary i { color: GrayText; font-style: normal; margin-left: auto; }
summary span { overflow-wrap: anywhere; } b.bad { color: var(--bad); }
pre { background: var(--rule); border-radius: 6px; padding: .6rem .8rem; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
";

/// The page, the latest request first.
pub(super) fn page(state: &State) -> String {
    let mut body = format!(
        "<p>The last {} of {}. Reload the page for later ones.</p>\n",
        state.requests.len(),
        state.begun
    );
    for entry in state.requests.iter().rev() {
        match entry.over() {
            Some(record) => request(&mut body, state, entry, record),
            None => {
                // Writing to a String cannot fail, here and below.
                let _ =
                    writeln!(body, "<details id=\"r{}\"><summary>in progress</summary></details>", entry.id);
            }
        }
    }
    document("Requests", STYLE, &body)
}

fn request(page: &mut String, state: &State, entry: &Entry, record: &Record) {
    let header = |name| escape(&text(&record.request.headers, name).unwrap_or_default());
    let status = record.status();
    let class = if status < 400 && record.end == End::Answered { "" } else { " class=\"bad\"" };
    let details = match record.end {
        End::ClientGone => "the client went away".to_owned(),
        End::Broken => format!("broken off: {}", record.details),
        End::Answered | End::Refused => record.details.clone(),
    };
    let id = entry.id;
    let _ = writeln!(
        page,
        "<details id=\"r{id}\"><summary><b{class}>{status}</b><span>{} {}</span><i>{}, {} µs</i></summary>",
        header(":method"),
        header(":path"),
        escape(&details),
        record.took.as_micros(),
    );
    let _ = match scenario::can_be_saved(state, record) {
        Ok(()) => writeln!(
            page,
            "<p>Scenario: <a download href=\"/requests/{id}/alone.json\">this request</a>, \
             <a download href=\"/requests/{id}/scenario.json\">with those before it</a></p>"
        ),
        Err(why) => writeln!(page, "<p>No scenario: {why}.</p>"),
    };
    let from = format!("Request from {}, {}, on worker {}", record.client, record.protocol, record.worker);
    message(page, &from, &record.request);
    let address = record.upstream_address.map_or_else(String::new, |address| format!(" {address}"));
    let came = match &record.upstream {
        Upstream::Unasked => None,
        Upstream::Answered(answer) => {
            message(page, &format!("Answer of the upstream{address}"), answer);
            None
        }
        Upstream::Asked => Some("had not answered when the request ended"),
        Upstream::Unreachable => Some("could not be reached"),
        Upstream::Broken => Some("broke off before it answered"),
        Upstream::Late => Some("did not answer in time"),
    };
    if let Some(came) = came {
        title(page, &format!("The upstream{address} {came}"));
    }
    if status > 0 {
        let by = if record.local_reply {
            "Answer to the client, in the upstream's place"
        } else {
            "Answer to the client"
        };
        message(page, by, &record.answer);
    }
    if !entry.trace.is_empty() {
        title(page, "Trace");
        let lines: Vec<String> = entry.trace.iter().map(ToString::to_string).collect();
        pre(page, &lines.join("\n"));
    }
    if entry.untraced > 0 {
        let _ = writeln!(page, "<p>{} more callbacks.</p>", entry.untraced);
    }
    page.push_str("</details>\n");
}

fn title(page: &mut String, title: &str) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(title));
}

fn pre(page: &mut String, text: &str) {
    let _ = writeln!(page, "<pre>{}</pre>", escape(text));
}

fn message(page: &mut String, heading: &str, message: &Message) {
    title(page, heading);
    let mut shown = fields(&message.headers);
    if !message.body.is_empty() {
        let _ = write!(shown, "\n{}\n", String::from_utf8_lossy(&message.body));
    }
    if let Some(trailers) = &message.trailers {
        let _ = write!(shown, "\n{}", fields(trailers));
    }
    pre(page, shown.trim_end());
    if !message.is_whole() {
        let _ = writeln!(page, "<p>The first {} of {} bytes.</p>", message.body.len(), message.size);
    }
}

fn fields(headers: &Headers) -> String {
    let line = |(name, value): (&bytes::Bytes, &bytes::Bytes)| {
        format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    headers.iter().map(line).collect()
}
