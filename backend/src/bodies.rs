//! Bounds the bytes of the request bodies in memory, of each workspace and of all together.
//!
//! A body has room before it is read. The room of a body whose length is not declared is that of the largest body, until it is read.

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::error::{ApiError, Code};
use crate::room::{PATIENCE, Room, Rooms};

/// Maximum size of a body, in bytes. A workspace has room for three of the largest.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct Bodies(Rooms);

/// A body that was read.
#[derive(Clone, Debug)]
pub(crate) struct Received(pub(crate) Bytes);

impl Bodies {
    pub(crate) fn new() -> Self {
        Self(Rooms::new())
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
        let room = self.0.take(workspace, declared.unwrap_or(MAX_BODY_BYTES));
        let mut room = tokio::time::timeout(PATIENCE, room).await.map_err(|_elapsed| no_room())??;
        let body = read(body).await?;
        room.shrink(body.len());
        Ok((Received(body), room))
    }
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

    #[tokio::test]
    async fn a_body_keeps_the_room_that_it_needs() {
        let chunked = || Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![b' '; 5 * MIB])]));
        //  a body, and its room in bytes, or the status of the refusal
        for (body, expected) in [
            (Body::empty(), Ok(0)),
            (Body::from("x"), Ok(1024)),
            (Body::from(vec![b' '; MAX_BODY_BYTES]), Ok(16 * MIB)),
            (Body::from(vec![b' '; MAX_BODY_BYTES + 1]), Err(413)),
            (chunked(), Ok(5 * MIB)),
            (Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![0; 17 * MIB])])), Err(413)),
        ] {
            let bodies = Bodies::new();
            let received = bodies.receive(1, body).now_or_never().unwrap();
            let held = bodies.0.taken();
            match (&received, expected) {
                (Ok(_), Ok(bytes)) => assert_eq!(held, bytes),
                (Err(error), Err(status)) => assert_eq!((error.code.status().as_u16(), held), (status, 0)),
                (found, _) => panic!("{found:?}"),
            }
        }
    }
}
