//! What the gateway counts of itself, under Envoy's names.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{state::Shared, worker::ReloadStats};

/// Counters of one gateway, over all its workers.
#[derive(Debug)]
pub(crate) struct Stats {
    /// What the VMs share, and the names of the plugins that they run.
    filters: (Arc<Shared>, Vec<String>),
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
    pub(crate) fn of(filters: (Arc<Shared>, Vec<String>)) -> Self {
        Self {
            filters,
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

    fn all(&self) -> Vec<(String, &'static str, u64)> {
        let counter =
            |name: &str, value: &AtomicU64| (name.to_owned(), "counter", value.load(Ordering::Relaxed));
        let gauge = |name: &str, value: &AtomicU64| (name.to_owned(), "gauge", value.load(Ordering::Relaxed));
        let mut all = vec![
            counter("http.ingress_http.downstream_cx_total", &self.connections),
            gauge("http.ingress_http.downstream_cx_active", &self.active_connections),
            counter("http.ingress_http.downstream_rq_total", &self.requests),
            gauge("http.ingress_http.downstream_rq_active", &self.active_requests),
            counter("http.ingress_http.downstream_rq_tx_reset", &self.resets),
            counter("cluster.upstream.upstream_rq_total", &self.upstream_requests),
            counter("cluster.upstream.upstream_rq_failed", &self.upstream_failures),
        ];
        let (shared, plugins) = &self.filters;
        for plugin in plugins {
            let ReloadStats { backoff, success, failure } = shared.reloads_of(plugin);
            let reloads = [("backoff", backoff), ("success", success), ("failure", failure)];
            let name = |what| format!("wasm.{plugin}.vm_reload_{what}");
            all.extend(reloads.map(|(what, count)| (name(what), "counter", count)));
        }
        for (class, count) in self.responses.iter().enumerate() {
            all.push(counter(&format!("http.ingress_http.downstream_rq_{}xx", class + 1), count));
        }
        all.sort_unstable();
        // Two filters of one name count as one.
        all.dedup();
        all
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, _, value) in self.all() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }

    pub(crate) fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for (name, kind, value) in self.all() {
            let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            // Writing to a String cannot fail.
            let _ = write!(text, "# TYPE envoy_{name} {kind}\nenvoy_{name}{{}} {value}\n");
        }
        text
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
