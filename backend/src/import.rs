//! Import of links from a CSV file, with the same checks as the API.
//!
//! The first line contains the API's field names (`url`, `key`, `externalId`, `tagNames` …). An empty cell is an absent
//! field. Boolean fields are `true` or `false`. `geo` and `testVariants` are JSON.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::Read;

use csv::{ByteRecord, ReaderBuilder, StringRecord, Trim};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::links::PublicUrl;
use crate::links::destination::TooLong;
use crate::links::input::{FLAG_NAMES, LinkInput, NO_EFFECT};
use crate::links::routes::new_link;
use crate::store::{LinkConflict, NewLink, Store, StoreError, Workspace, transactions};

/// Number of lines that are stored together. Large links take several transactions.
const BATCH: usize = 100;
/// Maximum number of characters of a cell in a message.
const SHOWN: usize = 60;
/// The column whose cells appear in no message.
const SECRET: &str = "password";

/// The columns that are fields of a link, and their accepted values.
const COLUMNS: &[(&str, &str)] = &[
    ("url", "an address of at most 32,000 characters, such as https://example.com/page"),
    ("domain", "a domain of --public-url or --domain"),
    ("key", "up to 190 letters, digits, _, -, . and /, unique on the domain"),
    ("keyLength", "a whole number from 3 to 190"),
    ("prefix", "up to 190 letters, digits, _, -, . and /"),
    ("externalId", "up to 255 characters, unique in the workspace"),
    ("tenantId", "up to 255 characters"),
    ("folderId", "the id of a folder of the workspace"),
    ("archived", "true or false"),
    ("tagIds", "ids of tags of the workspace, separated by commas"),
    ("tagId", "the id of a tag of the workspace"),
    ("tagNames", "up to 100 names of up to 255 characters, separated by commas"),
    ("utm_source", "up to 255 characters"),
    ("utm_medium", "up to 255 characters"),
    ("utm_campaign", "up to 255 characters"),
    ("utm_term", "up to 255 characters"),
    ("utm_content", "up to 255 characters"),
    ("ref", "up to 255 characters"),
    ("doIndex", "true or false"),
    ("programId", "up to 255 characters"),
    ("partnerId", "up to 255 characters"),
    ("title", "up to 32,000 characters"),
    ("description", "up to 32,000 characters"),
    ("image", "up to 32,000 characters"),
    ("video", "up to 32,000 characters"),
    ("comments", "up to 32,000 characters"),
    ("expiredUrl", "an address, such as https://example.com/expired"),
    ("ios", "an address, such as https://example.com/ios"),
    ("android", "an address, such as https://example.com/android"),
    ("expiresAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("testStartedAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("testCompletedAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("geo", r#"addresses by country in JSON, such as {"DE": "https://example.de"}"#),
    ("password", "empty, because passwords are not supported"),
    ("trackConversion", "false"),
    ("proxy", "false"),
    ("rewrite", "false"),
    ("publicStats", "false"),
    ("testVariants", "empty or []"),
    ("webhookIds", "empty"),
];

/// The import failed. Links created before the error remain.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// The required column `url` is missing.
    #[error("the first line has no column \"url\"")]
    NoUrl,
    /// Two columns have the same name.
    #[error("the first line contains the column {0:?} twice")]
    RepeatedColumn(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The progress of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of created links.
    pub made: u64,
    /// Number of refused lines.
    pub refused: u64,
    /// Number of refused lines by reason. A reason starts with the column.
    pub reasons: BTreeMap<String, u64>,
    /// Number of bytes read from the file.
    pub bytes: u64,
}

/// A refused line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line number, starting at 1.
    pub line: u64,
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

impl Refused {
    fn of_cell(line: u64, cells: &Cells<'_>, column: &str, reason: String) -> Self {
        let value = if column == SECRET { "" } else { cells.of(column) };
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self { line, cell: Some(Cell { column: column.to_owned(), value: shown }), reason }
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
        let Self { line, cell, reason } = self;
        let Some(Cell { column, value }) = cell else { return write!(formatter, "line {line}: {reason}") };
        write!(formatter, "line {line}, column {column}: {value:?}: {reason}")?;
        match accepted(column) {
            Some(accepted) => write!(formatter, " (accepted: {accepted})"),
            None => Ok(()),
        }
    }
}

/// The cells of a line and the names of their columns.
#[derive(Clone, Copy)]
struct Cells<'a> {
    columns: &'a StringRecord,
    record: &'a StringRecord,
}

impl Cells<'_> {
    /// The cells with a field of the link: those that are not empty, in known columns.
    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.columns.iter().zip(self.record).filter(|(column, cell)| {
            let is_field = accepted(column).is_some();
            is_field && !cell.is_empty()
        })
    }

    /// The cell of a column. Empty if the file does not have the column.
    fn of(&self, column: &str) -> &str {
        self.fields().find(|(name, _)| *name == column).map_or("", |(_, cell)| cell)
    }
}

/// The accepted values of a column. None if links have no such field.
fn accepted(column: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|(name, _)| *name == column).map(|(_, accepted)| *accepted)
}

/// A valid line and its link.
struct Line {
    number: u64,
    record: StringRecord,
    link: NewLink,
}

/// Creates a link for each line of a CSV file. Calls `report` after each batch of lines.
///
/// # Errors
/// [`ImportError`] if the file cannot be read or the database fails. Invalid lines are not errors. `report` gets them.
pub async fn import_csv(
    store: &Store,
    workspace: &Workspace,
    public: &PublicUrl,
    file: impl Read,
    now: Timestamp,
    mut report: impl FnMut(&Imported, &[Refused]),
) -> Result<Imported, ImportError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(file);
    let columns = reader.headers()?.clone();
    check(&columns)?;
    let mut imported = Imported::default();
    let (mut lines, mut refused) = (Vec::new(), Vec::new());
    let mut tags = HashSet::new();
    let mut bytes = ByteRecord::new();
    loop {
        let is_over = !reader.read_byte_record(&mut bytes)?;
        if !is_over {
            let number = bytes.position().map_or(0, csv::Position::line);
            match line(&columns, &bytes, number, public, now) {
                Ok(line) => {
                    make_tags(store, workspace, &line.link, &mut tags, now).await?;
                    lines.push(line);
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        if is_over || lines.len() + refused.len() == BATCH {
            let links: Vec<NewLink> = lines.iter().map(|line| line.link.clone()).collect();
            let mut left = lines.as_slice();
            for links in transactions(&links)? {
                let (lines, others) = left.split_at(links.len());
                imported.made += make(store, workspace, &columns, lines, now, &mut refused).await?;
                left = others;
            }
            refused.sort_by_key(|refused| refused.line);
            for refused in &refused {
                imported.refused += 1;
                *imported.reasons.entry(refused.reason()).or_default() += 1;
            }
            imported.bytes = reader.position().byte();
            report(&imported, &refused);
            lines.clear();
            refused.clear();
        }
        if is_over {
            return Ok(imported);
        }
    }
}

fn check(columns: &StringRecord) -> Result<(), ImportError> {
    for (index, name) in columns.iter().enumerate() {
        if accepted(name).is_none() {
            tracing::warn!(column = name, "the column is ignored, because links have no such field");
        } else if columns.iter().take(index).any(|before| before == name) {
            return Err(ImportError::RepeatedColumn(name.to_owned()));
        }
    }
    if columns.iter().any(|name| name == "url") { Ok(()) } else { Err(ImportError::NoUrl) }
}

/// Creates the tags of a link, except those in `made`. If a tag cannot be created, the link is refused later.
async fn make_tags(
    store: &Store,
    workspace: &Workspace,
    link: &NewLink,
    made: &mut HashSet<String>,
    now: Timestamp,
) -> Result<(), StoreError> {
    for name in link.input.tags.iter().flat_map(|tags| &tags.names).flatten() {
        if made.insert(name.clone()) {
            let _exists: Result<_, _> = store.create_tag(workspace, name, None, now).await?;
        }
    }
    Ok(())
}

/// Creates the links of some lines, and returns their number. Adds the other lines to `refused`.
async fn make(
    store: &Store,
    workspace: &Workspace,
    columns: &StringRecord,
    lines: &[Line],
    now: Timestamp,
    refused: &mut Vec<Refused>,
) -> Result<u64, StoreError> {
    let links: Vec<NewLink> = lines.iter().map(|line| line.link.clone()).collect();
    let results = match store.create_links(workspace, &links, now, None).await {
        Ok(results) => results,
        Err(refusal) if refusal.is_refusal() => match lines {
            [] => return Err(refusal),
            [line] => {
                refused.push(Refused { line: line.number, cell: None, reason: refusal.to_string() });
                return Ok(0);
            }
            // The halves are tried separately, until only the refused lines are left.
            _ => {
                let (first, second) = lines.split_at(lines.len() / 2);
                return Ok(Box::pin(make(store, workspace, columns, first, now, refused)).await?
                    + Box::pin(make(store, workspace, columns, second, now, refused)).await?);
            }
        },
        Err(error) => return Err(error),
    };
    let mut made = 0;
    for (line, result) in lines.iter().zip(results) {
        match result {
            Ok(_) => made += 1,
            Err(conflict) => {
                let cells = Cells { columns, record: &line.record };
                let (column, reason) = explain(&conflict, &cells);
                refused.push(Refused::of_cell(line.number, &cells, column, reason));
            }
        }
    }
    Ok(made)
}

/// The column that caused a conflict, and the reason.
fn explain(conflict: &LinkConflict, cells: &Cells<'_>) -> (&'static str, String) {
    let column = match conflict {
        LinkConflict::Key | LinkConflict::InvalidKey => "key",
        LinkConflict::ExternalId => "externalId",
        LinkConflict::Domain => "domain",
        LinkConflict::OtherTags(_) => "tagNames",
        LinkConflict::TooLong(TooLong { field, .. }) if cells.of(field).is_empty() => "url",
        LinkConflict::TooLong(TooLong { field, .. })
        | LinkConflict::Unknown { field, .. }
        | LinkConflict::NoEffect(field)
        | LinkConflict::TooLarge(field) => field,
    };
    let reason = match conflict {
        LinkConflict::InvalidKey => "Invalid key.".to_owned(),
        LinkConflict::Unknown { field: "folderId", .. } => "The workspace has no such folder.".to_owned(),
        LinkConflict::Unknown { .. } => "The workspace has no such tag.".to_owned(),
        LinkConflict::TooLarge(_) => "The link is too large.".to_owned(),
        LinkConflict::OtherTags(field) => format!("Names other tags than {field}."),
        LinkConflict::NoEffect(_) => NO_EFFECT.to_owned(),
        LinkConflict::TooLong(TooLong { field, max }) => {
            format!("The {field} of the destination has more than {max} characters.")
        }
        LinkConflict::Key | LinkConflict::ExternalId | LinkConflict::Domain => conflict.to_string(),
    };
    (column, reason)
}

/// Parses a line.
fn line(
    columns: &StringRecord,
    bytes: &ByteRecord,
    number: u64,
    public: &PublicUrl,
    now: Timestamp,
) -> Result<Line, Refused> {
    let of_line = |reason| Refused { line: number, cell: None, reason };
    if bytes.len() != columns.len() {
        let (cells, expected) = (bytes.len(), columns.len());
        let reason =
            format!("{cells} cells, but the first line has {expected}. Is a closing quotation mark missing?");
        return Err(of_line(reason));
    }
    let record = StringRecord::from_byte_record(bytes.clone());
    let record = record.map_err(|error| {
        let column = columns.get(error.utf8_error().field()).unwrap_or_default();
        of_line(format!("the cell in column {column} is not UTF-8"))
    })?;
    let cells = Cells { columns, record: &record };
    let fields: Map<String, Value> =
        cells.fields().map(|(name, cell)| (name.to_owned(), value(name, cell))).collect();
    let link = LinkInput::create(&Value::Object(fields), "", now).map_err(|error| match error.field {
        Some(field) => {
            let column = field.path.split(['.', '[']).next().unwrap_or_default();
            Refused::of_cell(number, &cells, column, field.reason)
        }
        None => of_line(error.message),
    })?;
    let link = new_link(link, public)
        .map_err(|ApiError { message, .. }| Refused::of_cell(number, &cells, "domain", message))?;
    Ok(Line { number, record, link })
}

/// Converts a cell to the JSON type of its field. A value of another type stays a string, which the later check
/// refuses.
fn value(name: &str, cell: &str) -> Value {
    let text = || Value::from(cell);
    match name {
        "keyLength" | "geo" | "testVariants" => serde_json::from_str(cell).unwrap_or_else(|_| text()),
        _ if FLAG_NAMES.contains(&name) => cell.parse::<bool>().map_or_else(|_| text(), Value::from),
        _ => text(),
    }
}

#[cfg(all(test, feature = "openapi"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::links::input::schema;

    #[test]
    fn every_field_of_a_link_is_a_column() {
        let schema = schema(&["url"]);
        let mut fields: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert!(fields.remove("tags"), "the list in responses, which files do not have");
        let columns: BTreeSet<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(columns.len(), COLUMNS.len(), "duplicate column");
        let others: Vec<&&str> = columns.difference(&fields).collect();
        assert_eq!(fields.difference(&columns).count(), 0, "{fields:?}");
        assert!(others.iter().all(|name| **name == SECRET), "{others:?}");
    }
}
