//! A batch of clicks, with what repeats in it only once: short enough to be spooled, and quick to write.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::clicks::{Click, ClickDetails};
use super::{StoreError, instant};

/// What many clicks have in common, in the order of the table's columns: all of a visitor but the address.
pub(super) type Visitor<'a> = [&'a str; 11];

/// Clicks in the order in which they were made.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batch<'a> {
    #[serde(borrow)]
    pub(super) links: Vec<&'a str>,
    #[serde(borrow)]
    pub(super) destinations: Vec<&'a str>,
    #[serde(borrow)]
    pub(super) visitors: Vec<Visitor<'a>>,
    #[serde(borrow)]
    pub(super) clicks: Vec<Entry<'a>>,
}

/// A click, with the places of its link, destination and visitor among those of the batch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Entry<'a> {
    pub(super) id: &'a str,
    pub(super) ip: &'a str,
    /// In Unix milliseconds.
    pub(super) at: i64,
    pub(super) link: usize,
    pub(super) destination: usize,
    pub(super) visitor: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn of(clicks: &'a [Click]) -> Self {
        let mut builder = Builder::default();
        for click in clicks {
            let details = &click.details;
            let entry = Entry {
                id: &click.id,
                ip: &details.ip,
                at: click.at.as_millisecond(),
                link: builder.links.place(&click.link_id),
                destination: builder.destinations.place(&details.url),
                visitor: builder.visitors.place(details.visitor()),
            };
            builder.clicks.push(entry);
        }
        builder.finish()
    }

    /// One batch of several, in their order.
    pub(crate) fn join(batches: &[Self]) -> Result<Self, StoreError> {
        let mut builder = Builder::default();
        for batch in batches {
            let links: Vec<usize> = batch.links.iter().map(|link| builder.links.place(link)).collect();
            let destinations: Vec<usize> =
                batch.destinations.iter().map(|url| builder.destinations.place(url)).collect();
            let visitors: Vec<usize> =
                batch.visitors.iter().map(|visitor| builder.visitors.place(*visitor)).collect();
            for click in &batch.clicks {
                builder.clicks.push(Entry {
                    link: *at(&links, click.link)?,
                    destination: *at(&destinations, click.destination)?,
                    visitor: *at(&visitors, click.visitor)?,
                    ..*click
                });
            }
        }
        Ok(builder.finish())
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        postcard::to_allocvec(self).map_err(|error| StoreError::corrupt("clicks", &error))
    }

    /// Reads an encoded batch, in which every click has a link, a destination and a visitor.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let batch: Self =
            postcard::from_bytes(bytes).map_err(|error| StoreError::corrupt("spooled clicks", &error))?;
        for click in &batch.clicks {
            at(&batch.links, click.link)?;
            at(&batch.destinations, click.destination)?;
            at(&batch.visitors, click.visitor)?;
        }
        Ok(batch)
    }

    /// The two halves of a batch, each with what its clicks need and nothing else. None if it has fewer than two clicks.
    pub(crate) fn halves(&self) -> Result<Option<(Self, Self)>, StoreError> {
        if self.clicks.len() < 2 {
            return Ok(None);
        }
        let (first, second) = self.clicks.split_at(self.clicks.len() / 2);
        Ok(Some((self.part(first)?, self.part(second)?)))
    }

    /// The batch without its first `count` clicks.
    pub(crate) fn without_first(self, count: usize) -> Result<Self, StoreError> {
        if count == 0 { Ok(self) } else { self.part(self.clicks.get(count..).unwrap_or_default()) }
    }

    /// The clicks by themselves.
    pub(super) fn unpack(&self) -> Result<Vec<Click>, StoreError> {
        self.clicks.iter().map(|entry| self.click(entry)).collect()
    }

    fn part(&self, clicks: &[Entry<'a>]) -> Result<Self, StoreError> {
        let mut builder = Builder::default();
        for click in clicks {
            builder.clicks.push(Entry {
                link: builder.links.place(at(&self.links, click.link)?),
                destination: builder.destinations.place(at(&self.destinations, click.destination)?),
                visitor: builder.visitors.place(*at(&self.visitors, click.visitor)?),
                ..*click
            });
        }
        Ok(builder.finish())
    }

    /// The id of the first click and that of its link, for a log.
    pub(crate) fn first(&self) -> Option<(&'a str, &'a str)> {
        let click = self.clicks.first()?;
        Some((click.id, *self.links.get(click.link)?))
    }

    /// How many clicks.
    pub(crate) fn len(&self) -> usize {
        self.clicks.len()
    }

    /// The ids of the links clicked, each once.
    pub(super) fn links(&self) -> &[&'a str] {
        &self.links
    }

    pub(super) fn destinations(&self) -> &[&'a str] {
        &self.destinations
    }

    pub(super) fn visitors(&self) -> &[Visitor<'a>] {
        &self.visitors
    }

    pub(super) fn clicks(&self) -> &[Entry<'a>] {
        &self.clicks
    }

    /// One of the clicks by itself.
    pub(super) fn click(&self, entry: &Entry<'_>) -> Result<Click, StoreError> {
        let (destination, visitor) =
            (at(&self.destinations, entry.destination)?, at(&self.visitors, entry.visitor)?);
        Ok(Click {
            id: entry.id.to_owned(),
            link_id: (*at(&self.links, entry.link)?).to_owned(),
            at: instant(entry.at)?,
            details: ClickDetails::of(visitor, destination, entry.ip),
        })
    }
}

/// What a batch says is at this place of a list.
pub(super) fn at<T>(list: &[T], place: usize) -> Result<&T, StoreError> {
    list.get(place).ok_or_else(|| StoreError::corrupt("batch of clicks", &"a place that is not in its list"))
}

/// Values in the order in which they came first, each once.
struct Words<T> {
    list: Vec<T>,
    places: HashMap<T, usize>,
}

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self { list: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Words<T> {
    fn place(&mut self, word: T) -> usize {
        *self.places.entry(word).or_insert_with(|| {
            self.list.push(word);
            self.list.len() - 1
        })
    }
}

#[derive(Default)]
struct Builder<'a> {
    links: Words<&'a str>,
    destinations: Words<&'a str>,
    visitors: Words<Visitor<'a>>,
    clicks: Vec<Entry<'a>>,
}

impl<'a> Builder<'a> {
    fn finish(self) -> Batch<'a> {
        Batch {
            links: self.links.list,
            destinations: self.destinations.list,
            visitors: self.visitors.list,
            clicks: self.clicks,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn click(number: i64) -> Click {
        let at = Timestamp::from_millisecond(number).unwrap();
        let mut click = Click::new(format!("link_{}", number % 3), at);
        click.details.url = format!("https://example.com/{}", number % 2).into();
        click.details.browser = format!("browser {}", number % 5).into();
        click.details.ip = format!("192.0.2.{number}").into();
        click
    }

    #[test]
    fn joined_batches_hold_the_clicks_of_all_in_their_order() {
        let clicks: Vec<Click> = (0..20).map(click).collect();
        let encoded: Vec<Vec<u8>> =
            clicks.chunks(7).map(|clicks| Batch::of(clicks).encode().unwrap()).collect();
        let batches: Vec<Batch<'_>> = encoded.iter().map(|bytes| Batch::decode(bytes).unwrap()).collect();
        let joined = Batch::join(&batches).unwrap();
        assert_eq!(joined.unpack().unwrap(), clicks);
        assert_eq!((joined.links().len(), joined.destinations().len(), joined.visitors().len()), (3, 2, 5));
        assert_eq!(Batch::join(&[]).unwrap().unpack().unwrap(), []);
    }

    #[test]
    fn halves_hold_the_clicks_in_their_order_and_nothing_else() {
        let clicks: Vec<Click> = (0..5).map(click).collect();
        let batch = Batch::of(&clicks);
        let (first, second) = batch.halves().unwrap().unwrap();
        assert_eq!(
            (first.unpack().unwrap(), second.unpack().unwrap()),
            (clicks[..2].to_vec(), clicks[2..].to_vec())
        );
        assert_eq!((first.visitors().len(), second.visitors().len()), (2, 3));
        for count in [0, 4, 5, 6] {
            let left = Batch::of(&clicks).without_first(count).unwrap().unpack().unwrap();
            assert_eq!(left, clicks[count.min(5)..], "without {count}");
        }
        let one = Batch::of(&clicks[..1]);
        assert!(one.halves().unwrap().is_none() && Batch::default().halves().unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_no_batch_are_refused() {
        let clicks = [click(1), click(2)];
        let batch = Batch::of(&clicks);
        let bytes = batch.encode().unwrap();
        assert!(Batch::decode(&bytes[..bytes.len() - 1]).is_err());
        let astray = Batch { clicks: vec![Entry { visitor: 9, ..batch.clicks[0] }], ..Batch::of(&clicks) };
        assert!(Batch::join(std::slice::from_ref(&astray)).is_err());
        assert!(Batch::decode(&astray.encode().unwrap()).is_err());
    }
}
