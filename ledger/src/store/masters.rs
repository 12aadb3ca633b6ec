//! Calls of the masters of the store.

use std::sync::Arc;

use futures_util::future::join_all;
use ledger_wire::ItemError;
use redis::{Pipeline, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;

use super::commands::{add, read, store_error};
use super::master::Master;
use super::topology::Topology;
use super::{Call, Reply};

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

    /// Sends each call to the master that has its counter, all calls of a master at once, and replies in the order of the calls.
    pub(super) async fn call(&self, calls: &[Result<Call, ItemError>]) -> Vec<Reply> {
        let away = store_error("the part of the store that has this counter does not answer");
        let mut replies = Vec::with_capacity(calls.len());
        let mut batches = vec![(Pipeline::new(), Vec::new()); self.masters.len()];
        for (place, call) in calls.iter().enumerate() {
            replies.push(call.as_ref().err().unwrap_or(&away).clone().into());
            let Ok(call) = call else { continue };
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
            if let Some(reply) = replies.get_mut(*place) {
                *reply = read(call, value).unwrap_or_else(Reply::from);
            }
        }
        replies
    }

    /// What a master says to each command, if it answers.
    async fn send(&self, index: usize, commands: &Pipeline) -> Option<Vec<Value>> {
        use ServerErrorKind::{ClusterDown, MasterDown, Moved, NoScript, ReadOnly};
        let master = self.master(index)?;
        let sent = master.send(commands).await;
        for value in sent.iter().flatten() {
            let Value::ServerError(error) = value else { continue };
            match error.kind() {
                // A new connection loads the scripts again, or finds that the server is not a master.
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
