//! The columns of a CSV file of links.

use csv::StringRecord;

/// The column whose cells appear in no message.
pub(super) const SECRET: &str = "password";

/// The columns that are fields of a link, and their accepted values.
const COLUMNS: &[(&str, &str)] = &[
    ("url", "an address of at most 32,000 characters, such as https://example.com/page"),
    ("domain", "the host of --public-url, or a domain of the workspace"),
    ("key", "up to 190 letters, digits, _, -, . and /, unique on the domain"),
    ("keyLength", "a whole number from 3 to 190"),
    ("prefix", "letters, digits, _, -, . and /, up to 190 with a slash and the generated key"),
    ("externalId", "up to 255 characters, unique in the workspace"),
    ("tenantId", "up to 255 characters"),
    ("folderId", "the id of a folder of the workspace"),
    ("archived", "true or false"),
    ("tagIds", "ids of tags of the workspace, separated by commas"),
    ("tagId", "the id of a tag of the workspace"),
    ("tagNames", "up to 100 names of up to 255 characters, separated by commas"),
    ("utm_source", "up to 255 characters"),
    ("utm_medium", "up to 255 characters"),
    ("utm_campaign", "up to 255 characters"),
    ("utm_term", "up to 255 characters"),
    ("utm_content", "up to 255 characters"),
    ("ref", "up to 255 characters"),
    ("doIndex", "true or false"),
    ("programId", "up to 255 characters"),
    ("partnerId", "up to 255 characters"),
    ("title", "up to 32,000 characters"),
    ("description", "up to 32,000 characters"),
    ("image", "up to 32,000 characters"),
    ("video", "up to 32,000 characters"),
    ("comments", "up to 32,000 characters"),
    ("expiredUrl", "an address, such as https://example.com/expired"),
    ("ios", "an address, such as https://example.com/ios"),
    ("android", "an address, such as https://example.com/android"),
    ("expiresAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("testStartedAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("testCompletedAt", "a time, such as 2026-12-31T23:59:59Z or 2026-12-31"),
    ("geo", r#"addresses by country in JSON, such as {"DE": "https://example.de"}"#),
    ("password", "empty, because passwords are not supported"),
    ("trackConversion", "false"),
    ("proxy", "false"),
    ("rewrite", "false"),
    ("publicStats", "false"),
    ("testVariants", "empty or []"),
    ("webhookIds", "empty"),
];

/// The cells of a line and the names of their columns.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub(super) columns: &'a StringRecord,
    pub(super) record: &'a StringRecord,
}

impl Cells<'_> {
    /// The cells with a field of the link: those that are not empty, in known columns.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.columns.iter().zip(self.record).filter(|(column, cell)| {
            let is_field = accepted(column).is_some();
            is_field && !cell.is_empty()
        })
    }

    /// The cell of a column. Empty if the file does not have the column.
    pub(super) fn of(&self, column: &str) -> &str {
        self.fields().find(|(name, _)| *name == column).map_or("", |(_, cell)| cell)
    }
}

/// The accepted values of a column. None if links have no such field.
pub(super) fn accepted(column: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|(name, _)| *name == column).map(|(_, accepted)| *accepted)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::links::fields::LinkFields;

    #[test]
    fn every_field_of_a_link_is_a_column() {
        let schema = serde_json::json!(<LinkFields as utoipa::PartialSchema>::schema());
        let mut fields: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        for name in ["tags", "disabledAt"] {
            assert!(fields.remove(name), "{name} is for links that are written back");
        }
        let columns: BTreeSet<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(columns.len(), COLUMNS.len(), "duplicate column");
        assert_eq!(fields, columns);
    }
}
