//! What a replay found, within a bound however long the log is.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use envoy_config::stats_tags::{StatsTags, TagTable};
use host_sim::{End, MetricValue, Outcome};
use jiff::{SignedDuration, Timestamp};

use super::line::LineError;

/// The bootstrap that says what parts of the names of Weir's counters mean.
const BOOTSTRAP: &[u8] = include_bytes!("../../../envoy/envoy.yaml");

/// Paths and clients beyond this many share one row.
const MAX_ROWS: usize = 10_000;

/// Buckets of time beyond this many are joined in pairs.
const MAX_BUCKETS: usize = 240;

/// The narrowest bucket, in seconds.
const NARROWEST: i64 = 60;

/// The row of paths and clients that have none of their own.
const OTHERS: &str = "(others)";

/// Lines that were skipped, of which the first few are kept.
const KEPT_SKIPPED: usize = 5;

/// How many requests went on, and how many the filter answered itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Went on to the upstream.
    pub forwarded: u64,
    /// Were answered by the filter, or cut.
    pub refused: u64,
}

impl Outcomes {
    fn add(&mut self, refused: bool) {
        if refused {
            self.refused += 1;
        } else {
            self.forwarded += 1;
        }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.forwarded + self.refused
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// When it begins.
    pub start: Timestamp,
    /// Its requests.
    pub outcomes: Outcomes,
}

/// A line that is not a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which line, counted from 1.
    pub line: u64,
    /// Why.
    pub error: LineError,
}

/// What a replay found.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Lines that were requests.
    pub requests: u64,
    /// Lines that were not.
    pub skipped: u64,
    /// The first of them.
    pub first_skipped: Vec<Skipped>,
    /// All requests.
    pub outcomes: Outcomes,
    /// Replies of the filter by status and response-code details.
    pub replies: BTreeMap<(u16, String), u64>,
    /// When the first and the last request began.
    pub span: Option<(Timestamp, Timestamp)>,
    /// What the filter has counted.
    pub metrics: Vec<(String, MetricValue)>,
    /// What parts of the counters' names mean, if not what Weir's mean.
    pub tags: Option<StatsTags>,
    paths: HashMap<String, Outcomes>,
    clients: HashMap<String, Outcomes>,
    buckets: BTreeMap<i64, Outcomes>,
    /// How often the narrowest buckets were joined in pairs.
    joined: u32,
}

fn row<'a>(rows: &'a mut HashMap<String, Outcomes>, name: &str) -> &'a mut Outcomes {
    let name = if rows.len() < MAX_ROWS || rows.contains_key(name) { name } else { OTHERS };
    rows.entry(name.to_owned()).or_default()
}

/// The rows with most refusals, then most requests.
fn top(rows: &HashMap<String, Outcomes>, count: usize) -> Vec<(&str, Outcomes)> {
    let mut rows: Vec<_> = rows.iter().map(|(name, outcomes)| (name.as_str(), *outcomes)).collect();
    rows.sort_by(|(name, a), (other, b)| {
        (b.refused, b.total()).cmp(&(a.refused, a.total())).then(name.cmp(other))
    });
    rows.truncate(count);
    rows
}

impl Summary {
    pub(super) fn skip(&mut self, line: u64, error: LineError) {
        self.skipped += 1;
        if self.first_skipped.len() < KEPT_SKIPPED {
            self.first_skipped.push(Skipped { line, error });
        }
    }

    pub(super) fn count(&mut self, time: Timestamp, path: &str, client: &str, outcome: &Outcome) {
        let refused = outcome.end() != End::Forwarded;
        self.requests += 1;
        self.outcomes.add(refused);
        if refused {
            *self.replies.entry((outcome.status(), outcome.details().to_owned())).or_default() += 1;
        }
        row(&mut self.paths, path).add(refused);
        if !client.is_empty() {
            row(&mut self.clients, client).add(refused);
        }
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        self.buckets.entry(time.as_second().div_euclid(self.width())).or_default().add(refused);
        while self.buckets.len() > MAX_BUCKETS {
            self.joined += 1;
            let narrow = std::mem::take(&mut self.buckets);
            for (index, outcomes) in narrow {
                let wide = self.buckets.entry(index.div_euclid(2)).or_default();
                wide.forwarded += outcomes.forwarded;
                wide.refused += outcomes.refused;
            }
        }
    }

    /// Paths by how much of them was refused, the most first.
    pub fn paths(&self, count: usize) -> Vec<(&str, Outcomes)> {
        top(&self.paths, count)
    }

    /// Clients by how much of theirs was refused, the most first.
    pub fn clients(&self, count: usize) -> Vec<(&str, Outcomes)> {
        top(&self.clients, count)
    }

    /// The requests over time: buckets of [`bucket_width`](Self::bucket_width), those without requests left out.
    pub fn buckets(&self) -> Vec<Bucket> {
        let of = |(index, outcomes): (&i64, &Outcomes)| {
            let start = Timestamp::from_second(index.saturating_mul(self.width())).ok()?;
            Some(Bucket { start, outcomes: *outcomes })
        };
        self.buckets.iter().filter_map(of).collect()
    }

    /// What the filter has counted, as tables where [`tags`](Self::tags) say what the parts of names mean; a counter
    /// that stands at zero is left out.
    pub fn counters(&self) -> (Vec<TagTable>, Vec<(&str, u64)>) {
        let counters = self.metrics.iter().filter_map(|(name, value)| match value {
            MetricValue::Counter(count) if *count > 0 => Some((name.as_str(), *count)),
            MetricValue::Counter(_) | MetricValue::Gauge(_) | MetricValue::Histogram(_) => None,
        });
        let of_weir = || StatsTags::parse(BOOTSTRAP).unwrap_or_default();
        self.tags.clone().unwrap_or_else(of_weir).tables(counters)
    }

    fn width(&self) -> i64 {
        NARROWEST << self.joined
    }

    /// How wide a bucket is.
    pub fn bucket_width(&self) -> SignedDuration {
        SignedDuration::from_secs(self.width())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64| percent(part, self.requests);
        if let Some((first, last)) = self.span {
            writeln!(f, "{} requests, {first:.0} to {last:.0}", self.requests)?;
        } else {
            writeln!(f, "no requests")?;
        }
        writeln!(
            f,
            "  {:<52}{:>12}{:>8}",
            "went on",
            self.outcomes.forwarded,
            share(self.outcomes.forwarded)
        )?;
        for ((status, details), count) in &self.replies {
            let what = if details.is_empty() { status.to_string() } else { format!("{status} {details}") };
            writeln!(f, "  {what:<52}{count:>12}{:>8}", share(*count))?;
        }
        let refused = |rows: Vec<(&str, Outcomes)>| -> Vec<(String, Outcomes)> {
            let rows = rows.into_iter().filter(|(_, outcomes)| outcomes.refused > 0);
            rows.map(|(name, outcomes)| (name.to_owned(), outcomes)).collect()
        };
        for (what, rows) in [("paths", refused(self.paths(10))), ("clients", refused(self.clients(10)))] {
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "\n{:<54}{:>12}{:>8}", format!("refused, by {what}"), "of", "refused")?;
            for (name, outcomes) in rows {
                let (total, refused) = (outcomes.total(), outcomes.refused);
                writeln!(f, "  {name:<52}{total:>12}{:>8}", percent(refused, total))?;
            }
        }
        let (tables, counters) = self.counters();
        for table in &tables {
            let TagTable { values, counts, .. } = table;
            let heads: String = values.iter().map(|value| format!("{value:>14}")).collect();
            writeln!(f, "\n{:<40}{heads}", table.title())?;
            for (row, counts) in counts {
                let counts: String = counts.iter().map(|count| format!("{count:>14}")).collect();
                writeln!(f, "  {:<38}{counts}", row.join(" "))?;
            }
        }
        for (index, (name, count)) in counters.into_iter().enumerate() {
            if index == 0 {
                writeln!(f, "\ncounted by the filter")?;
            }
            writeln!(f, "  {name:<52}{count:>12}")?;
        }
        if self.skipped > 0 {
            writeln!(f, "\n{} lines are no requests", self.skipped)?;
            for Skipped { line, error } in &self.first_skipped {
                writeln!(f, "  line {line}: {error}")?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage to be read by people")]
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", 100.0 * part as f64 / whole as f64) }
}
