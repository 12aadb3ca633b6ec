//! What an expression may cost. A guest writes it, and neither its parser nor its evaluation ends by itself in time and
//! stack that a host can spare.

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};

/// The most words and signs of an expression: each may nest it once more.
const MAX_TOKENS: usize = 1000;

/// How deep calls may be nested, sums among them: the parser's own limit in Envoy.
const MAX_DEPTH: usize = 32;

/// The most steps that macros in macros may take, by the length of what they may go over.
const MAX_STEPS: usize = 10_000_000;

/// Macros iterate over at least this number of elements: the number of headers.
const FEWEST_ELEMENTS: usize = 100;

/// How many words and signs a text has.
fn tokens(text: &str) -> usize {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut in_word = false;
    let mut count = 0;
    for byte in text.bytes() {
        let word = is_word(byte);
        count += usize::from(if word { !in_word } else { !byte.is_ascii_whitespace() });
        in_word = word;
    }
    count
}

/// Why a text is not parsed.
pub(super) fn refuse_text(text: &str) -> Option<&'static str> {
    (tokens(text) > MAX_TOKENS).then_some("it has more than a thousand words and signs")
}

/// Why an expression, made of this text, is not evaluated.
pub(super) fn refuse(expression: &IdedExpr, text: &str) -> Option<&'static str> {
    let shape = Shape::of(expression);
    let elements = tokens(text).max(FEWEST_ELEMENTS);
    let steps = u32::try_from(shape.loops).ok().and_then(|loops| elements.checked_pow(loops));
    if shape.builds_message {
        Some("it builds a message")
    } else if shape.depth > MAX_DEPTH {
        Some("it is nested too deep")
    } else if steps.is_none_or(|steps| steps > MAX_STEPS) {
        Some("it has too many macros in macros")
    } else {
        None
    }
}

/// How an expression is nested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    /// Calls in calls.
    depth: usize,
    /// Macros in macros.
    loops: usize,
    builds_message: bool,
}

impl Shape {
    fn of(expression: &IdedExpr) -> Self {
        match &expression.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Self::default(),
            Expr::Select(select) => Self::of(&select.operand),
            Expr::Call(call) => {
                let inner = Self::over(call.target.iter().map(AsRef::as_ref).chain(&call.args));
                // Envoy's parser balances these.
                let balanced = matches!(call.func_name.as_str(), "_&&_" | "_||_");
                Self { depth: inner.depth + usize::from(!balanced), ..inner }
            }
            Expr::List(list) => Self::over(&list.elements),
            Expr::Map(map) => Self::of_entries(&map.entries),
            Expr::Struct(message) => Self { builds_message: true, ..Self::of_entries(&message.entries) },
            Expr::Comprehension(macros) => {
                let inner = Self::over([
                    &macros.iter_range,
                    &macros.accu_init,
                    &macros.loop_cond,
                    &macros.loop_step,
                    &macros.result,
                ]);
                Self { loops: inner.loops + 1, ..inner }
            }
        }
    }

    fn over<'a>(parts: impl IntoIterator<Item = &'a IdedExpr>) -> Self {
        parts.into_iter().map(Self::of).fold(Self::default(), |most, part| Self {
            depth: most.depth.max(part.depth),
            loops: most.loops.max(part.loops),
            builds_message: most.builds_message || part.builds_message,
        })
    }

    fn of_entries(entries: &[IdedEntryExpr]) -> Self {
        Self::over(entries.iter().flat_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        }))
    }
}

#[cfg(test)]
mod tests {
    use cel::parser::Parser;

    use super::*;

    #[test]
    fn what_would_take_too_long_or_too_much_stack_is_refused() {
        let sums = |count: usize| vec!["1"; count].join(" + ");
        let list = |count: usize| format!("[{}]", vec!["1"; count].join(", "));
        let nested = |count: usize| {
            let macros = "[1, 2].map(x, ".repeat(count);
            format!("{macros}x{}", ")".repeat(count))
        };
        let rows = [
            ("a sum", sums(30), None),
            ("a long sum", sums(40), Some("it is nested too deep")),
            ("a sum without end", sums(100_000), Some("it has more than a thousand words and signs")),
            ("many clauses", vec!["request.path == 'a'"; 50].join(" || "), None),
            ("a macro over a long list", format!("{}.map(x, x)", list(400)), None),
            ("three macros", nested(3), None),
            ("four macros", nested(4), Some("it has too many macros in macros")),
            ("a message", "a.B{c: 1}".to_owned(), Some("it builds a message")),
        ];
        for (what, text, expected) in rows {
            let parse = || Parser::default().parse(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(refuse_text(&text).or_else(|| refuse(&parse(), &text)), expected, "{what}");
        }
    }
}
