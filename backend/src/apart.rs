//! Work that takes milliseconds of CPU time runs beside the threads that answer requests. There are as few of these as processors, and
//! other customers' requests would wait for them.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Maximum size of the input that the thread of a request works on, in bytes.
const SMALL: usize = 64 * 1024;

/// Runs `work` on an input of this size, in bytes: on this thread if the input is small, otherwise on another one.
pub(crate) async fn run_on<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes > SMALL { run(work).await } else { work() }
}

/// Runs `work` on another thread. If it panics, so does the request.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn large_work_runs_on_another_thread() {
        for (bytes, expected) in [(0, true), (SMALL, true), (SMALL + 1, false)] {
            let is_same = run_on(bytes, || current().id()).await == current().id();
            assert_eq!(is_same, expected, "{bytes} bytes");
        }
    }
}
