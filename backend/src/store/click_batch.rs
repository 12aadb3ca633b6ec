//! A batch of clicks in a compact form, for the spool and for the statements that record it. Repeated values are stored once.

use serde::{Deserialize, Serialize};

use super::click::{Click, ClickDetails, Visitor};
use super::interner::Interner;
use super::{StoreError, instant};

/// Clicks in order of arrival.
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

/// A click. `link`, `destination` and `visitor` are slots in the lists of the batch.
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
    /// Joins several batches. The clicks keep their order.
    pub(crate) fn join(batches: &[Self]) -> Result<Self, StoreError> {
        let mut builder = Builder::default();
        for batch in batches {
            let links: Vec<usize> = batch.links.iter().map(|link| builder.links.slot(link)).collect();
            let destinations: Vec<usize> =
                batch.destinations.iter().map(|url| builder.destinations.slot(url)).collect();
            let visitors: Vec<usize> =
                batch.visitors.iter().map(|visitor| builder.visitors.slot(*visitor)).collect();
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

    /// Decodes a batch. Fails if a click refers to a link, destination or visitor that the batch does not have.
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

    /// The two halves of a batch, each with the values that its clicks use. None if the batch has fewer than two clicks.
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

    /// The clicks, each with its values.
    pub(super) fn unpack(&self) -> Result<Vec<Click>, StoreError> {
        self.clicks.iter().map(|entry| self.click(entry)).collect()
    }

    fn part(&self, clicks: &[Entry<'a>]) -> Result<Self, StoreError> {
        let mut builder = Builder::default();
        for click in clicks {
            builder.clicks.push(Entry {
                link: builder.links.slot(at(&self.links, click.link)?),
                destination: builder.destinations.slot(at(&self.destinations, click.destination)?),
                visitor: builder.visitors.slot(*at(&self.visitors, click.visitor)?),
                ..*click
            });
        }
        Ok(builder.finish())
    }

    /// The ids of the first click and its link, for the log.
    pub(crate) fn first(&self) -> Option<(&'a str, &'a str)> {
        let click = self.clicks.first()?;
        Some((click.id, *self.links.get(click.link)?))
    }

    /// Number of clicks.
    pub(crate) fn len(&self) -> usize {
        self.clicks.len()
    }

    /// The ids of the clicked links, without duplicates.
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

    /// One click with all its values.
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

/// The value in a slot.
pub(super) fn at<T>(list: &[T], slot: usize) -> Result<&T, StoreError> {
    list.get(slot).ok_or_else(|| StoreError::corrupt("batch of clicks", &"a slot is out of range"))
}

#[derive(Default)]
struct Builder<'a> {
    links: Interner<&'a str>,
    destinations: Interner<&'a str>,
    visitors: Interner<Visitor<'a>>,
    clicks: Vec<Entry<'a>>,
}

impl<'a> Builder<'a> {
    fn finish(self) -> Batch<'a> {
        Batch {
            links: self.links.into_values(),
            destinations: self.destinations.into_values(),
            visitors: self.visitors.into_values(),
            clicks: self.clicks,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::ClickBuffer;
    use super::*;

    fn click(number: i64) -> Click {
        let at = Timestamp::from_millisecond(number).unwrap();
        let mut click = Click::new(format!("link_{}", number % 3), at);
        click.details.url = format!("https://example.com/{}", number % 2).into();
        click.details.browser = format!("browser {}", number % 5).into();
        click.details.ip = format!("192.0.2.{number}").into();
        click
    }

    fn buffer(clicks: &[Click]) -> ClickBuffer {
        clicks.iter().collect()
    }

    #[test]
    fn joined_batches_hold_the_clicks_of_all_in_their_order() {
        let clicks: Vec<Click> = (0..20).map(click).collect();
        let encoded: Vec<Vec<u8>> =
            clicks.chunks(7).map(|clicks| buffer(clicks).batch().encode().unwrap()).collect();
        let batches: Vec<Batch<'_>> = encoded.iter().map(|bytes| Batch::decode(bytes).unwrap()).collect();
        let joined = Batch::join(&batches).unwrap();
        assert_eq!(joined.unpack().unwrap(), clicks);
        assert_eq!((joined.links().len(), joined.destinations().len(), joined.visitors().len()), (3, 2, 5));
        assert_eq!(Batch::join(&[]).unwrap().unpack().unwrap(), []);
    }

    #[test]
    fn halves_hold_the_clicks_in_their_order_and_nothing_else() {
        let clicks: Vec<Click> = (0..5).map(click).collect();
        let whole = buffer(&clicks);
        let (first, second) = whole.batch().halves().unwrap().unwrap();
        assert_eq!(
            (first.unpack().unwrap(), second.unpack().unwrap()),
            (clicks[..2].to_vec(), clicks[2..].to_vec())
        );
        assert_eq!((first.visitors().len(), second.visitors().len()), (2, 3));
        for count in [0, 4, 5, 6] {
            let left = whole.batch().without_first(count).unwrap().unpack().unwrap();
            assert_eq!(left, clicks[count.min(5)..], "without {count}");
        }
        let one = buffer(&clicks[..1]);
        assert!(one.batch().halves().unwrap().is_none() && Batch::default().halves().unwrap().is_none());
    }

    #[test]
    fn malformed_batches_are_refused() {
        let buffer = buffer(&[click(1), click(2)]);
        let batch = buffer.batch();
        let bytes = batch.encode().unwrap();
        assert!(Batch::decode(&bytes[..bytes.len() - 1]).is_err());
        let astray = Batch { clicks: vec![Entry { visitor: 9, ..batch.clicks[0] }], ..buffer.batch() };
        assert!(Batch::join(std::slice::from_ref(&astray)).is_err());
        assert!(Batch::decode(&astray.encode().unwrap()).is_err());
    }
}
