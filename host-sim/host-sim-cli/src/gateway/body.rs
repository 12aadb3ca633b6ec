//! A body that is written as it is sent.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Frames that may wait between a stream and its connection.
const FRAMES: usize = 4;

/// The one who writes the body went away before its end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream was reset")]
pub(crate) struct Aborted;

/// The body as the connection reads it. One whose writer goes away before the end is an error.
#[derive(Debug)]
pub(crate) struct StreamBody {
    /// `None` once all was read.
    frames: Option<mpsc::Receiver<Option<Frame<Bytes>>>>,
    whole: Option<Bytes>,
    /// The connection is not told how long it is.
    unmeasured: bool,
}

/// The body as the stream writes it: without bound here, so that the stream never waits while it writes; it stops
/// reading instead.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    sender: Option<mpsc::Sender<Option<Frame<Bytes>>>>,
    /// Frames, and `None` at the end.
    queue: VecDeque<Option<Frame<Bytes>>>,
}

impl StreamBody {
    /// A body that is known whole.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { frames: None, whole: (!bytes.is_empty()).then_some(bytes), unmeasured: false }
    }

    /// A body that is known whole, and goes without a `content-length`.
    pub(crate) fn unmeasured(bytes: Bytes) -> Self {
        Self { unmeasured: true, ..Self::whole(bytes) }
    }

    pub(crate) fn pipe() -> (Pipe, Self) {
        let (sender, receiver) = mpsc::channel(FRAMES);
        let pipe = Pipe { sender: Some(sender), queue: VecDeque::new() };
        (pipe, Self { frames: Some(receiver), whole: None, unmeasured: true })
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if let Some(whole) = self.whole.take() {
            return Poll::Ready(Some(Ok(Frame::data(whole))));
        }
        let Some(frames) = &mut self.frames else { return Poll::Ready(None) };
        match std::task::ready!(frames.poll_recv(context)) {
            Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(None) => {
                self.frames = None;
                Poll::Ready(None)
            }
            None => {
                self.frames = None;
                Poll::Ready(Some(Err(Aborted)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none() && self.whole.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.unmeasured && !self.is_end_stream() {
            return SizeHint::default();
        }
        SizeHint::with_exact(self.whole.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl Pipe {
    /// Queues a piece; nothing once the reader is gone.
    pub(crate) fn data(&mut self, data: Bytes, end: bool) {
        if self.sender.is_none() {
            return;
        }
        if !data.is_empty() {
            self.queue.push_back(Some(Frame::data(data)));
        }
        if end {
            self.queue.push_back(None);
        }
    }

    /// Queues trailers, which end the body.
    pub(crate) fn trailers(&mut self, trailers: http::HeaderMap) {
        if self.sender.is_some() {
            self.queue.push_back(Some(Frame::trailers(trailers)));
            self.queue.push_back(None);
        }
    }

    /// Whether more may be read for it.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < FRAMES
    }

    /// Whether there is nothing left to write: all of it was, or the reader is gone, or there never was one.
    pub(crate) fn is_finished(&self) -> bool {
        self.sender.is_none()
    }

    /// Hands one frame to the reader, or notices that it went away. Waits while there is neither to do.
    pub(crate) async fn progress(&mut self) {
        let Some(sender) = &self.sender else { return std::future::pending().await };
        if self.queue.is_empty() {
            sender.closed().await;
            self.abort();
            return;
        }
        let last = match sender.reserve().await {
            Ok(permit) => match self.queue.pop_front() {
                Some(frame) => {
                    let last = frame.is_none();
                    permit.send(frame);
                    last
                }
                None => false,
            },
            Err(_) => true,
        };
        if last {
            self.abort();
        }
    }

    /// Ends the writing here. A reader that has not met the end yet takes it for broken off.
    pub(crate) fn abort(&mut self) {
        self.sender = None;
        self.queue.clear();
    }
}
