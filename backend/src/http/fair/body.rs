//! The body of a request, which is read before the request has a place. A slow sender thereby keeps no place from others.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{Fair, Taken};
use crate::http::error::{ApiError, Code};

/// Maximum size of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A body that was read.
#[derive(Clone, Debug)]
pub(crate) struct Received(pub(crate) Bytes);

impl Fair {
    /// Waits for memory for the body of a request, and reads the body. One whose length is not declared has the memory of the largest
    /// until it is read.
    ///
    /// # Errors
    /// 413 for a body that is too large, 415 for one with a content coding, 503 without memory in time, 400 for one that cannot be read.
    pub(super) async fn receive(
        &self,
        workspace: i64,
        request: &mut Request,
    ) -> Result<(Received, Taken), ApiError> {
        refuse_encoded(request.headers())?;
        let body = std::mem::take(request.body_mut());
        let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if declared.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_large());
        }
        let mut taken = self.in_time(self.bytes.take(workspace, declared.unwrap_or(MAX_BODY_BYTES))).await?;
        let body = read(body).await?;
        taken.shrink(body.len());
        Ok((Received(body), taken))
    }
}

/// Refuses a body with a content coding, such as gzip. It would not be read as JSON.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "Content-Encoding is not supported: send the body as plain JSON.";
    Err(ApiError::new(Code::UnsupportedMediaType, message))
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
    use std::io;
    use std::time::Duration;

    use futures_util::{FutureExt, stream};

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn a_body_has_the_memory_that_it_needs() {
        let chunked = |bytes| Body::from_stream(stream::iter([Ok::<_, io::Error>(vec![b' '; bytes])]));
        //  a body, and its memory in bytes, or the status of the refusal
        for (body, expected) in [
            (Body::empty(), Ok(0)),
            (Body::from("x"), Ok(1)),
            (Body::from(vec![b' '; MAX_BODY_BYTES]), Ok(MAX_BODY_BYTES)),
            (Body::from(vec![b' '; MAX_BODY_BYTES + 1]), Err(413)),
            (chunked(5 * MIB), Ok(5 * MIB)),
            (chunked(17 * MIB), Err(413)),
        ] {
            let fair = Fair::new(4, Duration::from_secs(30));
            let received = fair.receive(1, &mut Request::new(body)).now_or_never().unwrap();
            let taken = fair.bytes.taken();
            match (&received, expected) {
                (Ok(_), Ok(bytes)) => assert_eq!(taken, bytes),
                (Err(error), Err(status)) => assert_eq!((error.code.status().as_u16(), taken), (status, 0)),
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[tokio::test]
    async fn slow_senders_of_a_workspace_leave_memory_to_others_and_wait_for_their_own() {
        let fair = Fair::new(4, Duration::from_secs(30));
        let slow = || Request::new(Body::from_stream(stream::pending::<io::Result<Bytes>>()));
        let (mut slow, mut reading) = ([slow(), slow(), slow(), slow()], Vec::new());
        for request in &mut slow {
            let mut body = Box::pin(fair.receive(1, request));
            assert!((&mut body).now_or_never().is_none());
            reading.push(body);
        }
        assert_eq!((fair.bytes.taken(), fair.bytes.waiting(1)), (3 * MAX_BODY_BYTES, 1));
        let mut largest = Request::new(Body::from(vec![b' '; MAX_BODY_BYTES]));
        assert!(fair.receive(2, &mut largest).now_or_never().unwrap().is_ok(), "another workspace");
        drop(reading.remove(0));
        assert_eq!((fair.bytes.taken(), fair.bytes.waiting(1)), (3 * MAX_BODY_BYTES, 0));
    }
}
