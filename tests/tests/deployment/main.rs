//! What operators deploy: the files of `envoy/` for each gateway, the images, the dashboard and the alert rules.

mod chart;
mod compose;
mod ecds;
mod fleet;
mod fleet_live;
mod images;
mod kubernetes;
mod live;
mod meters;
mod nginx;
mod observability;
mod registry;
mod release;
mod systemd;
mod tools;
