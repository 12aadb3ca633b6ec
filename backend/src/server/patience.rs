//! A write timeout for connections: writes fail if the client reads nothing for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail after a time without progress.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The timer of a pending write. The first pending write creates it.
    waiting: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None, is_waiting: false }
    }

    /// Handles the result of a write, and starts, checks or stops the timer.
    fn judge<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.is_waiting = false;
            return write;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        if !self.is_waiting {
            waiting.as_mut().reset(Instant::now() + self.patience);
            self.is_waiting = true;
        }
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads no data")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_write_succeeds_while_the_client_reads_something_in_time() {
        let (stream, mut client) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut bytes = [0; 8];
            // The total exceeds the timeout, but no single wait does.
            for _ in 0..8 {
                tokio::time::sleep(PATIENCE / 5).await;
                client.read_exact(&mut bytes).await.unwrap();
            }
        });
        Patient::new(stream, PATIENCE).write_all(&[1; 64]).await.unwrap();
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn a_write_fails_when_the_client_reads_nothing() {
        let (stream, _client) = tokio::io::duplex(8);
        let started = Instant::now();
        let error = Patient::new(stream, PATIENCE).write_all(&[1; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= PATIENCE);
    }
}
