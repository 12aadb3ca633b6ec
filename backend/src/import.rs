//! Links from a CSV file, through the same checks as those of a request.
//!
//! The first line names the fields as the API does (`url`, `key`, `externalId`, `tagNames` …). Empty cells are absent
//! fields; flags are `true` or `false`; `geo` and `testVariants` are JSON. Tags that are named and do not exist are made.

use std::collections::HashSet;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::links::PublicUrl;
use crate::links::input::{FLAG_NAMES, LinkInput, TagSelection};
use crate::links::routes::new_link;
use crate::store::{NewLink, Store, StoreError, Workspace};

/// Links made in one transaction.
const BATCH: usize = 100;

/// The file could not be read, or the links not be stored. What was made before stays.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is no CSV.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// A link needs a destination.
    #[error("the first line names no column \"url\"")]
    NoUrl,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How far an import has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Links made.
    pub made: u64,
    /// Lines that made no link, and why.
    pub refused: Vec<Refused>,
    /// Bytes of the file read.
    pub bytes: u64,
}

/// A line that made no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line's number, from 1.
    pub line: u64,
    /// Why.
    pub message: String,
}

/// Makes a link of every line of a CSV file. `progress` is called after every hundred.
///
/// # Errors
/// [`ImportError`] if the file cannot be read or the database fails; a line that is not valid is no error, but refused.
pub async fn import_csv(
    store: &Store,
    workspace: &Workspace,
    public: &PublicUrl,
    file: impl Read,
    now: Timestamp,
    mut progress: impl FnMut(&Imported),
) -> Result<Imported, ImportError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(file);
    let headers = reader.headers()?.clone();
    if !headers.iter().any(|name| name == "url") {
        return Err(ImportError::NoUrl);
    }
    let mut imported = Imported::default();
    let mut tags = HashSet::new();
    let mut batch = Vec::with_capacity(BATCH);
    let mut record = StringRecord::new();
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        match link(&headers, &record, public, now) {
            Ok(link) => {
                make_tags(store, workspace, &link, &mut tags, now).await?;
                batch.push((line, link));
            }
            Err(error) => imported.refused.push(Refused { line, message: error.message }),
        }
        if batch.len() == BATCH {
            store_batch(store, workspace, &mut batch, now, &mut imported).await?;
            imported.bytes = reader.position().byte();
            progress(&imported);
        }
    }
    store_batch(store, workspace, &mut batch, now, &mut imported).await?;
    imported.bytes = reader.position().byte();
    imported.refused.sort_by_key(|refused| refused.line);
    progress(&imported);
    Ok(imported)
}

/// Makes the tags that a link names and that are not in `made` yet. A link whose tag cannot be made is refused later.
async fn make_tags(
    store: &Store,
    workspace: &Workspace,
    link: &NewLink,
    made: &mut HashSet<String>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(TagSelection::Names(names)) = &link.input.tags else { return Ok(()) };
    for name in names {
        if made.insert(name.clone()) {
            let _exists: Result<_, _> = store.create_tag(workspace, name, None, now).await?;
        }
    }
    Ok(())
}

async fn store_batch(
    store: &Store,
    workspace: &Workspace,
    batch: &mut Vec<(u64, NewLink)>,
    now: Timestamp,
    imported: &mut Imported,
) -> Result<(), StoreError> {
    let (lines, links): (Vec<u64>, Vec<NewLink>) = batch.drain(..).unzip();
    let results = store.create_links(workspace, &links, now, None).await?;
    for (line, result) in lines.into_iter().zip(results) {
        match result {
            Ok(_) => imported.made += 1,
            Err(conflict) => imported.refused.push(Refused { line, message: conflict.to_string() }),
        }
    }
    Ok(())
}

fn link(
    headers: &StringRecord,
    record: &StringRecord,
    public: &PublicUrl,
    now: Timestamp,
) -> Result<NewLink, ApiError> {
    let mut fields = Map::new();
    for (name, cell) in headers.iter().zip(record) {
        if !cell.is_empty() {
            fields.insert(name.to_owned(), value(name, cell));
        }
    }
    new_link(LinkInput::create(&Value::Object(fields), "", now)?, public)
}

/// A cell as the JSON that a request would have. What is not of the field's type stays text, which is then refused.
fn value(name: &str, cell: &str) -> Value {
    let text = || Value::from(cell);
    match name {
        "keyLength" | "geo" | "testVariants" => serde_json::from_str(cell).unwrap_or_else(|_| text()),
        _ if FLAG_NAMES.contains(&name) => cell.parse::<bool>().map_or_else(|_| text(), Value::from),
        _ => text(),
    }
}
