//! What a leader does: it asks for the list, or for what has changed in it, page by page, and writes the rows as pages arrive, some at once.

use core::mem;
use std::collections::VecDeque;

use super::DirectoryError;
use super::head::{Head, Readiness};
use super::list::{List, ListError, Stored, Swept};
use super::page::{Anchors, Noticed, Page, PageRow};
use super::polling::Schedule;
use super::row::{Generation, Row};
use crate::config::{Catalog, DirectorySettings};
use crate::count::shared_data::SharedData;
use crate::count::table::LIST_ENTRIES;
use crate::event::{Event, EventSums};
use crate::time::Timestamp;

/// Rows that are left to be stored when the next page is asked for: it arrives while they are.
const LEFT: usize = 5_000;

/// Most bytes of a version, and of an ETag. A longer one is left out, and the whole list is then asked for each time.
const MOST_BYTES: usize = 255;

/// What to ask the service for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The list.
    List,
    /// What has changed since this version.
    Since(String),
    /// The page that this cursor stands for.
    Page(String),
}

/// An answer: its status and `etag`, unless there was none, and its body.
type Answer<'a> = (Option<(&'a [u8], Option<&'a [u8]>)>, &'a [u8]);

/// A leader's work in one epoch.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) head: Head,
    /// Identifies the service. The head may be that of another one, whose list stays until this one has answered.
    source: u64,
    schedule: Schedule,
    /// The question of the poll that is in flight.
    asked: Option<Ask>,
    load: Option<Load>,
    /// The billing anchors of the organisations in the pages that have arrived since the last whole list began.
    anchors: Anchors,
    /// Rows that the last page had and that were skipped, and those whose organisations' anchors differ.
    pub(super) noticed: [Noticed; 2],
    /// The next entry to be swept: of another directory's rows, or at the end of a load.
    entry: u16,
}

/// A list, or the changes in it, of which the first page has arrived.
#[derive(Debug)]
struct Load {
    /// That of a whole list; `None` for changes.
    generation: Option<Generation>,
    version: String,
    etag: String,
    pages: u32,
    cursor: Option<String>,
    /// The rows that have arrived and are not stored.
    rows: VecDeque<PageRow>,
    has_changed: bool,
    refused: u32,
    /// Rows of the entries that were swept.
    kept: u32,
}

/// Why an answer was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Answer(#[from] DirectoryError),
}

impl Leading {
    /// Begins an epoch with this head, which no earlier leader can write any more.
    pub(super) fn begin(head: Head, source: u64, mut schedule: Schedule) -> Self {
        if head.source == source && head.state == Readiness::Complete {
            schedule.succeeded();
        }
        Self {
            head,
            source,
            schedule,
            asked: None,
            load: None,
            anchors: Anchors::new(),
            noticed: Default::default(),
            entry: 0,
        }
    }

    /// What is to be asked for at `now`, and the ETag of what is there. It counts as asked.
    pub(super) fn ask(&mut self, settings: &DirectorySettings, now: Timestamp) -> Option<(Ask, &str)> {
        if self.asked.is_some() {
            return None;
        }
        let (ask, etag) = match &mut self.load {
            Some(load) if load.rows.len() > LEFT => return None,
            Some(load) => (Ask::Page(load.cursor.take()?), ""),
            None if !self.schedule.is_due(now) => return None,
            None => {
                self.schedule.sent(now);
                let is_complete = self.is_complete();
                let Head { rows, refused, version, etag, .. } = &self.head;
                // Rows that had no place may have one now.
                let has_place_again = *refused > 0 && *rows < settings.capacity;
                match is_complete && !has_place_again {
                    true if version.is_empty() => (Ask::List, etag.as_str()),
                    true => (Ask::Since(version.clone()), etag.as_str()),
                    false => (Ask::List, ""),
                }
            }
        };
        self.asked = Some(ask.clone());
        Some((ask, etag))
    }

    /// Takes the answer to what was asked. Returns whether the list is current without more work.
    pub(super) fn answered<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        (head, body): Answer<'_>,
        catalog: &Catalog,
        now: Timestamp,
        events: &mut EventSums,
    ) -> Result<bool, LoadError> {
        let Some(ask) = self.asked.take() else { return Ok(false) };
        let is_first = !matches!(ask, Ask::Page(_));
        let is_current = matches!(head, Some((b"304", _)));
        match head {
            None => return Err(DirectoryError::NoAnswer.into()),
            // Only an ETag can be answered so.
            Some((b"304", _)) if is_first && !self.head.etag.is_empty() && self.is_complete() => {
                self.head.answered = now.millis();
                self.schedule.succeeded();
                events.add(Event::DirectoryUnchanged, 1);
            }
            Some((b"200", etag)) => {
                if ask == Ask::List {
                    self.anchors.clear();
                }
                let mut page = Page::read(body, catalog, &mut self.anchors)?;
                events.add(Event::DirectorySkipped, page.skipped.rows);
                events.add(Event::DirectoryApart, page.apart.rows);
                self.noticed = [mem::take(&mut page.skipped), mem::take(&mut page.apart)];
                let cursor = page.next.take().filter(|next| !next.is_empty());
                if let Some(load) = &mut self.load {
                    load.pages += 1;
                    load.cursor = cursor;
                    load.rows.extend(page.rows);
                    return Ok(false);
                }
                let etag = etag.and_then(|etag| str::from_utf8(etag).ok());
                self.begin_load(page, (&ask, etag), cursor)?;
            }
            Some((status, _)) => {
                return Err(DirectoryError::Status(String::from_utf8_lossy(status).into_owned()).into());
            }
        }
        list.write_head(host, &self.head)?;
        Ok(is_current)
    }

    /// Takes a first page. The head says so before the first row does: no later load has the same generation, and what the list was before is not
    /// taken for what it is now if this load is not finished.
    fn begin_load(
        &mut self,
        page: Page,
        (ask, etag): (&Ask, Option<&str>),
        cursor: Option<String>,
    ) -> Result<(), DirectoryError> {
        let is_whole = match (&page.since, ask) {
            (None, _) => true,
            (Some(since), Ask::Since(version)) if since == version => false,
            (Some(_), _) => return Err(DirectoryError::OtherChanges),
        };
        let head = &mut self.head;
        if head.source != self.source {
            let sequence = head.sequence.wrapping_add(1);
            let Head { lease, generation, rows, .. } = *head;
            let (state, source) = (Readiness::Foreign, self.source);
            *head = Head { lease, state, source, sequence, generation, rows, ..Head::default() };
        }
        if is_whole {
            head.generation = head.generation.wrapping_add(1);
            head.version.clear();
        }
        head.etag.clear();
        self.entry = 0;
        let short =
            |text: Option<&str>| text.filter(|text| text.len() <= MOST_BYTES).unwrap_or_default().to_owned();
        self.load = Some(Load {
            generation: is_whole.then_some(head.generation),
            version: short(page.version.as_deref()),
            etag: short(etag),
            pages: 1,
            cursor,
            rows: page.rows,
            has_changed: false,
            refused: if is_whole { 0 } else { head.refused },
            kept: 0,
        });
        Ok(())
    }

    /// Ends what was begun, because an answer was not good. The rows that were stored stay.
    pub(super) fn fail<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        now: Timestamp,
    ) -> Result<(), ListError> {
        self.schedule.failed(now);
        self.asked = None;
        match self.load.take() {
            Some(load) if load.has_changed => {
                self.head.sequence = self.head.sequence.wrapping_add(1);
                list.write_head(host, &self.head)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether another directory's rows are to be removed.
    fn is_clearing(&self) -> bool {
        self.own().is_some_and(|head| head.state == Readiness::Foreign)
    }

    /// Whether there is something to store, or to sweep.
    pub(super) fn has_work(&self) -> bool {
        let is_at_end = |load: &Load| load.cursor.is_none() && self.asked.is_none();
        let loads = self.load.as_ref().is_some_and(|load| !load.rows.is_empty() || is_at_end(load));
        self.is_clearing() || loads
    }

    /// Stores some rows, or sweeps some entries, `at_once` of them. Returns whether a load has ended.
    pub(super) fn work<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        at_once: usize,
        settings: &DirectorySettings,
        now: Timestamp,
        events: &mut EventSums,
    ) -> Result<bool, ListError> {
        let mut has_ended = false;
        for _ in 0..at_once {
            if has_ended || !self.has_work() {
                break;
            }
            has_ended = match self.is_clearing() {
                true => self.clear((&mut *list, &mut *host))?,
                false => self.load((&mut *list, &mut *host), settings)?,
            };
        }
        if has_ended {
            self.finish(now, events);
        }
        list.write_head(host, &self.head)?;
        Ok(has_ended)
    }

    /// Removes another directory's rows from an entry. A load goes on after that.
    fn clear<D: SharedData>(&mut self, (list, host): (&mut List, &mut D)) -> Result<bool, ListError> {
        let head = &mut self.head;
        let Swept { removed, .. } = list.sweep(host, (self.entry, head.lease.epoch), None)?;
        head.rows = head.rows.saturating_sub(removed);
        self.entry += 1;
        if self.entry == LIST_ENTRIES {
            (head.state, head.rows, self.entry) = (Readiness::Partial, 0, 0);
        }
        Ok(false)
    }

    /// Stores the next row or, behind the last of a whole list, removes those of an entry that the list has no more. Returns whether nothing is left.
    fn load<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        settings: &DirectorySettings,
    ) -> Result<bool, ListError> {
        let (Some(load), head) = (&mut self.load, &mut self.head) else { return Ok(false) };
        let epoch = head.lease.epoch;
        if let Some((digest, content)) = load.rows.pop_front() {
            let generation = load.generation.unwrap_or(head.generation);
            let row = Row { digest: &digest, generation, content: &content };
            let stored = list.store(host, epoch, row, head.rows < settings.capacity)?;
            match stored {
                Stored::Added => head.rows += 1,
                Stored::Removed => head.rows = head.rows.saturating_sub(1),
                Stored::Refused => load.refused += 1,
                Stored::Changed | Stored::Same => {}
            }
            load.has_changed |= !matches!(stored, Stored::Same | Stored::Refused);
            return Ok(false);
        }
        if load.generation.is_some() && self.entry < LIST_ENTRIES {
            let swept = list.sweep(host, (self.entry, epoch), load.generation)?;
            load.has_changed |= swept.removed > 0;
            load.kept += swept.kept;
            self.entry += 1;
            return Ok(false);
        }
        Ok(true)
    }

    /// Brings a load into force that was stored whole.
    fn finish(&mut self, now: Timestamp, events: &mut EventSums) {
        let Some(load) = self.load.take() else { return };
        let is_whole = load.generation.is_some();
        let head = &mut self.head;
        let was_complete = mem::replace(&mut head.state, Readiness::Complete) == Readiness::Complete;
        if is_whole {
            head.rows = load.kept;
        }
        if load.has_changed {
            head.sequence = head.sequence.wrapping_add(1);
        }
        (head.refused, head.answered) = (load.refused, now.millis());
        (head.version, head.etag) = (load.version, load.etag);
        self.schedule.succeeded();
        let has_changed = load.has_changed || !was_complete;
        events.add(if has_changed { Event::DirectoryChanged } else { Event::DirectoryUnchanged }, 1);
        // A row that changed while pages were asked for may be on none of them.
        if is_whole && load.pages > 1 && !head.version.is_empty() {
            self.schedule.hasten();
        }
    }

    /// What the list is, if it is this service's.
    pub(super) fn own(&self) -> Option<&Head> {
        Some(&self.head).filter(|head| head.source == self.source)
    }

    /// Whether the service's list was loaded whole.
    pub(super) fn is_complete(&self) -> bool {
        self.own().is_some_and(|head| head.state == Readiness::Complete)
    }
}
