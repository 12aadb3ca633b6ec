//! Weir as a later version of it would be: the same filter, but with another form of all that it keeps in shared data. Tests of updates
//! and roll-backs run it beside the filter.
#![cfg(target_arch = "wasm32")]

// For its exports.
use filter as _;
