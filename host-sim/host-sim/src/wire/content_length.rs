//! What becomes of a body that is not as long as the `content-length` it goes with.
//!
//! Envoy sends both as the filters left them. Over HTTP/1 whoever reads the message takes as many bytes as were declared:
//! of a longer body the rest is lost, and for the rest of a shorter one it waits. Over HTTP/2 the message is an error.

use crate::wire::{
    frame::Direction,
    frame::{Frame, Part},
    headers::Headers,
};

/// A body as its message declared it, and as much of it as has gone on.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    declared: Option<u64>,
    gone: u64,
    warned: bool,
}

/// What whoever reads a message makes of a part of it.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The part, or as much of it as was declared.
    Part(Part),
    /// An error: the message is broken off.
    Broken,
    /// Nothing, as with an end that does not come.
    Nothing,
}

/// A length that is declared, if it is a number.
fn declared(headers: &Headers) -> Option<u64> {
    std::str::from_utf8(headers.get("content-length")?).ok()?.parse().ok()
}

/// Whether a message that ends with its headers may declare a body all the same: an answer to HEAD, and those that
/// never have one.
fn may_lack_body(direction: Direction, is_head: bool, headers: &Headers) -> bool {
    direction == Direction::Response && (is_head || matches!(headers.status(), 100..=199 | 204 | 304))
}

impl Measure {
    /// Measures a part that goes to whoever reads the message; `is_http2` is whether that is over HTTP/2. The second
    /// value is what to warn of, once for each message.
    pub(crate) fn pass(&mut self, frame: Frame, is_head: bool, is_http2: bool) -> (Seen, Option<String>) {
        let Frame { direction, part } = frame;
        if let Part::Headers { headers, .. } = &part {
            self.declared = declared(headers).filter(|_| !may_lack_body(direction, is_head, headers));
        }
        let Some(declared) = self.declared else { return (Seen::Part(part), None) };
        let last = part.is_last();
        let came = match &part {
            Part::Body { data, .. } => data.len() as u64,
            Part::Headers { .. } | Part::Trailers(_) => 0,
        };
        let room = declared.saturating_sub(self.gone);
        self.gone += came;
        let (long, short) = (self.gone > declared, last && self.gone < declared);
        let warning = (long || short).then(|| self.warn(direction, declared, is_http2)).flatten();
        if !long && !short {
            return (Seen::Part(part), None);
        }
        if is_http2 {
            return (Seen::Broken, warning);
        }
        let seen = match part {
            Part::Body { data, end } if long => {
                let data = data.slice(..usize::try_from(room).unwrap_or(usize::MAX).min(data.len()));
                if end || !data.is_empty() { Seen::Part(Part::Body { data, end }) } else { Seen::Nothing }
            }
            // The end does not come.
            Part::Body { data, .. } if !data.is_empty() => Seen::Part(Part::Body { data, end: false }),
            Part::Headers { headers, .. } => Seen::Part(Part::Headers { headers, end: false }),
            Part::Body { .. } | Part::Trailers(_) => Seen::Nothing,
        };
        (seen, warning)
    }

    fn warn(&mut self, direction: Direction, declared: u64, is_http2: bool) -> Option<String> {
        if std::mem::replace(&mut self.warned, true) {
            return None;
        }
        let message = direction.message();
        let (than, effect) = match (self.gone > declared, is_http2) {
            (_, true) => ("another", "the stream is reset"),
            (true, false) => ("a larger", "what is beyond it is lost"),
            (false, false) => ("a smaller", "the one who reads it waits for the rest"),
        };
        Some(format!(
            "the {message} goes on with content-length {declared} and {than} body: {effect}, as in Envoy; a filter that \
             changes a body has to remove or replace content-length in the headers callback"
        ))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Sends a message with `content-length: 5`, and tells what is read of it.
    fn read(body: &[&'static str], is_http2: bool) -> (String, usize) {
        let mut measure = Measure::default();
        let headers = [(":status", "200"), ("content-length", "5")].into_iter().collect();
        let head = Part::Headers { headers, end: body.is_empty() };
        let last = body.len().saturating_sub(1);
        let pieces = body
            .iter()
            .enumerate()
            .map(|(index, data)| Part::Body { data: Bytes::from(*data), end: index == last });
        let (mut read, mut warnings) = (String::new(), 0);
        for part in std::iter::once(head).chain(pieces) {
            let (seen, warning) =
                measure.pass(Frame { direction: Direction::Response, part }, false, is_http2);
            warnings += usize::from(warning.is_some());
            match seen {
                Seen::Part(part) => {
                    if let Part::Body { data, .. } = &part {
                        read.push_str(std::str::from_utf8(data).unwrap());
                    }
                    if part.is_last() {
                        read.push('.');
                    }
                }
                Seen::Broken => return (read + "!", warnings),
                Seen::Nothing => {}
            }
        }
        (read, warnings)
    }

    #[test]
    fn a_message_is_read_as_far_as_it_was_declared() {
        //  body, what HTTP/1 reads (a full stop is its end), what HTTP/2 reads (an exclamation mark breaks it), warnings
        let rows: [(&[&str], &str, &str, usize); 7] = [
            (&["hello"], "hello.", "hello.", 0),
            (&["hel", "lo", ""], "hello.", "hello.", 0),
            (&["hello, world"], "hello.", "!", 1),
            (&["hello", ", ", "world", ""], "hello.", "hello!", 1),
            (&["hel", ""], "hel", "hel!", 1),
            (&[""], "", "!", 1),
            (&[], "", "!", 1),
        ];
        for (body, http1, http2, warnings) in rows {
            assert_eq!(read(body, false), (http1.to_owned(), warnings), "{body:?}");
            assert_eq!(read(body, true), (http2.to_owned(), warnings), "{body:?} over HTTP/2");
        }
    }
}
