//! What requests do in Redis or Valkey.

use std::collections::HashMap;
use std::sync::LazyLock;

use futures_util::future::join_all;
use ledger_wire::{Answer, Hex128, ItemError, Says, Share};
use redis::{Cmd, FromRedisValue, Pipeline, Script, ServerErrorKind, Value, cmd};

use super::watch::View;
use super::{HolderShare, Holders, Order, Reset, Standing};
use crate::items::store_error;

const STATEMENT_TEXT: &str = include_str!("statement.lua");
const RESET_TEXT: &str = include_str!("reset.lua");
static STATEMENT: LazyLock<Script> = LazyLock::new(|| Script::new(STATEMENT_TEXT));
static RESET: LazyLock<Script> = LazyLock::new(|| Script::new(RESET_TEXT));

/// The commands that load the scripts, and with a key also one that tries to write to it, which is gone after a second.
pub(super) fn load_scripts(trial_key: Option<&str>) -> Pipeline {
    let mut commands = Pipeline::new();
    for text in [STATEMENT_TEXT, RESET_TEXT] {
        commands.cmd("SCRIPT").arg("LOAD").arg(text);
    }
    if let Some(key) = trial_key {
        let mut trial = call(&STATEMENT, key);
        trial.arg("trial").arg(&[1, 0, 0, 1, 0]);
        commands.add_command(trial);
    }
    commands
}

fn call(script: &Script, key: &str) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(script.get_hash()).arg(1).arg(key);
    call
}

/// A statement. Each number is below 2⁵³, up to which Lua counts exactly.
fn statement(key: &str, order: &Order) -> Cmd {
    let Order { place, gateway, statement, terms } = order;
    let mut call = call(&STATEMENT, key);
    call.arg(format!("{gateway}/{}", statement.generation));
    call.arg(statement.seq).arg(statement.used).arg(statement.reset).arg(place.seconds);
    match statement.says {
        Says::Return { keep } => call.arg(keep),
        Says::Ask { need, cost, hold } => {
            call.arg(&[statement.limit, need, cost, hold, terms.gateways, terms.settling.into()])
        }
    };
    call
}

impl View {
    pub(super) async fn state(&self, orders: &[&Order]) -> Vec<Result<Answer, ItemError>> {
        let calls = orders.iter().map(|order| {
            let key = self.key(&order.place.name);
            let call = statement(&key, order);
            (key, call)
        });
        let answers = self.send(calls).await.into_iter().zip(orders);
        answers.map(|(answer, order)| share(&answer?, order.terms.settling).ok_or_else(foreign)).collect()
    }

    pub(super) async fn reset(&self, resets: &[&Reset]) -> Vec<Result<Standing, ItemError>> {
        let calls = resets.iter().map(|reset| {
            let key = self.key(&reset.place.name);
            let mut call = call(&RESET, &key);
            call.arg(&[reset.reset, reset.place.seconds]);
            (key, call)
        });
        let answers = self.send(calls).await.into_iter();
        let standing = |answer: &Value| number(answer).map(|reset| Standing { reset });
        answers.map(|answer| standing(&answer?).ok_or_else(foreign)).collect()
    }

    pub(super) async fn read(&self, names: &[&str]) -> Vec<Result<Holders, ItemError>> {
        let calls = names.iter().map(|name| {
            let key = self.key(name);
            let mut call = cmd("HGETALL");
            call.arg(&key);
            (key, call)
        });
        let answers = self.send(calls).await.into_iter();
        answers.map(|answer| holders(answer?).ok_or_else(foreign)).collect()
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Sends each call to the master that has its key, all calls of a master at once, and answers in the order of the calls.
    async fn send(&self, calls: impl Iterator<Item = (String, Cmd)>) -> Vec<Result<Value, ItemError>> {
        let mut answers = Vec::new();
        let mut batches = vec![(Pipeline::new(), Vec::new()); self.masters.len()];
        for (key, call) in calls {
            if let Some((batch, places)) =
                self.topology.master_of(&key).and_then(|index| batches.get_mut(index))
            {
                batch.add_command(call);
                places.push(answers.len());
            }
            answers.push(Err(store_error("the part of the store that has this counter does not answer")));
        }
        let sent = batches.iter().enumerate().filter(|(_, (batch, _))| !batch.is_empty());
        let sent = join_all(sent.map(|(index, (batch, places))| async move {
            let master = self.master(index)?;
            match master.send(batch).await {
                Ok(values) => Some(places.iter().zip(values)),
                Err(error) => {
                    tracing::debug!(store = %master.address, %error, "the store does not answer");
                    master.fail();
                    self.wake.notify_one();
                    None
                }
            }
        }));
        for (place, value) in sent.await.into_iter().flatten().flatten() {
            if let Some(answer) = answers.get_mut(*place) {
                *answer = self.unless_error(value);
            }
        }
        answers
    }

    /// The value of an answer, unless it is an error.
    fn unless_error(&self, value: Value) -> Result<Value, ItemError> {
        use ServerErrorKind::{ClusterDown, MasterDown, Moved, NoScript, ReadOnly};
        let Value::ServerError(error) = value else { return Ok(value) };
        // The scripts were deleted, or another node is the master now.
        if let Some(NoScript | Moved | ReadOnly | ClusterDown | MasterDown) = error.kind() {
            self.wake.notify_one();
        }
        Err(store_error(error.to_string()))
    }
}

fn foreign() -> ItemError {
    store_error("the store has something else under the name of this counter")
}

/// The answer of statement.lua.
fn share(answer: &Value, settling: bool) -> Option<Answer> {
    let Value::Array(numbers) = answer else { return None };
    match numbers.as_slice() {
        [reset] => Some(Answer::Reset(number(reset)?)),
        [reset, share, others] => {
            let others = u32::try_from(number(others)?).unwrap_or(u32::MAX);
            let share = u32::try_from(number(share)?).ok()?;
            Some(Answer::Share(Share { share, others, reset: number(reset)?, settling }))
        }
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    let Value::Int(number) = value else { return None };
    u64::try_from(*number).ok()
}

/// The fields of a counter, as statement.lua writes them.
fn holders(fields: Value) -> Option<Holders> {
    let mut fields = HashMap::<String, String>::from_redis_value(fields).ok()?;
    let (reset, _sum) = (fields.remove("r"), fields.remove("s"));
    let reset = reset.map_or(Some(0), |reset| reset.parse().ok())?;
    let holders = fields.iter().map(|(name, value)| holder(name, value)).collect::<Option<_>>()?;
    Some(Holders { reset, holders })
}

fn holder(name: &str, value: &str) -> Option<HolderShare> {
    let ((gateway, generation), (_seq, share)) = name.split_once('/').zip(value.split_once(':'))?;
    let gateway = Hex128(u128::from_str_radix(gateway, 16).ok()?);
    Some(HolderShare { gateway, generation: generation.parse().ok()?, share: share.parse().ok()? })
}
