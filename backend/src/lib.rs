//! A link and analytics API with webhooks: what stands behind the gateway.
//!
//! It makes short links, follows and counts clicks on them, answers questions about the clicks, and pushes events to
//! webhooks. All data belongs to a workspace and is reached with one of its API keys. It refuses nobody for asking too
//! often: quotas are the gateway's business.
//!
//! [`Store`] is the database, [`Backend`] the service on top of it, [`server`] its listeners.

mod admission;
pub(crate) mod analytics;
mod app;
mod auth;
pub mod body;
mod click_rules;
mod clock;
mod error;
mod events;
pub mod ids;
pub mod import;
mod internal;
pub mod keys;
mod links;
mod metrics;
#[cfg(feature = "openapi")]
mod openapi;
mod packer;
mod path;
mod places;
mod qr;
mod query;
mod recorder;
mod redirect;
mod request_scope;
mod selection;
pub mod server;
mod settings;
mod state;
mod store;
mod sweeper;
mod targets;
mod visitor;
mod webhooks;
mod when;

pub use app::Backend;
pub use click_rules::{ClickRules, LocationHeaders};
pub use clock::{Clock, SteppedClock};
pub use error::{ApiError, Code};
pub use links::{InvalidPublicUrl, PublicUrl};
pub use recorder::WhenFull;
pub use redirect::Front;
pub use settings::Settings;
pub use store::{Analytics, Click, ClickDetails, KeyRecord, Limits, Store, StoreError, Workspace};
pub use webhooks::address::AddressPolicy;
pub use webhooks::signature;
