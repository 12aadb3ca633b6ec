//! What a host and its guests say to each other: every callback, and every host call that the guest makes in it.

pub(crate) mod arguments;
pub(crate) mod backtrace;
pub(crate) mod callbacks;
pub(crate) mod record;
pub(crate) mod recorder;
mod text;
