//! Types and rules that know neither HTTP nor SQL.

pub(crate) mod parameters;
