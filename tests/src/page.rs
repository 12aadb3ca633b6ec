//! The blocks of a page of the book, for tests of what a page shows.

use crate::artifacts;

/// The blocks `text` of a page of `docs/src`, in their order.
///
/// # Errors
/// When there is no such page.
pub fn texts(page: &str) -> anyhow::Result<Vec<String>> {
    let page = std::fs::read_to_string(artifacts::root().join("docs/src").join(page))?;
    let blocks = page.split("\n```text\n").skip(1);
    Ok(blocks.filter_map(|block| Some(block.split_once("\n```\n")?.0.to_owned())).collect())
}
