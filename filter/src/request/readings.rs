//! The readings of a request's path: what a common upstream may take it for.
//!
//! Filter and upstream must agree on which endpoint is called, but upstreams read `/links/a/..;/..;/r` differently: one serves the link
//! `a/..;/..;/r`, another drops the matrix parameters and serves `/r`. The filter therefore reads a path in every one of these ways. A rule
//! applies if all readings select it; a path whose readings select different rules is ambiguous.
//!
//! Each reading applies some of the operations in `ORDER`, in that order, to the whole path. The list names most operations twice: once
//! before and once after percent-decoding, because a proxy and a server, or a server and its router, do them in turn. What no upstream
//! tells apart is the same in all readings: trailing slashes, a missing slash at the start, and escapes of bytes that delimit nothing.

use memchr::memchr;

use self::operation::{Operation, operations_that_change};
use super::path::{decode, escape, without_query, without_trailing_slashes};
use crate::read::{fields, words};

mod operation;

/// Maximum number of readings of a path. A path that has more is ambiguous, whatever they select.
pub const MAX_READINGS: usize = 256;

/// Maximum work on the readings of a path, in bytes read. A path that needs more is ambiguous. The bound keeps the decision on 60 KiB, the
/// longest path that Envoy takes by default, below a millisecond in the module: a byte takes at most 1.4 ns in V8.
pub const MAX_WORK: usize = 1 << 19;

fields! {
    /// What the upstream does to paths. A declaration removes the readings that contradict it.
    pub struct UpstreamPaths as "UpstreamPaths" derive(Clone, Copy, Debug, Default, PartialEq, Eq) {
        /// Whether the upstream reads `//` as `/`.
        pub merge_slashes: Option<bool>,
        /// What the upstream does with `;…` at the end of a segment.
        pub matrix_parameters: Option<MatrixParameters>,
        /// What the upstream does with `%2F` and `%5C`.
        pub encoded_slash: Option<EncodedSlash>,
        /// Whether the upstream ignores the case of ASCII letters. Rules are then written in lower case.
        pub ignore_case: bool = false,
    }
}

words! {
    /// What an upstream does with `;…` at the end of a segment.
    pub enum MatrixParameters derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// It does not belong to the segment's name.
        "drop" => Drop,
        /// It is a part of the segment's name.
        "keep" => Keep,
    }
}

words! {
    /// What an upstream does with `%2F` and `%5C`.
    pub enum EncodedSlash derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// They separate segments.
        "decode" => Decode,
        /// They are a part of a segment.
        "keep" => Keep,
    }
}

/// The readings of a path select different rules, or there are too many of them to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstreams may read this path in different ways")]
pub struct AmbiguousPath;

/// The order in which readings apply operations.
const ORDER: [Operation; 18] = {
    use Operation::{
        Backslashes, DotSegments, DotSegmentsWithParameters, EncodedSlashes, MatrixParameters, OtherEscapes,
        Slashes,
    };
    [
        // On the path as it was sent: a proxy, or a server that decodes late.
        EncodedSlashes,
        Backslashes,
        MatrixParameters,
        Slashes,
        DotSegmentsWithParameters,
        DotSegments,
        Slashes,
        MatrixParameters,
        // On the decoded path.
        EncodedSlashes,
        OtherEscapes,
        Backslashes,
        MatrixParameters,
        Slashes,
        DotSegmentsWithParameters,
        DotSegments,
        MatrixParameters,
        DotSegments,
        Slashes,
    ]
};

/// An operation at its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    operation: Operation,
    /// Whether every reading applies it, as the upstream is declared to. Otherwise some do.
    always: bool,
}

/// Reads paths as the upstream may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    steps: Vec<Step>,
    ignore_case: bool,
}

/// A path after some operations.
#[derive(Clone, Debug)]
struct Reading {
    path: Vec<u8>,
    /// The operations that would change it, as bits.
    changed_by: u8,
    /// Those of them whose results are among the readings already.
    taken: u8,
}

/// The work that is left, in bytes.
struct Work(usize);

impl Readings {
    /// The readings that remain for an upstream that is declared as this.
    ///
    /// ```
    /// use filter::request::readings::{AmbiguousPath, Readings, UpstreamPaths};
    /// let is_analytics = |path: &[u8]| path == b"/analytics";
    /// let any = Readings::new(UpstreamPaths::default());
    /// assert_eq!(any.select(b"/%61nalytics/?x", is_analytics), Ok(true));
    /// assert_eq!(any.select(b"//analytics", is_analytics), Err(AmbiguousPath));
    /// let merging = Readings::new(UpstreamPaths { merge_slashes: Some(true), ..UpstreamPaths::default() });
    /// assert_eq!(merging.select(b"//analytics", is_analytics), Ok(true));
    /// ```
    #[must_use]
    pub fn new(upstream: UpstreamPaths) -> Self {
        let declared = |operation| match operation {
            Operation::Slashes => upstream.merge_slashes,
            Operation::MatrixParameters => {
                upstream.matrix_parameters.map(|does| does == MatrixParameters::Drop)
            }
            Operation::DotSegmentsWithParameters => {
                (upstream.matrix_parameters == Some(MatrixParameters::Keep)).then_some(false)
            }
            Operation::EncodedSlashes => upstream.encoded_slash.map(|does| does == EncodedSlash::Decode),
            Operation::OtherEscapes | Operation::Backslashes | Operation::DotSegments => None,
        };
        let steps = ORDER.iter().enumerate().filter_map(|(place, &operation)| {
            let is_last = ORDER.iter().skip(place + 1).all(|later| *later != operation);
            match declared(operation) {
                Some(false) => None,
                // An upstream may do at once what it does for certain in the end.
                declared => Some(Step { operation, always: is_last && declared == Some(true) }),
            }
        });
        Self { steps: steps.collect(), ignore_case: upstream.ignore_case }
    }

    /// The rule that all readings of a request's `:path` select.
    ///
    /// # Errors
    /// The readings select different rules, are more than [`MAX_READINGS`], or take more than [`MAX_WORK`].
    pub fn select<R: PartialEq>(&self, path: &[u8], rule: impl Fn(&[u8]) -> R) -> Result<R, AmbiguousPath> {
        match ordinary(path) {
            Some(path) if !(self.ignore_case && path.iter().any(u8::is_ascii_uppercase)) => Ok(rule(path)),
            Some(_) | None => self.select_by_all(without_trailing_slashes(without_query(path)), rule),
        }
    }

    /// Apart, so that the way of nearly all paths stays short.
    #[cold]
    fn select_by_all<R: PartialEq>(
        &self,
        path: &[u8],
        rule: impl Fn(&[u8]) -> R,
    ) -> Result<R, AmbiguousPath> {
        let mut work = Work(MAX_WORK);
        let first = self.first_reading(path);
        let selected = work.selected_by(&first, &self.steps, &rule)?;
        let mut readings = vec![first];
        let mut steps = self.steps.iter();
        while let Some(step) = steps.next() {
            if step.always {
                // Results of earlier steps are replaced.
                readings.iter_mut().for_each(|reading| reading.taken = 0);
            }
            for place in 0..readings.len() {
                let Some(reading) = readings.get_mut(place) else { break };
                let Some(next) = reading.after(step.operation, &mut work)? else { continue };
                if step.always {
                    *reading = next;
                    continue;
                }
                reading.taken |= step.operation.bit();
                if work.finds(&next, &readings)? {
                    continue;
                }
                if readings.len() == MAX_READINGS
                    || work.selected_by(&next, steps.as_slice(), &rule)? != selected
                {
                    return Err(AmbiguousPath);
                }
                readings.push(next);
            }
        }
        Ok(selected)
    }

    /// The form in which a rule's path is written so that all readings of it compare with it, if there is one.
    ///
    /// # Errors
    /// The path has several readings. The error is the form to write instead: the path after every operation.
    pub fn check(&self, path: &str) -> Result<(), String> {
        if self.select(path.as_bytes(), |reading| reading == path.as_bytes()) == Ok(true) {
            return Ok(());
        }
        let path = without_trailing_slashes(without_query(path.as_bytes()));
        let plain =
            self.steps.iter().fold(self.first_reading(path).path, |path, step| step.operation.apply(&path));
        Err(String::from_utf8_lossy(without_trailing_slashes(&plain)).into_owned())
    }

    /// The path as it was sent, but for what is the same in all readings.
    fn first_reading(&self, path: &[u8]) -> Reading {
        let mut first = decode_harmless(path);
        if first.first() != Some(&b'/') {
            first.insert(0, b'/');
        }
        if self.ignore_case {
            first.make_ascii_lowercase();
        }
        Reading::new(first)
    }
}

impl Work {
    fn spend(&mut self, bytes: usize) -> Result<(), AmbiguousPath> {
        self.0 = self.0.checked_sub(bytes).ok_or(AmbiguousPath)?;
        Ok(())
    }

    /// The rule that a reading selects which takes no more steps than all readings do.
    fn selected_by<R>(
        &mut self,
        reading: &Reading,
        steps: &[Step],
        rule: impl Fn(&[u8]) -> R,
    ) -> Result<R, AmbiguousPath> {
        let mut last = None;
        for step in steps.iter().filter(|step| step.always) {
            last = last.as_ref().unwrap_or(reading).after(step.operation, self)?.or(last);
        }
        Ok(rule(&last.as_ref().unwrap_or(reading).path))
    }

    /// Whether a reading is among others.
    fn finds(&mut self, reading: &Reading, others: &[Reading]) -> Result<bool, AmbiguousPath> {
        for other in others.iter().filter(|other| other.path.len() == reading.path.len()) {
            self.spend(reading.path.len())?;
            if other.path == reading.path {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Reading {
    fn new(mut path: Vec<u8>) -> Self {
        path.truncate(without_trailing_slashes(&path).len());
        let changed_by = operations_that_change(&path);
        Self { path, changed_by, taken: 0 }
    }

    /// This path after an operation, if that changes it into what is not known yet.
    fn after(&self, operation: Operation, work: &mut Work) -> Result<Option<Self>, AmbiguousPath> {
        if self.changed_by & !self.taken & operation.bit() == 0 {
            return Ok(None);
        }
        work.spend(self.path.len())?;
        Ok(Some(Self::new(operation.apply(&self.path))))
    }
}

/// The path of a request's `:path`, without query, fragment and a trailing slash, if no operation changes it. `None` for a hidden file's, too,
/// which is then found out.
fn ordinary(path: &[u8]) -> Option<&[u8]> {
    let (mut before, mut end) = (0, path.len());
    for (place, byte) in path.iter().enumerate() {
        match byte {
            b'%' | b';' | b'\\' => return None,
            b'/' | b'.' if before == b'/' => return None,
            b'?' | b'#' => {
                end = place;
                break;
            }
            _ => before = *byte,
        }
    }
    match path.get(..end)? {
        [b'/'] => Some(b"/"),
        [start @ .., b'/'] | start if start.first() == Some(&b'/') => Some(start),
        _ => None,
    }
}

/// Decodes the escapes of bytes that delimit nothing, and writes the others in upper case.
///
/// An escape that would complete a broken one (`%2%65`) stays: what it is decoded to must not be decoded again.
fn decode_harmless(path: &[u8]) -> Vec<u8> {
    let mut decoded = decode(path, |before, byte| {
        let completes = byte.is_ascii_hexdigit() && matches!(before, [.., b'%'] | [.., b'%', _]);
        !delimits(byte) && !completes
    });
    let mut rest = decoded.as_mut_slice();
    while let Some(start) = memchr(b'%', rest) {
        let (_, from) = rest.split_at_mut(start);
        if escape(from).is_some() {
            from.iter_mut().take(3).for_each(u8::make_ascii_uppercase);
        }
        rest = from.get_mut(1..).unwrap_or_default();
    }
    decoded
}

/// Whether a byte can mean something else when it is not escaped: the reserved characters of RFC 3986, section 2.2, `\` and `%`. The
/// others are unreserved, or a URI has them in escapes only.
fn delimits(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=\\%".contains(&byte)
}

#[cfg(test)]
mod tests;
