//! Calls of a guest to clusters.

use std::collections::{BTreeMap, VecDeque};

use crate::wire::callout::{Callout, GrpcOrder};

/// Calls of the guest to clusters.
#[derive(Debug, Default)]
pub(crate) struct Callouts {
    /// The last token of each kind.
    pub(crate) last_token: [u32; 3],
    /// Called, and not yet taken by the driver.
    pub(crate) started: VecDeque<Callout>,
    /// The root contexts of calls without an answer, by token.
    pub(crate) open: BTreeMap<u32, u32>,
    /// Streams of gRPC, by token.
    pub(crate) streams: BTreeMap<u32, OpenStream>,
    /// What the guest did with its streams, and the driver has not taken yet.
    pub(crate) grpc_orders: VecDeque<GrpcOrder>,
}

/// What a call speaks. The low two bits of its token are its number here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Http,
    Grpc,
    GrpcStream,
}

impl CallKind {
    pub(crate) fn of(token: u32) -> Option<Self> {
        match token & 3 {
            0 => Some(Self::Http),
            1 => Some(Self::Grpc),
            2 => Some(Self::GrpcStream),
            _ => None,
        }
    }
}

/// A stream of gRPC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenStream {
    pub(crate) root: u32,
    /// The guest sends no more.
    pub(crate) local_closed: bool,
    /// The cluster sends no more.
    pub(crate) remote_closed: bool,
}
