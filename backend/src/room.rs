//! Room in memory, which the bytes of each workspace and of all together need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::semaphores::Semaphores;

/// Room of a workspace, in bytes.
pub(crate) const OF_WORKSPACE: usize = 48 * 1024 * 1024;
/// Room of all workspaces together, in bytes.
pub(crate) const OF_ALL: usize = 256 * 1024 * 1024;
/// Maximum wait of a request for room.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Room is counted in units of this size, in bytes.
const UNIT: usize = 1024;

/// The room for bytes of one kind.
#[derive(Debug)]
pub(crate) struct Rooms {
    all: Arc<Semaphore>,
    of_workspace: Semaphores<i64>,
}

/// The room of some bytes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room([OwnedSemaphorePermit; 2]);

impl Rooms {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(OF_ALL / UNIT)), of_workspace: Semaphores::default() }
    }

    /// Waits for room. More bytes than all room wait until all is free.
    pub(crate) async fn take(&self, workspace: i64, bytes: usize) -> Result<Room, ApiError> {
        let closed = |_| ApiError::internal();
        // That of the workspace comes first, so that bytes that wait for others of their workspace take no room from the rest.
        let of_workspace = self.of_workspace.of(workspace, OF_WORKSPACE / UNIT);
        let of_workspace = of_workspace.acquire_many_owned(units(bytes.min(OF_WORKSPACE)));
        let of_workspace = of_workspace.await.map_err(closed)?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(units(bytes.min(OF_ALL)));
        Ok(Room([of_workspace, of_all.await.map_err(closed)?]))
    }

    /// The room that is taken, in bytes.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        OF_ALL - self.all.available_permits() * UNIT
    }
}

impl Room {
    /// Releases what this number of bytes does not need.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        for permits in &mut self.0 {
            let surplus = permits.num_permits().saturating_sub(units(bytes) as usize);
            drop(permits.split(surplus));
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_bytes_of_a_workspace_and_of_all_have_a_maximum() {
        let rooms = Rooms::new();
        let mut kept = Vec::new();
        //  workspace, its bytes, whether there is room
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
            let room = rooms.take(workspace, bytes).now_or_never();
            assert_eq!(room.is_some(), expected, "{bytes} bytes of {workspace} after {}", kept.len());
            kept.extend(room);
        }
        kept.remove(0).unwrap();
        assert!(rooms.take(7, 16 * MIB).now_or_never().is_some());
    }

    #[test]
    fn more_bytes_than_a_workspace_has_room_for_take_all_of_it_and_their_size_from_the_rest() {
        let rooms = Rooms::new();
        let large = rooms.take(1, 200 * MIB).now_or_never().unwrap();
        assert_eq!(rooms.taken(), 200 * MIB);
        //  workspace, its bytes, whether there is room
        for (workspace, bytes, expected) in [(1, 1, false), (2, 48 * MIB, true), (2, 57 * MIB, false)] {
            assert_eq!(rooms.take(workspace, bytes).now_or_never().is_some(), expected, "{workspace}");
        }
        drop(large);
        let larger = rooms.take(1, 2 * OF_ALL).now_or_never();
        assert!(larger.is_some() && rooms.taken() == OF_ALL);
    }
}
