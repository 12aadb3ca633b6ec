//! A JSON array that is read and sent in parts, so that memory use does not depend on its length.

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

use crate::error::ApiError;
use crate::json_list::JsonList;
use crate::state::{App, Shared};
use crate::store::{Reader, Workspace};

/// About the size of a part, in bytes.
pub(crate) const PART_BYTES: usize = 1024 * 1024;
/// No item is added to a part of this size. The items of a part are expected to take less, but may be larger than those before.
const FULL: usize = PART_BYTES * 5 / 4;
/// Room of a part before it is read, in bytes: one more item may have a link and a destination, of 64 KiB each.
const ROOM: usize = PART_BYTES * 3 / 2;

/// The items of an array that are not read yet.
pub(crate) trait Items: Sized + Send + 'static {
    /// Reads and writes the next items, about [`PART_BYTES`] of them and none after the list [`is_full`].
    fn read(
        &mut self,
        app: &App,
        reader: &mut Reader,
    ) -> impl Future<Output = Result<JsonList, ApiError>> + Send;

    /// Whether all items are read.
    fn is_empty(&self) -> bool;
}

/// Whether a part has enough items.
pub(crate) fn is_full(part: &JsonList) -> bool {
    part.len() >= FULL
}

/// An array whose first part was read.
#[derive(Debug)]
pub(crate) struct JsonParts<I> {
    first: JsonList,
    rest: I,
}

impl<I: Items> JsonParts<I> {
    pub(crate) fn new(first: JsonList, rest: I) -> Self {
        Self { first, rest }
    }

    /// Reads the first part, before the response starts, so that an error of the database has a status.
    pub(crate) async fn begin(mut rest: I, app: &App, reader: &mut Reader) -> Result<Self, ApiError> {
        Ok(Self { first: rest.read(app, reader).await?, rest })
    }

    /// Sends the array. The first part needs room while the request holds its permit.
    pub(crate) async fn answer(self, app: Shared, workspace: Workspace) -> Result<Response, ApiError> {
        let Self { first, rest } = self;
        if rest.is_empty() {
            return Ok(first.into_response());
        }
        let mut before = b'[';
        let first = app.answers.keep(workspace.seq, first.into_part(&mut before, false).into()).await?;
        let rest =
            stream::try_unfold(Some(Rest { app, workspace, items: rest, before }), |rest| async move {
                match rest {
                    Some(rest) => rest.next_part().await.map(Some),
                    None => Ok(None),
                }
            });
        let parts = stream::once(async { Ok::<_, ApiError>(first) }).chain(rest);
        Ok(([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
    }
}

/// The parts of an array that are not sent.
struct Rest<I> {
    app: Shared,
    workspace: Workspace,
    items: I,
    /// What precedes the next item: the start of the array, or a comma.
    before: u8,
}

impl<I: Items> Rest<I> {
    /// Waits for room and for a permit, and reads the next part. A client that reads slowly thereby holds neither a permit nor a
    /// connection to the database.
    async fn next_part(mut self) -> Result<(Bytes, Option<Self>), ApiError> {
        let app = self.app.clone();
        let room = app.answers.room_of_part(self.workspace.seq, ROOM).await?;
        let admitted = app.admission.admit_chunk(&self.workspace).await?;
        let priority = admitted.priority;
        let answer = async move {
            let mut reader = self.app.store.reader(priority).await?;
            let part = self.items.read(&self.app, &mut reader).await?;
            Ok((part, self))
        };
        let (part, mut rest) = admitted.answer(answer).await?;
        let is_last = rest.items.is_empty();
        let part = part.into_part(&mut rest.before, is_last);
        Ok((room.keep(part.into()), (!is_last).then_some(rest)))
    }
}
