//! Arguments and results of calls, as a person reads them.

use serde::{Serialize, Serializer};

use crate::{
    abi::{BufferKind, LogLevel, MapKind, MetricKind, Numbered as _, StreamKind, slice},
    parameter::{Given, Out32, Out64, Raw, Slice},
    wire::pairs,
};

/// The most bytes of a text that a trace keeps.
const MAX_TEXT: usize = 1024;

/// An argument or a result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: Shown,
}

/// A value as a trace shows it. In JSON, it is a text, a number, or a list of pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Shown {
    /// One of the ABI's words, such as `request headers`.
    Word(&'static str),
    /// A number.
    Number(#[serde(serialize_with = "number_or_text")] i128),
    /// Bytes, where they are no UTF-8 with escapes, and of long ones the beginning.
    Text(String),
    /// Headers or trailers.
    Pairs(Vec<(String, String)>),
}

/// Writes arguments as an object, by their names.
pub(super) fn members<S: Serializer>(arguments: &[Argument], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arguments.iter().map(|argument| (argument.name, &argument.value)))
}

/// Writes a number that JSON has as such, and any other as a text.
fn number_or_text<S: Serializer>(number: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(*number) {
        Ok(number) => serializer.serialize_i64(number),
        Err(_) => serializer.collect_str(number),
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
        "headers" | "trailers" | "metadata" | "pairs" => {
            let pairs = pairs::decode(bytes).into_iter();
            Shown::Pairs(pairs.map(|(name, value)| (readable(&name), readable(&value))).collect())
        }
        // Its parts are joined with zero bytes.
        "path" => Shown::Text(readable(bytes).replace("\\x00", ".")),
        _ => Shown::Text(readable(bytes)),
    }
}

/// What a number of this name stands for.
fn number(name: &str, number: i128) -> Shown {
    let code = u32::try_from(number).unwrap_or(u32::MAX);
    let word = match name {
        "map" => MapKind::of(code).map(MapKind::name),
        "buffer" => BufferKind::of(code).map(BufferKind::name),
        "stream" => StreamKind::of(code).map(StreamKind::name),
        "level" => LogLevel::of(code).map(LogLevel::name),
        "kind" => MetricKind::of(code).map(MetricKind::name),
        "end" if code < 2 => Ok(if code == 0 { "false" } else { "true" }),
        _ => return Shown::Number(number),
    };
    word.map_or(Shown::Number(number), Shown::Word)
}

/// A call's arguments.
pub(super) fn given(raw: &[Raw], memory: &[u8]) -> Vec<Argument> {
    let argument = |&Raw { name, given }: &Raw| {
        let value = match given {
            Given::Number(given) => number(name, given),
            Given::Slice(given) => match given.of(memory) {
                Ok(found) => bytes(name, found),
                Err(_) => Shown::Word("outside the guest's memory"),
            },
            Given::SliceOut(_) | Given::Out32(_) | Given::Out64(_) => return None,
        };
        Some(Argument { name, value })
    };
    raw.iter().filter_map(argument).collect()
}

/// What a call has written to where its arguments say.
pub(super) fn written(raw: &[Raw], memory: &[u8]) -> Vec<Argument> {
    let read = |at: u32, size: u32| -> Option<u64> {
        let bytes = slice(memory, at, size).ok().filter(|_| at != 0)?;
        Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    };
    let read32 = |at| read(at, 4).and_then(|number| u32::try_from(number).ok());
    let result = |&Raw { name, given }: &Raw| {
        let value = match given {
            Given::SliceOut(out) => {
                let found = Slice { at: read32(out.at)?, length: read32(out.length).unwrap_or(0) };
                bytes(name, found.of(memory).ok()?)
            }
            Given::Out32(Out32(at)) => number(name, read(at, 4)?.into()),
            Given::Out64(Out64(at)) => number(name, read(at, 8)?.into()),
            Given::Number(_) | Given::Slice(_) => return None,
        };
        Some(Argument { name, value })
    };
    raw.iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::SliceOut;

    #[test]
    fn arguments_are_read_by_their_types_and_names() {
        let mut memory = b"\0\0\0\0\x08\0\0\0key\0val".to_vec();
        memory.extend(5_u32.to_le_bytes());
        let raw = |name, given| Raw { name, given };
        let number = |name, number| raw(name, Given::Number(number));
        let slice = |name, at, length| raw(name, Given::Slice(Slice { at, length }));
        let shown = |arguments: Vec<Argument>| -> Vec<(&str, String)> {
            arguments
                .into_iter()
                .map(|argument| (argument.name, serde_json::to_string(&argument.value).unwrap()))
                .collect()
        };
        let arguments = [
            number("map", 0),
            number("map", 99),
            slice("key", 8, 3),
            slice("path", 8, 7),
            slice("body", 4096, 1),
            number("grpc_status", -1),
            raw("value", Given::SliceOut(SliceOut { at: 4, length: 15 })),
            raw("token", Given::Out32(Out32(15))),
            raw("absent", Given::Out32(Out32(0))),
        ];
        let expected = [
            ("map", r#""request headers""#),
            ("map", "99"),
            ("key", r#""key""#),
            ("path", r#""key.val""#),
            ("body", r#""outside the guest's memory""#),
            ("grpc_status", "-1"),
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
