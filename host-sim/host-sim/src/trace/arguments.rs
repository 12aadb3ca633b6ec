//! Arguments and results of calls, as a person reads them.
//!
//! The tables of host calls name their arguments so that they can be read without knowing the call: `name` and `name_size` are an
//! address and a length, `name_out` is where the host writes a number, and `name_out` with `name_out_size` where it writes the
//! address and length of what it gives.

use serde_json::{Value as Json, json};

use crate::{
    abi::{LogLevel, MetricKind, slice},
    signature::ValueType,
    wire::pairs,
};

/// The most bytes of a text that a trace keeps.
const MAX_TEXT: usize = 1024;

/// An argument as it crosses the ABI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) name: &'static str,
    pub(crate) bits: u64,
}

impl Raw {
    /// The low half, which is all there is of a pointer, a length or a code.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.bits & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

/// A number that crosses the ABI.
pub(crate) trait Bits: Copy {
    /// How WebAssembly types it.
    const TYPE: ValueType;

    /// It, without its sign.
    fn bits(self) -> u64;
}

impl Bits for u32 {
    const TYPE: ValueType = ValueType::I32;

    fn bits(self) -> u64 {
        self.into()
    }
}

impl Bits for u64 {
    const TYPE: ValueType = ValueType::I64;

    fn bits(self) -> u64 {
        self
    }
}

impl Bits for i64 {
    const TYPE: ValueType = ValueType::I64;

    fn bits(self) -> u64 {
        self.cast_unsigned()
    }
}

/// An argument or a result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: Shown,
}

/// A value as a trace shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// One of the ABI's words, such as `request headers`.
    Word(&'static str),
    /// A number.
    Number(i128),
    /// Bytes, where they are no UTF-8 with escapes, and of long ones the beginning.
    Text(String),
    /// Headers or trailers.
    Pairs(Vec<(String, String)>),
}

impl Shown {
    /// The value in JSON: a text, a number, or a list of pairs.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Word(word) => json!(word),
            Self::Number(number) => {
                i64::try_from(*number).map_or_else(|_| json!(number.to_string()), Json::from)
            }
            Self::Text(text) => json!(text),
            Self::Pairs(pairs) => json!(pairs),
        }
    }
}

/// Bytes as a person reads them: where they are no UTF-8 with escapes, and of long ones the beginning.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let (kept, rest) = bytes.split_at(bytes.len().min(MAX_TEXT));
    let shown = match std::str::from_utf8(kept) {
        Ok(text) if !text.contains('\0') => text.to_owned(),
        _ => kept.escape_ascii().to_string(),
    };
    if rest.is_empty() { shown } else { format!("{shown}… and {} bytes more", rest.len()) }
}

/// What the bytes of an argument of this name are.
fn bytes(name: &str, bytes: &[u8]) -> Shown {
    match name {
        "headers" | "trailers" | "metadata" | "pairs" | "pairs_out" => {
            let pairs = pairs::decode(bytes).into_iter();
            Shown::Pairs(pairs.map(|(name, value)| (readable(&name), readable(&value))).collect())
        }
        // Its parts are joined with zero bytes.
        "path" => Shown::Text(readable(bytes).replace("\\x00", ".")),
        _ => Shown::Text(readable(bytes)),
    }
}

pub(crate) const MAPS: [&str; 8] = [
    "request headers",
    "request trailers",
    "response headers",
    "response trailers",
    "gRPC initial metadata",
    "gRPC trailing metadata",
    "callout headers",
    "callout trailers",
];

pub(crate) const BUFFERS: [&str; 9] = [
    "request body",
    "response body",
    "downstream data",
    "upstream data",
    "callout body",
    "gRPC message",
    "VM configuration",
    "plugin configuration",
    "call data",
];

const STREAMS: [&str; 4] = ["request", "response", "downstream", "upstream"];

/// What a number of this name stands for.
fn number(raw: Raw) -> Shown {
    let code = raw.number();
    let of = |words: &[&'static str]| usize::try_from(code).ok().and_then(|code| words.get(code).copied());
    let word = match raw.name {
        "map" => of(&MAPS),
        "buffer" => of(&BUFFERS),
        "stream" => of(&STREAMS),
        "level" | "level_out" => LogLevel::from_code(code).map(LogLevel::name),
        "kind" => MetricKind::from_code(code).ok().map(|kind| match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }),
        "end" => of(&["false", "true"]),
        _ => None,
    };
    match (word, raw.name) {
        (Some(word), _) => Shown::Word(word),
        // These have a sign.
        (None, "grpc_status" | "timeout") => Shown::Number(code.cast_signed().into()),
        (None, "offset") => Shown::Number(raw.bits.cast_signed().into()),
        (None, _) => Shown::Number(raw.bits.into()),
    }
}

fn is_length_of(name: &str, of: &str) -> bool {
    name.strip_suffix("_size") == Some(of)
}

/// A call's arguments.
pub(super) fn given(raw: &[Raw], memory: &[u8]) -> Vec<Argument> {
    let mut arguments = Vec::new();
    let mut rest = raw.iter().peekable();
    while let Some(argument) = rest.next() {
        let length = rest.next_if(|next| is_length_of(next.name, argument.name));
        if argument.name.ends_with("_out") {
            continue;
        }
        let value = match length {
            Some(length) => match slice(memory, argument.number(), length.number()) {
                Ok(found) => bytes(argument.name, found),
                Err(_) => Shown::Word("outside the guest's memory"),
            },
            None => number(*argument),
        };
        arguments.push(Argument { name: argument.name, value });
    }
    arguments
}

/// What a call has written to where its arguments say.
pub(super) fn written(raw: &[Raw], memory: &[u8]) -> Vec<Argument> {
    let mut results = Vec::new();
    let mut rest = raw.iter().peekable();
    while let Some(argument) = rest.next() {
        let length = rest.next_if(|next| is_length_of(next.name, argument.name));
        let Some(name) = argument.name.strip_suffix("_out") else { continue };
        let wide = matches!(name, "nanoseconds" | "measure");
        let at = |raw: Raw, size: u32| -> Option<u64> {
            let bytes = slice(memory, raw.number(), size).ok().filter(|_| raw.number() != 0)?;
            Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
        };
        let found = at(*argument, if wide { 8 } else { 4 });
        let value = match (found, length) {
            (Some(address), Some(length)) => {
                let (address, length) = (Raw { bits: address, ..*argument }, at(*length, 4));
                let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(0);
                slice(memory, address.number(), length).ok().map(|found| bytes(argument.name, found))
            }
            (Some(bits), None) => Some(number(Raw { bits, ..*argument })),
            (None, _) => None,
        };
        results.extend(value.map(|value| Argument { name, value }));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_by_their_names() {
        let mut memory = b"\0\0\0\0\x08\0\0\0key\0val".to_vec();
        memory.extend(5_u32.to_le_bytes());
        let raw = |name, bits| Raw { name, bits };
        let shown = |arguments: Vec<Argument>| -> Vec<(&str, String)> {
            arguments
                .into_iter()
                .map(|argument| (argument.name, argument.value.to_json().to_string()))
                .collect()
        };
        let arguments = [
            raw("map", 0),
            raw("map", 99),
            raw("key", 8),
            raw("key_size", 3),
            raw("path", 8),
            raw("path_size", 7),
            raw("body", 4096),
            raw("body_size", 1),
            raw("grpc_status", u64::from(u32::MAX)),
            raw("offset", u64::MAX),
            raw("value_out", 4),
            raw("value_out_size", 15),
            raw("token_out", 15),
            raw("absent_out", 0),
        ];
        let expected = [
            ("map", r#""request headers""#),
            ("map", "99"),
            ("key", r#""key""#),
            ("path", r#""key.val""#),
            ("body", r#""outside the guest's memory""#),
            ("grpc_status", "-1"),
            ("offset", "-1"),
        ]
        .map(|(name, value)| (name, value.to_owned()));
        assert_eq!(shown(given(&arguments, &memory)), expected);
        let expected =
            [("value", r#""key\\x00v""#), ("token", "5")].map(|(name, value)| (name, value.to_owned()));
        assert_eq!(shown(written(&arguments, &memory)), expected);
    }

    #[test]
    fn of_long_texts_the_beginning_is_kept() {
        let shown = readable(&vec![b'a'; MAX_TEXT + 7]);
        assert!(shown.starts_with("aaa") && shown.ends_with("a… and 7 bytes more"), "{shown}");
        assert_eq!(readable(b"\xff\n"), "\\xff\\n");
    }
}
