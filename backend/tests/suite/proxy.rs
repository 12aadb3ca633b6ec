//! A way to PostgreSQL that can be interrupted.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database::Database;

/// What the way does with what is sent over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Nothing gets through, and no connection is closed.
    Stalled,
    /// Connections break, and no other is made.
    Cut,
    /// The next commit arrives, its answer does not, and the connections break.
    LosesAnswer,
    /// Nothing gets through to the client.
    Deaf,
}

/// The direction in which something is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Towards {
    Server,
    Client,
}

/// The way to a PostgreSQL.
pub(crate) struct Proxy(watch::Sender<Way>);

impl Proxy {
    pub(crate) async fn to(database: &Database) -> (Self, Database) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (through, server) = database.through(port);
        let way = watch::Sender::new(Way::Open);
        let state = way.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *state.borrow() == Way::Cut {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(carry(from_client, to_server, state.clone(), Towards::Server));
                tokio::spawn(carry(from_server, to_client, state.clone(), Towards::Client));
            }
        });
        (Self(way), through)
    }

    /// Waits until the connections are broken.
    pub(crate) async fn broken(&self) {
        self.0.subscribe().wait_for(|way| *way == Way::Cut).await.unwrap();
    }

    pub(crate) fn set(&self, way: Way) {
        self.0.send_replace(way);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: watch::Sender<Way>, towards: Towards) {
    let mut bytes = vec![0; 1 << 16];
    let (mut way, mut until_cut) = (state.subscribe(), state.subscribe());
    let carrying = async {
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let is_stopped =
                |way: &Way| *way == Way::Stalled || (*way == Way::Deaf && towards == Towards::Client);
            let Ok(way) = way.wait_for(|way| !is_stopped(way)).await.map(|way| *way) else { return };
            let bytes = &bytes[..read];
            let loses = way == Way::LosesAnswer
                && towards == Towards::Server
                && bytes.windows(6).any(|word| word == b"COMMIT");
            if loses {
                state.send_replace(Way::Deaf);
            }
            if way == Way::Cut || to.write_all(bytes).await.is_err() {
                return;
            }
            if loses {
                // Much longer than a commit takes.
                tokio::time::sleep(Duration::from_millis(500)).await;
                state.send_replace(Way::Cut);
            }
        }
    };
    tokio::select! {
        () = carrying => {}
        _ = until_cut.wait_for(|way| *way == Way::Cut) => {}
    }
}
