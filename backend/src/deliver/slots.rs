//! The slots of the sender. Each running delivery takes one, and receivers that do not answer hold theirs for seconds.
//!
//! A workspace may take another slot while more than three times as many are free as it holds. It therefore holds at most a
//! quarter of all, and the more workspaces hold slots, the fewer each of them holds. The workspaces and their webhooks take free slots in turns.

use std::collections::{BTreeMap, HashMap, HashSet};

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

/// The slots that workspaces and webhooks hold, and the receivers that did not answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    all: usize,
    by_workspace: HashMap<i64, usize>,
    by_webhook: HashMap<i64, usize>,
    /// The webhooks whose receivers did not answer their last delivery in time.
    silent: HashSet<i64>,
}

impl Slots {
    pub(super) fn take(&mut self, webhook: DueWebhook) {
        self.all += 1;
        *self.by_workspace.entry(webhook.workspace_seq).or_default() += 1;
        *self.by_webhook.entry(webhook.seq).or_default() += 1;
    }

    pub(super) fn release(&mut self, webhook: DueWebhook) {
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

    /// Whether a workspace with this number of slots may take another one.
    fn has_room_for_workspace(&self, slots: usize) -> bool {
        SLOTS.saturating_sub(self.all) > FREE_PER_SLOT * slots
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
        self.all >= SLOTS
    }

    /// The webhooks and workspaces that may take no slot.
    pub(super) fn without_room(&self) -> WithoutRoom {
        let webhooks = self.by_webhook.iter().filter(|(seq, slots)| **slots >= self.most_of(**seq));
        let workspaces = self.by_workspace.iter();
        let workspaces = workspaces.filter(|(_, slots)| !self.has_room_for_workspace(**slots));
        WithoutRoom {
            webhooks: webhooks.map(|(seq, _)| *seq).collect(),
            workspaces: workspaces.map(|(seq, _)| *seq).collect(),
        }
    }

    fn most_of(&self, webhook: i64) -> usize {
        if self.silent.contains(&webhook) { OF_SILENT } else { OF_WEBHOOK }
    }

    /// The number of deliveries to take for each webhook: one after the other gets one more, as long as it and its workspace have room.
    pub(super) fn share_out(&self, due: &[DueWebhook]) -> Vec<(i64, usize)> {
        let mut slots = self.clone();
        let mut shares: BTreeMap<i64, usize> = BTreeMap::new();
        let held = |held: &HashMap<i64, usize>, seq| held.get(&seq).copied().unwrap_or(0);
        for webhook in std::iter::repeat_n(due, OF_WEBHOOK).flatten() {
            if held(&slots.by_webhook, webhook.seq) < self.most_of(webhook.seq)
                && slots.has_room_for_workspace(held(&slots.by_workspace, webhook.workspace_seq))
            {
                slots.take(*webhook);
                *shares.entry(webhook.seq).or_default() += 1;
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
        slots.by_workspace.get(&workspace_seq).copied().unwrap_or(0)
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
            // The first of each workspace, the second ones, and so on, as the outbox has them.
            let due = (0..of_each as usize)
                .flat_map(|place| (1..=workspaces).map(move |seq| webhooks(seq, of_each)[place]));
            let due: Vec<DueWebhook> = due.collect();
            take(&mut slots, &due);
            for workspace in 1..=workspaces {
                let held = of_workspace(&slots, workspace);
                assert!(expected.contains(&held), "{workspaces} × {of_each}: {held}");
            }
            assert!(slots.by_webhook.values().all(|held| *held <= OF_WEBHOOK));
            let before = slots.all;
            take(&mut slots, &webhooks(999, 20));
            assert!(slots.all > before, "a further workspace gets a slot beside {workspaces} × {of_each}");
        }
    }

    #[test]
    fn the_last_slots_go_to_those_with_the_fewest() {
        let mut slots = Slots::default();
        let all: Vec<DueWebhook> = (1..=255).flat_map(|seq| webhooks(seq, 1)).collect();
        take(&mut slots, &all);
        assert_eq!(slots.all, SLOTS - 1);
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
