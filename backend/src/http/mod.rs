//! What the endpoints know of HTTP: the bodies of requests, and their errors.

pub(crate) mod body_macro;
pub(crate) mod fields;
pub(crate) mod issue;
pub(crate) mod json_body;
pub(crate) mod schema;
