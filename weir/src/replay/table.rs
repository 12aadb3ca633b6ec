//! Tables of a replay, as text, Markdown and JSON.

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
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Count(count) => count.to_string(),
            Self::Change(change) => format!("{change:+}"),
            Self::Share(part, whole) => percent(*part, *whole),
        }
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
        let is_name = |cell: &Cell| matches!(cell, Cell::Name(_));
        let first = self.rows.first().into_iter().flatten();
        self.head.iter().copied().zip(first.map(is_name)).collect()
    }

    /// Rows of text, the head first, and how many of all there are beyond the most.
    fn texts(&self, most: usize) -> (Vec<Vec<String>>, Option<usize>) {
        let head = self.head.iter().map(|name| (*name).to_owned()).collect();
        let rows = self.rows.iter().take(most).map(|row| row.iter().map(Cell::text).collect());
        let more = self.rows.len().checked_sub(most).filter(|more| *more > 0);
        (std::iter::once(head).chain(rows).collect(), more)
    }

    /// For a terminal: at most this many rows.
    pub(super) fn text(&self, most: usize) -> String {
        let (rows, more) = self.texts(most);
        let is_name: Vec<_> = self.columns().into_iter().map(|(_, is_name)| is_name).collect();
        let lines = aligned(&rows, &is_name).into_iter().map(|line| format!("  {line}\n"));
        let more = more.map(|more| format!("  and {more} more\n"));
        std::iter::once(format!("{}\n", self.title)).chain(lines).chain(more).collect()
    }

    /// For a comment on a pull request.
    pub(super) fn markdown(&self, most: usize) -> String {
        let (mut rows, more) = self.texts(most);
        rows.iter_mut().flatten().for_each(|cell| *cell = escaped(cell));
        let rule = |(_, is_name)| if is_name { "---" } else { "---:" }.to_owned();
        rows.insert(1, self.columns().into_iter().map(rule).collect());
        let lines = rows.into_iter().map(|row| format!("| {} |\n", row.join(" | ")));
        let more = more.map(|more| format!("\nand {more} more\n"));
        std::iter::once(format!("### {}\n\n", self.title)).chain(lines).chain(more).collect()
    }

    /// A list of objects.
    pub(super) fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let cells = self.head.iter().zip(row);
            cells.filter_map(|(name, cell)| Some((name.replace(' ', "_"), cell.json()?))).collect()
        };
        self.rows.iter().map(object).map(|fields: Map<_, _>| Value::Object(fields)).collect()
    }
}

/// Lines of rows whose columns are as wide as their widest cell, words to the left and numbers to the right.
#[must_use]
pub fn aligned(rows: &[Vec<String>], is_left: &[bool]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let columns: Vec<_> = (0..).map(width).zip(is_left).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&columns).map(|(cell, (width, is_left))| match is_left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
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
