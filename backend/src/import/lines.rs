//! The numbers of the lines of a CSV file, as an editor shows them.
//!
//! The reader of CSV leaves out blank lines, and counts a line feed after a carriage return as a part of the next line.

use std::collections::VecDeque;
use std::io::{self, Read};

/// A file that counts its lines while it is read.
#[derive(Debug)]
pub(super) struct PhysicalLines<R> {
    file: R,
    /// Number of bytes that were read.
    bytes: u64,
    /// The number of the current line.
    line: u64,
    /// The last byte.
    previous: u8,
    /// The first byte and the number of each line that is not blank. Lines before the current record are removed.
    starts: VecDeque<(u64, u64)>,
}

impl<R> PhysicalLines<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, bytes: 0, line: 0, previous: b'\n', starts: VecDeque::new() }
    }

    /// The number of the first line at or after a byte that is not blank. The bytes of later calls are larger.
    pub(super) fn at(&mut self, byte: u64) -> u64 {
        while self.starts.pop_front_if(|(start, _)| *start < byte).is_some() {}
        self.starts.front().map_or(self.line, |(_, line)| *line)
    }

    fn count(&mut self, byte: u8) {
        let is_start = self.previous == b'\n' || self.previous == b'\r' && byte != b'\n';
        if is_start {
            self.line += 1;
            if !matches!(byte, b'\r' | b'\n') {
                self.starts.push_back((self.bytes, self.line));
            }
        }
        self.previous = byte;
        self.bytes += 1;
    }
}

impl<R: Read> Read for PhysicalLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        buffer.iter().take(read).for_each(|byte| self.count(*byte));
        Ok(read)
    }
}
