//! Types and rules that know neither HTTP nor SQL.

pub(crate) mod host;
pub(crate) mod parameters;
