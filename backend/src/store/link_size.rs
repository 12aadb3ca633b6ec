//! Sizes of links in the database.

use super::{StoreError, to_json};
use crate::domain::link::Link;

/// Maximum size of a link, in bytes: its domain, key, destination and ids, and its other fields as JSON.
pub(crate) const MAX_LINK_BYTES: usize = 64 * 1024;

/// The size of a link, in bytes.
pub(super) fn bytes(link: &Link) -> Result<usize, StoreError> {
    Ok(with_details(link, &to_json("link details", &link.details)?))
}

/// The size of a link with these details as JSON, in bytes.
pub(super) fn with_details(link: &Link, details: &str) -> usize {
    let texts = [&link.external_id, &link.tenant_id, &link.folder_id].into_iter().flatten().map(String::len);
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
