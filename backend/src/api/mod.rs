//! The endpoints, and what they share.

pub(crate) mod analytics;
pub(crate) mod caller;
pub(crate) mod domains;
pub(crate) mod events;
pub(crate) mod front;
pub(crate) mod internal;
pub(crate) mod json_array;
pub mod keys;
pub(crate) mod labels;
pub(crate) mod links;
pub(crate) mod places;
pub(crate) mod qr;
pub(crate) mod redirect;
mod refusal;
pub(crate) mod selection;
pub(crate) mod state;
pub(crate) mod usage;
pub(crate) mod webhooks;
