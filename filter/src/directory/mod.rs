//! The directory: known keys, fetched from a service.
//!
//! A process has one list of rows, in shared data (`list`), which requests read (`keys`). One VM leads (`leader`): it polls the service
//! (`polling`), reads its pages (`page`), and writes the rows (`load`). The other VMs follow. They see in the list's head (`head`) that
//! rows have changed. A host without shared data has each VM lead, and keep its list.
//!
//! Dependencies point one way: this file → {`load`, `keys`}; `load` → {`page`, `polling`, `list`}; `keys` → `list`; `list` → {`head`, `row`};
//! `head` → `leader`; `page` → `row`.

mod head;
mod keys;
mod leader;
mod list;
mod load;
mod page;
mod polling;
mod row;
#[cfg(test)]
pub(crate) mod tests;

use core::fmt::Write as _;
use core::mem;
use core::time::Duration;
use std::collections::HashSet;

use self::head::Head;
pub use self::head::Readiness;
pub use self::keys::{Keys, Listed, SeenRow, View};
use self::leader::Candidate;
use self::list::{List, ListError};
use self::load::{Ask, Leading, LoadError};
pub use self::page::PAGE_BYTES;
use self::page::{Anchors, Page};
use self::polling::Schedule;
use crate::config::{Catalog, Config, DirectorySettings};
use crate::count::shared_data::{HostError, SharedData};
use crate::count::swap::{CountError, LogLevel};
use crate::event::{Event, EventSums};
use crate::log_limiter::LogLimiter;
use crate::time::Timestamp;

/// What is worth a line of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum News {
    /// A failure that is another than the last.
    #[error("{0}")]
    Failure(String),
    /// The first good answer after a failure.
    #[error("answers again")]
    AnswersAgain,
    /// Rows of a page were skipped.
    #[error("rows that are skipped, so that their keys are unknown: {0}; the first is {1}")]
    Skipped(usize, String),
    /// Rows of a page give their organisation another billing anchor than an earlier row.
    #[error(
        "rows that count apart from their organisation, which has another billing_anchor in an earlier row: {0}; the first is {1}"
    )]
    Apart(usize, String),
    /// This VM has taken the lead.
    #[error("this VM polls it from now on")]
    Leads,
    /// The list is older than `max_stale`.
    #[error("too stale, its keys are not known any more")]
    Stale,
    /// The list is another directory's.
    #[error(
        "the list of keys is that of another configuration's directory; it changes hands when this one answers. \
         Where both are to stay, give one of them a namespace"
    )]
    Foreign,
}

impl News {
    /// The news that the list can be relied on so far.
    #[must_use]
    pub fn of_readiness(readiness: Readiness) -> Option<Self> {
        match readiness {
            Readiness::Stale => Some(Self::Stale),
            Readiness::Foreign => Some(Self::Foreign),
            Readiness::Partial | Readiness::Complete => None,
        }
    }

    /// The level of its line.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        match self {
            Self::Failure(_) | Self::Stale => LogLevel::Error,
            Self::Foreign | Self::Skipped(..) | Self::Apart(..) => LogLevel::Warn,
            Self::AnswersAgain | Self::Leads => LogLevel::Info,
        }
    }
}

/// Keeps the process's list current, in one VM, for one configuration.
#[derive(Debug)]
pub struct Directory {
    settings: DirectorySettings,
    source: u64,
    jitter: u8,
    list: List,
    candidate: Candidate,
    /// When this VM took the lead, in milliseconds since the epoch.
    since: u64,
    leading: Option<Leading>,
    events: EventSums,
    /// The failure that was logged last, unless there has been a good answer since.
    failure: Option<DirectoryError>,
    /// Rows that an operator should know of are logged once a minute.
    noticed: LogLimiter<(), 60>,
}

/// A poll to send: `GET` of this path.
#[derive(Debug)]
pub struct Poll<'d> {
    /// The service, and how it is reached.
    pub service: &'d DirectorySettings,
    /// The path, with what is asked for.
    pub path: String,
    /// The value of `if-none-match`.
    pub if_none_match: Option<String>,
}

/// The gauges that show the state of the list, as its leader knows it.
pub const GAUGES: [&str; 5] = [
    // Rows in the list.
    "weir.directory.rows",
    // Rows of the service that the list has no place for.
    "weir.directory.refused_rows",
    // Counts up whenever rows have changed.
    "weir.directory.version",
    // When the service gave its last good answer; 0 before the first.
    "weir.directory.answered_timestamp_seconds",
    // When the leader took the lead.
    "weir.directory.leader_since_timestamp_seconds",
];

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// The host has no such cluster.
    #[error("this gateway has no cluster {0:?}; add it, or correct directory.cluster")]
    NoCluster(String),
    /// The host did not send the poll.
    #[error("cluster {0:?}: {1}")]
    NotSent(String, HostError),
    /// There was none. A host that breaks off a large answer hands over none of it.
    #[error(
        "no answer: the call failed, took too long, or the gateway broke off an answer that is too large (over 32 MiB in Envoy: \
         http.async_response_buffer_limit)"
    )]
    NoAnswer,
    /// Its status was neither 200 nor 304.
    #[error("answered status {0}")]
    Status(String),
    /// It was not a page.
    #[error(
        "answered a malformed document: {bytes} bytes arrived, and it is wrong at line {line}, column {column}"
    )]
    Malformed {
        /// Bytes that arrived.
        bytes: usize,
        /// The line that is wrong, from 1.
        line: usize,
        /// The last column of it that was read.
        column: usize,
    },
    /// It was compressed.
    #[error("answered with gzip, although the poll says accept-encoding: identity")]
    Compressed,
    /// It was more than a page may be.
    #[error(
        "answered more than 20,000 keys or 4 MiB at once; answer in pages: docs/src/directory-service.md#pages describes them"
    )]
    TooLong,
    /// It has the changes since a version that was not asked for.
    #[error("answered with the changes since another version than was asked for")]
    OtherChanges,
}

impl Directory {
    /// A directory in a VM that has not looked at the list yet. `configuration` identifies the configuration among those of the process, and
    /// `random` this VM.
    #[must_use]
    pub fn new(settings: DirectorySettings, namespace: &str, configuration: u64, random: [u8; 16]) -> Self {
        let (holder, jitter) = (u64::from_le_bytes(*random.first_chunk().unwrap_or(&[0; 8])), random[15]);
        Self {
            source: keys::source(&settings),
            settings,
            jitter,
            list: List::new(namespace),
            candidate: Candidate::new(holder, configuration),
            since: 0,
            leading: None,
            events: EventSums::default(),
            failure: None,
            noticed: LogLimiter::default(),
        }
    }

    /// A newer configuration has come. This one leads only after a second without a leader.
    pub fn retire(&mut self) {
        self.candidate.is_retired = true;
    }

    /// Looks who leads, and takes or renews the lead. To be called ten times a second. Returns what is to be logged.
    ///
    /// # Errors
    /// If a host call fails. This VM then does not lead.
    pub fn look(&mut self, host: &mut impl SharedData, now: Timestamp) -> Result<Option<News>, HostError> {
        let looked = self.take_lead(host, now.millis());
        self.unless_lost(looked)
    }

    fn take_lead(&mut self, host: &mut impl SharedData, now: u64) -> Result<Option<News>, ListError> {
        let Self { list, candidate, source, .. } = self;
        let (from, to, head) = list.change_head(host, |head| {
            let mut head = head.unwrap_or(Head { source: *source, ..Head::default() });
            let from = head.lease;
            let to = candidate.consider(&from, now);
            head.lease = to.unwrap_or(from);
            if head.lease.epoch != from.epoch {
                // The last leader may have written rows, and not have said so.
                head.sequence = head.sequence.wrapping_add(1);
            }
            let stored = (head.lease != from).then(|| head.clone());
            Ok(((from, to, head), stored))
        })?;
        let leads_since_now = candidate.moved(&from, to, now);
        match &mut self.leading {
            leading if to.is_none() => *leading = None,
            Some(leading) if !leads_since_now => leading.head.lease = head.lease,
            leading => {
                let schedule =
                    Schedule::new(Duration::from_secs(self.settings.interval.0.into()), self.jitter);
                *leading = Some(Leading::begin(head, *source, schedule));
                self.events.add(Event::DirectoryLed, 1);
                self.since = now;
                return Ok(Some(News::Leads));
            }
        }
        Ok(None)
    }

    /// Stops leading if the list could not be written.
    fn unless_lost<T: Default>(&mut self, result: Result<T, ListError>) -> Result<T, HostError> {
        result.or_else(|error| {
            (self.leading, self.candidate.leads) = (None, None);
            match error {
                ListError::Swap(CountError::Host(error)) => Err(error),
                ListError::Swap(_) | ListError::Superseded => Ok(T::default()),
            }
        })
    }

    /// Gives the lead up, if this VM has it.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn give_up(&mut self, host: &mut impl SharedData) -> Result<(), HostError> {
        if self.leading.take().is_none() {
            return Ok(());
        }
        let candidate = &self.candidate;
        let given_up = self.list.change_head(host, |head| {
            let given_up =
                head.and_then(|head| Some(Head { lease: candidate.give_up(&head.lease)?, ..head }));
            Ok(((), given_up))
        });
        self.candidate.leads = None;
        self.unless_lost(given_up)
    }

    /// The poll that is due at `now`, if this VM leads and one is. It counts as sent.
    pub fn poll(&mut self, now: Timestamp) -> Option<Poll<'_>> {
        let Self { settings, leading, .. } = self;
        let (ask, etag) = leading.as_mut()?.ask(settings, now)?;
        Some(Poll {
            service: settings,
            path: path(&settings.path, &ask),
            if_none_match: Some(etag.to_owned()).filter(|etag| !etag.is_empty()),
        })
    }

    /// Takes the failure of a host to send a poll. Envoy answers an unknown cluster with BadArgument. Returns what is to be logged.
    pub fn not_sent(&mut self, host: &mut impl SharedData, error: HostError, now: Timestamp) -> Option<News> {
        let cluster = self.settings.cluster.to_string();
        let error = match error.is_bad_argument() {
            true => DirectoryError::NoCluster(cluster),
            false => DirectoryError::NotSent(cluster, error),
        };
        self.failed(host, error, now)
    }

    /// Takes the answer of a poll: its status and `etag`, or `None` if there was no answer, and its body. Returns what is to be logged.
    pub fn answer(
        &mut self,
        host: &mut impl SharedData,
        catalog: &Catalog,
        head: Option<(&[u8], Option<&[u8]>)>,
        body: &[u8],
        now: Timestamp,
    ) -> Option<News> {
        let Self { list, leading, events, .. } = self;
        let leading = leading.as_mut()?;
        events.add(Event::DirectoryBytes, body.len());
        match leading.answered((list, host), (head, body), catalog, now, events) {
            Ok(true) => self.is_good_again(),
            Ok(false) => {
                let [skipped, apart] = mem::take(&mut leading.noticed);
                let news = match (skipped.first, apart.first) {
                    (Some(first), _) => News::Skipped(skipped.rows, first),
                    (None, Some(first)) => News::Apart(apart.rows, first),
                    (None, None) => return None,
                };
                self.noticed.admit((), Some(now)).map(|_| news)
            }
            Err(LoadError::Answer(error)) => self.failed(host, error, now),
            Err(LoadError::List(error)) => self.lost(error),
        }
    }

    /// Whether this VM has rows to store.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.leading.as_ref().is_some_and(Leading::has_work)
    }

    /// Stores rows if there are any, `at_once` of them. Returns what is to be logged.
    pub fn work(&mut self, host: &mut impl SharedData, at_once: usize, now: Timestamp) -> Option<News> {
        let Self { list, leading, events, settings, .. } = self;
        let leading = leading.as_mut().filter(|leading| leading.has_work())?;
        match leading.work((list, host), at_once, settings, now, events) {
            Ok(true) => self.is_good_again(),
            Ok(false) => None,
            Err(error) => self.lost(error),
        }
    }

    /// Stops leading, because the list could not be written.
    fn lost(&mut self, error: ListError) -> Option<News> {
        self.unless_lost::<()>(Err(error)).err().map(|error| News::Failure(error.to_string()))
    }

    fn failed(&mut self, host: &mut impl SharedData, error: DirectoryError, now: Timestamp) -> Option<News> {
        let event = match error {
            DirectoryError::NoAnswer => Event::DirectoryBrokenOff,
            DirectoryError::Malformed { .. }
            | DirectoryError::Compressed
            | DirectoryError::TooLong
            | DirectoryError::OtherChanges => Event::DirectoryMalformed,
            DirectoryError::NoCluster(_) | DirectoryError::NotSent(..) | DirectoryError::Status(_) => {
                Event::DirectoryFailed
            }
        };
        self.events.add(event, 1);
        self.candidate.failures += 1;
        let Self { list, leading, .. } = self;
        let leading = leading.as_mut()?;
        let is_complete = leading.is_complete();
        let written = leading.fail((list, host), now);
        if let Err(error) = written {
            return self.lost(error);
        }
        let is_news = self.failure.as_ref() != Some(&error);
        let kept = if is_complete { "its last keys stay known" } else { "no list is complete yet" };
        let line = is_news.then(|| News::Failure(format!("{error}; {kept}")));
        self.failure = Some(error);
        line
    }

    /// Takes a good answer. Returns what is to be logged of the first one after a failure.
    fn is_good_again(&mut self) -> Option<News> {
        self.candidate.failures = 0;
        self.failure.take().map(|_| News::AnswersAgain)
    }

    /// Takes what has happened since the last time.
    pub fn drain_events(&mut self) -> [u32; Event::ALL.len()] {
        self.events.drain()
    }

    /// The values of [`GAUGES`], if this VM leads.
    #[must_use]
    pub fn status(&self) -> Option<[u64; GAUGES.len()]> {
        let head = self.leading.as_ref()?.own();
        let [rows, refused, version, answered] = head.map_or([0; 4], |head| {
            [head.rows.into(), head.refused.into(), head.sequence.into(), head.answered / 1000]
        });
        Some([rows, refused, version, answered, self.since / 1000])
    }
}

/// The path of a poll.
fn path(path: &str, ask: &Ask) -> String {
    let (name, value) = match ask {
        Ask::List => return path.to_owned(),
        Ask::Since(version) => ("since", version),
        Ask::Page(cursor) => ("cursor", cursor),
    };
    let mut path = format!("{path}{}{name}=", if path.contains('?') { '&' } else { '?' });
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => path.push(byte.into()),
            // Writing to a String cannot fail.
            false => drop(write!(path, "%{byte:02X}")),
        }
    }
    path
}

/// What a document that has the whole list holds for a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Rows that are stored.
    pub rows: usize,
    /// Rows that are malformed, or that name a plan or class that is not configured.
    pub skipped: usize,
    /// Rows for which the list has no place.
    pub over_capacity: usize,
}

/// Reads a document that has the whole list.
///
/// # Errors
/// If it is not a page.
pub fn summary(document: &[u8], config: &Config) -> Result<Summary, DirectoryError> {
    let page = Page::read(document, &config.catalog, &mut Anchors::new())?;
    let kept = page.rows.iter().filter(|(_, content)| !content.is_empty());
    let digests: HashSet<_> = kept.map(|(digest, _)| digest).collect();
    let capacity = config.settings.directory.as_ref().map_or(0, |directory| directory.capacity);
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    let over_capacity = digests.len().saturating_sub(capacity);
    Ok(Summary { rows: digests.len() - over_capacity, skipped: page.skipped.rows, over_capacity })
}
