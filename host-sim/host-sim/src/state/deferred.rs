//! What a guest asks for that the host does when its callback has returned.

use crate::wire::{direction::Direction, local_reply::LocalReply};

/// What waits for the running callback to return.
#[derive(Debug)]
pub(crate) enum Deferred {
    LocalReply { stream: u32, reply: LocalReply },
    Continue { stream: u32, direction: Direction },
    Reset { stream: u32 },
    DeleteRoot { root: u32 },
    CloseGrpc { root: u32, token: u32, why: &'static str },
}
