//! What the gateway counts of itself, under Envoy's names.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

use host_sim::{ReloadStats, driver::Driver};

/// Counters of one gateway, over all its workers.
#[derive(Debug)]
pub(crate) struct Stats {
    /// Counts what becomes of failed VMs.
    driver: Driver,
    pub(crate) connections: AtomicU64,
    pub(crate) active_connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) active_requests: AtomicU64,
    /// Responses by the first digit of their status.
    responses: [AtomicU64; 5],
    pub(crate) resets: AtomicU64,
    pub(crate) upstream_requests: AtomicU64,
    pub(crate) upstream_failures: AtomicU64,
}

impl Stats {
    pub(crate) fn of(driver: Driver) -> Self {
        Self {
            driver,
            connections: AtomicU64::default(),
            active_connections: AtomicU64::default(),
            requests: AtomicU64::default(),
            active_requests: AtomicU64::default(),
            responses: Default::default(),
            resets: AtomicU64::default(),
            upstream_requests: AtomicU64::default(),
            upstream_failures: AtomicU64::default(),
        }
    }

    pub(crate) fn count_response(&self, status: u16) {
        if let Some(class) =
            usize::from(status / 100).checked_sub(1).and_then(|class| self.responses.get(class))
        {
            class.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn all(&self) -> Vec<Stat> {
        let counter = |name: &str, help, value: &AtomicU64| Stat::of(name, "counter", help, value);
        let gauge = |name: &str, help, value: &AtomicU64| Stat::of(name, "gauge", help, value);
        let mut all = vec![
            counter("http.ingress_http.downstream_cx_total", "Connections", &self.connections),
            gauge("http.ingress_http.downstream_cx_active", "Connections now", &self.active_connections),
            counter("http.ingress_http.downstream_rq_total", "Requests", &self.requests),
            gauge("http.ingress_http.downstream_rq_active", "Requests now", &self.active_requests),
            counter("http.ingress_http.downstream_rq_tx_reset", "Responses that were reset", &self.resets),
            counter(
                "cluster.upstream.upstream_rq_total",
                "Requests to the upstream",
                &self.upstream_requests,
            ),
            counter(
                "cluster.upstream.upstream_rq_failed",
                "Requests that the upstream did not answer",
                &self.upstream_failures,
            ),
        ];
        for (plugin, ReloadStats { backoff, success, failure }) in self.driver.reloads() {
            let reloads = [
                ("backoff", "Requests that met a failed VM before it was to be loaded again", backoff),
                ("success", "VMs that were loaded again", success),
                ("failure", "VMs that could not be loaded again", failure),
            ];
            all.extend(reloads.map(|(what, help, value)| Stat {
                name: format!("wasm.{plugin}.vm_reload_{what}"),
                kind: "counter",
                help,
                value,
            }));
        }
        for (class, count) in self.responses.iter().enumerate() {
            let name = format!("http.ingress_http.downstream_rq_{}xx", class + 1);
            all.push(counter(&name, "Responses by the first digit of their status", count));
        }
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for Stat { name, value, .. } in self.all() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }

    pub(crate) fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for Stat { name, kind, help, value } in self.all() {
            let name = format!("envoy_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
            // Writing to a String cannot fail.
            let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{{}} {value}\n");
        }
        text
    }
}

/// A counter or gauge, as it is written out.
#[derive(Debug)]
struct Stat {
    name: String,
    kind: &'static str,
    help: &'static str,
    value: u64,
}

impl Stat {
    fn of(name: &str, kind: &'static str, help: &'static str, value: &AtomicU64) -> Self {
        Self { name: name.to_owned(), kind, help, value: value.load(Ordering::Relaxed) }
    }
}

/// Counts something as active while it lives.
#[derive(Debug)]
pub(crate) struct Active<'a>(&'a AtomicU64);

impl<'a> Active<'a> {
    pub(crate) fn new(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
