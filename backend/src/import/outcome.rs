//! What became of the lines of a file.

use std::collections::BTreeMap;
use std::fmt;

use super::columns::{Cells, SECRET, accepted};
use super::lines::Malformed;

/// Maximum number of characters of a cell in a message.
const SHOWN: usize = 60;

/// The progress of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of created links.
    pub made: u64,
    /// Number of refused lines.
    pub refused: u64,
    /// Number of refused lines by reason. A reason starts with the column.
    pub reasons: BTreeMap<String, u64>,
    /// The tags that were created.
    pub tags: Vec<String>,
    /// Number of bytes read from the file.
    pub bytes: u64,
    /// The number of the last line whose outcome is known. So are the outcomes of all lines before it.
    pub last_line: u64,
}

/// The outcome of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A link was created.
    Created {
        /// The line number, starting at 1.
        line: u64,
        /// The URL of the link.
        short_link: String,
    },
    /// No link was created.
    Refused(Refused),
}

impl Outcome {
    pub(super) fn line(&self) -> u64 {
        match self {
            Self::Created { line, .. } | Self::Refused(Refused { line, .. }) => *line,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created { line, short_link } => write!(formatter, "line {line}: {short_link}"),
            Self::Refused(refused) => refused.fmt(formatter),
        }
    }
}

impl Imported {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.last_line = outcome.line();
        match outcome {
            Outcome::Created { .. } => self.made += 1,
            Outcome::Refused(refused) => {
                self.refused += 1;
                *self.reasons.entry(refused.reason()).or_default() += 1;
            }
        }
    }
}

/// A refused line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line number, starting at 1.
    pub line: u64,
    /// The number of the last line that was read for it. A quoted cell may have several lines.
    pub last: u64,
    /// The invalid cell, if the reason is a cell.
    pub cell: Option<Cell>,
    /// The reason.
    pub reason: String,
}

/// An invalid cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The name of its column.
    pub column: String,
    /// The start of its content.
    pub value: String,
}

impl From<Malformed> for Refused {
    fn from(Malformed { first, last, fault }: Malformed) -> Self {
        Self { last, ..Self::of_line(first, fault.to_string()) }
    }
}

impl Refused {
    pub(super) fn of_line(line: u64, reason: String) -> Self {
        Self { line, last: line, cell: None, reason }
    }

    pub(super) fn of_cell(line: u64, cells: &Cells<'_>, column: &str, reason: String) -> Self {
        let value = if column == SECRET { "" } else { cells.of(column) };
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        let cell = Some(Cell { column: column.to_owned(), value: shown });
        Self { cell, ..Self::of_line(line, reason) }
    }

    fn reason(&self) -> String {
        match &self.cell {
            Some(Cell { column, .. }) => format!("{column}: {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, last, cell, reason } = self;
        if last > line {
            return write!(formatter, "lines {line}-{last}: {reason}; line {line} is left out");
        }
        let Some(Cell { column, value }) = cell else { return write!(formatter, "line {line}: {reason}") };
        write!(formatter, "line {line}, column {column}: {value:?}: {reason}")?;
        match accepted(column) {
            Some(accepted) => write!(formatter, " (accepted: {accepted})"),
            None => Ok(()),
        }
    }
}
