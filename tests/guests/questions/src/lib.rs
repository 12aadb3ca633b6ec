//! A guest that asks its host what its VM configuration lists, and logs each answer as `set callback part | question | answer`.
//!
//! The VM configuration is a list of lines. `= set callback…` begins the questions of these callbacks; each of the lines after it is a host
//! call with its arguments, `unreachable`, `return` with the number that the callback returns, or `#` and a name for the part that follows.
//! Callbacks of headers and bodies may be named by their ends, too: `request_body+end` and `request_body+more`. The set of a stream is the first part of its path;
//! that of a root context is `root`, and a stream has the set `any` before its path is known.
//!
//! - In a text, `%00` is a byte; `_` is the empty text, and `!` one outside the guest's memory. Pairs are `name=value;name=value`.
//! - `$stream`, `$root`, `$token` and `$metric` are the context that asks or asked, its root context, the last token and the last metric.
//! - A question that begins with `~` logs of its answer the status and the size alone: the value differs from run to run.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "the raw ABI")]

mod calls;
mod exports;
mod text;

use std::cell::RefCell;
use std::collections::BTreeMap;

use calls::{Answer, call};
use text::unescape;

/// The questions of some callbacks.
struct Section {
    set: String,
    callbacks: Vec<String>,
    questions: Vec<String>,
}

#[derive(Default)]
struct Guest {
    sections: Vec<Section>,
    /// The sets of streams whose path is known.
    sets: BTreeMap<u32, String>,
    roots: BTreeMap<u32, u32>,
    /// Contexts that made calls to clusters, by token.
    callers: BTreeMap<u32, u32>,
    last_token: u32,
    last_metric: u32,
}

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::default();
}

fn with<T>(act: impl FnOnce(&mut Guest) -> T) -> T {
    GUEST.with_borrow_mut(act)
}

impl Guest {
    fn set(&self, context: u32) -> &str {
        let of_streams = self.sets.get(&context).map_or("any", String::as_str);
        if self.roots.get(&context).is_none_or(|root| *root == context) { "root" } else { of_streams }
    }

    fn root(&self, context: u32) -> u32 {
        self.roots.get(&context).copied().unwrap_or(context)
    }
}

/// Reads what is to be asked, once.
fn learn() {
    const VM_CONFIGURATION: u64 = 6;
    if with(|guest| !guest.sections.is_empty()) {
        return;
    }
    let Some((_, Answer { bytes, .. })) = call("proxy_get_buffer_bytes", &[VM_CONFIGURATION, 0, 1 << 30])
    else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    with(|guest| {
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("= ") {
                let mut words = heading.split(' ').map(str::to_owned);
                let set = words.next().unwrap_or_default();
                guest.sections.push(Section { set, callbacks: words.collect(), questions: Vec::new() });
            } else if let Some(section) = guest.sections.last_mut() {
                section.questions.push(line.to_owned());
            }
        }
    });
}

/// A context begins.
fn create(context: u32, parent: u32) {
    learn();
    with(|guest| guest.roots.insert(context, if parent == 0 { context } else { parent }));
    ask("context_create", context, context, 0);
}

/// A stream's path is there, and names its set.
fn begin(stream: u32) {
    let path = call("proxy_get_header_map_value", &[0, text::leak(b":path"), 5]);
    let path =
        path.map(|(_, answer)| String::from_utf8_lossy(&answer.bytes).into_owned()).unwrap_or_default();
    let set = path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default().to_owned();
    with(|guest| guest.sets.insert(stream, set));
}

/// A call to a cluster is answered: it is asked about for the context that made it.
fn answer(callback: &str, root: u32, token: u32) {
    let caller = with(|guest| guest.callers.get(&token).copied()).unwrap_or(root);
    ask(callback, root, caller, 0);
}

/// Asks the questions of a callback for `caller`. `returned` is what the callback returns unless they say otherwise.
fn ask(callback: &str, context: u32, caller: u32, returned: u32) -> u32 {
    let mut returned = returned;
    let (set, questions) = with(|guest| {
        let set = guest.set(caller).to_owned();
        let name = callback.split(['+', ' ']).next().unwrap_or_default();
        let is_asked = |of: &String| of == name || of == callback;
        let sections = guest.sections.iter();
        let sections =
            sections.filter(|section| section.set == set && section.callbacks.iter().any(is_asked));
        let questions: Vec<String> = sections.flat_map(|section| section.questions.clone()).collect();
        (set, questions)
    });
    let mut place = format!("{set} {callback}");
    for question in questions {
        if let Some(part) = question.strip_prefix("# ") {
            place = format!("{set} {callback} {part}");
            continue;
        }
        if let Some(number) = question.strip_prefix("return ") {
            returned = number.parse().unwrap_or(returned);
            continue;
        }
        let (varies, words) =
            question.strip_prefix('~').map_or((false, question.as_str()), |words| (true, words));
        let answer = put(words, context, caller)
            .map_or_else(|| "is no question".to_owned(), |(status, answer)| answer.shown(status, varies));
        calls::log(&format!("{place} | {question} | {answer}"));
    }
    returned
}

/// Makes the host call that a question spells.
fn put(question: &str, context: u32, caller: u32) -> Option<(u32, Answer)> {
    let mut words = question.split(' ');
    let name = words.next()?;
    if name == "unreachable" {
        core::arch::wasm32::unreachable();
    }
    let mut kinds = calls::kinds(name)?.chars().filter(|kind| kind.is_lowercase());
    let mut arguments = Vec::new();
    let mut kept = Vec::new();
    for word in words {
        match kinds.next()? {
            'n' => arguments.push(match word {
                "$stream" => caller.into(),
                "$root" => with(|guest| guest.root(context)).into(),
                "$token" => with(|guest| guest.last_token).into(),
                "$metric" => with(|guest| guest.last_metric).into(),
                number => number.parse().or_else(|_| number.parse().map(i64::cast_unsigned)).ok()?,
            }),
            _ if word == "!" => arguments.extend([0xffff_fff0, 8]),
            kind => {
                let bytes = if kind == 'p' { text::pairs(word) } else { unescape(word) };
                arguments.extend([bytes.as_ptr() as u64, bytes.len() as u64]);
                kept.push(bytes);
            }
        }
    }
    let (status, answer) = call(name, &arguments)?;
    if status == 0
        && (name.starts_with("proxy_http_call")
            || name.starts_with("proxy_grpc_") && !answer.numbers.is_empty())
    {
        let token = answer.numbers.first().copied().unwrap_or_default() as u32;
        with(|guest| {
            guest.last_token = token;
            guest.callers.insert(token, caller);
        });
    }
    if status == 0 && name == "proxy_define_metric" {
        let metric = answer.numbers.first().copied().unwrap_or_default() as u32;
        with(|guest| guest.last_metric = metric);
    }
    Some((status, answer))
}
