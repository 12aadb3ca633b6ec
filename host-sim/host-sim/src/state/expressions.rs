//! The expressions that a root context has made.

use std::collections::BTreeMap;

use cel::common::ast::IdedExpr;

/// The expressions of a root context.
#[derive(Debug, Default)]
pub(crate) struct Expressions {
    pub(crate) next: u32,
    pub(crate) by_token: BTreeMap<u32, IdedExpr>,
}
