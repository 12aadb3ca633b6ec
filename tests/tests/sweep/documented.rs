//! The answers that differ on purpose: a table of host-sim's documentation, `support.md`.

use tests::sweep::Difference;

/// A row of the documentation: answers that differ on purpose, and in which Envoys. A `*` stands for anything.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    place: &'a str,
    question: &'a str,
    here: &'a str,
    there: &'a str,
    /// `all`, or one.
    pub(crate) versions: &'a str,
}

impl Known<'_> {
    /// Whether it is this difference.
    pub(crate) fn is(&self, found: &Difference) -> bool {
        is_like(self.place, &found.place)
            && is_like(self.question, &found.question)
            && is_like(self.here, &found.here)
            && is_like(self.there, &found.there)
    }
}

/// Whether a text is as a pattern says.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| is_like(after, &rest[at..]))
        }),
    }
}

/// The rows of the documentation.
pub(crate) fn documented() -> Vec<Known<'static>> {
    const SUPPORT: &str = include_str!("../../../host-sim/host-sim/src/support.md");
    let (_, section) = SUPPORT.split_once("# Answers that differ from Envoy's").expect("the section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let [place, question, here, there, versions, why] = cells[..] else { panic!("not a row: {row}") };
        assert!(!why.is_empty(), "a row without a reason: {row}");
        Known { place, question, here, there, versions }
    })
    .collect()
}
