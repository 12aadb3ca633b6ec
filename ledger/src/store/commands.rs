//! What calls are in Redis and Valkey, and what their values mean.

use std::sync::LazyLock;

use ledger_wire::{Answer, ItemError, Says, Share};
use redis::{FromRedisValue, Pipeline, RedisError, Script, ServerError, ServerErrorKind, Value};

use super::Call;
use super::unusable::words;

const TEXT: &str = include_str!("statement.lua");
static STATEMENT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// What is done at a server at each look: it loads the script, and, if the server has slots, makes a marker with the value `marked` unless
/// there is one, runs the script, and asks for the marker at last. Keys begin with `tag`. `now` is in milliseconds.
pub(super) fn trial(tag: Option<&str>, marked: &str, now: u64, is_cluster: bool) -> Pipeline {
    let mut commands = Pipeline::new();
    if is_cluster {
        commands.cmd("ASKING");
    }
    commands.cmd("SCRIPT").arg("LOAD").arg(TEXT);
    if let Some(tag) = tag {
        let marker = marker_key(tag);
        commands.cmd("SET").arg(&marker).arg(marked).arg("NX");
        // Under a new reset number, the time, the script uses each command that it has. The key is gone after a second.
        evaluate(&mut commands, &format!("{tag}trial")).arg("trial").arg(&[1, 0, now, 1, 0]);
        commands.cmd("GET").arg(marker);
    }
    commands
}

/// The key of the marker among the keys that begin with `tag`.
pub(super) fn marker_key(tag: &str) -> String {
    format!("{tag}marker")
}

/// Whether the key is at another server, or will be soon, because the cluster changes.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), Some(Ask | Moved | TryAgain))
}

fn evaluate<'a>(commands: &'a mut Pipeline, key: &str) -> &'a mut Pipeline {
    commands.cmd("EVALSHA").arg(STATEMENT.get_hash()).arg(1).arg(key)
}

/// Adds the command of a call that says this. Each number is below 2⁵³, up to which Lua counts exactly.
pub(super) fn add<'a>(commands: &'a mut Pipeline, key: &str, call: &Call, says: Says) -> &'a mut Pipeline {
    let Call { seconds, gateway, statement, terms, .. } = call;
    let command = evaluate(commands, key);
    command.arg(format!("{gateway}/{}", statement.generation));
    command.arg(statement.seq).arg(statement.used).arg(statement.reset).arg(seconds);
    match says {
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

/// The answer that a value of the store is. A store that has lost what it had settles.
pub(super) fn read(call: &Call, value: Value, has_lost: bool) -> Answer {
    match value {
        Value::ServerError(error) => store_error(words(&RedisError::from(error))),
        numbers => answer(numbers, call.terms.settling || has_lost)
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
