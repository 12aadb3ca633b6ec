//! Bounds the bytes of the answers in memory, of each workspace and of all together.
//!
//! A client may read its answer slowly, and its request then no longer holds a permit. An answer, or each part of one that is sent in
//! parts, therefore has room until its bytes were written to the client.
//!
//! A request that waits for room holds the permit of its workspace, so that few of its answers wait in memory, and nothing that other
//! workspaces or later parts of answers wait for. A later part has room before it waits for a permit. So room is never waited for by
//! those that its owners wait for.

use std::pin::pin;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt;

use crate::bodies::MAX_BODY_BYTES;
use crate::error::{ApiError, Code};
use crate::gate::Passed;
use crate::held::{hold, take};
use crate::room::{PATIENCE, Room, Rooms};

/// Maximum size of an answer that needs no room, in bytes. One with a single link is smaller.
const SMALL: usize = 128 * 1024;
/// Room of a bulk call before it is answered, in bytes. Its answer may repeat its body.
const OF_BULK: usize = MAX_BODY_BYTES + 1024 * 1024;

/// The room for answers.
#[derive(Debug)]
pub(crate) struct Answers(Rooms);

/// Room for the answer of a bulk call.
struct Reserved(Room);

/// Bytes with the room that they take.
struct Kept {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answers {
    pub(crate) fn new() -> Self {
        Self(Rooms::new())
    }

    /// Waits for room for the answer of a bulk call before the call writes anything.
    ///
    /// # Errors
    /// 503 without room in time.
    pub(crate) async fn reserve(&self, workspace: i64) -> Result<(), ApiError> {
        let room = tokio::time::timeout(PATIENCE, self.0.take(workspace, OF_BULK)).await;
        hold(Reserved(room.map_err(|_elapsed| no_room())??));
        Ok(())
    }

    /// Waits for room for a response of the current request that is not sent in parts.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(crate) async fn keep_whole(&self, workspace: i64, response: Response) -> Result<Response, ApiError> {
        let bytes = response.body().size_hint().exact();
        if bytes.is_none_or(|bytes| bytes <= SMALL as u64) {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| {
            tracing::error!(%error, "an answer could not be read");
            ApiError::internal()
        })?;
        let bytes = self.keep(workspace, bytes.to_bytes()).await?;
        Ok(Response::from_parts(head, Body::from(bytes)))
    }

    /// Waits for room for bytes of the current request.
    ///
    /// # Errors
    /// 503 without room in time.
    pub(crate) async fn keep(&self, workspace: i64, bytes: Bytes) -> Result<Bytes, ApiError> {
        if bytes.len() <= SMALL {
            return Ok(bytes);
        }
        if let Some(Reserved(room)) = take() {
            return Ok(room.keep(bytes));
        }
        let mut room = pin!(self.0.take(workspace, bytes.len()));
        let room = match futures_util::poll!(room.as_mut()) {
            std::task::Poll::Ready(room) => room?,
            std::task::Poll::Pending => {
                // Others would wait for its turn.
                drop(take::<Passed>());
                tokio::time::timeout(PATIENCE, room).await.map_err(|_elapsed| no_room())??
            }
        };
        Ok(room.keep(bytes))
    }

    /// Waits for room for a later part of an answer, without a time limit, because its status is sent already.
    pub(crate) async fn room_of_part(&self, workspace: i64, bytes: usize) -> Result<Room, ApiError> {
        self.0.take(workspace, bytes).await
    }
}

impl Room {
    /// Gives the room to bytes, which keep what they need of it until they are dropped.
    pub(crate) fn keep(mut self, bytes: Bytes) -> Bytes {
        self.shrink(bytes.len());
        Bytes::from_owner(Kept { bytes, _room: self })
    }
}

fn no_room() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "Too many large answers at once. Try again later.")
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use axum::response::IntoResponse;
    use futures_util::FutureExt;

    use super::*;
    use crate::gate::{Gate, Work};
    use crate::held::Held;
    use crate::room::OF_WORKSPACE;

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn large_answers_have_room_until_their_bytes_are_dropped() {
        //  size of an answer, whether it is that of a bulk call, room that it takes, in bytes
        for (size, is_bulk, room) in [
            (0, false, 0),
            (SMALL, false, 0),
            (SMALL + 1, false, SMALL + 1024),
            (20 * MIB, false, 20 * MIB),
            (SMALL, true, 0),
            (10 * MIB, true, 10 * MIB),
        ] {
            let answers = Answers::new();
            let answer = Held::during(async {
                if is_bulk {
                    answers.reserve(1).await.unwrap();
                    assert_eq!(answers.0.taken(), OF_BULK);
                }
                answers.keep_whole(1, vec![b'x'; size].into_response()).await.unwrap()
            });
            let answer = answer.now_or_never().unwrap();
            assert_eq!(answers.0.taken(), room, "{size} bytes");
            let bytes = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
            assert!(bytes == vec![b'x'; size] && answers.0.taken() == room);
            drop(bytes);
            assert_eq!(answers.0.taken(), 0, "{size} bytes");
        }
    }

    #[tokio::test]
    async fn an_answer_waits_for_room_with_the_permit_of_its_workspace_and_without_its_turn() {
        let (answers, gate) = (Answers::new(), Gate::new(2, 1));
        let room = answers.0.take(1, OF_WORKSPACE).await.unwrap();
        Held::during(async {
            let permit = Arc::new(());
            hold(Arc::clone(&permit));
            hold(gate.pass(1, Work::Other, ready(())).await.0);
            let mut waits = pin!(answers.keep(1, vec![0; MIB].into()));
            assert!(futures_util::poll!(&mut waits).is_pending());
            assert!(take::<Passed>().is_none() && Arc::strong_count(&permit) == 2);
            assert!(answers.keep(2, vec![0; MIB].into()).await.is_ok(), "another workspace");
            drop(room);
            assert_eq!(waits.await.unwrap().len(), MIB);
        })
        .await;
    }
}
