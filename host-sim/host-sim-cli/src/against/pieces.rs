//! A message as a scenario gives it: its headers, and its body in pieces, with trailers, with or without its length.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::AgainstError;
use crate::scenario::Lines;

/// The headers of a message.
pub(super) fn header_map<'a>(
    headers: impl Iterator<Item = (&'a String, &'a Lines)>,
) -> Result<HeaderMap, AgainstError> {
    let mut map = HeaderMap::new();
    for (name, lines) in headers {
        for line in lines.iter() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(AgainstError::message)?;
            map.append(name, HeaderValue::from_str(line).map_err(AgainstError::message)?);
        }
    }
    Ok(map)
}

/// A body.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// The length that is declared; none where trailers follow, as HTTP/1 has these in chunks alone.
    length: Option<u64>,
}

impl Pieces {
    /// The pieces of `chunks`, or `body` where there are none.
    pub(super) fn new(body: Bytes, chunks: &[String], trailers: HeaderMap) -> Self {
        let whole = std::iter::once(body).filter(|_| chunks.is_empty());
        let pieces = chunks.iter().map(|chunk| Bytes::from(chunk.clone())).chain(whole);
        let pieces: VecDeque<_> = pieces.filter(|piece| !piece.is_empty()).collect();
        let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { length: Some(length).filter(|_| trailers.is_none()), pieces, trailers }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front().map(Frame::data);
        Poll::Ready(piece.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
