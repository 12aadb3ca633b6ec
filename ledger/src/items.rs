//! Items of requests: how they are read and checked.
//!
//! A refused item is an error in its place of the answer, and the others count.

use std::borrow::Cow;

use ledger_wire::{ItemError, Request, Statement};
use serde_json::value::RawValue;

use crate::share::{Terms, is_timely};
use crate::store::Call;

/// The longest window, in seconds: a leap year. A key in the store lives about as long as its window.
const LONGEST: u64 = 366 * 86_400;

fn invalid(field: Option<Cow<'static, str>>, message: String) -> ItemError {
    ItemError { code: "invalid".into(), field, message }
}

/// Reads an item.
fn parse(item: &RawValue) -> Result<Statement, ItemError> {
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
            invalid(field.map(Cow::Owned), message)
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
    let statement = parse(item)?;
    if statement.ends - statement.begins > LONGEST {
        return Err(invalid(Some("ends".into()), "expected at most 366 days after begins".to_owned()));
    }
    if !is_timely(&statement, now) {
        let message = format!(
            "the window is not the present one: by this ledger's clock it is {now}, by the gateway's {}",
            request.now
        );
        return Err(ItemError { code: ItemError::CLOCK.into(), field: None, message });
    }
    Ok(Call::new(request.gateway, statement, terms, now))
}
