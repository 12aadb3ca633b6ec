//! What the command `weir` is made of, as far as others use it.
//!
//! - [`replay`]: an access log, sent through the filter.

pub mod replay;
