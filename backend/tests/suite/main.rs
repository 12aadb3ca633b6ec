//! The service as its callers see it: requests in, responses out, on a clock that the tests step.

mod analytics;
mod command;
mod database;
mod errors;
mod internal;
mod isolation;
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
mod top_links;
mod webhooks;
mod workspaces;
