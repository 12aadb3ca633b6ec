//! The slots of the sender. Each running delivery takes one, and receivers that do not answer hold theirs for seconds.
//!
//! A workspace may take another slot while more than three times as many are free as it holds. It therefore holds at most a
//! quarter of all, and the more workspaces hold slots, the fewer each of them holds. Free slots go to the workspace, and then
//! to the webhook, that holds the fewest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use crate::domain::delivery::{DueWebhook, WithoutRoom};

/// Number of slots.
pub(super) const SLOTS: usize = 256;
/// Maximum number of slots of a webhook.
const OF_WEBHOOK: usize = 4;
/// Maximum number of slots of a webhook whose receiver did not answer in time. One delivery at a time finds out when it
/// answers again.
const OF_SILENT: usize = 1;
/// A workspace may take another slot while more than this many times its slots are free.
const FREE_PER_SLOT: usize = 3;

/// The slots in use, and the receivers that did not answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    held: Held,
    /// The webhooks whose receivers did not answer their last delivery in time.
    silent: HashSet<i64>,
}

/// The slots that workspaces and webhooks hold.
#[derive(Clone, Debug, Default)]
struct Held {
    all: usize,
    by_workspace: HashMap<i64, usize>,
    by_webhook: HashMap<i64, usize>,
}

impl Held {
    fn add(&mut self, webhook: DueWebhook) {
        self.all += 1;
        *self.by_workspace.entry(webhook.workspace_seq).or_default() += 1;
        *self.by_webhook.entry(webhook.seq).or_default() += 1;
    }

    fn remove(&mut self, webhook: DueWebhook) {
        self.all = self.all.saturating_sub(1);
        for (held, seq) in
            [(&mut self.by_workspace, webhook.workspace_seq), (&mut self.by_webhook, webhook.seq)]
        {
            if let Some(slots) = held.get_mut(&seq) {
                *slots -= 1;
                if *slots == 0 {
                    held.remove(&seq);
                }
            }
        }
    }

    /// The slots of the workspace, and those of the webhook.
    fn of(&self, webhook: DueWebhook) -> (usize, usize) {
        let slots = |held: &HashMap<i64, usize>, seq| held.get(&seq).copied().unwrap_or(0);
        (slots(&self.by_workspace, webhook.workspace_seq), slots(&self.by_webhook, webhook.seq))
    }

    /// Whether a workspace with this number of slots may take another one.
    fn has_room_for_workspace(&self, slots: usize) -> bool {
        SLOTS.saturating_sub(self.all) > FREE_PER_SLOT * slots
    }
}

impl Slots {
    pub(super) fn take(&mut self, webhook: DueWebhook) {
        self.held.add(webhook);
    }

    pub(super) fn release(&mut self, webhook: DueWebhook) {
        self.held.remove(webhook);
    }

    /// The receiver of a webhook answered a delivery.
    pub(super) fn answered(&mut self, webhook: i64) {
        self.silent.remove(&webhook);
    }

    /// The receiver of a webhook did not answer a delivery in time.
    pub(super) fn timed_out(&mut self, webhook: i64) {
        self.silent.insert(webhook);
    }

    pub(super) fn are_taken(&self) -> bool {
        self.held.all >= SLOTS
    }

    /// The webhooks and workspaces that may take no slot.
    pub(super) fn without_room(&self) -> WithoutRoom {
        let webhooks = self.held.by_webhook.iter().filter(|(seq, slots)| **slots >= self.most_of(**seq));
        let workspaces = self.held.by_workspace.iter();
        let workspaces = workspaces.filter(|(_, slots)| !self.held.has_room_for_workspace(**slots));
        WithoutRoom {
            webhooks: webhooks.map(|(seq, _)| *seq).collect(),
            workspaces: workspaces.map(|(seq, _)| *seq).collect(),
        }
    }

    fn most_of(&self, webhook: i64) -> usize {
        if self.silent.contains(&webhook) { OF_SILENT } else { OF_WEBHOOK }
    }

    /// The number of deliveries to take for each webhook. Of webhooks with as many slots, the first one takes precedence.
    pub(super) fn share_out(&self, due: &[DueWebhook]) -> Vec<(i64, usize)> {
        let mut held = self.held.clone();
        let mut shares: BTreeMap<i64, usize> = BTreeMap::new();
        let entry = |held: &Held, place: usize, webhook: DueWebhook| {
            let (of_workspace, of_webhook) = held.of(webhook);
            Reverse((of_workspace, of_webhook, place, webhook))
        };
        let mut next: BinaryHeap<_> =
            due.iter().enumerate().map(|(place, webhook)| entry(&held, place, *webhook)).collect();
        while let Some(Reverse((of_workspace, of_webhook, place, webhook))) = next.pop() {
            if (of_workspace, of_webhook) != held.of(webhook) {
                // Another webhook of the workspace has taken a slot since.
                next.push(entry(&held, place, webhook));
            } else if of_webhook < self.most_of(webhook.seq) && held.has_room_for_workspace(of_workspace) {
                held.add(webhook);
                *shares.entry(webhook.seq).or_default() += 1;
                next.push(entry(&held, place, webhook));
            }
        }
        shares.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: usize = SLOTS / 4;

    /// Webhooks of a workspace, numbered from `workspace_seq` times a hundred.
    fn webhooks(workspace_seq: i64, count: i64) -> Vec<DueWebhook> {
        (0..count).map(|n| DueWebhook { seq: 100 * workspace_seq + n, workspace_seq }).collect()
    }

    fn take(slots: &mut Slots, due: &[DueWebhook]) {
        for (seq, share) in slots.share_out(due) {
            for _ in 0..share {
                slots.take(*due.iter().find(|webhook| webhook.seq == seq).unwrap());
            }
        }
    }

    fn of_workspace(slots: &Slots, workspace_seq: i64) -> usize {
        slots.held.by_workspace.get(&workspace_seq).copied().unwrap_or(0)
    }

    #[test]
    fn no_workspace_and_no_webhook_holds_more_than_its_share() {
        //  workspaces, webhooks of each, slots of each workspace
        for (workspaces, of_each, expected) in [
            (1, 1, OF_WEBHOOK..=OF_WEBHOOK),
            (1, 5, 5 * OF_WEBHOOK..=5 * OF_WEBHOOK),
            (1, 20, QUARTER..=QUARTER),
            (4, 20, 36..=37),
            (13, 20, 16..=16),
            (200, 20, 1..=2),
        ] {
            let mut slots = Slots::default();
            let due: Vec<DueWebhook> = (1..=workspaces).flat_map(|seq| webhooks(seq, of_each)).collect();
            take(&mut slots, &due);
            for workspace in 1..=workspaces {
                let held = of_workspace(&slots, workspace);
                assert!(expected.contains(&held), "{workspaces} × {of_each}: {held}");
            }
            assert!(slots.held.by_webhook.values().all(|held| *held <= OF_WEBHOOK));
            let before = slots.held.all;
            take(&mut slots, &webhooks(999, 20));
            assert!(
                slots.held.all > before,
                "a further workspace gets a slot beside {workspaces} × {of_each}"
            );
        }
    }

    #[test]
    fn the_last_slots_go_to_those_with_the_fewest() {
        let mut slots = Slots::default();
        let all: Vec<DueWebhook> = (1..=255).flat_map(|seq| webhooks(seq, 1)).collect();
        take(&mut slots, &all);
        assert_eq!(slots.held.all, SLOTS - 1);
        let one = |workspace_seq| webhooks(workspace_seq, 1)[0];
        assert_eq!(slots.share_out(&[one(1), one(2), one(999)]), [(99_900, 1)]);
        slots.take(one(999));
        assert!(slots.are_taken() && slots.share_out(&[one(1_000)]).is_empty());
        slots.release(one(7));
        assert_eq!(slots.share_out(&[one(1), one(7)]), [(700, 1)]);
    }

    #[test]
    fn a_receiver_that_timed_out_gets_one_delivery_at_a_time_until_it_answers() {
        let mut slots = Slots::default();
        let due = webhooks(1, 2);
        let (silent, other) = (due[0].seq, due[1].seq);
        //  what happens, and the deliveries to take for each webhook
        type Step = fn(&mut Slots, DueWebhook);
        let table: [(Step, Vec<(i64, usize)>); 5] = [
            (|_, _| {}, vec![(silent, 4), (other, 4)]),
            (|slots, webhook| slots.timed_out(webhook.seq), vec![(silent, 1), (other, 4)]),
            (|slots, webhook| slots.take(webhook), vec![(other, 4)]),
            (|slots, webhook| slots.release(webhook), vec![(silent, 1), (other, 4)]),
            (|slots, webhook| slots.answered(webhook.seq), vec![(silent, 4), (other, 4)]),
        ];
        for (number, (step, expected)) in table.into_iter().enumerate() {
            step(&mut slots, due[0]);
            assert_eq!(slots.share_out(&due), expected, "step {number}");
            let full = slots.without_room().webhooks;
            assert_eq!(full.contains(&silent), !expected.iter().any(|(seq, _)| *seq == silent));
        }
    }
}
