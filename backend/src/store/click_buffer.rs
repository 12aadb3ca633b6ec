//! Clicks collected in memory until they are stored.
//!
//! Repeated texts are stored once. A click has no allocation of its own, because one thread would allocate it and another
//! would free it.

use jiff::Timestamp;

use super::click::{Click, Visitor};
use super::click_batch::{Batch, Entry};
use super::interner::Interner;

/// Separates the parts of a visitor. Headers cannot contain this character, and neither can values decoded from headers.
const SEPARATOR: char = '\0';

/// A click that borrows its texts. A redirect then allocates none of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClickRef<'a> {
    pub(crate) id: &'a str,
    pub(crate) link_id: &'a str,
    pub(crate) at: Timestamp,
    pub(crate) destination: &'a str,
    pub(crate) visitor: Visitor<'a>,
    pub(crate) ip: &'a str,
}

impl<'a> From<&'a Click> for ClickRef<'a> {
    fn from(click: &'a Click) -> Self {
        let Click { id, link_id, at, details } = click;
        let (destination, visitor, ip) = (&details.url, details.visitor(), &details.ip);
        Self { id, link_id, at: *at, destination, visitor, ip }
    }
}

/// Clicks in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct ClickBuffer {
    links: Interner<Box<str>>,
    destinations: Interner<Box<str>>,
    /// The parts of each visitor, joined by [`SEPARATOR`].
    visitors: Interner<Box<str>>,
    /// Total length of the links, destinations and visitors.
    interned_bytes: usize,
    /// The ids and addresses of all clicks, concatenated.
    texts: String,
    clicks: Vec<Short>,
    /// Scratch space in which [`Self::push`] joins the parts of a visitor.
    joined: String,
}

/// A click: the ends of its id and address in `texts`, its time, and the slots of its repeated values.
#[derive(Clone, Copy, Debug)]
struct Short {
    id_end: usize,
    ip_end: usize,
    /// In Unix milliseconds.
    at: i64,
    link: usize,
    destination: usize,
    visitor: usize,
}

/// The slot of a text. Adds the length of a new text to `bytes`.
fn intern(texts: &mut Interner<Box<str>>, text: &str, bytes: &mut usize) -> usize {
    texts.find(text).unwrap_or_else(|| {
        *bytes += text.len();
        texts.slot(text.into())
    })
}

impl ClickBuffer {
    pub(crate) fn push(&mut self, click: &ClickRef<'_>) {
        self.joined.clear();
        for (index, part) in click.visitor.into_iter().enumerate() {
            if index > 0 {
                self.joined.push(SEPARATOR);
            }
            self.joined.push_str(part);
        }
        self.texts.push_str(click.id);
        let id_end = self.texts.len();
        self.texts.push_str(click.ip);
        self.clicks.push(Short {
            id_end,
            ip_end: self.texts.len(),
            at: click.at.as_millisecond(),
            link: intern(&mut self.links, click.link_id, &mut self.interned_bytes),
            destination: intern(&mut self.destinations, click.destination, &mut self.interned_bytes),
            visitor: intern(&mut self.visitors, &self.joined, &mut self.interned_bytes),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.clicks.len()
    }

    /// Total length of all texts. Repeated texts count once.
    pub(crate) fn bytes(&self) -> usize {
        self.interned_bytes + self.texts.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clicks.is_empty()
    }

    /// Removes all clicks and keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        for texts in [&mut self.links, &mut self.destinations, &mut self.visitors] {
            texts.clear();
        }
        self.interned_bytes = 0;
        self.texts.clear();
        self.clicks.clear();
    }

    /// The clicks as a batch that borrows from the buffer.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let mut start = 0;
        let clicks = self.clicks.iter().map(|click| {
            let id = self.texts.get(start..click.id_end).unwrap_or_default();
            let ip = self.texts.get(click.id_end..click.ip_end).unwrap_or_default();
            start = click.ip_end;
            let Short { at, link, destination, visitor, .. } = *click;
            Entry { id, ip, at, link, destination, visitor }
        });
        let visitors = self.visitors.iter().map(|joined| {
            let mut visitor = Visitor::default();
            for (field, part) in visitor.iter_mut().zip(joined.split(SEPARATOR)) {
                *field = part;
            }
            visitor
        });
        Batch {
            links: self.links.iter().map(|link| &**link).collect(),
            destinations: self.destinations.iter().map(|url| &**url).collect(),
            visitors: visitors.collect(),
            clicks: clicks.collect(),
        }
    }
}

impl<'a> FromIterator<&'a Click> for ClickBuffer {
    fn from_iter<I: IntoIterator<Item = &'a Click>>(clicks: I) -> Self {
        let mut buffer = Self::default();
        for click in clicks {
            buffer.push(&click.into());
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_batch_holds_the_clicks_of_its_buffer() {
        let mut buffer = ClickBuffer::default();
        for round in 0..3_i64 {
            let clicks: Vec<Click> = (0..10 * round)
                .map(|n| {
                    let at = Timestamp::from_millisecond(1_000 * round + n).unwrap();
                    let mut click = Click::new(format!("link_{}", n % 3), at);
                    click.details.url = format!("https://example.com/{}", n % 4).into();
                    click.details.user_agent = format!("agent {}", n % 5).into();
                    click.details.ip = if n % 2 == 0 { String::new() } else { format!("192.0.2.{n}") }.into();
                    click
                })
                .collect();
            for click in &clicks {
                buffer.push(&click.into());
            }
            assert_eq!((buffer.len(), buffer.is_empty()), (clicks.len(), round == 0));
            let batch = buffer.batch();
            let unpacked: Vec<Click> =
                batch.clicks().iter().map(|entry| batch.click(entry).unwrap()).collect();
            assert_eq!(unpacked, clicks);
            assert!(batch.links().len() <= 3);
            let lengths = |texts: &[&str]| texts.iter().map(|text| text.len()).sum::<usize>();
            let at_least = lengths(batch.links()) + lengths(batch.destinations());
            assert!(buffer.bytes() >= at_least && (buffer.bytes() > 0) == (round > 0));
            buffer.clear();
        }
    }
}
