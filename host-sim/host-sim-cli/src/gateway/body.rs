//! A body that is written as it is sent.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Frames that may wait between a stream and its connection.
const FRAMES: usize = 4;

/// The one who writes the body went away before its end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream was reset")]
pub(crate) struct Aborted;

/// Frames on their way from a writer to a reader.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame<Bytes>>,
    /// No frame follows those that wait.
    ended: bool,
    writer_gone: bool,
    reader_gone: bool,
    writer: Option<Waker>,
    reader: Option<Waker>,
}

/// Both ends have it. Clients of other libraries want bodies that may be sent to other threads.
type Shared = Arc<Mutex<Queue>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Queue> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The end of a queue that the connection reads.
#[derive(Debug)]
struct Reader(Shared);

impl Drop for Reader {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.reader_gone = true;
        wake(&mut queue.writer);
    }
}

impl Reader {
    /// The next frame; `None` at the end.
    fn poll(&self, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let mut queue = lock(&self.0);
        if let Some(frame) = queue.frames.pop_front() {
            if queue.frames.len() + 1 == FRAMES {
                wake(&mut queue.writer);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        if queue.writer_gone {
            return Poll::Ready(Some(Err(Aborted)));
        }
        queue.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The body as the connection reads it. One whose writer goes away before the end is an error.
#[derive(Debug)]
pub(crate) struct StreamBody {
    /// `None` once all was read.
    frames: Option<Reader>,
    whole: Option<Bytes>,
    /// The connection is not told how long it is.
    unmeasured: bool,
}

/// The body as the stream writes it: without bound here, so that the stream never waits while it writes; it stops
/// reading instead.
#[derive(Debug, Default)]
pub(crate) struct Pipe(Option<Shared>);

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
        let shared = Shared::default();
        let frames = Some(Reader(Arc::clone(&shared)));
        (Pipe(Some(shared)), Self { frames, whole: None, unmeasured: true })
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
        let Some(frames) = &self.frames else { return Poll::Ready(None) };
        let frame = std::task::ready!(frames.poll(context));
        if !matches!(frame, Some(Ok(_))) {
            self.frames = None;
        }
        Poll::Ready(frame)
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
    fn write(&mut self, frame: Option<Frame<Bytes>>, end: bool) {
        let Some(shared) = &self.0 else { return };
        let mut queue = lock(shared);
        queue.frames.extend(frame);
        queue.ended |= end;
        wake(&mut queue.reader);
    }

    /// Queues a piece; nothing once the reader is gone.
    pub(crate) fn data(&mut self, data: Bytes, end: bool) {
        self.write((!data.is_empty()).then(|| Frame::data(data)), end);
    }

    /// Queues trailers, which end the body.
    pub(crate) fn trailers(&mut self, trailers: http::HeaderMap) {
        self.write(Some(Frame::trailers(trailers)), true);
    }

    /// Whether more may be read for it.
    pub(crate) fn has_room(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| lock(shared).frames.len() < FRAMES)
    }

    /// Whether there is nothing left to write: all of it was, or the reader is gone, or there never was one.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| {
            let queue = lock(shared);
            queue.reader_gone || (queue.ended && queue.frames.len() < FRAMES)
        })
    }

    /// Waits until it [has room](Self::has_room) again, or for the reader to go away. Waits for ever while neither is to come.
    pub(crate) async fn progress(&mut self) {
        let had_room = self.has_room();
        std::future::poll_fn(|context| {
            let Some(shared) = &self.0 else { return Poll::Pending };
            let mut queue = lock(shared);
            if queue.reader_gone {
                drop(queue);
                self.0 = None;
                return Poll::Ready(());
            }
            if !had_room && queue.frames.len() < FRAMES {
                return Poll::Ready(());
            }
            queue.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the writing here. A reader that has not met the end yet takes it for broken off.
    pub(crate) fn abort(&mut self) {
        if let Some(shared) = self.0.take() {
            let mut queue = lock(&shared);
            queue.writer_gone = true;
            wake(&mut queue.reader);
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.abort();
    }
}
