//! The document of a directory: known keys.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use filter::config::Config;
use filter::directory::{Directory, DirectoryError, LeftOut, Update, entitled};
use filter::time::Timestamp;

use crate::failure::Failure;

/// A document that the filter takes.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) document: Bytes,
    /// How many keys it has, and how many of them are not known.
    pub(crate) told: String,
}

impl Keys {
    /// Reads the document for the directory of a configuration.
    pub(crate) fn read(file: &Path, config: &Config) -> Result<Self, Failure> {
        let name = file.display();
        let Some(settings) = config.settings.directory.clone() else {
            return Err(Failure::Unusable(format!(
                "--keys {name}: the configuration has no directory that would ask for it"
            )));
        };
        let document = Bytes::from(fs::read(file).map_err(Failure::file(file))?);
        let mut directory = Directory::new(settings, 0);
        let answered = directory.answer(Some((b"200", None)), &document, Timestamp::from_seconds(0));
        let skipped = match answered {
            Ok(Update::Replaced { skipped }) => skipped,
            Ok(Update::Unchanged) => 0,
            Err(DirectoryError::Malformed(problem)) => {
                return Err(Failure::Refused(format!("{name}: {problem}")));
            }
            Err(error) => return Err(Failure::Refused(format!("{name}: {error}"))),
        };
        let mut told = format!("{name}: {} keys", directory.roster().map_or(0, |roster| roster.len()));
        if let Some(roster) = directory.roster() {
            let (_, LeftOut { without_agreement, over_capacity }) = entitled(roster.clone(), config);
            let left_out = [
                (skipped, "malformed or repeated"),
                (without_agreement, "without a plan or class of the configuration"),
                (over_capacity, "beyond counters.known"),
            ];
            for (count, why) in left_out.into_iter().filter(|(count, _)| *count > 0) {
                told += &format!(", {count} {why}");
            }
        }
        Ok(Self { document, told })
    }
}
