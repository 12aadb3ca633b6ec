//! An HTTP/1.1 client that sends requests byte for byte as they are given.

use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::exchange::{Answer, Request};

/// One kept-alive connection, opened when it is needed and again when the server has closed it.
#[derive(Debug)]
pub struct Connection {
    server: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// A connection to `server`, not opened yet.
    #[must_use]
    pub fn to(server: SocketAddr) -> Self {
        Self { server, sender: None }
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the server cannot be reached or breaks off. A request is never sent twice.
    pub async fn send(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let open = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            self.sender = None;
        }
        let sender = match &mut self.sender {
            Some(sender) => sender,
            closed => closed.insert(Self::open(self.server).await?),
        };
        let mut outgoing = http::Request::builder().method(request.method.clone()).uri(&request.path);
        if let Some(headers) = outgoing.headers_mut() {
            headers.clone_from(&request.headers);
            if !headers.contains_key(http::header::HOST) {
                headers.insert(http::header::HOST, http::HeaderValue::from_static("api.example.test"));
            }
        }
        let outgoing = outgoing.body(Full::new(request.body.clone()))?;
        let answer = sender
            .send_request(outgoing)
            .await
            .with_context(|| format!("{} {} got no answer", request.method, request.path))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.context("the answer's body broke off")?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    async fn open(server: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream =
            TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .context("no HTTP/1.1 connection")?;
        // Ends with the connection; what went wrong is what the pending request reports.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// A client for code that waits for each answer.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    connection: Mutex<Connection>,
}

impl Client {
    /// A client of `server`.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, connection: Mutex::new(Connection::to(server)) })
    }

    /// Sends a request and waits for the whole answer.
    ///
    /// # Errors
    /// See [`Connection::send`].
    pub fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        let mut connection = self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.runtime.block_on(connection.send(request))
    }
}
