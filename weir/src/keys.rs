//! The document of a directory: known keys.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use filter::config::{Config, digest, hex};
use filter::directory::{Summary, summary};
use host_sim::{Request, Response};
use host_sim_cli::failure::Failure;
use serde_json::Value;

/// A document that the filter takes, as its directory answers with it. Clones are the same, also when another has taken its place.
#[derive(Debug, Clone)]
pub(crate) struct Keys(Arc<Mutex<Document>>);

#[derive(Debug, Clone)]
struct Document {
    answer: Response,
    /// How many keys it has, how many of them are not known, and who asks for it.
    told: String,
}

impl Keys {
    /// Reads the document for the directory of a configuration.
    pub(crate) fn read(file: &Path, config: &Config) -> Result<Self, Failure> {
        let name = file.display();
        let Some(settings) = &config.settings.directory else {
            return Err(Failure::Unusable(format!(
                "--keys {name}: the configuration has no directory that would ask for it"
            )));
        };
        let document = Bytes::from(fs::read(file).map_err(Failure::file(file))?);
        let Summary { rows, skipped, over_capacity } =
            summary(&document, config).map_err(|error| Failure::Missed(format!("{name}: {error}")))?;
        let mut told = format!("{name}: {rows} keys");
        if skipped > 0 {
            told += &format!(", {skipped} malformed, or without a plan or class of the configuration");
        }
        if over_capacity > 0 {
            told += &format!(", {over_capacity} beyond directory.capacity");
        }
        told += &format!(", as {} of cluster {:?}", &*settings.path, &*settings.cluster);
        Ok(Self(Arc::new(Mutex::new(Document { answer: answer(document), told }))))
    }

    /// The document; null if it is not JSON, which the filter would not have taken.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(self.document().answer.body_bytes()).unwrap_or_default()
    }

    /// Those of another document, in the name of the same file.
    pub(crate) fn answering(&self, document: &Value) -> Self {
        let (answer, told) = (answer(document.to_string().into()), self.document().told.clone());
        Self(Arc::new(Mutex::new(Document { answer, told })))
    }

    fn document(&self) -> MutexGuard<'_, Document> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers with another document from now on.
    pub(crate) fn replace(&self, other: &Self) {
        let other = other.document().clone();
        *self.document() = other;
    }

    /// The answer to a poll: the document, if the filter does not have it already.
    pub(crate) fn answer(&self, poll: &Request) -> Response {
        let answer = self.document().answer.clone();
        let is_known = poll.header_str("if-none-match") == answer.header_str("etag");
        if is_known { Response::new(304) } else { answer }
    }
}

fn answer(document: Bytes) -> Response {
    let etag = format!("\"{}\"", hex(digest(&document)));
    Response::ok().header("etag", etag).body(document)
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.document().told)
    }
}
