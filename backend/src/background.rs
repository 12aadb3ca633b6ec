//! Work that uses the CPU for a long time runs on threads of low priority. Requests that need little CPU time then do not
//! wait for it.

use tokio::sync::oneshot;

use crate::held::Held;

/// The priority of a thread, as the difference between its nice value and that of the process. Linux gives a thread that competes
/// with others the less time the larger it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Priority {
    /// That of the process.
    Usual = 0,
    /// Queries that may take long: a third of the time of other threads.
    Low = 5,
    /// What large requests ask for, and queries of busy workspaces.
    Lowest = 19,
}

/// Lowers the priority of the current thread. Only Linux has a nice value for each thread.
pub(crate) fn lower_priority(#[cfg_attr(not(target_os = "linux"), expect(unused_variables))] to: Priority) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // The system limits the sum to 19.
        let lowered = getpriority_process(None).and_then(|nice| setpriority_process(None, nice + to as i32));
        if let Err(error) = lowered {
            tracing::warn!(%error, "could not lower the priority of a thread");
        }
    }
}

/// Maximum size of the input that the thread of a request works on, in bytes. Work on a larger one would keep other requests from it.
const SMALL: usize = 64 * 1024;

/// Runs `work` on an input of this size, in bytes: on this thread if the input is small, otherwise like [`run`].
pub(crate) async fn run_on<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes > SMALL { run(work).await } else { Some(work()) }
}

/// Runs `work` on a new thread of the lowest priority. None if it panics or there can be no more threads. If the client
/// disconnects, the thread continues, and keeps what the request holds.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let held = Held::of_request();
    let run = || {
        lower_priority(Priority::Lowest);
        let output = work();
        drop(held);
        // The receiver may have been dropped.
        let _gone = done.send(output);
    };
    if let Err(error) = std::thread::Builder::new().name("background".to_owned()).spawn(run) {
        tracing::error!(%error, "could not start a thread");
        return None;
    }
    let result = result.await.ok();
    if result.is_none() {
        tracing::error!("a thread panicked");
    }
    result
}

/// Drops what was made from an input of this size, in bytes: on this thread if the input is small, otherwise on a new thread of the
/// lowest priority.
pub(crate) fn discard<T: Send + 'static>(bytes: usize, made: T) {
    if bytes <= SMALL {
        return;
    }
    let held = Held::of_request();
    let run = || {
        lower_priority(Priority::Lowest);
        drop(made);
        drop(held);
    };
    if let Err(error) = std::thread::Builder::new().name("background".to_owned()).spawn(run) {
        tracing::error!(%error, "could not start a thread");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_has_the_lowest_priority() {
        use rustix::process::getpriority_process;
        let nice = || getpriority_process(None).unwrap();
        assert_eq!(run(nice).await, Some(19));
        assert_eq!(run_on(SMALL + 1, nice).await, Some(19));
        assert_eq!(run_on(SMALL, nice).await, Some(nice()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_made_from_a_large_input_is_dropped_at_the_lowest_priority() {
        use std::sync::mpsc::{Sender, channel};

        use rustix::process::getpriority_process;

        struct Made(Sender<i32>);
        impl Drop for Made {
            fn drop(&mut self) {
                self.0.send(getpriority_process(None).unwrap()).unwrap();
            }
        }
        let (dropped, priority) = channel();
        let usual = getpriority_process(None).unwrap();
        for (bytes, expected) in [(SMALL, usual), (SMALL + 1, 19)] {
            discard(bytes, Made(dropped.clone()));
            assert_eq!(priority.recv().unwrap(), expected, "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn a_panic_leaves_no_result() {
        assert_eq!(run(|| panic!("this work is broken")).await, None::<()>);
    }
}
