//! What the service knows of HTTP, whatever its endpoints: the listeners, the scope of a request, what it waits for, the parts of it that
//! handlers get, and errors.

pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod issue;
pub(crate) mod json_body;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod scope;
pub mod server;
