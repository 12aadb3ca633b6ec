//! A link and analytics API with webhooks. It runs behind the gateway.
//!
//! The service creates short links, redirects visitors, records clicks, answers analytics queries and sends events to
//! webhooks. All data belongs to a workspace, and an API key gives access to one workspace. The gateway enforces
//! quotas; this service does not limit request rates.
//!
//! [`Store`] is the database, [`Backend`] the service that uses it, and [`server`] contains the listeners.

mod admission;
pub(crate) mod analytics;
mod answers;
mod api;
mod app;
mod auth;
mod availability;
mod background;
mod backlogs;
pub mod backup;
mod bodies;
mod click_rules;
mod clock;
mod domain;
mod domains;
mod error;
mod event_body;
mod events;
mod folders;
mod front;
mod gate;
mod held;
mod http;
pub mod ids;
pub mod import;
mod internal;
mod json_list;
mod json_parts;
pub mod keys;
mod links;
mod long_read;
mod metrics;
mod openapi;
mod path;
mod permits;
mod qr;
mod query;
mod recorder;
mod redirect;
mod request_scope;
mod retention;
mod room;
mod selection;
mod semaphores;
pub mod server;
mod set_aside;
mod settings;
mod state;
mod store;
mod sweeper;
mod tags;
mod targets;
mod value_count;
mod visitor;
mod visitor_address;
mod webhooks;
mod when;
mod workload;

pub use app::Backend;
pub use bodies::MAX_BODY_BYTES;
pub use click_rules::{ClickRules, LocationHeaders};
pub use clock::{Clock, SteppedClock};
pub use domains::{InvalidDomain, parse_domain};
pub use error::{ApiError, Code, InvalidField};
pub use front::Front;
pub use links::{InvalidPublicUrl, PublicUrl};
pub use recorder::WhenFull;
pub use settings::Settings;
pub use store::{
    Analytics, AssignedDomain, Click, ClickDetails, DomainConflict, KeyRecord, Limits, Replayed,
    SchemaProblem, Serving, SetAside, Store, StoreError, Workspace,
};
pub use visitor_address::KeptAddress;
pub use webhooks::address::AddressPolicy;
pub use webhooks::signature;
