//! What calls are in Redis and Valkey, and what their values mean.

use std::collections::HashMap;
use std::sync::LazyLock;

use ledger_wire::{Answer, Hex128, ItemError, Says, Share};
use redis::{FromRedisValue, Pipeline, Script, Value};

use super::{Call, HolderShare, Reply, What};

const STATEMENT_TEXT: &str = include_str!("statement.lua");
const RESET_TEXT: &str = include_str!("reset.lua");
static STATEMENT: LazyLock<Script> = LazyLock::new(|| Script::new(STATEMENT_TEXT));
static RESET: LazyLock<Script> = LazyLock::new(|| Script::new(RESET_TEXT));

/// The commands that load the scripts, and one that tries to write to a key, which is gone after a second. `now` is in milliseconds.
pub(super) fn load_scripts(key: &str, now: u64) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("SCRIPT").arg("LOAD").arg(STATEMENT_TEXT).cmd("SCRIPT").arg("LOAD").arg(RESET_TEXT);
    // Under a new reset number, the time, the script uses each command that it has.
    evaluate(&mut commands, &STATEMENT, key).arg("trial").arg(&[1, 0, now, 1, 0]);
    commands
}

fn evaluate<'a>(commands: &'a mut Pipeline, script: &Script, key: &str) -> &'a mut Pipeline {
    commands.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(key)
}

/// Adds the command of a call. Each number is below 2⁵³, up to which Lua counts exactly.
pub(super) fn add<'a>(commands: &'a mut Pipeline, key: &str, call: &Call) -> &'a mut Pipeline {
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

/// The store did not do what a call asks for.
pub(super) fn store_error(message: impl Into<String>) -> ItemError {
    ItemError { code: "store".into(), field: None, message: message.into() }
}

/// The reply that a value of the store is.
pub(super) fn read(call: &Call, value: Value) -> Result<Reply, ItemError> {
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
