//! A way to a server that takes time, as if the server were far away.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Most bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;

/// A way to a server: connections to its address lead to the server, and what is sent over them arrives later.
#[derive(Debug)]
pub struct Way {
    address: SocketAddr,
    round_trip: watch::Sender<Duration>,
    resets: watch::Sender<()>,
    _runtime: Runtime,
}

impl Way {
    /// A way to `server` and back that takes `round_trip` longer than without it.
    ///
    /// # Errors
    /// When there is no port.
    pub fn to(server: SocketAddr, round_trip: Duration) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let (round_trip, resets) = (watch::Sender::new(round_trip), watch::Sender::new(()));
        let (length, each) = (round_trip.subscribe(), resets.clone());
        runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (length, mut reset) = (length.clone(), each.subscribe());
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(server).await else {
                        // That nobody is there is known after a round trip.
                        let round_trip = *length.borrow();
                        return sleep(round_trip).await;
                    };
                    for stream in [&near, &far] {
                        let _without = stream.set_nodelay(true);
                    }
                    tokio::select! {
                        () = pass(near, far, &length) => {}
                        _ = reset.changed() => {}
                    }
                });
            }
        });
        Ok(Self { address, round_trip, resets, _runtime: runtime })
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has it take another time from now on, there and back.
    pub fn take(&self, round_trip: Duration) {
        self.round_trip.send_replace(round_trip);
    }

    /// Breaks all connections. New ones lead to the server again.
    pub fn reset(&self) {
        self.resets.send_replace(());
    }
}

/// Passes on what either side sends, until both have ended or one is gone.
async fn pass(near: TcpStream, far: TcpStream, length: &watch::Receiver<Duration>) {
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(pass_one_way(near_in, far_out, length), pass_one_way(far_in, near_out, length));
}

async fn pass_one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, length: &watch::Receiver<Duration>) {
    let (sent, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let receive = async move {
        let mut bytes = vec![0; CHUNK];
        while let Ok(size @ 1..) = from.read(&mut bytes).await {
            let delay = *length.borrow() / 2;
            if sent.send((Instant::now() + delay, bytes[..size].to_vec())).is_err() {
                return;
            }
        }
    };
    let deliver = async move {
        while let Some((due, bytes)) = under_way.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(receive, deliver);
}
