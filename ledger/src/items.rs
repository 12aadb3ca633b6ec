//! Items of requests: how they are read and checked.
//!
//! A refused item is an error in its place of the answer, and the others count.

use std::borrow::Cow;

use ledger_wire::{EXACT, Hex128, ItemError, Request, Statement};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::share::{CLOCK_TOLERANCE, Terms, is_timely};
use crate::store::{Call, What};

/// The longest window, in seconds: a leap year. A key in the store lives about as long as its window.
const LONGEST: u64 = 366 * 86_400;

fn invalid(field: &'static str, message: &str) -> ItemError {
    ItemError { code: "invalid".into(), field: Some(field.into()), message: message.to_owned() }
}

/// Reads an item.
fn parse<'a, T: Deserialize<'a>>(item: &'a RawValue) -> Result<T, ItemError> {
    // To note the path to the field that is wrong takes longer, and is needed only then.
    serde_json::from_str(item.get()).or_else(|_| {
        let mut json = serde_json::Deserializer::from_str(item.get());
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let (path, message) = (error.path().to_string(), error.inner().to_string());
            // An error that is not within a field says itself which field it means.
            let named = match message.strip_prefix("missing field `") {
                Some(missing) => missing.split_once('`'),
                None => message.split_once(": ").filter(|(field, _)| !field.contains(' ')),
            };
            let field = if path == "." { named.map(|(field, _)| field.to_owned()) } else { Some(path) };
            ItemError { code: "invalid".into(), field: field.map(Cow::Owned), message }
        })
    })
}

/// The call of a statement in a request. Times are in milliseconds since 1970.
pub(crate) fn statement(
    item: &RawValue,
    request: &Request<&RawValue>,
    terms: Terms,
    now: u64,
) -> Result<Call, ItemError> {
    let statement: Statement = parse(item)?;
    if statement.ends - statement.begins > LONGEST {
        return Err(invalid("ends", "expected at most 366 days after begins"));
    }
    if !is_timely(&statement, now) {
        let message = format!(
            "the window is not the present one: by this ledger's clock it is {now}, by the gateway's {}",
            request.now
        );
        return Err(ItemError { code: "clock".into(), field: None, message });
    }
    let what = What::State { gateway: request.gateway, statement, terms };
    Ok(Call::new(statement.counter, statement.window, statement.ends, now, what))
}

/// The call of a reset.
pub(crate) fn reset(item: &RawValue, now: u64) -> Result<Call, ItemError> {
    #[derive(Deserialize)]
    struct Reset {
        counter: Hex128,
        window: u32,
        ends: u64,
        reset: u64,
    }
    let Reset { counter, window, ends, reset } = parse(item)?;
    if reset >= EXACT {
        return Err(invalid("reset", "expected a number below 2^53"));
    }
    let latest = now / 1_000 + LONGEST;
    if ends > latest || 1_000 * ends + CLOCK_TOLERANCE < now {
        return Err(invalid("ends", "expected a time from a minute ago to 366 days from now"));
    }
    Ok(Call::new(counter, window, ends, now, What::Reset(reset)))
}

/// The call of a read.
pub(crate) fn read(item: &RawValue, now: u64) -> Result<Call, ItemError> {
    #[derive(Deserialize)]
    struct Read {
        counter: Hex128,
        window: u32,
    }
    let Read { counter, window } = parse(item)?;
    // A read makes no counter, so it does not matter when one would be forgotten.
    Ok(Call::new(counter, window, 0, now, What::Read))
}
