//! JSON arrays as responses: written whole, or read and sent in parts, so that memory use does not depend on their length.

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::apart;
use crate::api::state::{App, Shared};
use crate::http::error::ApiError;
use crate::store::Reader;

/// About the size of a part, in bytes.
pub(crate) const PART_BYTES: usize = 1024 * 1024;
/// No item is added to a part of this size. The items of a part are expected to take less, but may be larger than those before.
const FULL: usize = PART_BYTES * 5 / 4;
/// Maximum number of items that the thread of the request writes. Each may have the size of a link.
const FEW: usize = 16;

/// Writes `items` as a JSON array.
///
/// # Errors
/// 500 if an item cannot be written as JSON.
pub(crate) async fn json_array<T: Serialize>(
    items: impl ExactSizeIterator<Item = T> + Send + 'static,
) -> Result<Response, ApiError> {
    let is_long = items.len() > FEW;
    let write = move || {
        let mut part = Part::default();
        for item in items {
            part.push(&item)?;
        }
        Ok::<_, ApiError>(part)
    };
    let part = if is_long { apart::run(write).await? } else { write()? };
    Ok(part.into_response())
}

/// Some items of an array.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The items, each after a comma.
    text: Vec<u8>,
}

impl Part {
    /// Writes an item.
    ///
    /// # Errors
    /// 500 if the item cannot be written as JSON.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> Result<(), ApiError> {
        self.text.push(b',');
        serde_json::to_writer(&mut self.text, item).map_err(|error| {
            tracing::error!(%error, "an answer could not be written as JSON");
            ApiError::internal()
        })
    }

    /// Size of the text, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether the part has enough items.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= FULL
    }

    /// The text. `before` is what precedes the next item: the start of the array, or a comma.
    fn into_text(self, before: &mut u8, is_last: bool) -> Vec<u8> {
        let mut text = self.text;
        if let Some(first) = text.first_mut() {
            *first = std::mem::replace(before, b',');
        }
        if is_last {
            // The array may be empty.
            if *before == b'[' {
                text.push(b'[');
            }
            text.push(b']');
        }
        text
    }
}

impl IntoResponse for Part {
    /// The array that has only this part.
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.into_text(&mut b'[', true)).into_response()
    }
}

/// The items of an array that are not read yet.
pub(crate) trait Items: Sized + Send + 'static {
    /// Reads and writes the next items, about [`PART_BYTES`] of them and none after the part is full.
    fn read(&mut self, app: &App, reader: &mut Reader)
    -> impl Future<Output = Result<Part, ApiError>> + Send;

    /// Whether all items are read.
    fn is_empty(&self) -> bool;
}

/// Reads the first part of an array, before the response starts, so that an error of the database has a status.
pub(crate) async fn begin<I: Items>(
    mut items: I,
    app: &App,
    reader: &mut Reader,
) -> Result<(Part, I), ApiError> {
    Ok((items.read(app, reader).await?, items))
}

/// Sends an array whose first part was read.
pub(crate) fn in_parts<I: Items>((first, items): (Part, I), app: Shared, workspace: i64) -> Response {
    if items.is_empty() {
        return first.into_response();
    }
    let mut before = b'[';
    let first = app.fair.count(workspace, first.into_text(&mut before, false).into());
    let rest = Some(Rest { app, workspace, items, before });
    let rest = stream::try_unfold(rest, |rest| async move {
        match rest {
            Some(rest) => rest.next_part().await.map(Some),
            None => Ok(None),
        }
    });
    let parts = stream::once(async { Ok::<_, ApiError>(first) }).chain(rest);
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response()
}

/// The parts of an array that are not sent.
struct Rest<I> {
    app: Shared,
    workspace: i64,
    items: I,
    /// What precedes the next item: the start of the array, or a comma.
    before: u8,
}

impl<I: Items> Rest<I> {
    /// Waits for a place, and reads the next part. A client that reads slowly thereby holds neither a place nor a connection to the
    /// database.
    async fn next_part(mut self) -> Result<(Bytes, Option<Self>), ApiError> {
        let place = self.app.fair.place_of_part(self.workspace).await;
        let reading = async move {
            let mut reader = self.app.store.reader().await?;
            let part = self.items.read(&self.app, &mut reader).await?;
            let is_last = self.items.is_empty();
            let text = self.app.fair.count(self.workspace, part.into_text(&mut self.before, is_last).into());
            Ok((text, (!is_last).then_some(self)))
        };
        place.run(reading).await
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn an_array_of_any_length_is_written_whole() {
        let item = "é\"".repeat(1_000);
        for items in [0, 1, 2, FEW, FEW + 1, 200] {
            let items = vec![item.clone(); items];
            let expected = serde_json::to_vec(&items).unwrap();
            let written =
                json_array(items.into_iter()).await.ok().unwrap().into_body().collect().await.unwrap();
            assert!(written.to_bytes() == expected, "{} bytes", expected.len());
        }
    }
}
