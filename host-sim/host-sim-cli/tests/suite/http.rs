//! HTTP/1.1 by hand, over real sockets: a gateway, what stands behind it, and its clients.

use std::{
    io::{BufRead, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use host_sim::{Clock, Host, Module, Plugin};
use host_sim_cli::gateway::{Gateway, Options};

use crate::guests;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A message as it came over the wire.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One line without its end, its bytes read as Latin-1; `None` at the end of the connection.
pub(crate) fn line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).ok().filter(|read| *read > 0)?;
    Some(line.into_iter().filter(|byte| !b"\r\n".contains(byte)).map(char::from).collect())
}

/// Reads the start line and the headers.
pub(crate) fn read_head(stream: &mut impl BufRead) -> Option<Message> {
    let start = line(stream)?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Message { start, headers, body: Vec::new() })
}

/// Reads one chunk of a chunked body; an empty one is the last.
pub(crate) fn read_chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let size = usize::from_str_radix(&line(stream)?, 16).ok()?;
    let mut chunk = vec![0; size];
    stream.read_exact(&mut chunk).ok()?;
    line(stream)?;
    Some(chunk)
}

pub(crate) fn read_message(stream: &mut impl BufRead) -> Option<Message> {
    let mut message = read_head(stream)?;
    if message.header("transfer-encoding") == Some("chunked") {
        loop {
            let chunk = read_chunk(stream)?;
            if chunk.is_empty() {
                return Some(message);
            }
            message.body.extend(chunk);
        }
    }
    let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    message.body.resize(length, 0);
    stream.read_exact(&mut message.body).ok()?;
    Some(message)
}

/// An upstream whose every connection `serve` handles.
pub(crate) fn upstream(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers every request with 200 and what it received: the start line, the headers, the body.
pub(crate) fn echo(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read_message(&mut reader) {
        let headers: String =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let body = format!("{}\n{headers}\n{}", request.start, request.text());
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// A gateway in front of `upstream` whose admin address is open, with a cluster "auth".
pub(crate) fn gateway_with(guest: &str, upstream: SocketAddr, cluster: Option<SocketAddr>) -> Gateway {
    let host = Host::builder().workers(2).clock(Clock::real()).system_randomness().build();
    let module = Module::compile(guests::guest(guest)).unwrap();
    let url = |address: SocketAddr| format!("http://{address}").parse().unwrap();
    let mut options = Options::new(url(upstream));
    options.clusters.extend(cluster.map(|address| ("auth".to_owned(), url(address))));
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Gateway::start(host, [(&module, Plugin::default())], options).unwrap()
}

pub(crate) fn gateway(guest: &str) -> Gateway {
    gateway_with(guest, upstream(echo), None)
}

pub(crate) fn connect(address: SocketAddr) -> (TcpStream, BufReader<TcpStream>) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    (stream, reader)
}

/// Sends one request on a connection of its own.
pub(crate) fn send(address: SocketAddr, request: &[u8]) -> Message {
    let (mut stream, mut reader) = connect(address);
    stream.write_all(request).unwrap();
    read_message(&mut reader).unwrap()
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Message {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n").as_bytes())
}
