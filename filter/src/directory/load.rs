//! What a leader does: it asks for the list, or for what has changed in it, page by page, and writes the rows as pages arrive.
//!
//! The work is done in units of a row, of a field of a page, or of an entry of the table, so that the caller can stop at any time.

use core::mem;

use super::head::{Head, State};
use super::list::{List, ListError, Stored, Swept};
use super::page::{Malformed, Page, Reader};
use super::polling::Schedule;
use super::row::{Generation, split_first};
use super::{DirectoryError, Report};
use crate::config::{Catalog, DirectorySettings};
use crate::count::shared_data::SharedData;
use crate::count::table::LIST_ENTRIES;
use crate::time::Timestamp;

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

/// A leader's work in one epoch.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) head: Head,
    /// Identifies the service. The head may be that of another one, whose list stays until this one has answered.
    source: u64,
    /// The rows that shared data says the list has.
    rows_written: u32,
    schedule: Schedule,
    /// The question of the poll that is in flight.
    asked: Option<Ask>,
    /// The version whose changes the first page was asked for.
    since: Option<String>,
    /// The ETag of the first page.
    etag: String,
    /// The next entry of another directory's rows.
    clearing: Option<u16>,
    load: Option<Load>,
    arrived: Option<Reader>,
    storing: Option<Storing>,
}

/// A list, or the changes in it, of which the first page has arrived.
#[derive(Debug)]
struct Load {
    /// That of a whole list; `None` for changes.
    generation: Option<Generation>,
    version: String,
    pages: u32,
    cursor: Option<String>,
    has_changed: bool,
    refused: u32,
    /// The entry that is swept next, once all pages are stored, and the rows that were kept so far.
    sweep: Option<(u16, u32)>,
}

/// A page whose rows are being stored.
#[derive(Debug)]
struct Storing {
    page: Page,
    at: usize,
}

/// Why a unit of work was not done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Answer(#[from] DirectoryError),
}

impl From<Malformed> for LoadError {
    fn from(Malformed { at, bytes }: Malformed) -> Self {
        Self::Answer(DirectoryError::Malformed { at, bytes })
    }
}

impl Leading {
    /// Begins an epoch with the head that the last one left, which no earlier leader can write from then on.
    pub(super) fn begin<D: SharedData>(
        (list, host): (&mut List, &mut D),
        epoch: u32,
        source: u64,
        mut schedule: Schedule,
    ) -> Result<Self, ListError> {
        let head = list.change_head(host, epoch, |left| {
            let left = left.unwrap_or(Head { state: State::Partial, source, ..Head::default() });
            // The last leader may have written rows, and not have said so.
            let head = Head { epoch, sequence: left.sequence.wrapping_add(1), ..left };
            (head.clone(), head)
        })?;
        let is_own = head.source == source;
        if is_own && head.state == State::Complete {
            schedule.succeeded();
        }
        Ok(Self {
            rows_written: head.rows,
            clearing: (is_own && head.state == State::Foreign).then_some(0),
            head,
            source,
            schedule,
            asked: None,
            since: None,
            etag: String::new(),
            load: None,
            arrived: None,
            storing: None,
        })
    }

    /// What is to be asked for at `now`, and the ETag of what is there. It counts as asked. The page after one is asked for while that one is stored.
    pub(super) fn ask(&mut self, settings: &DirectorySettings, now: Timestamp) -> Option<(Ask, &str)> {
        if self.asked.is_some() || self.arrived.is_some() {
            return None;
        }
        let (ask, etag) = match &mut self.load {
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

    /// Takes the answer to what was asked: its status and `etag`, or `None` if there was none, and its body.
    pub(super) fn answered<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        head: Option<(&[u8], Option<&[u8]>)>,
        body: Vec<u8>,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<(), LoadError> {
        let Some(ask) = self.asked.take() else { return Ok(()) };
        let is_first = !matches!(ask, Ask::Page(_));
        match head {
            None => Err(DirectoryError::NoAnswer.into()),
            // Only an ETag can be answered so.
            Some((b"304", _)) if is_first && !self.head.etag.is_empty() && self.is_complete() => {
                self.head.answered = now.millis();
                self.schedule.succeeded();
                report.unchanged += 1;
                Ok(list.write_head(host, &self.head)?)
            }
            Some((b"200", etag)) => {
                if is_first {
                    let etag = etag.and_then(|etag| str::from_utf8(etag).ok()).unwrap_or_default();
                    etag.clone_into(&mut self.etag);
                    self.since = if let Ask::Since(version) = ask { Some(version) } else { None };
                }
                self.arrived = Some(Reader::new(body));
                Ok(())
            }
            Some((status, _)) => {
                Err(DirectoryError::Status(String::from_utf8_lossy(status).into_owned()).into())
            }
        }
    }

    /// Ends what was begun, because an answer was not good. The rows that were stored stay.
    pub(super) fn fail<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        now: Timestamp,
    ) -> Result<(), ListError> {
        self.schedule.failed(now);
        (self.asked, self.arrived, self.storing) = (None, None, None);
        match self.load.take() {
            Some(load) if load.has_changed => {
                self.head.sequence = self.head.sequence.wrapping_add(1);
                list.write_head(host, &self.head)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether there is a unit of work to do.
    pub(super) fn has_work(&self) -> bool {
        let sweeps = self.load.as_ref().is_some_and(|load| load.sweep.is_some());
        self.clearing.is_some() || self.arrived.is_some() || self.storing.is_some() || sweeps
    }

    /// Does a unit of work.
    pub(super) fn work<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        catalog: &Catalog,
        settings: &DirectorySettings,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<(), LoadError> {
        let to = (list, host);
        if let Some(number) = self.clearing {
            return Ok(self.clear(to, number)?);
        }
        if let Some(storing) = &mut self.storing {
            let Some(load) = &mut self.load else { return Ok(()) };
            match storing.store_next(to, &mut self.head, load, settings)? {
                true => return Ok(()),
                false => self.storing = None,
            }
            if load.cursor.is_none() && self.asked.is_none() && self.arrived.is_none() {
                load.sweep = Some((if load.generation.is_some() { 0 } else { LIST_ENTRIES }, 0));
            }
            return Ok(());
        }
        if let Some(reader) = &mut self.arrived {
            if reader.step(catalog)? {
                let page = reader.page();
                self.arrived = None;
                return self.begin_page(to, page, report);
            }
            return Ok(());
        }
        match &mut self.load {
            Some(Load { sweep: Some((LIST_ENTRIES, kept)), .. }) => {
                let kept = *kept;
                Ok(self.finish(to, kept, now, report)?)
            }
            Some(Load { sweep: Some((number, kept)), generation, has_changed, .. }) => {
                let (list, host) = to;
                let swept = list.sweep(host, (*number, self.head.epoch), *generation)?;
                *has_changed |= swept.removed > 0;
                *number += 1;
                *kept += swept.kept;
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Removes another directory's rows from an entry.
    fn clear<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        number: u16,
    ) -> Result<(), ListError> {
        let Swept { removed, .. } = list.sweep(host, (number, self.head.epoch), None)?;
        self.head.rows = self.head.rows.saturating_sub(removed);
        self.clearing = Some(number + 1).filter(|next| *next < LIST_ENTRIES);
        if self.clearing.is_none() {
            (self.head.state, self.head.rows) = (State::Partial, 0);
            list.write_head(host, &self.head)?;
        }
        Ok(())
    }

    /// Takes a page that was read whole.
    fn begin_page<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        mut page: Page,
        report: &mut Report,
    ) -> Result<(), LoadError> {
        report.skipped += page.skipped;
        let cursor = page.next.take().filter(|next| !next.is_empty());
        if let Some(load) = &mut self.load {
            load.pages += 1;
            load.cursor = cursor;
        } else {
            let since = page.since.take();
            let is_whole = since.is_none();
            if !is_whole && since != self.since {
                return Err(DirectoryError::OtherChanges.into());
            }
            if self.head.source != self.source {
                let Head { epoch, sequence, generation, rows, .. } = self.head;
                let sequence = sequence.wrapping_add(1);
                self.head =
                    Head { epoch, source: self.source, sequence, generation, rows, ..Head::default() };
                self.clearing = Some(0);
            }
            if is_whole {
                self.head.generation = self.head.generation.wrapping_add(1);
                self.head.version.clear();
            }
            // Before the first row: no later load has the same generation, and what the list was before is not taken for what it is now if
            // this load is not finished.
            self.head.etag.clear();
            list.write_head(host, &self.head)?;
            self.load = Some(Load {
                generation: is_whole.then_some(self.head.generation),
                version: page.version.take().unwrap_or_default(),
                pages: 1,
                cursor,
                has_changed: false,
                refused: if is_whole { 0 } else { self.head.refused },
                sweep: None,
            });
        }
        self.storing = Some(Storing { page, at: 0 });
        Ok(())
    }

    /// Brings a load into force that was stored whole.
    fn finish<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        kept: u32,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<(), ListError> {
        let Some(load) = self.load.take() else { return Ok(()) };
        let is_whole = load.generation.is_some();
        let head = &mut self.head;
        let was_complete = mem::replace(&mut head.state, State::Complete) == State::Complete;
        if is_whole {
            head.rows = kept;
        }
        if load.has_changed {
            head.sequence = head.sequence.wrapping_add(1);
        }
        (head.refused, head.answered) = (load.refused, now.millis());
        (head.version, head.etag) = (load.version, mem::take(&mut self.etag));
        self.schedule.succeeded();
        match load.has_changed || !was_complete {
            true => report.changed += 1,
            false => report.unchanged += 1,
        }
        // A row that changed while pages were asked for may be on none of them.
        if is_whole && load.pages > 1 && !head.version.is_empty() {
            self.schedule.hasten();
        }
        self.rows_written = head.rows;
        list.write_head(host, head)
    }

    /// What the list is, if it is this service's.
    pub(super) fn own(&self) -> Option<&Head> {
        Some(&self.head).filter(|head| head.source == self.source)
    }

    /// Whether the service's list was loaded whole.
    pub(super) fn is_complete(&self) -> bool {
        self.own().is_some_and(|head| head.state == State::Complete)
    }

    /// Says how many rows the list has by now, if that has changed.
    pub(super) fn write_rows<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
    ) -> Result<(), ListError> {
        if self.rows_written == self.head.rows {
            return Ok(());
        }
        self.rows_written = self.head.rows;
        list.write_head(host, &self.head)
    }
}

impl Storing {
    /// Stores the next row, or removes the next key that is gone. `false` at the end of the page.
    fn store_next<D: SharedData>(
        &mut self,
        (list, host): (&mut List, &mut D),
        head: &mut Head,
        load: &mut Load,
        settings: &DirectorySettings,
    ) -> Result<bool, ListError> {
        // A key that is gone and is there again is on both lists.
        if let Some(digest) = self.page.removed.pop() {
            let was_there = list.remove(host, head.epoch, &digest)?;
            load.has_changed |= was_there;
            head.rows -= u32::from(was_there && head.rows > 0);
            return Ok(true);
        }
        let rest = self.page.rows.get(self.at..).unwrap_or_default();
        let Some((row, _)) = split_first(rest) else { return Ok(false) };
        self.at += row.len();
        let generation = load.generation.unwrap_or(head.generation);
        let has_place = head.rows < settings.capacity;
        match list.store(host, head.epoch, row, generation, has_place)? {
            Stored::Added => {
                load.has_changed = true;
                head.rows += 1;
            }
            Stored::Changed => load.has_changed = true,
            Stored::Same => {}
            Stored::Refused => load.refused += 1,
        }
        Ok(true)
    }
}
