//! The file of the click log.
//!
//! An entry is the length of a click and the checksum of its bytes (CRC-32), four bytes each, and the bytes. A process that is killed while it
//! writes leaves an incomplete entry at the end, which the next process cuts off. After a damaged entry, the next whole one is looked for.
//!
//! Entries are removed from the front by writing the rest to a new file that replaces the old one. A copy
//! of the file, as `backend backup` makes it, therefore has all entries of one moment, and perhaps later ones.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::domain::click::ClickRef;
use crate::store::with_suffix;

/// Size of the length and the checksum of an entry, in bytes.
const HEADER: usize = 8;
/// Maximum size of a click in bytes, which is several times what the texts of a click can take.
const MAX_CLICK: usize = 64 * 1024;
/// Number of bytes that are read at once. At least one entry is among them.
const BLOCK: usize = 512 * 1024;
/// Number of bytes at the beginning of a block of which each is either in a whole entry or damaged, because an entry that begins there ends
/// within the block.
pub(super) const DECIDED: usize = BLOCK - HEADER - MAX_CLICK;

/// The reason why a click log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClickLogError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses the file.
    #[error("{}: another process uses this click log. Each process needs a separate one", .0.display())]
    InUse(PathBuf),
}

/// The click log of this process. Positions count bytes. That of the first entry of this process is 0, and entries of earlier processes have
/// negative ones.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// The position of the first byte of the file.
    start: i64,
    end: i64,
    /// The operating system releases the lock when the process ends.
    _lock: File,
}

/// Encodes a click as an entry. None if it is too large, which no click of a redirect is.
pub(super) fn entry(click: &ClickRef<'_>) -> Option<Vec<u8>> {
    let bytes = postcard::to_extend(click, vec![0; HEADER]);
    let mut entry = bytes.ok().filter(|entry| entry.len() <= HEADER + MAX_CLICK)?;
    let (header, click) = entry.split_at_mut(HEADER);
    let length = u32::try_from(click.len()).ok()?;
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..].copy_from_slice(&crc32fast::hash(click).to_le_bytes());
    Some(entry)
}

/// The entries at the beginning of some bytes, up to the last whole one.
pub(super) struct Entries<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Entries<'a> {
    /// The size of the entry, and the bytes of its click. A damaged part before a whole entry has no click.
    type Item = (usize, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let click = first(self.0);
        let size = match click {
            Some(click) => HEADER + click.len(),
            None => (1..self.0.len()).find(|at| first(&self.0[*at..]).is_some())?,
        };
        self.0 = &self.0[size..];
        Some((size, click))
    }
}

/// The click of the entry at the beginning of some bytes. None if it is incomplete or damaged.
fn first(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    // A file system may fill what it lost with zeros, and the checksum of nothing is 0.
    let click = rest.get(..length).filter(|_| (1..=MAX_CLICK).contains(&length))?;
    (crc32fast::hash(click) == u32::from_le_bytes(*checksum)).then_some(click)
}

impl Log {
    /// Opens or creates a log. The second result is the number of clicks that an earlier process left.
    pub(super) fn open(path: &Path) -> Result<(Self, u64), ClickLogError> {
        let failed = |source| ClickLogError::File { path: path.to_owned(), source };
        let lock = with_suffix(path, "-lock");
        let lock = File::options().write(true).create(true).truncate(false).open(lock).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ClickLogError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let file = open_file(path, false).map_err(failed)?;
        let mut log = Self { path: path.to_owned(), file, start: 0, end: 0, _lock: lock };
        let clicks = log.find_end().map_err(failed)?;
        Ok((log, clicks))
    }

    /// Finds the end of the last whole entry, cuts off the rest and makes the end position 0. Returns the number of entries and of damaged parts
    /// between them.
    fn find_end(&mut self) -> io::Result<u64> {
        let found = i64::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let (mut from, mut whole, mut clicks) = (0, 0, 0);
        self.end = found;
        loop {
            let bytes = self.read(from)?;
            let sizes = Entries(&bytes).map(|(size, _)| size);
            let (size, count) = sizes.fold((0, 0), |(sum, count), size| (sum + size, count + 1));
            if count > 0 {
                from += size as i64;
                (whole, clicks) = (from, clicks + count);
            } else if bytes.len() > DECIDED {
                from += DECIDED as i64;
            } else {
                break;
            }
        }
        if whole < found {
            let (path, bytes) = (self.path.display(), found - whole);
            tracing::warn!(%path, bytes, "cut off the end of the click log, which was not written completely");
            self.file.set_len(whole.cast_unsigned())?;
        }
        (self.start, self.end) = (-whole, 0);
        Ok(clicks)
    }

    pub(super) fn start(&self) -> i64 {
        self.start
    }

    /// Appends entries and returns the position of the end. Entries of which only a part could be written are written again.
    pub(super) fn append(&mut self, entries: &[u8]) -> io::Result<i64> {
        let at = (self.end - self.start).cast_unsigned();
        self.file.seek(SeekFrom::Start(at))?;
        if let Err(error) = self.file.write_all(entries) {
            // Otherwise the next process would have to do it. It is not important whether this works.
            let _uncut = self.file.set_len(at);
            return Err(error);
        }
        self.end += entries.len() as i64;
        Ok(self.end)
    }

    /// Reads some entries from a position on. The last one may be incomplete, but not the first one.
    pub(super) fn read(&mut self, from: i64) -> io::Result<Vec<u8>> {
        let length = (self.end - from).clamp(0, BLOCK as i64);
        let mut bytes = vec![0; length as usize];
        self.file.seek(SeekFrom::Start((from - self.start).cast_unsigned()))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes the entries before a position.
    pub(super) fn remove_before(&mut self, position: i64) -> io::Result<()> {
        if position <= self.start {
            return Ok(());
        }
        let new = with_suffix(&self.path, ".new");
        let mut file = open_file(&new, true)?;
        self.file.seek(SeekFrom::Start((position - self.start).cast_unsigned()))?;
        let rest = (self.end - position).max(0).cast_unsigned();
        io::copy(&mut Read::by_ref(&mut self.file).take(rest), &mut file)?;
        // The rest is in no other file once this one has replaced the old one.
        if rest > 0 {
            file.sync_all()?;
        }
        fs::rename(&new, &self.path)?;
        self.file = file;
        self.start = position;
        Ok(())
    }
}

fn open_file(path: &Path, truncate: bool) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(truncate).open(path)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::*;
    use crate::domain::click::Click;

    fn click(number: i64) -> Click {
        let mut click = Click::new(format!("link_{number}"), Timestamp::from_millisecond(number).unwrap());
        click.details.url = format!("https://example.com/{}", "x".repeat(2_000)).into();
        click
    }

    fn append(log: &mut Log, numbers: std::ops::Range<i64>) {
        for number in numbers {
            log.append(&entry(&(&click(number)).into()).unwrap()).unwrap();
        }
    }

    /// The numbers of the links in the entries from a position on, or in all.
    fn numbers(log: &mut Log, from: Option<i64>) -> Vec<i64> {
        let (mut from, mut numbers) = (from.unwrap_or(log.start), Vec::new());
        loop {
            let bytes = log.read(from).unwrap();
            let before = numbers.len();
            for (size, click) in Entries(&bytes) {
                from += size as i64;
                let Some(click) = click else { continue };
                let click: ClickRef<'_> = postcard::from_bytes(click).unwrap();
                assert_eq!(click.destination.len(), 2_020);
                numbers.push(click.link_id.strip_prefix("link_").unwrap().parse().unwrap());
            }
            match numbers.len() == before {
                true if bytes.len() > DECIDED => from += DECIDED as i64,
                true => return numbers,
                false => {}
            }
        }
    }

    #[test]
    fn entries_stay_until_they_are_removed_whatever_happens_to_the_process() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("clicks");
        let (mut log, left) = Log::open(&path).unwrap();
        assert_eq!(left, 0);
        // More than one block, of entries that have one size.
        append(&mut log, 1_000..2_000);
        assert!(matches!(Log::open(&path), Err(ClickLogError::InUse(_))), "one process at a time");
        drop(log);
        let (mut log, left) = Log::open(&path).unwrap();
        assert_eq!((left, numbers(&mut log, None)), (1_000, (1_000..2_000).collect()));
        append(&mut log, 2_000..2_010);
        // A process that was killed left a new file.
        fs::write(with_suffix(&path, ".new"), "left").unwrap();
        log.remove_before(log.start / 1_000 * 10).unwrap();
        append(&mut log, 2_010..2_020);
        assert!(numbers(&mut log, Some(0)).into_iter().eq(2_000..2_020), "positions stay");
        drop(log);
        let (mut log, left) = Log::open(&path).unwrap();
        assert_eq!((left, numbers(&mut log, None)), (30, (1_990..2_020).collect()));
        log.remove_before(log.end).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn entries_after_damaged_ones_are_found() {
        let whole: Vec<Vec<u8>> = (0..4).map(|n| entry(&(&click(n)).into()).unwrap()).collect();
        let size = whole[1].len();
        //  bytes of the second entry, and what they become; the length, the checksum and the click are damaged, and bytes are missing
        for (at, damaged) in [
            (0..1, vec![1]),
            (0..4, vec![255; 4]),
            (4..8, vec![0; 4]),
            (8..9, vec![0]),
            (100..105, vec![0; 5]),
            (0..size, vec![0; size]),
            (0..size, vec![0xff; 3 * BLOCK]),
            (3..size, vec![]),
            (size - 1..size, vec![]),
        ] {
            let mut bytes = whole.concat();
            bytes.splice(size + at.start..size + at.end, damaged);
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("clicks");
            fs::write(&path, &bytes).unwrap();
            let (mut log, left) = Log::open(&path).unwrap();
            assert_eq!(left, 4, "{at:?}");
            append(&mut log, 7..8);
            drop(log);
            let (mut log, left) = Log::open(&path).unwrap();
            assert_eq!((left, numbers(&mut log, None)), (5, vec![0, 2, 3, 7]), "{at:?}");
        }
    }

    #[test]
    fn an_incomplete_or_damaged_end_is_cut_off() {
        let whole: Vec<Vec<u8>> = (0..3).map(|n| entry(&(&click(n)).into()).unwrap()).collect();
        let last = whole[2].len();
        let damaged = |at: usize| {
            let mut bytes = whole.concat();
            let at = bytes.len() - last + at;
            bytes[at] ^= 0x40;
            bytes
        };
        let without = |count: usize| whole.concat()[..whole.concat().len() - count].to_vec();
        let zeros = [whole.concat(), vec![0; 5_000]].concat();
        //  bytes of the file, and the number of entries
        for (bytes, expected) in [
            (whole.concat(), 3),
            (without(1), 2),
            (without(last - 1), 2),
            (without(last - HEADER), 2),
            (damaged(0), 2),
            (damaged(5), 2),
            (damaged(100), 2),
            (zeros, 3),
            (b"no entry".to_vec(), 0),
        ] {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("clicks");
            fs::write(&path, &bytes).unwrap();
            let (mut log, left) = Log::open(&path).unwrap();
            assert_eq!(left, expected);
            append(&mut log, 7..8);
            let mut numbers = numbers(&mut log, None);
            assert_eq!((numbers.pop(), numbers.len() as u64), (Some(7), expected));
        }
    }
}
