//! A request as the filter sees it: its headers, its path, and who is calling.

pub mod header_pairs;
pub mod identity;
pub mod line;
pub mod path;
pub mod query;
pub mod readings;
pub mod template;
