//! What calls are in Redis and Valkey, and what their values mean.

use std::sync::LazyLock;

use ledger_wire::{Answer, ItemError, Says, Share};
use redis::{FromRedisValue, Pipeline, Script, Value};

use super::Call;

const TEXT: &str = include_str!("statement.lua");
static STATEMENT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The command that loads the script, and one that tries to write to a key, which is gone after a second. `now` is in milliseconds.
pub(super) fn load_script(key: &str, now: u64) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("SCRIPT").arg("LOAD").arg(TEXT);
    // Under a new reset number, the time, the script uses each command that it has.
    evaluate(&mut commands, key).arg("trial").arg(&[1, 0, now, 1, 0]);
    commands
}

fn evaluate<'a>(commands: &'a mut Pipeline, key: &str) -> &'a mut Pipeline {
    commands.cmd("EVALSHA").arg(STATEMENT.get_hash()).arg(1).arg(key)
}

/// Adds the command of a call. Each number is below 2⁵³, up to which Lua counts exactly.
pub(super) fn add<'a>(commands: &'a mut Pipeline, key: &str, call: &Call) -> &'a mut Pipeline {
    let Call { seconds, gateway, statement, terms, .. } = call;
    let command = evaluate(commands, key);
    command.arg(format!("{gateway}/{}", statement.generation));
    command.arg(statement.seq).arg(statement.used).arg(statement.reset).arg(seconds);
    match statement.says {
        Says::Return { keep } => command.arg(keep),
        Says::Ask { need, cost, hold } => {
            let settling = terms.settling.into();
            command.arg(&[statement.limit, need, cost, hold, terms.gateways, settling])
        }
    }
}

/// The store did not do what a call asks for.
pub(super) fn store_error(message: impl Into<String>) -> Answer {
    Answer::Refused(ItemError { code: "store".into(), field: None, message: message.into() })
}

/// The answer that a value of the store is.
pub(super) fn read(call: &Call, value: Value) -> Answer {
    match value {
        Value::ServerError(error) => store_error(error.to_string()),
        numbers => answer(numbers, call.terms.settling)
            .unwrap_or_else(|| store_error("the store has something else under the name of this counter")),
    }
}

/// The answer of the script.
fn answer(numbers: Value, settling: bool) -> Option<Answer> {
    match *Vec::<u64>::from_redis_value(numbers).ok()?.as_slice() {
        [reset] => Some(Answer::Reset(reset)),
        [reset, share, others] => {
            let others = u32::try_from(others).unwrap_or(u32::MAX);
            Some(Answer::Share(Share { share: u32::try_from(share).ok()?, others, reset, settling }))
        }
        _ => None,
    }
}
