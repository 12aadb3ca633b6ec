//! Counters, gauges and histograms that filters define: one value per name in the process, whichever VM touches it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    abi::{MetricKind, Status},
    lock::lock,
};

/// Upper bounds of a histogram's buckets: Envoy's defaults.
const BUCKETS: [f64; 19] = [
    0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 1.8e6,
    3.6e6,
];

/// A distribution of recorded values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// How many values were recorded.
    pub count: u64,
    /// Their sum; wraps as Envoy's does.
    pub sum: u64,
    buckets: [u64; BUCKETS.len()],
}

impl Histogram {
    #[expect(clippy::cast_precision_loss, reason = "a bucket's bound is no finer")]
    fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKETS) {
            if value as f64 <= bound {
                *bucket += 1;
            }
        }
    }
}

/// What a metric holds.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// A counter's total.
    Counter(u64),
    /// A gauge's level.
    Gauge(u64),
    /// A histogram's distribution.
    Histogram(Histogram),
}

#[derive(Debug, Clone)]
enum Cell {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Mutex<Histogram>>),
}

/// The metrics of one process. Clones are the same metrics.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<(String, MetricKind), Cell>>>);

impl Metrics {
    fn cell(&self, name: String, kind: MetricKind) -> Cell {
        lock(&self.0)
            .entry((name, kind))
            .or_insert_with(|| match kind {
                MetricKind::Counter => Cell::Counter(Arc::default()),
                MetricKind::Gauge => Cell::Gauge(Arc::default()),
                MetricKind::Histogram => Cell::Histogram(Arc::default()),
            })
            .clone()
    }

    /// A counter's total; 0 when no filter has defined it.
    pub fn counter(&self, name: &str) -> u64 {
        match self.get(name, MetricKind::Counter) {
            Some(MetricValue::Counter(total)) => total,
            _ => 0,
        }
    }

    /// A gauge's level; 0 when no filter has defined it.
    pub fn gauge(&self, name: &str) -> u64 {
        match self.get(name, MetricKind::Gauge) {
            Some(MetricValue::Gauge(level)) => level,
            _ => 0,
        }
    }

    /// A histogram, if a filter has defined it.
    pub fn histogram(&self, name: &str) -> Option<Histogram> {
        match self.get(name, MetricKind::Histogram) {
            Some(MetricValue::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    fn get(&self, name: &str, kind: MetricKind) -> Option<MetricValue> {
        lock(&self.0).get(&(name.to_owned(), kind)).map(Cell::value)
    }

    /// Every metric with its value, sorted by name.
    pub fn all(&self) -> Vec<(String, MetricValue)> {
        lock(&self.0).iter().map(|((name, _), cell)| (name.clone(), cell.value())).collect()
    }

    /// Envoy's `/stats`: a line `wasmcustom.<name>: <value>` each.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.all() {
            let line = match value {
                MetricValue::Counter(value) | MetricValue::Gauge(value) => value.to_string(),
                MetricValue::Histogram(histogram) => {
                    format!("count({}) sum({})", histogram.count, histogram.sum)
                }
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "wasmcustom.{name}: {line}");
        }
        text
    }

    /// Envoy's `/stats/prometheus`: characters outside `[a-zA-Z0-9_]` become `_`, names that start with a digit are
    /// dropped, and names of custom metrics have no prefix.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for ((name, kind), cell) in lock(&self.0).iter() {
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let kind = kind.name();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} A {kind} of the filter.\n# TYPE {name} {kind}");
            let _ = match cell.value() {
                MetricValue::Counter(value) | MetricValue::Gauge(value) => {
                    writeln!(text, "{name}{{}} {value}")
                }
                MetricValue::Histogram(Histogram { count, sum, buckets }) => {
                    for (bound, count) in BUCKETS.iter().zip(buckets) {
                        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
                    }
                    writeln!(
                        text,
                        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum{{}} {sum}\n{name}_count{{}} {count}"
                    )
                }
            };
        }
        text
    }
}

impl Cell {
    fn value(&self) -> MetricValue {
        match self {
            Self::Counter(total) => MetricValue::Counter(total.load(Ordering::Relaxed)),
            Self::Gauge(level) => MetricValue::Gauge(level.load(Ordering::Relaxed)),
            Self::Histogram(histogram) => MetricValue::Histogram(lock(histogram).clone()),
        }
    }
}

/// The metrics that one VM has defined. A number belongs to the VM, the value behind it to the process.
///
/// As in Envoy, the low two bits of a number tell the kind, and every definition gets a new number.
#[derive(Debug)]
pub(crate) struct MetricIds {
    metrics: Metrics,
    defined: [Vec<Cell>; 3],
}

impl MetricIds {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, defined: Default::default() }
    }

    pub(crate) fn define(&mut self, kind: MetricKind, name: String) -> Result<u32, Status> {
        let cell = self.metrics.cell(name, kind);
        let defined = &mut self.defined[kind as usize];
        defined.push(cell);
        let index = u32::try_from(defined.len()).ok().and_then(|n| n.checked_mul(4));
        index.map(|index| index + kind as u32).ok_or(Status::InternalFailure)
    }

    fn find(&self, id: u32) -> Result<&Cell, Status> {
        let kind = usize::try_from(id & 3).map_err(|_| Status::NotFound)?;
        let index = usize::try_from(id >> 2).map_err(|_| Status::NotFound)?;
        let defined = self.defined.get(kind).ok_or(Status::BadArgument)?;
        index.checked_sub(1).and_then(|index| defined.get(index)).ok_or(Status::NotFound)
    }

    /// A counter takes only positive offsets, a gauge any, a histogram none.
    pub(crate) fn increment(&self, id: u32, offset: i64) -> Result<(), Status> {
        if id & 3 > 1 {
            return Err(Status::BadArgument);
        }
        match self.find(id)? {
            Cell::Counter(_) if offset <= 0 => Err(Status::BadArgument),
            Cell::Counter(total) => {
                total.fetch_add(offset.unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }
            Cell::Gauge(level) if offset > 0 => {
                level.fetch_add(offset.unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }
            Cell::Gauge(level) => {
                level.fetch_sub(offset.unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }
            Cell::Histogram(_) => Err(Status::BadArgument),
        }
    }

    /// A counter adds, a gauge is set, a histogram records.
    pub(crate) fn record(&self, id: u32, value: u64) -> Result<(), Status> {
        match self.find(id).map_err(|_| Status::NotFound)? {
            Cell::Counter(total) => {
                total.fetch_add(value, Ordering::Relaxed);
            }
            Cell::Gauge(level) => level.store(value, Ordering::Relaxed),
            Cell::Histogram(histogram) => lock(histogram).record(value),
        }
        Ok(())
    }

    pub(crate) fn get(&self, id: u32) -> Result<u64, Status> {
        if id & 3 > 1 {
            return Err(Status::BadArgument);
        }
        match self.find(id)? {
            Cell::Counter(value) | Cell::Gauge(value) => Ok(value.load(Ordering::Relaxed)),
            Cell::Histogram(_) => Err(Status::BadArgument),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MetricKind::{Counter, Gauge, Histogram as Distribution};

    #[test]
    fn two_vms_see_one_value_behind_their_own_numbers() {
        let metrics = Metrics::default();
        let (mut a, mut b) = (MetricIds::new(metrics.clone()), MetricIds::new(metrics.clone()));
        b.define(Counter, "other".to_owned()).unwrap();
        let (in_a, in_b) =
            (a.define(Counter, "hits".to_owned()).unwrap(), b.define(Counter, "hits".to_owned()).unwrap());
        assert_ne!(in_a, in_b);
        a.increment(in_a, 2).unwrap();
        b.record(in_b, 3).unwrap();
        assert_eq!(metrics.counter("hits"), 5);
    }

    #[test]
    fn each_kind_takes_what_envoy_lets_it_take() {
        let metrics = Metrics::default();
        let mut ids = MetricIds::new(metrics.clone());
        let counter = ids.define(Counter, "c".to_owned()).unwrap();
        let gauge = ids.define(Gauge, "g".to_owned()).unwrap();
        let histogram = ids.define(Distribution, "h".to_owned()).unwrap();
        const BAD: Result<(), Status> = Err(Status::BadArgument);
        const NONE: Result<(), Status> = Err(Status::NotFound);
        //  what                                   answer
        let rows = [
            (ids.increment(counter, 0), BAD),
            (ids.increment(counter, -1), BAD),
            (ids.increment(gauge, 5), Ok(())),
            (ids.increment(gauge, -2), Ok(())),
            (ids.increment(histogram, 1), BAD),
            (ids.record(histogram, 7), Ok(())),
            (ids.increment(counter + 4, 1), NONE),
            (ids.record(0, 1), NONE),
            (ids.get(histogram).map(|_| ()), BAD),
            (ids.increment(3, 1), BAD),
        ];
        for (row, (given, expected)) in rows.into_iter().enumerate() {
            assert_eq!(given, expected, "row {row}");
        }
        assert_eq!((metrics.gauge("g"), metrics.histogram("h").map(|h| (h.count, h.sum))), (3, Some((1, 7))));
    }

    #[test]
    fn prometheus_names_are_cleaned_as_envoy_cleans_them() {
        let metrics = Metrics::default();
        let mut ids = MetricIds::new(metrics.clone());
        for name in ["a.b-c", "1st"] {
            ids.define(Counter, name.to_owned()).unwrap();
        }
        let expected = "# HELP a_b_c A counter of the filter.\n# TYPE a_b_c counter\na_b_c{} 0\n";
        assert_eq!(metrics.to_prometheus(), expected);
    }
}
