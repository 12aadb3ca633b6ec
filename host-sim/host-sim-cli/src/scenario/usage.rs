//! What callbacks cost: the most that one run of each has taken.

use std::{collections::BTreeMap, fmt};

use host_sim::TracedCallback;
use serde::{Deserialize, Serialize};

use super::check::Miss;

/// The most that one run of a callback has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Instructions of the guest.
    pub instructions: u64,
    /// Host calls.
    pub host_calls: u64,
    /// Bytes that the host has asked the guest's allocator for.
    pub host_memory: u64,
    /// Bytes by which the guest's memory has grown.
    pub memory_growth: u64,
}

/// What callbacks have taken, by their names.
pub type Usages = BTreeMap<String, Usage>;

impl Usage {
    pub(super) fn of(callback: &TracedCallback) -> Self {
        Self {
            instructions: callback.instructions.unwrap_or(0),
            host_calls: callback.host_calls(),
            host_memory: callback.host_memory,
            memory_growth: callback.memory_growth,
        }
    }

    pub(super) fn widen(&mut self, other: Self) {
        self.instructions = self.instructions.max(other.instructions);
        self.host_calls = self.host_calls.max(other.host_calls);
        self.host_memory = self.host_memory.max(other.host_memory);
        self.memory_growth = self.memory_growth.max(other.memory_growth);
    }

    fn measures(self) -> [(&'static str, u64); 4] {
        [
            ("instructions", self.instructions),
            ("host calls", self.host_calls),
            ("bytes that the host asked for", self.host_memory),
            ("bytes of memory growth", self.memory_growth),
        ]
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measures = self.measures().map(|(what, much)| format!("{much} {what}"));
        f.write_str(&measures.join(", "))
    }
}

/// What callbacks have taken beyond their budgets, and callbacks without a budget.
pub fn exceeded(taken: &Usages, budgets: &Usages) -> Vec<Miss> {
    let mut misses = Vec::new();
    for (callback, taken) in taken {
        let Some(budget) = budgets.get(callback) else {
            let (what, expected) = (callback.clone(), "a budget".to_owned());
            misses.push(Miss { what, expected, found: taken.to_string() });
            continue;
        };
        for ((what, much), (_, most)) in taken.measures().into_iter().zip(budget.measures()) {
            if much > most {
                let what = format!("{callback}: {what}");
                misses.push(Miss { what, expected: format!("at most {most}"), found: much.to_string() });
            }
        }
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_its_budget_is_told_and_what_stays_below_is_not() {
        let usage = |instructions, host_calls| Usage { instructions, host_calls, ..Usage::default() };
        let of = |usage| Usages::from([("proxy_on_log".to_owned(), usage)]);
        //  taken, budget, misses
        let rows: [(Usage, Usages, &[&str]); 4] = [
            (usage(10, 2), of(usage(10, 2)), &[]),
            (usage(9, 1), of(usage(10, 2)), &[]),
            (
                usage(11, 3),
                of(usage(10, 2)),
                &["proxy_on_log: instructions: 11, at most 10", "proxy_on_log: host calls: 3, at most 2"],
            ),
            (
                usage(1, 0),
                Usages::new(),
                &[
                    "proxy_on_log: 1 instructions, 0 host calls, 0 bytes that the host asked for, 0 bytes of memory growth, a \
                   budget",
                ],
            ),
        ];
        for (taken, budgets, expected) in rows {
            let misses = exceeded(&of(taken), &budgets);
            let shown = misses.iter().map(|miss| format!("{}: {}, {}", miss.what, miss.found, miss.expected));
            assert_eq!(shown.collect::<Vec<_>>(), expected);
        }
    }
}
