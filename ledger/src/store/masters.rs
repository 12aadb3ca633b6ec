//! Calls of the masters of the store.

use std::sync::Arc;

use futures_util::future::join_all;
use ledger_wire::{Answer, ItemError};
use redis::{Pipeline, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;

use super::Call;
use super::commands::{add, read, store_error};
use super::master::Master;
use super::topology::Topology;

/// The masters of the store, as the latest round of [`super::watch`] found them.
#[derive(Debug)]
pub(super) struct Masters {
    pub(super) topology: Topology,
    /// By the index of the topology. A master that does not answer is absent.
    pub(super) masters: Vec<Option<Arc<Master>>>,
    /// The text before the name of each key.
    pub(super) prefix: String,
    /// Asks for a round at once.
    pub(super) wake: Arc<Notify>,
}

impl Masters {
    /// A master, if it answers.
    fn master(&self, index: usize) -> Option<&Master> {
        self.masters.get(index)?.as_deref().filter(|master| master.is_up())
    }

    pub(super) fn up_and_away(&self) -> (usize, usize) {
        let up = (0..self.masters.len()).filter(|index| self.master(*index).is_some()).count();
        (up, self.masters.len() - up)
    }

    /// Sends each call to the master that has its counter, all calls of a master at once, and answers in the order of the calls.
    pub(super) async fn call(&self, calls: &[Result<Call, ItemError>]) -> Vec<Answer> {
        let away = store_error("the part of the store that has this counter does not answer");
        let mut answers = Vec::with_capacity(calls.len());
        let mut batches = vec![(Pipeline::new(), Vec::new()); self.masters.len()];
        for (place, call) in calls.iter().enumerate() {
            let call = match call {
                Ok(call) => call,
                Err(error) => {
                    answers.push(Answer::Refused(error.clone()));
                    continue;
                }
            };
            answers.push(away.clone());
            let key = format!("{}{}", self.prefix, call.name);
            let master = self.topology.master_of(&key);
            if let Some((commands, asked)) = master.and_then(|index| batches.get_mut(index)) {
                add(commands, &key, call);
                asked.push((place, call));
            }
        }
        let sent = batches.iter().enumerate().filter(|(_, (commands, _))| !commands.is_empty());
        let sent = sent.map(async |(index, (commands, asked))| {
            let values = self.send(index, commands).await?;
            Some(asked.iter().zip(values))
        });
        for ((place, call), value) in join_all(sent).await.into_iter().flatten().flatten() {
            if let Some(answer) = answers.get_mut(*place) {
                *answer = read(call, value);
            }
        }
        answers
    }

    /// What a master says to each command, if it answers.
    async fn send(&self, index: usize, commands: &Pipeline) -> Option<Vec<Value>> {
        use ServerErrorKind::{ClusterDown, MasterDown, Moved, NoScript, ReadOnly};
        let master = self.master(index)?;
        let sent = master.send(commands).await;
        for value in sent.iter().flatten() {
            let Value::ServerError(error) = value else { continue };
            match error.kind() {
                // A new connection loads the script again, or finds that the server is not a master.
                Some(NoScript | ReadOnly) => master.fail(),
                Some(Moved | ClusterDown | MasterDown) => {}
                _ => continue,
            }
            self.wake.notify_one();
        }
        let failed = |error: &RedisError| {
            tracing::debug!(store = %master.address, %error, "the store does not answer");
            master.fail();
            self.wake.notify_one();
        };
        sent.inspect_err(failed).ok()
    }
}
