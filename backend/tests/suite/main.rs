//! The service as its callers see it: requests in, responses out, on a clock that the tests step.

mod analytics;
mod command;
mod database;
mod errors;
mod internal;
mod link_changes;
mod links;
mod processes;
mod receiver;
mod redirect;
mod service;
mod webhooks;
mod workspaces;
