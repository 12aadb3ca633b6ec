//! Requests and responses as a test writes and reads them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};

use crate::wire::{
    frame::Part,
    headers::{Headers, Kind},
    property::{self, Value},
};

/// How `request.protocol` names HTTP/2.
pub(crate) const HTTP2: &str = "HTTP/2";

/// What requests and responses have in common.
macro_rules! message {
    ($message:ty, $trailers:expr) => {
        impl $message {
            /// Adds a header; a repeated one is kept as Envoy keeps it (see [`Headers::append`]), and `host` takes the place of the
            /// authority that there was. Values may be any bytes.
            #[must_use]
            pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
                let name = name.into();
                if name.eq_ignore_ascii_case(b"host") {
                    self.headers.set(name, value);
                } else {
                    self.headers.append(name, value);
                }
                self
            }

            /// Sets the body. It is sent with its length, and reaches the filter in the pieces of the host's
            /// [`Framing`](crate::Framing); use a [`Stream`](crate::Stream) for other ones.
            #[must_use]
            pub fn body(mut self, body: impl Into<Bytes>) -> Self {
                self.body = body.into();
                self
            }

            /// Sets the body to these chunks together, each of which comes by itself.
            #[must_use]
            pub fn chunks<C: AsRef<[u8]>>(mut self, chunks: impl IntoIterator<Item = C>) -> Self {
                let mut body = BytesMut::new();
                self.chunks.clear();
                for chunk in chunks {
                    body.extend_from_slice(chunk.as_ref());
                    self.chunks.push(chunk.as_ref().len());
                }
                self.body = body.freeze();
                self
            }

            /// Takes the body in the chunks that it comes in; none where there is no body.
            pub(crate) fn take_chunks(&mut self) -> Vec<Bytes> {
                let mut body = std::mem::take(&mut self.body);
                let lengths = std::mem::take(&mut self.chunks).into_iter();
                let cut = lengths.map(|length| body.split_to(length.min(body.len())));
                let mut chunks: Vec<Bytes> = cut.filter(|chunk| !chunk.is_empty()).collect();
                chunks.extend(Some(body).filter(|rest| !rest.is_empty()));
                chunks
            }

            /// Adds a trailer.
            #[must_use]
            pub fn trailer(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
                self.trailers.get_or_insert_with(|| Headers::of($trailers)).append(name, value);
                self
            }

            /// Sends the body in chunks, which say nothing of its length: no `content-length` is added.
            #[must_use]
            pub fn chunked(mut self) -> Self {
                self.chunked = true;
                self
            }

            /// Adds the `content-length` that a sender adds to a body whose length it knows.
            pub(crate) fn declare_length(&mut self) {
                let has_length =
                    self.chunked || self.trailers.is_some() || self.headers.get("content-length").is_some();
                if !self.body.is_empty() && !has_length {
                    self.headers.append("content-length", self.body.len().to_string());
                }
            }

            /// Adds a part of a message to what came of it before.
            pub(crate) fn gather(gathered: &mut Option<Self>, part: Part) {
                match (part, gathered) {
                    (Part::Headers { headers, .. }, gathered) => {
                        *gathered = Some(Self::from_headers(headers))
                    }
                    (Part::Body { data, .. }, Some(message)) if message.body.is_empty() => {
                        message.body = data
                    }
                    (Part::Body { data, .. }, Some(message)) => {
                        message.body = [message.body.as_ref(), data.as_ref()].concat().into();
                    }
                    (Part::Trailers(trailers), Some(message)) => message.trailers = Some(trailers),
                    (Part::Body { .. } | Part::Trailers(_), None) => {}
                }
            }

            /// All headers, pseudo-headers among them.
            pub fn headers(&self) -> &Headers {
                &self.headers
            }

            /// A header's first value, if it is UTF-8.
            pub fn header_str(&self, name: &str) -> Option<&str> {
                std::str::from_utf8(self.headers.get(name)?).ok()
            }

            /// The whole body.
            pub fn body_bytes(&self) -> &Bytes {
                &self.body
            }

            /// The trailers, if any.
            pub fn trailers(&self) -> Option<&Headers> {
                self.trailers.as_ref()
            }
        }
    };
}

message!(Request, Kind::Any);
message!(Response, Kind::ResponseTrailers);

/// A request as a client sends it, or as the upstream receives it.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<Headers>,
    /// Lengths of the pieces in which the body is sent; it is sent as one where there are none.
    pub(crate) chunks: Vec<usize>,
    pub(crate) chunked: bool,
    /// It reaches the filters as it is: the gateway neither refuses it nor adds to it.
    pub(crate) as_given: bool,
    pub(crate) peer: Peer,
}

/// What is known of the connection that a stream belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The client's address and port, which `source.address` gives.
    pub source: Arc<str>,
    /// The address and port that the client has connected to, which `destination.address` gives.
    pub destination: Arc<str>,
    /// `HTTP/1.1` and the like, which `request.protocol` gives.
    pub protocol: &'static str,
    /// The connection's number, which `connection.id` gives.
    pub id: u64,
}

/// What is known of a request beside its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) source: Arc<str>,
    pub(crate) destination: Arc<str>,
    pub(crate) protocol: &'static str,
    pub(crate) connection_id: u64,
    /// Values that a test gives for property paths, by their parts joined with zero bytes.
    pub(crate) properties: BTreeMap<Vec<u8>, Value>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            source: "127.0.0.1:50000".into(),
            destination: "127.0.0.1:80".into(),
            protocol: "HTTP/1.1",
            connection_id: 1,
            properties: BTreeMap::new(),
        }
    }
}

impl Request {
    /// A request without a body, from 127.0.0.1:50000, with authority `localhost`.
    pub fn new(method: impl Into<Bytes>, path: impl Into<Bytes>) -> Self {
        let headers = [
            (Bytes::from_static(b":authority"), Bytes::from_static(b"localhost")),
            (Bytes::from_static(b":path"), path.into()),
            (Bytes::from_static(b":method"), method.into()),
            (Bytes::from_static(b":scheme"), Bytes::from_static(b"http")),
        ];
        Self { as_given: false, ..Self::from_headers(headers.into_iter().collect()) }
    }

    /// A request with exactly these headers, pseudo-headers among them: it reaches the filter as it is, where any other gets
    /// what a gateway adds, and is refused where a gateway refuses it (see [`edge`](crate::edge)).
    pub fn from_headers(headers: Headers) -> Self {
        let headers = headers.into_kind(Kind::Request);
        Self {
            headers,
            body: Bytes::new(),
            trailers: None,
            chunks: Vec::new(),
            chunked: false,
            as_given: true,
            peer: Peer::default(),
        }
    }

    /// `GET path`.
    pub fn get(path: impl Into<Bytes>) -> Self {
        Self::new("GET", path)
    }

    /// `HEAD path`.
    pub fn head(path: impl Into<Bytes>) -> Self {
        Self::new("HEAD", path)
    }

    /// `POST path`.
    pub fn post(path: impl Into<Bytes>) -> Self {
        Self::new("POST", path)
    }

    /// `DELETE path`.
    pub fn delete(path: impl Into<Bytes>) -> Self {
        Self::new("DELETE", path)
    }

    /// Removes a header, pseudo-headers too: `without(":path")` is a CONNECT.
    #[must_use]
    pub fn without(mut self, name: impl AsRef<[u8]>) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sets the authority.
    #[must_use]
    pub fn authority(mut self, authority: impl Into<Bytes>) -> Self {
        self.headers.set(":authority", authority);
        self
    }

    /// The client's address and port, `203.0.113.9:5000` or `[2001:db8::1]:5000`, as `source.address` gives it.
    #[must_use]
    pub fn source(mut self, address: impl Into<String>) -> Self {
        self.peer.source = address.into().into();
        self
    }

    /// What [`source`](Self::source) was given, `127.0.0.1:50000` unless it was.
    pub fn source_address(&self) -> &str {
        &self.peer.source
    }

    /// The request comes by HTTP/2, as `request.protocol` tells; by HTTP/1.1 unless said.
    #[must_use]
    pub fn http2(mut self) -> Self {
        self.peer.protocol = HTTP2;
        self
    }

    /// The id of the connection, as `connection.id` gives it; 1 unless set.
    #[must_use]
    pub fn connection(mut self, id: u64) -> Self {
        self.peer.connection_id = id;
        self
    }

    /// Gives a property a value: `["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]`,
    /// `["xds", "route_name"]`. A prefix of it reads as a map.
    #[must_use]
    pub fn property<P: AsRef<[u8]>>(
        mut self,
        path: impl IntoIterator<Item = P>,
        value: impl Into<Value>,
    ) -> Self {
        self.peer.properties.insert(property::joined(path), value.into());
        self
    }

    /// `:path`, empty when there is none.
    pub fn path(&self) -> &str {
        self.header_str(":path").unwrap_or_default()
    }

    /// `:method`, empty when there is none.
    pub fn method(&self) -> &str {
        self.header_str(":method").unwrap_or_default()
    }
}

/// A call of a filter to a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterCall {
    /// The cluster's name.
    pub cluster: String,
    /// What the cluster received; of gRPC, with its message in a frame.
    pub request: Request,
    /// What the filter was answered, if it was.
    pub answer: Option<Response>,
}

/// How an exchange with an upstream or a cluster failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection broke.
    Reset,
    /// What was answered is no HTTP.
    Malformed,
    /// It never answers: a test answers by hand, or the call's time-out passes.
    Silence,
}

/// A response as the upstream sends it, or as the client receives it.
#[derive(Debug, Clone)]
pub struct Response {
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<Headers>,
    /// Lengths of the pieces in which the body is sent; it is sent as one where there are none.
    pub(crate) chunks: Vec<usize>,
    pub(crate) chunked: bool,
    pub(crate) failure: Option<Failure>,
    pub(crate) delay: Duration,
}

impl Response {
    /// A response without a body.
    pub fn new(status: u16) -> Self {
        Self::from_headers([(":status", status.to_string())].into_iter().collect())
    }

    /// A response with exactly these headers, `:status` among them.
    pub fn from_headers(headers: Headers) -> Self {
        let headers = headers.into_kind(Kind::Response);
        Self {
            headers,
            body: Bytes::new(),
            trailers: None,
            chunks: Vec::new(),
            chunked: false,
            failure: None,
            delay: Duration::ZERO,
        }
    }

    /// 200 without a body.
    pub fn ok() -> Self {
        Self::new(200)
    }

    /// The upstream breaks the connection instead of answering.
    pub fn reset() -> Self {
        Self { failure: Some(Failure::Reset), ..Self::new(503) }
    }

    /// The upstream answers with what is no HTTP.
    pub fn malformed() -> Self {
        Self { failure: Some(Failure::Malformed), ..Self::new(502) }
    }

    /// The answer to a callout comes this much later, as the host is advanced; not at all if the callout times out before.
    /// That of an upstream does with [`Host::send_and_wait`](crate::Host::send_and_wait).
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The upstream does not answer. A callout stays open until it is answered by hand or times out.
    pub fn silence() -> Self {
        Self { failure: Some(Failure::Silence), ..Self::new(504) }
    }

    /// The status code; 0 when `:status` is missing or no number.
    pub fn status(&self) -> u16 {
        self.headers.status()
    }
}
