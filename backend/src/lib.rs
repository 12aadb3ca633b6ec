//! A link and analytics API with webhooks. It runs behind the gateway.
//!
//! The service creates short links, redirects visitors, records clicks, answers analytics queries and sends events to
//! webhooks. All data belongs to a workspace, and an API key gives access to one workspace. The gateway enforces
//! quotas; this service does not limit request rates.
//!
//! [`Store`] is the database, [`Backend`] the service that uses it, and [`server`] contains the listeners.

mod apart;
mod api;
mod app;
mod clicks;
mod deliver;
mod domain;
mod http;
mod metrics;
mod settings;
mod store;
mod sweep;

pub use api::front::Front;
pub use api::keys;
pub use api::places::MAX_BODY_BYTES;
pub use api::redirect::rules::{ClickRules, LocationHeaders};
pub use app::Backend;
pub use clicks::{ClickLogError, check_click_log};
pub use domain::address_policy::AddressPolicy;
pub use domain::click::{Click, ClickDetails};
pub use domain::clock::{Clock, SteppedClock};
pub use domain::domain_name::{InvalidDomain, parse_domain};
pub use domain::public_url::{InvalidPublicUrl, PublicUrl};
pub use domain::usage::{Account, Sums, Tightest};
pub use domain::visitor_address::KeptAddress;
pub use domain::{ids, signature};
pub use http::error::{ApiError, Code};
pub use http::server;
pub use settings::Settings;
pub use store::{
    Analytics, AssignedDomain, KeyRecord, Limits, SchemaProblem, Serving, Store, StoreError, SubscriberUsage,
    Terms, UsageOrder, Workspace,
};
