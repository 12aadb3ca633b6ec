//! A receiver of webhooks on loopback.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use backend::{server, signature};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

/// One delivery as it arrived.
pub(crate) struct Delivery {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Delivery {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks both signatures.
    pub(crate) fn verify(&self, secret: &str) {
        let header = |name: &str| self.headers[name].to_str().unwrap();
        let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
        let expected = signature::standard(secret, header("webhook-id"), timestamp, &self.body).unwrap();
        assert_eq!(header("webhook-signature"), expected);
        assert_eq!(header("dub-signature"), signature::dub(secret, &self.body));
    }
}

/// Answers deliveries with the statuses it was told to, and then with 200.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    arrived: mpsc::UnboundedReceiver<Delivery>,
    answers: Arc<Mutex<VecDeque<Response>>>,
    _stop: watch::Sender<bool>,
}

#[derive(Clone)]
struct Inbox {
    arrived: mpsc::UnboundedSender<Delivery>,
    answers: Arc<Mutex<VecDeque<Response>>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, arrived) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let router = Router::new()
            .fallback(receive)
            .with_state(Inbox { arrived: send, answers: Arc::clone(&answers) });
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server::serve(listener, router, server::Bounds::default(), stopped));
        Self { address, arrived, answers, _stop: stop }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What to answer next.
    pub(crate) fn answer(&self, response: impl IntoResponse) {
        self.answers.lock().unwrap().push_back(response.into_response());
    }

    /// Answers with 200 from now on.
    pub(crate) fn forget_answers(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// The next delivery.
    pub(crate) async fn next(&mut self) -> Delivery {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), self.arrived.recv());
        next.await.expect("a delivery within 20 s").unwrap()
    }

    /// Whether deliveries have arrived that were not looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }
}

async fn receive(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = inbox.answers.lock().unwrap().pop_front();
    inbox.arrived.send(Delivery { headers, body }).unwrap();
    answer.unwrap_or_else(|| StatusCode::OK.into_response())
}

/// A receiver that answers each request when the test says so.
pub(crate) struct Slow {
    address: SocketAddr,
    arrived: mpsc::UnboundedReceiver<(String, oneshot::Sender<&'static str>)>,
}

impl Slow {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, arrived) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let send = send.clone();
                tokio::spawn(async move {
                    let mut request = String::new();
                    let id = loop {
                        let mut bytes = [0; 4096];
                        let Ok(read @ 1..) = stream.read(&mut bytes).await else { return };
                        request.push_str(&String::from_utf8_lossy(&bytes[..read]));
                        let id = request.lines().find_map(|line| line.strip_prefix("webhook-id: "));
                        if let Some(id) = id.filter(|_| request.contains("\r\n\r\n")) {
                            break id.to_owned();
                        }
                    };
                    let (answer, told) = oneshot::channel();
                    if send.send((id, answer)).is_err() {
                        return;
                    }
                    let Ok(status) = told.await else { return };
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    // The service may be gone.
                    let _gone = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { address, arrived }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The id of the next event, and what sends the status and the headers of its answer.
    pub(crate) async fn next(&mut self) -> (String, oneshot::Sender<&'static str>) {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), self.arrived.recv());
        next.await.expect("a delivery within 20 s").unwrap()
    }
}

/// A receiver that takes what it is sent and never answers.
pub(crate) struct Silent {
    address: SocketAddr,
    most: Arc<AtomicUsize>,
}

impl Silent {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let silent = Self { address, most: Arc::clone(&most) };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let open = Arc::clone(&open);
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        silent
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The most deliveries that it was sent at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}
