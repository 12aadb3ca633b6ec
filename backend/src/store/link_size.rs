//! Sizes of links in the database: the maximum of one, and how many are written at once.

use super::{StoreError, to_json};
use crate::domain::destination::UtmParameters;
use crate::domain::link::Link;

/// Maximum size of a link, in bytes: its domain, key, destination, campaign parameters and ids, and its other fields as
/// JSON.
pub(crate) const MAX_LINK_BYTES: usize = 64 * 1024;

/// About the most bytes of links that one transaction writes. SQLite has one writer, and the writes of all workspaces wait
/// while it is busy.
const BYTES_PER_TRANSACTION: usize = 128 * 1024;
/// What a tag of a link takes, in bytes: a row, and its entry in an index.
const TAG_BYTES: usize = 64;

/// Splits what is to be written, in its order, so that each part is short enough for one transaction.
pub(super) fn transactions<T>(
    items: &[T],
    bytes: impl Fn(&T) -> Result<usize, StoreError>,
) -> Result<Vec<&[T]>, StoreError> {
    let (mut parts, mut first, mut sum) = (Vec::new(), 0, 0);
    for (index, item) in items.iter().enumerate() {
        let bytes = bytes(item)?;
        if sum + bytes > BYTES_PER_TRANSACTION && index > first {
            parts.push(&items[first..index]);
            (first, sum) = (index, 0);
        }
        sum += bytes;
    }
    parts.push(&items[first..]);
    Ok(parts)
}

/// The size of a number of tags of a link, in bytes.
pub(super) fn of_tags(tags: usize) -> usize {
    tags * TAG_BYTES
}

/// The size of a link with its tags, in bytes.
pub(super) fn with_tags(link: &Link) -> Result<usize, StoreError> {
    Ok(bytes(link)? + of_tags(link.tags.len()))
}

/// The size of a link, in bytes.
pub(super) fn bytes(link: &Link) -> Result<usize, StoreError> {
    Ok(with_details(link, &UtmParameters::of(&link.url), &to_json("link details", &link.details)?))
}

/// The size of a link with these campaign parameters and these details as JSON, in bytes.
pub(super) fn with_details(link: &Link, utm: &UtmParameters, details: &str) -> usize {
    // The campaign parameters are stored beside the destination that contains them.
    let texts = [&link.external_id, &link.tenant_id, &link.folder_id].into_iter().chain(utm.values());
    let texts = texts.flatten().map(String::len);
    link.domain.len() + link.key.len() + link.url.len() + texts.sum::<usize>() + details.len()
}

/// Length of a text as JSON, in bytes.
fn in_json(text: &str) -> usize {
    let escaped = |byte| match byte {
        ..b' ' => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

/// The longest field of a link, by its name in requests.
pub(super) fn longest_field(link: &Link) -> &'static str {
    let details = &link.details;
    let texts = [
        ("expiredUrl", &details.expired_url),
        ("title", &details.title),
        ("description", &details.description),
        ("image", &details.image),
        ("video", &details.video),
        ("ios", &details.ios),
        ("android", &details.android),
        ("comments", &details.comments),
    ];
    let geo = details.geo.iter().flatten().map(|(country, url)| in_json(country) + in_json(url)).sum();
    let texts = texts.into_iter().map(|(name, text)| (name, text.as_deref().map_or(0, in_json)));
    let fields = texts.chain([("url", link.url.len()), ("geo", geo)]);
    fields.max_by_key(|(_, length)| *length).map_or("url", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_writes_as_many_as_fit_and_at_least_one() {
        const HALF: usize = BYTES_PER_TRANSACTION / 2;
        //  sizes of the items, items in each transaction
        let cases: [(&[usize], &[usize]); 6] = [
            (&[], &[0]),
            (&[1], &[1]),
            (&[HALF, HALF], &[2]),
            (&[HALF, HALF, 1], &[2, 1]),
            (&[3 * HALF, 1, 3 * HALF], &[1, 1, 1]),
            (&[1; 100], &[100]),
        ];
        for (sizes, expected) in cases {
            let parts = transactions(sizes, |size| Ok(*size)).unwrap();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), expected, "{sizes:?}");
            assert_eq!(parts.concat(), sizes);
        }
    }
}
