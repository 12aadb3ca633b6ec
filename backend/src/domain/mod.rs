//! Types and rules that know neither HTTP nor SQL.

pub(crate) mod change;
pub(crate) mod host;
pub(crate) mod parameters;
