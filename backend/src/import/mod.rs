//! Import of links from a CSV file, with the same checks as the API.
//!
//! The first line contains the API's field names (`url`, `key`, `externalId`, `tagNames` …). An empty cell is an absent
//! field. Boolean fields are `true` or `false`. `geo` and `testVariants` are JSON.

mod columns;
mod lines;
mod outcome;

use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::ControlFlow;

use csv::{ByteRecord, Reader, ReaderBuilder, StringRecord, Trim};
use jiff::Timestamp;
use serde_json::{Map, Value};

use self::columns::{Cells, accepted};
pub use self::lines::Fault;
use self::lines::{Malformed, Records};
pub use self::outcome::{Cell, Imported, Outcome, Refused};
use crate::api::links::fields::FLAG_NAMES;
use crate::domain::destination::TooLong;
use crate::domain::link_input::LinkInput;
use crate::domain::public_url::PublicUrl;
use crate::store::{LinkConflict, NewLink, Store, StoreError, Workspace, transactions};

/// Number of lines that are stored together. Large links take several transactions.
const BATCH: usize = 100;

/// The import failed. Links created before the error remain.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// The names of the columns are malformed.
    #[error("the columns: {0}")]
    Columns(Fault),
    /// The file has no lines.
    #[error("the file is empty")]
    Empty,
    /// The required column `url` is missing.
    #[error("the first line has no column \"url\"")]
    NoUrl,
    /// Two columns have the same name.
    #[error("the first line contains the column {0:?} twice")]
    RepeatedColumn(String),
    /// The caller stopped the import.
    #[error("stopped")]
    Stopped,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A valid line and its link.
struct Line {
    number: u64,
    record: StringRecord,
    link: NewLink,
}

/// Creates a link for each line of a CSV file after the line `after`. Calls `report` with the outcomes of each batch of lines. `report`
/// can stop the import. Webhooks do not hear of the links.
///
/// # Errors
/// [`ImportError`] if the file cannot be read, the database fails or `report` stops the import. Links created before remain, and `report`
/// has got them. Refused lines are not errors.
pub async fn import_csv(
    store: &Store,
    workspace: &Workspace,
    public: &PublicUrl,
    file: impl Read,
    after: u64,
    now: Timestamp,
    mut report: impl FnMut(&Imported, &[Outcome]) -> ControlFlow<()>,
) -> Result<Imported, ImportError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(Records::new(file));
    if let Some(Err(Malformed { fault, .. })) = reader.get_mut().advance().map_err(csv::Error::from)? {
        return Err(ImportError::Columns(fault));
    }
    let columns = reader.headers()?.clone();
    check(&columns)?;
    let mut import = Import {
        store,
        workspace,
        public,
        columns: &columns,
        now,
        tags: HashSet::new(),
        created_tags: Vec::new(),
    };
    let mut imported = Imported { last_line: after, ..Imported::default() };
    let (mut lines, mut outcomes) = (Vec::new(), Vec::new());
    let mut bytes = ByteRecord::new();
    loop {
        let read = read_record(&mut reader, &mut bytes);
        let is_over = !matches!(read, Ok(Some(_)));
        if let Ok(Some(read)) = &read {
            let (Ok(number) | Err(Malformed { first: number, .. })) = *read;
            if number > after {
                let well_formed = read.map_err(Refused::from);
                match well_formed.and_then(|number| line(&columns, &bytes, number, public, now)) {
                    Ok(line) => lines.push(line),
                    Err(refused) => outcomes.push(Outcome::Refused(refused)),
                }
            }
        }
        if is_over || lines.len() + outcomes.len() == BATCH {
            let created = import.create(&lines, &mut outcomes).await;
            if created.is_err() {
                // A later run begins with the first line without an outcome.
                let has_outcome = |line: &&Line| outcomes.iter().any(|outcome| outcome.line() == line.number);
                let first = lines.iter().find(|line| !has_outcome(line)).map_or(u64::MAX, |line| line.number);
                outcomes.retain(|outcome| outcome.line() < first);
            }
            outcomes.sort_by_key(Outcome::line);
            outcomes.iter().for_each(|outcome| imported.add(outcome));
            imported.tags.append(&mut import.created_tags);
            imported.bytes = reader.get_ref().bytes();
            let goes_on = report(&imported, &outcomes).is_continue();
            created?;
            if read?.is_none() {
                return Ok(imported);
            }
            if !goes_on {
                return Err(ImportError::Stopped);
            }
            lines.clear();
            outcomes.clear();
        }
    }
}

/// Reads the next record, and returns the number of its first line. None at the end of the file.
fn read_record(
    reader: &mut Reader<Records<impl Read>>,
    record: &mut ByteRecord,
) -> Result<Option<Result<u64, Malformed>>, csv::Error> {
    let read = reader.get_mut().advance()?;
    // Records would be lost if the reader of CSV saw the end of the file before it.
    if let Some(Ok(_)) = read
        && !reader.read_byte_record(record)?
    {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(read)
}

fn check(columns: &StringRecord) -> Result<(), ImportError> {
    if columns.is_empty() {
        return Err(ImportError::Empty);
    }
    for (index, name) in columns.iter().enumerate() {
        if accepted(name).is_none() {
            tracing::warn!(column = name, "the column is ignored, because links have no such field");
        } else if columns.iter().take(index).any(|before| before == name) {
            return Err(ImportError::RepeatedColumn(name.to_owned()));
        }
    }
    if columns.iter().any(|name| name == "url") { Ok(()) } else { Err(ImportError::NoUrl) }
}

/// The links of one file.
struct Import<'a> {
    store: &'a Store,
    workspace: &'a Workspace,
    public: &'a PublicUrl,
    columns: &'a StringRecord,
    now: Timestamp,
    /// The tags that exist.
    tags: HashSet<String>,
    /// The tags that were created since the last report.
    created_tags: Vec<String>,
}

impl Import<'_> {
    /// Creates the links of some lines, in several transactions if they are large. Adds the outcomes in the order of the lines.
    async fn create(&mut self, lines: &[Line], outcomes: &mut Vec<Outcome>) -> Result<(), StoreError> {
        for line in lines {
            self.make_tags(&line.link).await?;
        }
        let links: Vec<NewLink> = lines.iter().map(|line| line.link.clone()).collect();
        let mut left = lines;
        for links in transactions(&links)? {
            let (lines, others) = left.split_at(links.len());
            self.create_together(lines, outcomes).await?;
            left = others;
        }
        Ok(())
    }

    /// Creates the missing tags of a link. If a tag cannot be created, the link is refused later.
    async fn make_tags(&mut self, link: &NewLink) -> Result<(), StoreError> {
        for name in link.input.tags.iter().flat_map(|tags| &tags.names).flatten() {
            if self.tags.insert(name.clone())
                && self.store.create_tag(self.workspace, name, None, self.now, None).await?.is_ok()
            {
                self.created_tags.push(name.clone());
            }
        }
        Ok(())
    }

    /// Creates the links of some lines in one transaction.
    async fn create_together(&self, lines: &[Line], outcomes: &mut Vec<Outcome>) -> Result<(), StoreError> {
        let links: Vec<NewLink> = lines.iter().map(|line| line.link.clone()).collect();
        let results = match self.store.create_links(self.workspace, &links, self.now, None, None).await {
            Ok(results) => results,
            Err(refusal) if refusal.is_refusal() => match lines {
                [] => return Err(refusal),
                [Line { number, .. }] => {
                    let refused = Refused::of_line(*number, refusal.to_string());
                    outcomes.push(Outcome::Refused(refused));
                    return Ok(());
                }
                // The halves are tried separately, until only the refused lines are left.
                _ => {
                    let (first, second) = lines.split_at(lines.len() / 2);
                    Box::pin(self.create_together(first, outcomes)).await?;
                    return Box::pin(self.create_together(second, outcomes)).await;
                }
            },
            Err(error) => return Err(error),
        };
        for (line, result) in lines.iter().zip(results) {
            outcomes.push(match result {
                Ok(link) => {
                    let short_link = self.public.short_link(&link.domain, &link.key);
                    Outcome::Created { line: line.number, short_link }
                }
                Err(conflict) => {
                    let cells = Cells { columns: self.columns, record: &line.record };
                    let (column, reason) = explain(&conflict, &cells);
                    Outcome::Refused(Refused::of_cell(line.number, &cells, column, reason))
                }
            });
        }
        Ok(())
    }
}

/// The column that caused a conflict, and the reason.
fn explain(conflict: &LinkConflict, cells: &Cells<'_>) -> (&'static str, String) {
    let column = match conflict {
        LinkConflict::Key => "key",
        LinkConflict::ExternalId => "externalId",
        LinkConflict::Domain => "domain",
        LinkConflict::OtherTags(_) => "tagNames",
        LinkConflict::TooLong(TooLong { field, .. }) if cells.of(field).is_empty() => "url",
        LinkConflict::TooLong(TooLong { field, .. })
        | LinkConflict::Unknown { field, .. }
        | LinkConflict::TooLarge(field) => field,
    };
    let reason = match conflict {
        LinkConflict::Unknown { field: "folderId", .. } => "The workspace has no such folder.".to_owned(),
        LinkConflict::Unknown { .. } => "The workspace has no such tag.".to_owned(),
        LinkConflict::TooLarge(_) => "The link is too large.".to_owned(),
        LinkConflict::OtherTags(field) => format!("Does not name the same tags as {field}."),
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
    let of_line = |reason| Refused::of_line(number, reason);
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
    Ok(Line { number, record, link: NewLink::of(link, public) })
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
