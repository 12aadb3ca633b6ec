//! Limits the unrecorded clicks of a workspace to half of the room, which leaves the rest to other workspaces.
//!
//! The webhook events of clicks take much longer to record than the clicks, and other workspaces wait for that. Those of a workspace
//! with many are limited too.

use rustc_hash::FxHashMap;

/// Maximum number of clicks in the backlog, above which no more are spooled. A click takes about 50 bytes.
pub(super) const MOST: usize = 262_144;
/// Maximum size of the backlog, in bytes, above which no more clicks are spooled.
pub(super) const MOST_BYTES: usize = 128 * 1024 * 1024;

/// Maximum number and size of the unrecorded clicks of a workspace: half of the room for all.
const MOST_OF_ONE: Amount = Amount { clicks: MOST / 2, bytes: MOST_BYTES / 2 };

/// Maximum size of the webhook events of the unrecorded clicks of a workspace, in bytes.
const MOST_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// A number of clicks and the size of their texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    clicks: usize,
    bytes: usize,
}

/// The unrecorded clicks of each workspace.
#[derive(Debug, Default)]
pub(super) struct Shares(FxHashMap<i64, Share>);

#[derive(Debug, Default)]
struct Share {
    /// Clicks in the queue.
    queued: Amount,
    /// Clicks that the writer has taken from the queue.
    taken: Amount,
    /// Size of the webhook events of a click, if they were too many for a transaction.
    event_bytes: usize,
}

/// The clicks of each workspace in one batch that the writer has taken.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<(i64, Amount)>);

impl Shares {
    /// Whether a workspace has reached its maximum.
    pub(super) fn is_used_up(&self, workspace: i64) -> bool {
        self.0.get(&workspace).is_some_and(|Share { queued, taken, event_bytes }| {
            let clicks = queued.clicks + taken.clicks;
            clicks >= MOST_OF_ONE.clicks
                || queued.bytes + taken.bytes >= MOST_OF_ONE.bytes
                || clicks.saturating_mul(*event_bytes) >= MOST_EVENT_BYTES
        })
    }

    /// Limits the events of a workspace, of which a click has this size, in bytes, until all its clicks are recorded.
    pub(super) fn limit_events(&mut self, workspace: i64, event_bytes: usize) {
        if let Some(share) = self.0.get_mut(&workspace) {
            share.event_bytes = event_bytes;
        }
    }

    /// Counts a queued click.
    pub(super) fn add(&mut self, workspace: i64, bytes: usize) {
        let queued = &mut self.0.entry(workspace).or_default().queued;
        queued.clicks += 1;
        queued.bytes += bytes;
    }

    /// Counts all queued clicks as taken.
    pub(super) fn take(&mut self) -> Taken {
        let mut all = Vec::new();
        for (workspace, Share { queued, taken, .. }) in &mut self.0 {
            let now_taken = std::mem::take(queued);
            if now_taken != Amount::default() {
                taken.clicks += now_taken.clicks;
                taken.bytes += now_taken.bytes;
                all.push((*workspace, now_taken));
            }
        }
        Taken(all)
    }

    /// Removes the clicks of a batch that is recorded.
    pub(super) fn release(&mut self, recorded: &Taken) {
        for (workspace, amount) in &recorded.0 {
            let Some(Share { queued, taken, .. }) = self.0.get_mut(workspace) else { continue };
            taken.clicks -= amount.clicks;
            taken.bytes -= amount.bytes;
            if *taken == Amount::default() && *queued == Amount::default() {
                self.0.remove(workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_half_of_the_room_until_some_of_its_clicks_are_recorded() {
        let mut shares = Shares::default();
        for _ in 1..MOST_OF_ONE.clicks {
            shares.add(1, 0);
        }
        assert!(!shares.is_used_up(1));
        let first = shares.take();
        shares.add(1, 0);
        assert!(shares.is_used_up(1) && !shares.is_used_up(2));
        shares.add(2, MOST_OF_ONE.bytes);
        assert!(shares.is_used_up(2));
        let second = shares.take();
        shares.release(&first);
        assert!(!shares.is_used_up(1) && shares.is_used_up(2));
        shares.release(&second);
        assert!(shares.0.is_empty());
    }

    #[test]
    fn a_workspace_with_large_events_has_room_for_fewer_clicks_until_all_are_recorded() {
        const CLICKS: usize = 4;
        let mut shares = Shares::default();
        (0..CLICKS).for_each(|_| shares.add(1, 0));
        let taken = shares.take();
        shares.limit_events(1, MOST_EVENT_BYTES / CLICKS);
        assert!(shares.is_used_up(1) && !shares.is_used_up(2));
        shares.release(&taken);
        shares.add(1, 0);
        assert!(!shares.is_used_up(1));
    }
}
