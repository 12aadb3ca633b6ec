//! Tables of a replay, as text, Markdown and JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A table. Its columns have the same kind of cell in all rows.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    /// Words, which stand to the left.
    Name(String),
    /// A number.
    Count(u64),
    /// A difference, with its sign.
    Change(i64),
    /// A part of a whole, which has no place in JSON.
    Share(u64, u64),
}

impl Cell {
    fn is_name(&self) -> bool {
        matches!(self, Self::Name(_))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Count(count) => count.to_string(),
            Self::Change(change) => format!("{change:+}"),
            Self::Share(part, whole) => percent(*part, *whole),
        }
    }

    /// The text with a thin space between each three digits of a number.
    pub(super) fn grouped(&self) -> String {
        let digits = self.text();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push('\u{2009}');
            }
            text.push(digit);
        }
        text
    }

    fn json(&self) -> Option<Value> {
        match self {
            Self::Name(name) => Some(name.as_str().into()),
            Self::Count(count) => Some((*count).into()),
            Self::Change(change) => Some((*change).into()),
            Self::Share(..) => None,
        }
    }
}

impl Table {
    /// The names of the columns, and whether there are words in them.
    pub(super) fn columns(&self) -> Vec<(&'static str, bool)> {
        let first = self.rows.first().into_iter().flatten();
        self.head.iter().copied().zip(first.map(Cell::is_name)).collect()
    }

    /// For a terminal: at most this many rows, none where there are none.
    pub(super) fn text(&self, most: usize) -> String {
        let columns = self.columns();
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let cells = |row: &Vec<Cell>| row.iter().map(Cell::text).collect::<Vec<_>>();
        let mut rows = vec![head];
        rows.extend(self.rows.iter().take(most).map(cells));
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row: &Vec<String>| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns.len()).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for row in &rows {
            let mut line = String::new();
            for ((cell, width), (_, is_name)) in row.iter().zip(&widths).zip(&columns) {
                // Writing to a string cannot fail.
                let _written = match is_name {
                    true => write!(line, "  {cell:<width$}"),
                    false => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if let Some(more) = self.rows.len().checked_sub(most).filter(|more| *more > 0) {
            let _written = writeln!(text, "  and {more} more");
        }
        text
    }

    /// For a comment on a pull request.
    pub(super) fn markdown(&self, most: usize) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let columns = self.columns();
        let mut text = format!("### {}\n\n", self.title);
        text += &line(columns.iter().map(|(name, _)| (*name).to_owned()).collect());
        text += &line(
            columns.iter().map(|(_, is_name)| if *is_name { "---" } else { "---:" }.to_owned()).collect(),
        );
        for row in self.rows.iter().take(most) {
            text += &line(row.iter().map(|cell| escaped(&cell.text())).collect());
        }
        if let Some(more) = self.rows.len().checked_sub(most).filter(|more| *more > 0) {
            text += &format!("\nand {more} more\n");
        }
        text
    }

    /// A list of objects.
    pub(super) fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let fields = self
                .head
                .iter()
                .zip(row)
                .filter_map(|(name, cell)| Some((name.replace([' ', '-'], "_"), cell.json()?)));
            Value::Object(fields.collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }
}

/// A text that is nothing but text in Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '@' | '#' => {
                escaped.extend(['\\', character]);
            }
            '&' => escaped.push_str("&amp;"),
            _ if character.is_control() => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[expect(clippy::cast_precision_loss, reason = "a percentage to be read by people")]
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |name: &str, count, change| {
            vec![Cell::Name(name.to_owned()), Cell::Count(count), Cell::Change(change), Cell::Share(1, 3)]
        };
        Table {
            name: "callers",
            title: "By caller".to_owned(),
            head: vec!["caller", "refused before", "change", "of all"],
            rows: vec![row("a|b", 10, 5), row("c", 2000, -1)],
        }
    }

    #[test]
    fn a_table_is_printed_in_three_forms() {
        let text = "By caller
  caller  refused before  change  of all
  a|b                 10      +5   33.3%
  and 1 more
";
        assert_eq!(table().text(1), text);
        let markdown = "### By caller

| caller | refused before | change | of all |
| --- | ---: | ---: | ---: |
| a\\|b | 10 | +5 | 33.3% |
| c | 2000 | -1 | 33.3% |
";
        assert_eq!(table().markdown(9), markdown);
        let json = serde_json::json!([{"caller": "a|b", "refused_before": 10, "change": 5}, {"caller": "c", "refused_before": 2000, "change": -1}]);
        assert_eq!(table().json(), json);
    }
}
