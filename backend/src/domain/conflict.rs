//! The conflicts of what a request asks for with what is stored, or with what can be stored.

use jiff::Timestamp;

use super::link::MAX_LINK_BYTES;
use super::when::rfc3339;

/// Why something was not created or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("Duplicate key: This short link already exists.")]
    Key,
    #[error("A link with this externalId already exists in this workspace.")]
    ExternalId,
    #[error("Domain does not belong to workspace.")]
    Domain,
    /// The domain, and the workspace that it is assigned to.
    #[error("the domain {0} is assigned to the workspace {1}; remove it first")]
    Assigned(String, String),
    /// The domain, and another workspace that has links on it.
    #[error("the workspace {1} has links on the domain {0}; it must delete them first")]
    HasLinks(String, String),
    /// The field of a link names tags or a folder that the workspace does not have.
    #[error("Invalid {field} detected: {}", .values.join(", "))]
    Unknown { field: &'static str, values: Vec<String> },
    /// The field with ids of tags and `tagNames` name different tags.
    #[error("custom: tagNames: Does not name the same tags as {0}")]
    OtherTags(&'static str),
    #[error("too_big: {field}: Too big: expected string to have <={max} characters")]
    TooLong { field: &'static str, max: usize },
    #[error("too_big: : Too big: expected the link to have <={MAX_LINK_BYTES} bytes")]
    TooLarge,
    #[error("A {0} with that name already exists.")]
    Name(&'static str),
    #[error("A workspace has at most {0} {1}s.")]
    TooMany(u32, &'static str),
    #[error("A Webhook with this URL already exists.")]
    Url,
    /// The field of a scope has no ids.
    #[error("custom: {0}: Expected at least one id for this scope")]
    NoIds(&'static str),
    /// The field has ids of another kind of scope.
    #[error("custom: {0}: Expected none without linkScope {1}")]
    OtherScope(&'static str, &'static str),
    /// The field of a scope names links or folders that the workspace does not have.
    #[error("Invalid {field} detected: {}", .ids.join(", "))]
    UnknownInScope { field: &'static str, ids: Vec<String> },
    /// The secret before the current one was promised to sign deliveries until this instant.
    #[error(
        "The previous secret signs deliveries until {}. Rotate after that, or with overlapSeconds 0, which ends all previous \
         secrets at once.",
        rfc3339(*.0)
    )]
    Overlap(Timestamp),
}
