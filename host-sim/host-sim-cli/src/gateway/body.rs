//! Bodies on their way to a connection.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::sync::mpsc::{self, error::TrySendError};

/// Frames that may wait between a stream and its connection.
const FRAMES: usize = 4;

/// The writer of the body was dropped before the end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream was reset")]
pub(super) struct Aborted;

/// A body as a connection reads it.
pub(super) type Body = UnsyncBoxBody<Bytes, Aborted>;

/// A body that is known whole.
pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// What goes through a pipe.
#[derive(Debug)]
enum Piece {
    Frame(Frame<Bytes>),
    End,
}

/// A body as a stream writes it: nothing until it is opened. Dropped before the end, it breaks the body off.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// `None` once the end is sent or the reader is gone.
    sender: Option<mpsc::Sender<Piece>>,
    /// What the reader has no room for yet. A stream never waits while it writes; it reads no more instead.
    waiting: VecDeque<Piece>,
}

impl Pipe {
    /// Opens the pipe and returns the body that reads from it. The body has no `content-length` of its own.
    pub(super) fn open(&mut self) -> Body {
        let (sender, mut receiver) = mpsc::channel(FRAMES);
        *self = Self { sender: Some(sender), waiting: VecDeque::new() };
        let frames = stream::poll_fn(move |context| {
            receiver.poll_recv(context).map(|piece| match piece {
                Some(Piece::Frame(frame)) => Some(Ok(frame)),
                Some(Piece::End) => None,
                None => Some(Err(Aborted)),
            })
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Writes a piece; nothing once the reader is gone.
    pub(super) fn data(&mut self, data: Bytes, end: bool) {
        self.waiting.extend((!data.is_empty()).then(|| Piece::Frame(Frame::data(data))));
        self.waiting.extend(end.then_some(Piece::End));
        self.flush();
    }

    /// Writes trailers, which end the body.
    pub(super) fn trailers(&mut self, trailers: http::HeaderMap) {
        self.waiting.extend([Piece::Frame(Frame::trailers(trailers)), Piece::End]);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(sender) = &self.sender
            && let Some(piece) = self.waiting.pop_front()
        {
            let is_end = matches!(piece, Piece::End);
            match sender.try_send(piece) {
                Err(TrySendError::Full(piece)) => return self.waiting.push_front(piece),
                Err(TrySendError::Closed(_)) => self.sender = None,
                Ok(()) if is_end => self.sender = None,
                Ok(()) => {}
            }
        }
    }

    /// Whether more may be read for it.
    pub(super) fn has_room(&self) -> bool {
        self.sender.is_none() || self.waiting.is_empty()
    }

    /// Whether there is nothing left to write: the end is sent, or the reader is gone, or there never was one.
    pub(super) fn is_finished(&self) -> bool {
        self.sender.is_none()
    }

    /// Waits for room where something waits, and else for the reader to go away; for ever where neither is to come.
    pub(super) async fn progress(&mut self) {
        let Some(sender) = &self.sender else { return std::future::pending().await };
        if self.waiting.is_empty() {
            sender.closed().await;
            self.sender = None;
        } else {
            // A reader that has gone away has no room either, which the next writing finds.
            drop(sender.reserve().await);
            self.flush();
        }
    }
}
