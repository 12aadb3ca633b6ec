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
        for (plugin, ReloadStats { backoff, success, failure }) in self.driver.reloads() {
            let reloads = [("backoff", backoff), ("success", success), ("failure", failure)];
            let name = |what| format!("wasm.{plugin}.vm_reload_{what}");
            all.extend(reloads.map(|(what, count)| (name(what), "counter", count)));
        }
        for (class, count) in self.responses.iter().enumerate() {
            all.push(counter(&format!("http.ingress_http.downstream_rq_{}xx", class + 1), count));
        }
        all.sort_unstable();
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
