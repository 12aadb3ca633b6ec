//! The service as its callers see it: requests in, responses out, on a clock that the tests step.

/// The service's, because the suite measures the service's code within its own process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod addresses;
mod analytics;
mod analytics_timeout;
mod answers;
mod backup;
mod bounds;
mod command;
mod connections;
mod cut_off;
mod database;
mod database_away;
mod deleted_webhooks;
mod deliveries;
mod delivery_log;
mod deployments;
mod domains;
mod errors;
mod fair;
mod filters;
mod folders;
#[cfg(target_os = "linux")]
mod full_disk;
mod hostile;
mod ignored_inputs;
mod internal;
mod isolation;
mod kept_keys;
mod kill;
mod link_changes;
mod links;
mod load;
mod long_reads;
mod options;
mod pages;
#[cfg(target_os = "linux")]
mod preload;
mod process;
mod processes;
mod proxy;
mod qr;
mod receiver;
mod redirect;
mod references;
mod retention;
mod schema;
mod scopes;
mod searches;
mod service;
#[path = "../../../tests/src/soak.rs"]
#[expect(unreachable_pub, reason = "shared with a library")]
mod soak;
mod stop;
#[cfg(target_os = "linux")]
mod systemd;
mod tags;
mod time_series;
mod top_links;
mod transactions;
mod usage;
mod usage_page;
mod webhook_changes;
mod webhook_tables;
mod webhooks;
mod workspaces;
mod written_back;
