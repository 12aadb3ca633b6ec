//! A request as the filter sees it: its headers, its path, who is calling and which class it belongs to.

pub mod classes;
pub mod header_pairs;
pub mod identity;
pub mod line;
pub mod path;
pub mod query;
pub mod readings;
