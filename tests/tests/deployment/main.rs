//! What operators deploy: the files of `envoy/` for each gateway, the images, the dashboard and the alert rules.

mod compose;
mod ecds;
mod images;
mod kubernetes;
mod live;
mod nginx;
mod observability;
mod registry;
mod tools;
