//! Traces as text.

use std::{fmt, time::Duration};

use crate::trace::{
    arguments::{Argument, Shown},
    record::{CallAnswer, TracedCall, TracedCallback},
};

/// The most characters of a text that a line shows.
const MAX_SHOWN: usize = 120;

/// WASI's error numbers that the host answers.
fn errno(number: u32) -> String {
    let name = match number {
        0 => return "Ok".to_owned(),
        8 => "BADF",
        20 => "NOTDIR",
        21 => "FAULT",
        28 => "INVAL",
        44 => "NOENT",
        52 => "NOSYS",
        58 => "NOTSUP",
        76 => "NOTCAPABLE",
        _ => return format!("error {number}"),
    };
    format!("{name} ({number})")
}

impl fmt::Display for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.write_str(status.name()),
            Self::Errno(number) => f.write_str(&errno(*number)),
            Self::Trapped => f.write_str("trapped"),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => {
                f.write_str("\"")?;
                for character in text.chars().take(MAX_SHOWN) {
                    match character {
                        // Bytes that are no text are escaped already.
                        '\\' => f.write_str("\\")?,
                        other => other.escape_debug().fmt(f)?,
                    }
                }
                f.write_str(if text.chars().nth(MAX_SHOWN).is_some() { "…\"" } else { "\"" })
            }
            Self::Pairs(pairs) => {
                f.write_str("{")?;
                for (index, (name, value)) in pairs.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{name}: {}", Self::Text(value.clone()))?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Arguments with commas between them.
fn list(arguments: &[Argument]) -> String {
    let shown = arguments.iter().map(|argument| format!("{}: {}", argument.name, argument.value));
    shown.collect::<Vec<_>>().join(", ")
}

/// What something took: time, and memory where it has grown. The alternate form has neither.
fn cost(f: &mut fmt::Formatter<'_>, took: Duration, memory_growth: u64) -> fmt::Result {
    if f.alternate() {
        return Ok(());
    }
    write!(f, " [{} µs", took.as_micros())?;
    if memory_growth > 0 {
        write!(f, ", memory +{} KiB", memory_growth / 1024)?;
    }
    f.write_str("]")
}

impl fmt::Display for TracedCall {
    /// The call on one line, without the calls in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}) → {}", self.call, list(&self.arguments), self.answer)?;
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        if let Some(at) = &self.at {
            write!(f, ", called at {at}")?;
        }
        // Where there is a cause, there is nothing in them.
        if !self.results.is_empty() && self.why.is_none() {
            write!(f, ", {}", list(&self.results))?;
        }
        Ok(())
    }
}

impl fmt::Display for TracedCallback {
    /// A tree: the callback, and under it the host calls, a line each. The alternate form, `{:#}`, leaves out what is not the same in
    /// each run: times, and the growth of memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn tree(f: &mut fmt::Formatter<'_>, calls: &[TracedCall], indent: usize) -> fmt::Result {
            for call in calls {
                write!(f, "\n{:indent$}{call}", "")?;
                cost(f, call.took, call.memory_growth)?;
                tree(f, &call.calls, indent + 2)?;
            }
            Ok(())
        }
        let indent = usize::try_from(self.depth).unwrap_or(0).min(20) * 2;
        write!(f, "{:indent$}{}: {}({})", "", self.vm, self.callback, list(&self.arguments))?;
        if let Some(returned) = &self.returned {
            write!(f, " → {returned}")?;
        }
        if self.trapped.is_some() {
            f.write_str(" → trapped")?;
        }
        cost(f, self.took, self.memory_growth)?;
        if let Some(instructions) = self.instructions {
            write!(f, " {instructions} instructions")?;
        }
        tree(f, &self.calls, indent + 2)?;
        if let Some(trapped) = &self.trapped {
            write!(f, "\n{:width$}{trapped}", "", width = indent + 2)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_short_and_on_one_line() {
        let text = |text: &str| Shown::Text(text.to_owned());
        let long = "a".repeat(MAX_SHOWN + 1);
        let pairs = Shown::Pairs(vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let rows = [
            (text("say \"no\"\n"), r#""say \"no\"\n""#.to_owned()),
            (text(r"\x00\xff"), r#""\x00\xff""#.to_owned()),
            (text(&long[1..]), format!("\"{}\"", &long[1..])),
            (text(&long), format!("\"{}…\"", &long[1..])),
            (pairs, r#"{a: "1", b: "2"}"#.to_owned()),
            (Shown::Number(-1), "-1".to_owned()),
            (Shown::Word("request body"), "request body".to_owned()),
        ];
        for (value, expected) in rows {
            assert_eq!(value.to_string(), expected);
        }
    }
}
