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
    let mut list = List { items: items.into_iter(), text: vec![b'['] };
    if !list.write(AT_ONCE)? {
        let rest = move || {
            list.write(usize::MAX)?;
            Ok::<_, ApiError>(list)
        };
        list = background::run(rest).await.ok_or_else(ApiError::internal)??;
    }
    let List { mut text, .. } = list;
    text.push(b']');
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// The items that are not written, and the text of those that are, without the closing bracket.
struct List<I> {
    items: I,
    text: Vec<u8>,
}

impl<T: Serialize, I: Iterator<Item = T>> List<I> {
    /// Writes items until the text has about this size. True after the last item.
    fn write(&mut self, size: usize) -> Result<bool, ApiError> {
        while self.text.len() < size {
            let Some(item) = self.items.next() else { return Ok(true) };
            if self.text.len() > "[".len() {
                self.text.push(b',');
            }
            serde_json::to_writer(&mut self.text, &item).map_err(|error| {
                tracing::error!(%error, "an answer could not be written as JSON");
                ApiError::internal()
            })?;
        }
        Ok(false)
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
