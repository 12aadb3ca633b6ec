//! How a message quotes what was given, and which names it suggests.

use core::fmt::{self, Display};

/// Longest part of a text, in characters, that a message quotes in full. An API key with 128 random bits has at least 22.
const LONGEST: usize = 20;

/// Number of characters that a message quotes of a longer part.
const ABBREVIATION: usize = 8;

/// Longest list of names that a message quotes in full.
const LONGEST_LIST: usize = 8;

/// Number of names that a message quotes of a longer list.
const ABBREVIATED_LIST: usize = 5;

/// A text without its long parts, one of which may be an API key: the segments of a path, and any other text as a whole.
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

/// Names that were possible in place of `given`: the nearest one if it is near, and else the list.
pub(super) struct Instead<'n> {
    pub(super) given: &'n str,
    pub(super) names: &'n [&'n str],
}

impl Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.names.iter().filter_map(|name| Some((distance(self.given, name)?, name)));
        if let Some((_, nearest)) = near.min_by_key(|(distance, _)| *distance) {
            return write!(f, "did you mean {}?", Abbreviated(nearest));
        }
        let listed = if self.names.len() > LONGEST_LIST { ABBREVIATED_LIST } else { self.names.len() };
        for (index, name) in self.names.iter().take(listed).enumerate() {
            let before = if index == 0 { "expected " } else { ", " };
            write!(f, "{before}{}", Abbreviated(name))?;
        }
        match self.names.len() - listed {
            0 => Ok(()),
            more => write!(f, " or {more} others"),
        }
    }
}

/// The number of characters to insert, delete or replace to get from one name to the other, if it is at most a third of
/// the longer one. Case does not matter.
fn distance(given: &str, name: &str) -> Option<usize> {
    let lower = |text: &str, most: usize| {
        text.chars().take(most).map(|one| one.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let (given, name) = (lower(given, 2 * name.len()), lower(name, usize::MAX));
    let most = given.len().max(name.len()) / 3;
    // The distances of what has been read of `given` from each start of `name`.
    let mut distances: Vec<usize> = (0..=name.len()).collect();
    for (row, one) in given.iter().enumerate() {
        let (mut left, mut above_left) = (row + 1, row);
        for (above, other) in distances.iter_mut().zip([None].into_iter().chain(name.iter().map(Some))) {
            let replaced = above_left + usize::from(Some(one) != other);
            above_left = *above;
            *above = match other {
                None => left,
                Some(_) => replaced.min(*above + 1).min(left + 1),
            };
            left = *above;
        }
    }
    distances.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_names_is_what_has_to_be_typed_up_to_a_third() {
        let rows = [
            ("plan", "plans", Some(1)),
            ("plans", "plans", Some(0)),
            ("logDecisions", "log_decisions", Some(1)),
            ("unavailable", "UNAVAILABLE", Some(0)),
            ("on-error", "on_error", Some(1)),
            ("key_souces", "key_sources", Some(1)),
            ("classses", "classes", Some(1)),
            ("planz0r", "plans", None),
            ("x", "y", None),
            ("", "plans", None),
            ("é", "plans", None),
        ];
        for (given, name, expected) in rows {
            assert_eq!(distance(given, name), expected, "{given} {name}");
        }
        assert_eq!(distance(&"plans".repeat(100_000), "plans"), None);
    }

    #[test]
    fn a_long_list_of_names_is_abbreviated() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let instead = |names| Instead { given: "zzz", names }.to_string();
        assert_eq!(instead(&names), "expected a, b, c, d, e or 4 others");
        assert_eq!(instead(&names[..8]), "expected a, b, c, d, e, f, g, h");
    }
}
