//! A JSON array as a response. A hundred large items take milliseconds, which other requests do not wait for.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::background;
use crate::error::ApiError;

/// Size of the part that the thread of the request writes, in bytes. The rest is written in the background.
const AT_ONCE: usize = 128 * 1024;

/// Writes `items` as a JSON array.
///
/// # Errors
/// 500 if an item cannot be written as JSON.
pub(crate) async fn json_list<T: Serialize>(
    items: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
) -> Result<Response, ApiError> {
    let (mut list, mut items) = (JsonList::default(), items.into_iter());
    if !list.extend(&mut items, AT_ONCE)? {
        let rest = move || {
            list.extend(&mut items, usize::MAX)?;
            Ok::<_, ApiError>(list)
        };
        list = background::run(rest).await.ok_or_else(ApiError::internal)??;
    }
    Ok(list.into_response())
}

/// A JSON array that is being written.
#[derive(Debug, Default)]
pub(crate) struct JsonList {
    /// The items, each after a comma.
    text: Vec<u8>,
}

impl JsonList {
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

    /// The text as a part of an array. `before` is what precedes the next item: the start of the array, or a comma.
    pub(crate) fn into_part(self, before: &mut u8, is_last: bool) -> Vec<u8> {
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

    /// Writes items until the text has about this size. True after the last item.
    fn extend<T: Serialize>(
        &mut self,
        items: &mut impl Iterator<Item = T>,
        size: usize,
    ) -> Result<bool, ApiError> {
        while self.text.len() < size {
            let Some(item) = items.next() else { return Ok(true) };
            self.push(&item)?;
        }
        Ok(false)
    }
}

impl IntoResponse for JsonList {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.into_part(&mut b'[', true)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_list_of_any_length_is_written_whole() {
        let item = "é\"".repeat(1_000);
        for items in [0, 1, 2, AT_ONCE / item.len(), 200] {
            let items = vec![item.clone(); items];
            let expected = serde_json::to_vec(&items).unwrap();
            let written = json_list(items).await.ok().unwrap().into_body().collect().await.unwrap();
            assert!(written.to_bytes() == expected, "{} bytes", expected.len());
        }
    }
}
