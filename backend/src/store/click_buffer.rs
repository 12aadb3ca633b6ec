//! Clicks gathered in memory until they are stored: what repeats among them is kept once, and no click has memory of its
//! own that one thread takes and another gives back.

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use super::click_batch::{Batch, Entry, Visitor};
use super::clicks::Click;

/// Between the parts of a visitor. No header carries it, nor does what is decoded of one.
const SEPARATOR: char = '\0';

/// Clicks in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct ClickBuffer {
    links: Texts,
    destinations: Texts,
    /// The parts of each, joined.
    visitors: Texts,
    /// The ids and addresses of the clicks, one after the other.
    texts: String,
    clicks: Vec<Short>,
    /// Where the parts of a visitor are joined.
    joined: String,
}

/// Texts in the order in which they came first, each once.
#[derive(Debug, Default)]
struct Texts {
    set: IndexSet<Box<str>, RandomState>,
    /// The length of all texts together.
    bytes: usize,
}

impl Texts {
    fn place(&mut self, text: &str) -> usize {
        match self.set.get_index_of(text) {
            Some(place) => place,
            None => {
                self.bytes += text.len();
                self.set.insert_full(text.into()).0
            }
        }
    }

    fn list(&self) -> Vec<&str> {
        self.set.iter().map(|text| &**text).collect()
    }

    fn clear(&mut self) {
        self.set.clear();
        self.bytes = 0;
    }
}

/// A click: where its id and its address end among the texts, and the places of what else it has.
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

impl ClickBuffer {
    pub(crate) fn push(&mut self, click: &Click) {
        let details = &click.details;
        self.joined.clear();
        for (index, part) in details.visitor().into_iter().enumerate() {
            if index > 0 {
                self.joined.push(SEPARATOR);
            }
            self.joined.push_str(part);
        }
        self.texts.push_str(&click.id);
        let id_end = self.texts.len();
        self.texts.push_str(&details.ip);
        self.clicks.push(Short {
            id_end,
            ip_end: self.texts.len(),
            at: click.at.as_millisecond(),
            link: self.links.place(&click.link_id),
            destination: self.destinations.place(&details.url),
            visitor: self.visitors.place(&self.joined),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.clicks.len()
    }

    /// The length of all texts, each of which is kept once.
    pub(crate) fn bytes(&self) -> usize {
        self.links.bytes + self.destinations.bytes + self.visitors.bytes + self.texts.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clicks.is_empty()
    }

    /// Forgets all clicks, and keeps the memory for others.
    pub(crate) fn clear(&mut self) {
        for texts in [&mut self.links, &mut self.destinations, &mut self.visitors] {
            texts.clear();
        }
        self.texts.clear();
        self.clicks.clear();
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        let mut start = 0;
        let clicks = self.clicks.iter().map(|click| {
            let id = self.texts.get(start..click.id_end).unwrap_or_default();
            let ip = self.texts.get(click.id_end..click.ip_end).unwrap_or_default();
            start = click.ip_end;
            let Short { at, link, destination, visitor, .. } = *click;
            Entry { id, ip, at, link, destination, visitor }
        });
        let visitors = self.visitors.set.iter().map(|joined| {
            let mut visitor = Visitor::default();
            for (place, part) in visitor.iter_mut().zip(joined.split(SEPARATOR)) {
                *place = part;
            }
            visitor
        });
        Batch {
            visitors: visitors.collect(),
            clicks: clicks.collect(),
            links: self.links.list(),
            destinations: self.destinations.list(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_is_gathered_comes_out_as_it_went_in() {
        let mut gathered = ClickBuffer::default();
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
                gathered.push(click);
            }
            assert_eq!((gathered.len(), gathered.is_empty()), (clicks.len(), round == 0));
            let batch = gathered.batch();
            let unpacked: Vec<Click> =
                batch.clicks().iter().map(|entry| batch.click(entry).unwrap()).collect();
            assert_eq!(unpacked, clicks);
            assert!(batch.links().len() <= 3);
            let lengths = |texts: &[&str]| texts.iter().map(|text| text.len()).sum::<usize>();
            let at_least = lengths(batch.links()) + lengths(batch.destinations());
            assert!(gathered.bytes() >= at_least && (gathered.bytes() > 0) == (round > 0));
            gathered.clear();
        }
    }
}
