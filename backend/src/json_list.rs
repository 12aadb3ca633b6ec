//! A JSON array as a response, written item by item. A hundred large items take milliseconds, and other requests proceed in
//! between.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::{ApiError, Code};

/// Bytes that are written before other requests proceed.
const AT_ONCE: usize = 64 * 1024;

/// Writes `items` as a JSON array.
///
/// # Errors
/// 500 if an item cannot be written as JSON.
pub(crate) async fn json_list<T: Serialize>(
    items: impl IntoIterator<Item = T>,
) -> Result<Response, ApiError> {
    let (mut text, mut next_pause) = (vec![b'['], AT_ONCE);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write(&item, &mut text)?;
        drop(item);
        if text.len() >= next_pause {
            next_pause = text.len() + AT_ONCE;
            tokio::task::yield_now().await;
        }
    }
    text.push(b']');
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

fn write(item: &impl Serialize, text: &mut Vec<u8>) -> Result<(), ApiError> {
    serde_json::to_writer(text, item).map_err(|error| {
        tracing::error!(%error, "an answer could not be written as JSON");
        ApiError::new(Code::InternalServerError, "An internal server error occurred.")
    })
}
