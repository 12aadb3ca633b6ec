//! How a message quotes text of the configuration: without the long parts, one of which may be an API key.

use core::fmt::{self, Display};

/// Longest part of a text, in characters, that a message quotes in full. An API key with 128 random bits has at least 22.
const LONGEST: usize = 20;

/// Number of characters that a message quotes of a longer part.
const ABBREVIATION: usize = 8;

/// A text without its long parts: the segments of a path, and any other text as a whole.
pub(super) struct Abbreviated<'t>(pub(super) &'t str);

impl Display for Abbreviated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_path = self.0.starts_with('/');
        for part in self.0.split_inclusive(|character| is_path && character == '/') {
            match part.char_indices().nth(ABBREVIATION) {
                Some((end, _)) if part.chars().count() > LONGEST => {
                    write!(f, "{}…", part.get(..end).unwrap_or_default())?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// An abbreviated text in quotation marks.
pub(super) struct Quoted<'t>(pub(super) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Abbreviated(self.0).to_string())
    }
}

/// Names, abbreviated and joined by commas.
pub(super) fn list(names: &[String]) -> String {
    names.iter().map(|name| Abbreviated(name).to_string()).collect::<Vec<_>>().join(", ")
}
