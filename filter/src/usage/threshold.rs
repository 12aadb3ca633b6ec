//! Shares of a quota that callers have used, which the service is told once.
//!
//! A worker tells a share as soon as it sees that it is used, and not again for the same count: a refund takes nothing back. Several workers and
//! gateways may see it. They tell it under one id, which is made of what the share is of, so a service that keeps each id once hears of
//! it once. A raised limit and a reset make another id.

use core::cell::Cell;

use ledger_wire::Hex128;
use sha2::{Digest as _, Sha256};

use crate::config::Share;
use crate::count::charge::{SharedName, Standing};
use crate::count::levels::Levels;
use crate::quota::{Mode, Quota, QuotaSet};

/// The quotas of a caller whose shares are told: enforced ones of windows of an hour or longer.
#[derive(Debug)]
pub struct Watch {
    /// Where the quotas are counted.
    pub levels: Levels,
    /// The names of the caller's counter and of its organisation's, the same at every gateway.
    names: [SharedName; 2],
    watched: Box<[Cell<Watched>]>,
}

/// A quota, and what was told of it.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// Its place in the set.
    place: usize,
    /// The count that this is about; the default is none.
    index: u32,
    generation: u32,
    /// Units at which the next share is used.
    next: u32,
}

/// A share that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// The place of the quota in its set.
    pub place: usize,
    /// The share.
    pub share: Share,
    /// Where the caller stands.
    pub standing: Standing,
}

impl Watch {
    /// What is to be told of these quotas; `None` if it is nothing.
    #[must_use]
    pub fn new(quotas: &QuotaSet, levels: &Levels, names: impl FnOnce() -> [SharedName; 2]) -> Option<Self> {
        let is_told = |quota: &Quota| quota.mode == Mode::Enforced && quota.window.is_of_hours();
        let places = quotas.quotas().iter().enumerate().filter(|(_, quota)| is_told(quota));
        let watched: Box<[_]> =
            places.map(|(place, _)| Cell::new(Watched { place, ..Watched::default() })).collect();
        (!watched.is_empty()).then(|| Self { levels: levels.clone(), names: names(), watched })
    }

    /// Whether a quota stands where something may have to be told.
    #[inline]
    #[must_use]
    pub fn is_news(&self, standings: &[Standing]) -> bool {
        self.watched.iter().map(Cell::get).any(|watched| {
            standings.get(watched.place).is_some_and(|standing| {
                let is_same = (standing.index, standing.generation) == (watched.index, watched.generation);
                standing.used >= watched.next || !is_same
            })
        })
    }

    /// The shares that are used and were not told yet.
    #[cold]
    #[must_use]
    pub fn news(
        &self,
        quotas: &QuotaSet,
        cost: u32,
        shares: &[Share],
        standings: &[Standing],
    ) -> Vec<Crossed> {
        let mut news = Vec::new();
        for cell in &self.watched {
            let mut watched = cell.get();
            let place = watched.place;
            let (Some(quota), Some(standing)) = (quotas.quotas().get(place), standings.get(place).copied())
            else {
                continue;
            };
            if (standing.index, standing.generation) != (watched.index, watched.generation) {
                let Standing { index, generation, .. } = standing;
                watched = Watched { place, index, generation, next: 0 };
            }
            let units = |share: &Share| units_of(*share, quota, cost);
            let crossed =
                shares.iter().filter(|share| (watched.next..=standing.used).contains(&units(share)));
            news.extend(crossed.map(|share| Crossed { place, share: *share, standing }));
            // What a refund gives back is not told again.
            let next = shares.iter().map(units).filter(|units| *units > standing.used).min();
            watched.next = watched.next.max(next.unwrap_or(u32::MAX));
            cell.set(watched);
        }
        news
    }

    /// The id of the event that tells a share, if the count has this reset number.
    #[must_use]
    pub fn id(&self, quotas: &QuotaSet, crossed: &Crossed, reset: u64) -> Option<Hex128> {
        let Crossed { place, share, standing } = *crossed;
        let quota = quotas.quotas().get(place)?;
        let [own, organisation] = self.names;
        let name = if place < quotas.own().len() { own } else { organisation };
        let mut hash = Sha256::new();
        hash.update(name.of(quota.window).0.to_le_bytes());
        for number in [standing.index, quota.limit.get(), share.0.into()] {
            hash.update(number.to_le_bytes());
        }
        hash.update(reset.to_le_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        hash.first_chunk().map(|bytes| Hex128(u128::from_be_bytes(*bytes)))
    }
}

/// Units of a quota from which on a share of it is used; at least 1. Of 100 per cent it is when another request of this cost does not fit.
fn units_of(Share(percent): Share, quota: &Quota, cost: u32) -> u32 {
    let limit = quota.limit.get();
    let units = match percent {
        100 => limit.saturating_sub(cost).saturating_add(1),
        _ => u32::try_from((u64::from(limit) * u64::from(percent)).div_ceil(100)).unwrap_or(limit),
    };
    units.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::counters::Counters;
    use crate::count::fingerprint::Who;
    use crate::count::shared_data::VmLocalData;
    use crate::count::table::Capacity;

    const SHARES: [Share; 3] = [Share(1), Share(80), Share(100)];

    fn watch(quotas: &[(&str, Mode)]) -> (Option<Watch>, QuotaSet) {
        let quota = |(text, mode): &(&str, Mode)| {
            let terms: crate::config::quota::QuotaTerms = text.parse().unwrap();
            let (limit, window) = (terms.limit.0, terms.window);
            Quota { name: (*text).to_owned(), limit, window, mode: *mode, refundable: true }
        };
        let quotas = QuotaSet::new(quotas.iter().map(quota).collect());
        let capacity = Capacity { known: 4, strangers: 4 };
        let counters = Counters::open(&mut VmLocalData::default(), [7; 16], "", capacity).unwrap();
        let levels = Levels { own: counters.counter(Who::Subscriber("a"), "standard"), others: None };
        (Watch::new(&quotas, &levels, || [SharedName(1), SharedName(2)]), quotas)
    }

    fn standing(used: u32, index: u32, generation: u32) -> Standing {
        Standing { used, index, generation, ..Standing::default() }
    }

    #[test]
    fn only_enforced_windows_of_an_hour_or_longer_are_told() {
        let rows = [
            ("10/minute", Mode::Enforced, false),
            ("10/second", Mode::Enforced, false),
            ("10/hour", Mode::Enforced, true),
            ("10/day", Mode::Enforced, true),
            ("10/month", Mode::Enforced, true),
            ("10/billing_month", Mode::Enforced, true),
            ("10/month", Mode::Shadow, false),
        ];
        for (quota, mode, is_told) in rows {
            assert_eq!(watch(&[(quota, mode)]).0.is_some(), is_told, "{quota} {mode:?}");
        }
    }

    #[test]
    fn a_share_is_told_once_for_a_count_and_again_for_the_next() {
        let (watch, quotas) = watch(&[("100/hour", Mode::Enforced)]);
        let watch = watch.unwrap();
        //  used, window and generation of the count, and the shares that are told
        let steps: [(u32, u32, u32, &[u8]); 10] = [
            (0, 7, 3, &[]),
            (1, 7, 3, &[1]),
            (79, 7, 3, &[]),
            (80, 7, 3, &[80]),
            // A refund.
            (70, 7, 3, &[]),
            (97, 7, 3, &[]),
            (98, 7, 3, &[100]),
            // A reset.
            (85, 7, 4, &[1, 80]),
            // The next window.
            (3, 8, 5, &[1]),
            (100, 8, 5, &[80, 100]),
        ];
        for (used, index, generation, expected) in steps {
            let standings = [standing(used, index, generation)];
            let is_news = watch.is_news(&standings);
            // With a cost of 3, nothing fits from 98 on.
            let news = watch.news(&quotas, 3, &SHARES, &standings);
            let told: Vec<_> = news.iter().map(|crossed| crossed.share.0).collect();
            assert_eq!(told, expected, "{used} of window {index}, {generation}");
            assert!(is_news || expected.is_empty(), "{used} of window {index}, {generation}");
            assert!(!watch.is_news(&standings));
        }
    }

    #[test]
    fn an_id_changes_with_the_counter_the_window_the_limit_the_share_and_the_reset_and_with_nothing_else() {
        let id = |quota: &str, share: u8, index: u32, used: u32, generation: u32, reset: u64| {
            let (watch, quotas) = watch(&[("1/hour", Mode::Enforced), (quota, Mode::Enforced)]);
            let crossed =
                Crossed { place: 1, share: Share(share), standing: standing(used, index, generation) };
            watch.unwrap().id(&quotas, &crossed, reset).unwrap().0
        };
        let first = id("100/month", 80, 7, 80, 1, 0);
        assert_eq!(id("100/month", 80, 7, 99, 2, 0), first);
        let others = [
            id("101/month", 80, 7, 80, 1, 0),
            id("100/day", 80, 7, 80, 1, 0),
            id("100/month", 100, 7, 80, 1, 0),
            id("100/month", 80, 8, 80, 1, 0),
            id("100/month", 80, 7, 80, 1, 1),
        ];
        let all: std::collections::BTreeSet<_> = others.into_iter().chain([first]).collect();
        assert_eq!(all.len(), others.len() + 1);
    }
}
