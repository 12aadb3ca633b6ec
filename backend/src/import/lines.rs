//! The records of a CSV file, and the numbers of their lines as an editor shows them.
//!
//! The reader of CSV accepts any quotation marks. If one is missing, the cell ends at the next one or at the end of the file, and the
//! lines in between disappear in it. Such a record is refused here, and its second line starts another record.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

/// Maximum size of a record, in bytes. It bounds the memory that an import needs, and how often a line is read again. A link has at
/// most 64 KiB.
const MAX_RECORD: usize = 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The reason why a record is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends within a quoted cell.
    #[error("a quotation mark is not closed at the end of the file")]
    Unclosed,
    /// A quotation mark in a quoted cell is followed by neither a separator nor another quotation mark.
    #[error("text follows a closing quotation mark")]
    TextAfterQuotes,
    /// The record is too large. A quotation mark may be missing.
    #[error("the record has more than 1 MiB")]
    TooLong,
}

/// A malformed record. Only its first line is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Malformed {
    /// The number of its first line.
    pub(super) first: u64,
    /// The number of the last line that was read for it.
    pub(super) last: u64,
    pub(super) fault: Fault,
}

/// A file that hands one record after the other to the reader of CSV.
#[derive(Debug)]
pub(super) struct Records<R> {
    file: BufReader<R>,
    /// Number of bytes that were read from the file.
    bytes: u64,
    /// Whether the last line of the file ended with a carriage return.
    after_return: bool,
    /// Lines of a malformed record, which are read again.
    again: VecDeque<Vec<u8>>,
    /// The number of the last line, of the file or of those read again.
    line: u64,
    /// The current record, and the number of its bytes that the reader of CSV has.
    record: Vec<u8>,
    handed: usize,
}

/// What precedes a byte of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Separator,
    Unquoted,
    Quoted,
    /// A quotation mark in a quoted cell.
    QuotationMark,
    /// White space after a quoted cell.
    Closed,
}

impl<R: Read> Records<R> {
    pub(super) fn new(file: R) -> Self {
        Self {
            file: BufReader::new(file),
            bytes: 0,
            after_return: false,
            again: VecDeque::new(),
            line: 0,
            record: Vec::new(),
            handed: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves to the next record that is not blank, and returns the number of its first line. None at the end of the file.
    pub(super) fn advance(&mut self) -> io::Result<Option<Result<u64, Malformed>>> {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let (mut before, mut size) = (Before::Separator, 0);
        let fault = loop {
            let Some(line) = self.next_line()? else {
                break (!lines.is_empty()).then_some(Fault::Unclosed);
            };
            if lines.is_empty() && line.iter().all(|byte| is_line_break(*byte)) {
                continue;
            }
            size += line.len();
            let scanned = before.after(&line);
            lines.push(line);
            match scanned {
                _ if size > MAX_RECORD => break Some(Fault::TooLong),
                Some(Before::Quoted) => before = Before::Quoted,
                Some(_) => break None,
                None => break Some(Fault::TextAfterQuotes),
            }
        };
        if lines.is_empty() {
            return Ok(None);
        }
        let (last, first) = (self.line, self.line + 1 - lines.len() as u64);
        if let Some(fault) = fault {
            self.line = first;
            lines.drain(1..).rev().for_each(|line| self.again.push_front(line));
            return Ok(Some(Err(Malformed { first, last, fault })));
        }
        self.record = lines.concat();
        // The last line of a file may have none.
        self.record.push(b'\n');
        self.handed = 0;
        Ok(Some(Ok(first)))
    }

    /// The next line with its line break. None at the end of the file. The line feed after a carriage return belongs to the line that
    /// follows, which need not be there yet. Of a line that is too long, the first bytes are kept.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = self.again.pop_front().unwrap_or_default();
        let mut is_over = !line.is_empty();
        while !is_over {
            let read = match self.file.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let is_of_last = self.after_return && line.is_empty() && read.first() == Some(&b'\n');
            let end = read.iter().skip(usize::from(is_of_last)).position(|byte| is_line_break(*byte));
            let taken = end.map_or(read.len(), |end| usize::from(is_of_last) + end + 1);
            is_over = end.is_some() || taken == 0;
            let room = (MAX_RECORD + 1).saturating_sub(line.len());
            line.extend(read.iter().take(taken.min(room)));
            if end.is_some() {
                self.after_return = read.get(taken - 1) == Some(&b'\r');
            }
            self.file.consume(taken);
            self.bytes += taken as u64;
        }
        if line.is_empty() || line == b"\n" && self.after_return {
            return Ok(None);
        }
        if self.line == 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        self.line += 1;
        Ok(Some(line))
    }
}

impl<R> Read for Records<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.record.get(self.handed..).unwrap_or_default().read(buffer)?;
        self.handed += read;
        Ok(read)
    }
}

impl Before {
    /// What precedes the byte after a line. None if text follows a closing quotation mark.
    fn after(self, line: &[u8]) -> Option<Self> {
        line.iter().try_fold(self, |before, byte| match (before, byte) {
            (Self::Quoted, b'"') => Some(Self::QuotationMark),
            (Self::Quoted, _) | (Self::QuotationMark, b'"') | (Self::Separator, b'"') => Some(Self::Quoted),
            (_, b',' | b'\r' | b'\n') => Some(Self::Separator),
            (Self::Separator | Self::Unquoted, _) => Some(Self::Unquoted),
            (Self::QuotationMark | Self::Closed, b' ' | b'\t') => Some(Self::Closed),
            (Self::QuotationMark | Self::Closed, _) => None,
        })
    }
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
