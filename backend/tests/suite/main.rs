//! The service as its callers see it: requests in, responses out, on a clock that the tests step.

mod analytics;
mod bounds;
mod command;
mod connections;
mod database;
mod database_away;
mod errors;
#[cfg(target_os = "linux")]
mod full_disk;
mod hostile;
mod internal;
mod isolation;
mod key_order;
mod kill;
mod link_changes;
mod links;
mod load;
mod process;
mod processes;
mod qr;
mod receiver;
mod redirect;
mod service;
#[path = "../../../tests/src/soak.rs"]
#[expect(unreachable_pub, reason = "shared with a library")]
mod soak;
mod top_links;
mod webhooks;
mod workspaces;
