//! Requests that reach gateways at the same moment, over HTTP/2 connections that are already open.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::clock;
use tests::envoy::Envoy;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Longest wait for an answer. A request without an answer by then hangs.
pub const PATIENCE: Duration = Duration::from_secs(5);

type Sender = SendRequest<Full<Bytes>>;

/// Clients of several gateways.
#[derive(Debug)]
pub struct Clients {
    runtime: Runtime,
    gateways: Vec<Vec<Sender>>,
}

impl Clients {
    /// Opens that many connections to each gateway, which deals them out to its workers in turn.
    ///
    /// # Errors
    /// When a gateway does not accept a connection.
    pub fn to(gateways: &[Envoy], connections: usize) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let opened = runtime.block_on(async {
            let mut opened = Vec::new();
            for gateway in gateways {
                let mut senders = Vec::new();
                for _ in 0..connections {
                    let stream = TcpStream::connect(gateway.address()).await?;
                    stream.set_nodelay(true)?;
                    let (sender, connection) =
                        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                    // Ends with the connection. A pending request reports what went wrong.
                    tokio::spawn(connection);
                    senders.push(sender);
                }
                opened.push(senders);
            }
            anyhow::Ok(opened)
        });
        Ok(Self { gateways: opened?, runtime })
    }

    /// Sends that many requests with `key` to each gateway at once, and waits for all answers.
    ///
    /// # Errors
    /// When a gateway breaks off a connection or a stream.
    pub fn send(&self, key: &str, requests: usize) -> anyhow::Result<Burst> {
        self.runtime.block_on(async {
            let mut waiting = JoinSet::new();
            for place in 0..requests {
                for senders in &self.gateways {
                    let sender = senders.get(place % senders.len().max(1)).context("no connections")?;
                    waiting.spawn(send(sender.clone(), key.to_owned()));
                }
            }
            let mut burst = Burst::default();
            while let Some(answer) = waiting.join_next().await {
                burst.add(answer.context("a client panicked")??);
            }
            Ok(burst)
        })
    }

    /// Sends that many requests with `key` one after the other, to the gateways in turn.
    ///
    /// # Errors
    /// As [`Clients::send`].
    pub fn send_in_turn(&self, key: &str, requests: usize) -> anyhow::Result<Burst> {
        let mut burst = Burst::default();
        for senders in self.gateways.iter().cycle().take(requests) {
            let sender = senders.first().context("no connections")?.clone();
            burst.add(self.runtime.block_on(send(sender, key.to_owned()))?);
        }
        Ok(burst)
    }
}

async fn send(mut sender: Sender, key: String) -> anyhow::Result<Option<Answer>> {
    let request = http::Request::get("http://api.example.test/links")
        .header(http::header::AUTHORIZATION, format!("Bearer {key}"))
        .body(Full::default())?;
    let sent = clock::now();
    let Ok(answer) = tokio::time::timeout(PATIENCE, sender.send_request(request)).await else {
        return Ok(None);
    };
    let answer = answer.context("a request without an answer")?;
    let waited = clock::now().saturating_sub(sent);
    let remaining = answer.headers().get("x-ratelimit-remaining");
    let remaining = remaining.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Some(Answer { status: answer.status().as_u16(), remaining, waited }))
}

/// An answer to one request of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// X-RateLimit-Remaining, if it is a number.
    pub remaining: Option<u64>,
    /// Time from sending the request to the headers of the answer.
    pub waited: Duration,
}

/// What came of several requests.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// The answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// Requests without an answer within [`PATIENCE`].
    pub unanswered: usize,
}

impl Burst {
    fn add(&mut self, answer: Option<Answer>) {
        match answer {
            None => self.unanswered += 1,
            Some(answer) => self.answers.push(answer),
        }
    }

    /// Number of answers with this status.
    #[must_use]
    pub fn count(&self, status: u16) -> usize {
        self.answers.iter().filter(|answer| answer.status == status).count()
    }

    /// Number of answers that say 429 and that units remain.
    #[must_use]
    pub fn contradictions(&self) -> usize {
        let contradicts = |answer: &&Answer| answer.status == 429 && answer.remaining != Some(0);
        self.answers.iter().filter(contradicts).count()
    }

    /// The longest wait for an answer.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.answers.iter().map(|answer| answer.waited).max().unwrap_or_default()
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut statuses = BTreeMap::<u16, usize>::new();
        for answer in &self.answers {
            *statuses.entry(answer.status).or_default() += 1;
        }
        for (status, count) in statuses {
            write!(f, "{count} x {status}, ")?;
        }
        let refused = self.answers.iter().filter(|answer| answer.status == 429);
        if let Some(most) = refused.filter_map(|answer| answer.remaining).max() {
            write!(f, "429 with Remaining up to {most}, ")?;
        }
        write!(f, "{} unanswered, slowest {:.0?}", self.unanswered, self.slowest())
    }
}
