//! A batch of clicks, with what repeats in it only once: short enough to be spooled, and quick to write.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::clicks::{Click, ClickDetails};
use super::{StoreError, instant};

/// What many clicks have in common, in the order of the table's columns: all of a visitor but the address.
pub(super) type Visitor<'a> = [&'a str; 11];

/// Clicks in the order in which they were made.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batch<'a> {
    #[serde(borrow)]
    links: Vec<&'a str>,
    #[serde(borrow)]
    destinations: Vec<&'a str>,
    #[serde(borrow)]
    visitors: Vec<Visitor<'a>>,
    #[serde(borrow)]
    clicks: Vec<Entry<'a>>,
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
            let visitor: Visitor<'a> = [
                &details.continent,
                &details.country,
                &details.region,
                &details.city,
                &details.device,
                &details.browser,
                &details.os,
                &details.user_agent,
                &details.trigger,
                &details.referer,
                &details.referer_url,
            ];
            let entry = Entry {
                id: &click.id,
                ip: &details.ip,
                at: click.at.as_millisecond(),
                link: builder.links.place(&click.link_id),
                destination: builder.destinations.place(&details.url),
                visitor: builder.visitors.place(visitor),
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

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        postcard::from_bytes(bytes).map_err(|error| StoreError::corrupt("spooled clicks", &error))
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
        let owned = |text: &str| text.to_owned().into();
        let [
            continent,
            country,
            region,
            city,
            device,
            browser,
            os,
            user_agent,
            trigger,
            referer,
            referer_url,
        ] = at(&self.visitors, entry.visitor)?.map(owned);
        let at: Timestamp = instant(entry.at)?;
        Ok(Click {
            id: entry.id.to_owned(),
            link_id: (*self::at(&self.links, entry.link)?).to_owned(),
            at,
            details: ClickDetails {
                url: owned(self::at(&self.destinations, entry.destination)?),
                continent,
                country,
                region,
                city,
                device,
                browser,
                os,
                user_agent,
                trigger,
                referer,
                referer_url,
                ip: owned(entry.ip),
            },
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
