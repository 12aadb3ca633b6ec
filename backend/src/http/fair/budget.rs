//! An amount that all workspaces share, and that those who wait for it get in turn.
//!
//! Each workspace has a maximum. Beyond it, or if all is taken, requests wait. What is returned goes to the workspaces that wait, one after
//! another, so that the requests of one workspace wait for few of another, however many of these wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// The amount. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Maximum of all workspaces together.
    all: usize,
    /// Maximum of one workspace.
    of_one: usize,
    taken: usize,
    /// The workspaces that have or wait for a part.
    workspaces: HashMap<i64, Workspace>,
    /// The workspaces that wait, the next one first.
    in_turn: VecDeque<i64>,
}

#[derive(Debug, Default)]
struct Workspace {
    taken: usize,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    amount: usize,
    grant: oneshot::Sender<Taken>,
}

/// A part of the amount, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    budget: Budget,
    workspace: i64,
    amount: usize,
}

impl Budget {
    pub(crate) fn new(all: usize, of_one: usize) -> Self {
        let (workspaces, in_turn) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { all, of_one, taken: 0, workspaces, in_turn })))
    }

    /// Waits for a part. One that is larger than the maximum waits until the workspace has no other.
    pub(crate) async fn take(&self, workspace: i64, amount: usize) -> Taken {
        let (grant, granted) = oneshot::channel();
        self.change(|state| state.wait(workspace, Waiting { amount, grant }));
        // Only what nothing waits for is left out.
        granted.await.unwrap_or_else(|_| self.add(workspace, amount))
    }

    /// Takes a part without waiting for it, even beyond the maximum. Further requests of the workspace then wait.
    pub(crate) fn add(&self, workspace: i64, amount: usize) -> Taken {
        self.change(|state| state.add(workspace, amount));
        Taken { budget: self.clone(), workspace, amount }
    }

    /// Changes the state, and grants what can be granted afterwards.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let granted = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.grant()
        };
        // Without the lock, because a part is returned if its request has gone.
        for (workspace, Waiting { amount, grant }) in granted {
            let _gone = grant.send(Taken { budget: self.clone(), workspace, amount });
        }
    }
}

impl State {
    fn wait(&mut self, workspace: i64, waiting: Waiting) {
        let of_workspace = self.workspaces.entry(workspace).or_default();
        of_workspace.waiting.retain(|waiting| !waiting.grant.is_closed());
        of_workspace.waiting.push_back(waiting);
        if !self.in_turn.contains(&workspace) {
            self.in_turn.push_back(workspace);
        }
    }

    fn add(&mut self, workspace: i64, amount: usize) {
        self.workspaces.entry(workspace).or_default().taken += amount;
        self.taken += amount;
    }

    fn give_back(&mut self, workspace: i64, amount: usize) {
        self.taken -= amount;
        if let Some(of_workspace) = self.workspaces.get_mut(&workspace) {
            of_workspace.taken -= amount;
            if of_workspace.taken == 0 && of_workspace.waiting.is_empty() {
                self.workspaces.remove(&workspace);
            }
        }
    }

    /// Takes what the workspaces wait for, as far as there is enough.
    fn grant(&mut self) -> Vec<(i64, Waiting)> {
        let mut granted = Vec::new();
        // Workspaces in a row that have their maximum.
        let mut at_maximum = 0;
        while at_maximum < self.in_turn.len() {
            let Some(workspace) = self.in_turn.pop_front() else { break };
            let of_workspace = self.workspaces.entry(workspace).or_default();
            while of_workspace.waiting.front().is_some_and(|waiting| waiting.grant.is_closed()) {
                of_workspace.waiting.pop_front();
            }
            let Some(waiting) = of_workspace.waiting.pop_front() else {
                if of_workspace.taken == 0 {
                    self.workspaces.remove(&workspace);
                }
                continue;
            };
            let is_too_much = |taken: usize, maximum| taken > 0 && taken + waiting.amount > maximum;
            if is_too_much(of_workspace.taken, self.of_one) {
                of_workspace.waiting.push_front(waiting);
                self.in_turn.push_back(workspace);
                at_maximum += 1;
            } else if is_too_much(self.taken, self.all) {
                of_workspace.waiting.push_front(waiting);
                // It stays the next one, so that large parts are granted in the end.
                self.in_turn.push_front(workspace);
                break;
            } else {
                of_workspace.taken += waiting.amount;
                self.taken += waiting.amount;
                self.in_turn.push_back(workspace);
                at_maximum = 0;
                granted.push((workspace, waiting));
            }
        }
        granted
    }
}

impl Taken {
    /// Returns what exceeds this amount.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let surplus = self.amount.saturating_sub(amount);
        self.amount -= surplus;
        self.budget.change(|state| state.give_back(self.workspace, surplus));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.change(|state| state.give_back(self.workspace, self.amount));
    }
}

#[cfg(test)]
impl Budget {
    /// Maximum of one workspace.
    pub(crate) fn of_one(&self) -> usize {
        self.0.lock().unwrap().of_one
    }

    /// What is taken by all workspaces.
    pub(crate) fn taken(&self) -> usize {
        self.0.lock().unwrap().taken
    }

    /// The number of requests of a workspace that wait.
    pub(crate) fn waiting(&self, workspace: i64) -> usize {
        let state = self.0.lock().unwrap();
        let waiting = state.workspaces.get(&workspace).map(|of_workspace| &of_workspace.waiting);
        waiting.into_iter().flatten().filter(|waiting| !waiting.grant.is_closed()).count()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    #[test]
    fn all_workspaces_and_each_of_them_have_a_maximum() {
        let budget = Budget::new(10, 4);
        let mut kept = Vec::new();
        //  workspace, what it asks for, whether it gets it
        for (workspace, amount, expected) in [
            (1, 3, true),
            (1, 2, false),
            (1, 1, true),
            (1, 1, false),
            (2, 4, true),
            (3, 3, false),
            (3, 2, true),
            (4, 1, false),
        ] {
            let taken = budget.take(workspace, amount).now_or_never();
            assert_eq!(taken.is_some(), expected, "{amount} for {workspace} after {}", kept.len());
            kept.extend(taken);
        }
        kept.remove(0).shrink(1);
        assert!(budget.take(4, 3).now_or_never().is_some());
        drop(kept);
        assert_eq!(budget.taken(), 0);
        let state = budget.0.lock().unwrap();
        assert!(state.workspaces.is_empty() && state.in_turn.is_empty(), "{state:?}");
    }

    /// Requests that wait in this order, with their workspaces and amounts.
    fn wait<'a>(budget: &'a Budget, requests: &[(i64, usize)]) -> Vec<(i64, BoxFuture<'a, Taken>)> {
        let wait = |&(workspace, amount): &(i64, usize)| {
            let mut taking = budget.take(workspace, amount).boxed();
            assert!((&mut taking).now_or_never().is_none(), "{workspace} does not wait");
            (workspace, taking)
        };
        requests.iter().map(wait).collect()
    }

    #[test]
    fn workspaces_that_wait_take_turns_however_many_requests_of_one_wait() {
        let budget = Budget::new(2, 2);
        let _other = budget.add(9, 1);
        let mut running = budget.add(9, 1);
        let mut waiting = wait(&budget, &[(1, 1), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (3, 1)]);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running);
            let next = waiting.iter_mut().enumerate().find_map(|(index, (workspace, taking))| {
                taking.now_or_never().map(|taken| (index, *workspace, taken))
            });
            let (index, workspace, taken) = next.expect("one is next");
            drop(waiting.remove(index));
            order.push(workspace);
            running = taken;
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn a_large_part_is_granted_in_the_end_though_small_ones_are_asked_for_at_all_times() {
        let budget = Budget::new(10, 10);
        let mut small: VecDeque<Taken> = (0..10).map(|workspace| budget.add(workspace, 1)).collect();
        let mut waiting = wait(&budget, &[(20, 10)]);
        let (_, mut large) = waiting.remove(0);
        for workspace in 0..10 {
            assert!((&mut large).now_or_never().is_none(), "{workspace}");
            small.pop_front();
            assert!(budget.take(workspace, 1).now_or_never().is_none(), "{workspace} overtakes");
        }
        assert!(large.now_or_never().is_some());
    }

    #[test]
    fn what_is_larger_than_the_maximum_waits_until_the_workspace_has_nothing_else() {
        let budget = Budget::new(10, 4);
        let first = budget.add(1, 1);
        assert!(budget.take(1, 7).now_or_never().is_none());
        drop(first);
        let _large = budget.take(1, 7).now_or_never().unwrap();
        assert!(budget.take(1, 1).now_or_never().is_none());
        assert!(budget.take(2, 3).now_or_never().is_some(), "another workspace");
    }

    #[test]
    fn requests_of_a_workspace_wait_while_it_has_more_than_its_maximum() {
        let budget = Budget::new(10, 4);
        let beyond = [budget.add(1, 3), budget.add(1, 3)];
        assert!(budget.take(1, 1).now_or_never().is_none());
        assert!(budget.take(2, 4).now_or_never().is_some(), "another workspace");
        drop(beyond);
        assert!(budget.take(1, 1).now_or_never().is_some());
    }

    #[test]
    fn requests_that_have_gone_take_nothing() {
        let budget = Budget::new(1, 1);
        let running = budget.add(1, 1);
        let mut waiting = wait(&budget, &[(1, 1), (1, 1), (2, 1), (2, 1)]);
        let (_, mut last) = waiting.pop().unwrap();
        assert_eq!(budget.waiting(1), 2);
        drop(waiting);
        assert_eq!(budget.waiting(1), 0);
        drop(running);
        assert!((&mut last).now_or_never().is_some());
        // One that goes when it has been granted its part returns it.
        let running = budget.add(1, 1);
        let waiting = wait(&budget, &[(3, 1)]);
        drop(running);
        assert_eq!(budget.taken(), 1);
        drop(waiting);
        assert_eq!(budget.taken(), 0);
    }
}
