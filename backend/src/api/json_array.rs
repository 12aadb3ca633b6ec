//! JSON arrays as responses.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::apart;
use crate::http::error::ApiError;

/// Maximum number of items that the thread of the request writes. Each may have the size of a link.
const FEW: usize = 16;

/// An array that is written item by item.
#[derive(Debug, Default)]
pub(crate) struct JsonArray(Vec<u8>);

impl JsonArray {
    /// Size of the text, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes an item.
    ///
    /// # Errors
    /// 500 if the item cannot be written as JSON.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> Result<(), ApiError> {
        self.0.push(if self.0.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut self.0, item).map_err(|error| {
            tracing::error!(%error, "an answer could not be written as JSON");
            ApiError::internal()
        })
    }
}

impl IntoResponse for JsonArray {
    fn into_response(self) -> Response {
        let mut text = self.0;
        if text.is_empty() {
            text.push(b'[');
        }
        text.push(b']');
        ([(CONTENT_TYPE, "application/json")], text).into_response()
    }
}

/// Writes `items` as a JSON array.
///
/// # Errors
/// 500 if an item cannot be written as JSON.
pub(crate) async fn json_array<T: Serialize>(
    items: impl ExactSizeIterator<Item = T> + Send + 'static,
) -> Result<Response, ApiError> {
    let is_long = items.len() > FEW;
    let write = move || {
        let mut array = JsonArray::default();
        for item in items {
            array.push(&item)?;
        }
        Ok::<_, ApiError>(array)
    };
    let array = if is_long { apart::run(write).await? } else { write()? };
    Ok(array.into_response())
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
