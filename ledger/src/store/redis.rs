//! What requests do in Redis or Valkey.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use futures_util::future::join_all;
use ledger_wire::{Answer, Hex128, ItemError, Says, Share};
use redis::{FromRedisValue, Pipeline, RedisError, Script, ServerErrorKind, Value};
use tokio::sync::Notify;

use super::master::Master;
use super::topology::Topology;
use super::{Call, HolderShare, Reply, What};
use crate::clock;
use crate::items::store_error;

const STATEMENT_TEXT: &str = include_str!("statement.lua");
const RESET_TEXT: &str = include_str!("reset.lua");
static STATEMENT: LazyLock<Script> = LazyLock::new(|| Script::new(STATEMENT_TEXT));
static RESET: LazyLock<Script> = LazyLock::new(|| Script::new(RESET_TEXT));

/// The commands that load the scripts, and one that tries to write to a key, which is gone after a second.
pub(super) fn load_scripts(key: &str) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("SCRIPT").arg("LOAD").arg(STATEMENT_TEXT).cmd("SCRIPT").arg("LOAD").arg(RESET_TEXT);
    // Under a new reset number the script uses each command that it has.
    evaluate(&mut commands, &STATEMENT, key).arg("trial").arg(&[1, 0, clock::now(), 1, 0]);
    commands
}

fn evaluate<'a>(commands: &'a mut Pipeline, script: &Script, key: &str) -> &'a mut Pipeline {
    commands.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(key)
}

/// Adds the command of a call. Each number is below 2⁵³, up to which Lua counts exactly.
fn add<'a>(commands: &'a mut Pipeline, key: &str, call: &Call) -> &'a mut Pipeline {
    match &call.what {
        What::State { gateway, statement, terms } => {
            let command = evaluate(commands, &STATEMENT, key);
            command.arg(format!("{gateway}/{}", statement.generation));
            command.arg(statement.seq).arg(statement.used).arg(statement.reset).arg(call.seconds);
            match statement.says {
                Says::Return { keep } => command.arg(keep),
                Says::Ask { need, cost, hold } => {
                    let settling = terms.settling.into();
                    command.arg(&[statement.limit, need, cost, hold, terms.gateways, settling])
                }
            }
        }
        What::Reset(reset) => evaluate(commands, &RESET, key).arg(&[*reset, call.seconds]),
        What::Read => commands.cmd("HGETALL").arg(key),
    }
}

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

/// The reply that a value of the store is.
fn read(call: &Call, value: Value) -> Result<Reply, ItemError> {
    let foreign = || store_error("the store has something else under the name of this counter");
    match (&call.what, value) {
        (_, Value::ServerError(error)) => Err(store_error(error.to_string())),
        (What::Read, fields) => holders(fields).ok_or_else(foreign),
        (What::Reset(_), numbers) => answer(numbers, false).ok_or_else(foreign),
        (What::State { terms, .. }, numbers) => answer(numbers, terms.settling).ok_or_else(foreign),
    }
}

/// The answer of a script.
fn answer(numbers: Value, settling: bool) -> Option<Reply> {
    let answer = match *Vec::<u64>::from_redis_value(numbers).ok()?.as_slice() {
        [reset] => Answer::Reset(reset),
        [reset, share, others] => {
            let others = u32::try_from(others).unwrap_or(u32::MAX);
            Answer::Share(Share { share: u32::try_from(share).ok()?, others, reset, settling })
        }
        _ => return None,
    };
    Some(Reply::Answer(answer))
}

/// The fields of a counter, as statement.lua writes them.
fn holders(fields: Value) -> Option<Reply> {
    let mut fields = HashMap::<String, String>::from_redis_value(fields).ok()?;
    let (reset, _sum) = (fields.remove("r"), fields.remove("s"));
    let reset = reset.map_or(Some(0), |reset| reset.parse().ok())?;
    let holders = fields.iter().map(|(name, value)| holder(name, value)).collect::<Option<_>>()?;
    Some(Reply::Holders { reset, holders })
}

fn holder(name: &str, value: &str) -> Option<HolderShare> {
    let ((gateway, generation), (_seq, share)) = name.split_once('/').zip(value.split_once(':'))?;
    let gateway = Hex128::try_from(gateway.to_owned()).ok()?;
    Some(HolderShare { gateway, generation: generation.parse().ok()?, share: share.parse().ok()? })
}
