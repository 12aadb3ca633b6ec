//! What the gateway counts of itself, under Envoy's names.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

use host_sim::{ReloadStats, driver::Driver};

/// Counters of one gateway, over all its workers.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) connections: AtomicU64,
    pub(super) active_connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) active_requests: AtomicU64,
    /// Responses by the first digit of their status.
    responses: [AtomicU64; 5],
    pub(super) resets: AtomicU64,
    pub(super) upstream_requests: AtomicU64,
    pub(super) upstream_failures: AtomicU64,
}

/// A counter or gauge as it is written out: its name, what it means, its value.
type Stat = (String, &'static str, u64);

impl Stats {
    pub(super) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).checked_sub(1);
        if let Some(class) = class.and_then(|class| self.responses.get(class)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All by name, with what `driver` counts of failed VMs.
    fn all(&self, driver: &Driver) -> Vec<Stat> {
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let rows = [
            ("http.ingress_http.downstream_cx_total", "Connections", &self.connections),
            ("http.ingress_http.downstream_cx_active", "Connections now", &self.active_connections),
            ("http.ingress_http.downstream_rq_total", "Requests", &self.requests),
            ("http.ingress_http.downstream_rq_active", "Requests now", &self.active_requests),
            ("http.ingress_http.downstream_rq_tx_reset", "Responses that were reset", &self.resets),
            ("cluster.upstream.upstream_rq_total", "Requests to the upstream", &self.upstream_requests),
            (
                "cluster.upstream.upstream_rq_failed",
                "Requests that the upstream did not answer",
                &self.upstream_failures,
            ),
        ];
        let mut all: Vec<_> =
            rows.into_iter().map(|(name, help, value)| (name.to_owned(), help, of(value))).collect();
        for (class, count) in self.responses.iter().enumerate() {
            let name = format!("http.ingress_http.downstream_rq_{}xx", class + 1);
            all.push((name, "Responses by the first digit of their status", of(count)));
        }
        for (plugin, ReloadStats { backoff, success, failure }) in driver.reloads() {
            let reloads = [
                ("backoff", "Requests that met a failed VM before it was to be loaded again", backoff),
                ("success", "VMs that were loaded again", success),
                ("failure", "VMs that could not be loaded again", failure),
            ];
            all.extend(
                reloads.map(|(what, help, value)| (format!("wasm.{plugin}.vm_reload_{what}"), help, value)),
            );
        }
        all.sort_unstable();
        all
    }

    pub(super) fn to_text(&self, driver: &Driver) -> String {
        self.all(driver).into_iter().map(|(name, _, value)| format!("{name}: {value}\n")).collect()
    }

    pub(super) fn to_prometheus(&self, driver: &Driver) -> String {
        let mut text = String::new();
        for (name, help, value) in self.all(driver) {
            let kind = if name.ends_with("_active") { "gauge" } else { "counter" };
            let name = format!("envoy_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
            // Writing to a String cannot fail.
            let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{{}} {value}\n");
        }
        text
    }
}
