//! Bounds the bytes of the request bodies in memory, of each workspace and of all together.
//!
//! A body has room before it is read. The room of a body whose length is not declared is that of the largest body, until it is read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, Code};
use crate::semaphores::Semaphores;

/// Maximum size of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of the bodies of a workspace, in bytes: three of the largest.
const OF_WORKSPACE: usize = 3 * MAX_BODY_BYTES;
/// Maximum size of all bodies, in bytes.
const OF_ALL: usize = 16 * MAX_BODY_BYTES;
/// Maximum wait of a body for room.
const PATIENCE: Duration = Duration::from_secs(10);
/// Room is counted in units of this size, in bytes.
const UNIT: usize = 1024;

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    all: Arc<Semaphore>,
    of_workspace: Semaphores<i64>,
}

/// The room of a body, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room([OwnedSemaphorePermit; 2]);

/// A body that was read.
#[derive(Clone, Debug)]
pub(crate) struct Received(pub(crate) Bytes);

impl Bodies {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(OF_ALL / UNIT)), of_workspace: Semaphores::default() }
    }

    /// Waits for room and reads the body of a request.
    ///
    /// # Errors
    /// 413 for a body that is too large, 503 without room in time, 400 for a body that cannot be read.
    pub(crate) async fn receive(&self, workspace: i64, body: Body) -> Result<(Received, Room), ApiError> {
        let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if declared.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_large());
        }
        let room = self.room(workspace, declared.unwrap_or(MAX_BODY_BYTES));
        let mut room = tokio::time::timeout(PATIENCE, room).await.map_err(|_elapsed| no_room())??;
        let body = read(body).await?;
        room.shrink(body.len());
        Ok((Received(body), room))
    }

    async fn room(&self, workspace: i64, bytes: usize) -> Result<Room, ApiError> {
        let units = units(bytes);
        let closed = |_| ApiError::internal();
        // That of the workspace comes first, so that a body that waits for others of its workspace takes no room from the rest.
        let of_workspace = self.of_workspace.of(workspace, OF_WORKSPACE / UNIT);
        let of_workspace = of_workspace.acquire_many_owned(units).await.map_err(closed)?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(units).await.map_err(closed)?;
        Ok(Room([of_workspace, of_all]))
    }
}

impl Room {
    /// Releases what a body of this size does not need.
    fn shrink(&mut self, bytes: usize) {
        for permits in &mut self.0 {
            let surplus = permits.num_permits().saturating_sub(units(bytes) as usize);
            drop(permits.split(surplus));
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

fn no_room() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "Too many large request bodies at once. Try again later.")
}

fn too_large() -> ApiError {
    let message = format!("The request body is larger than {MAX_BODY_BYTES} bytes.");
    ApiError::new(Code::PayloadTooLarge, message)
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::bad_request(format!("The request body could not be read: {error}."))),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_bodies_of_a_workspace_and_of_all_have_a_maximum_size() {
        let bodies = Bodies::new();
        let mut kept = Vec::new();
        //  workspace, size of its body, whether there is room
        let table = [
            (1, 16 * MIB, true),
            (1, 16 * MIB, true),
            (1, 16 * MIB, true),
            (1, 1, false),
            (1, 0, true),
            (2, 16 * MIB, true),
            (2, 16 * MIB, true),
            (2, 16 * MIB, true),
            (3, 16 * MIB, true),
            (3, 16 * MIB, true),
            (3, 16 * MIB, true),
            (4, 16 * MIB, true),
            (4, 16 * MIB, true),
            (4, 16 * MIB, true),
            (5, 16 * MIB, true),
            (5, 16 * MIB, true),
            (5, 16 * MIB, true),
            (6, 16 * MIB - 1024, true),
            (7, 1025, false),
            (7, 1024, true),
            (7, 1, false),
        ];
        for (workspace, bytes, expected) in table {
            let room = bodies.room(workspace, bytes).now_or_never();
            assert_eq!(room.is_some(), expected, "{bytes} bytes of {workspace} after {}", kept.len());
            kept.extend(room);
        }
        kept.remove(0).unwrap();
        assert!(bodies.room(7, 16 * MIB).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_body_keeps_the_room_that_it_needs() {
        let chunked = || Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![b' '; 5 * MIB])]));
        //  a body, and its size in units, or the status of the refusal
        for (body, expected) in [
            (Body::empty(), Ok(0)),
            (Body::from("x"), Ok(1)),
            (Body::from(vec![b' '; MAX_BODY_BYTES]), Ok(16 * 1024)),
            (Body::from(vec![b' '; MAX_BODY_BYTES + 1]), Err(413)),
            (chunked(), Ok(5 * 1024)),
            (Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![0; 17 * MIB])])), Err(413)),
        ] {
            let bodies = Bodies::new();
            let received = bodies.receive(1, body).now_or_never().unwrap();
            let held = OF_ALL / UNIT - bodies.all.available_permits();
            match (&received, expected) {
                (Ok(_), Ok(units)) => assert_eq!(held, units),
                (Err(error), Err(status)) => assert_eq!((error.code.status().as_u16(), held), (status, 0)),
                (found, _) => panic!("{found:?}"),
            }
        }
    }
}
