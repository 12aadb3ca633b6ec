//! Requests as bytes on a socket, to the simulator and to a real Envoy: what clients read, and what the upstream is sent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use host_sim::EnvoyVersion;
use host_sim_cli::against::{Contender, Envoy, Simulator};
use host_sim_cli::scenario::Answer;

use crate::differential::{self, Case};

/// How long a client waits for bytes that do not come.
const PATIENCE: Duration = Duration::from_secs(8);

/// What stands for the header that tells to which row a request belongs.
const ROW: u8 = b'$';

/// The header.
const HEADER: &str = "x-row";

/// The request that ends a connection.
const LAST: &[u8] = b"GET /after HTTP/1.1\r\nhost: a\r\n$connection: close\r\n\r\n";

/// Headers of answers that are another in every run, say which gateway answers, or what is seen anyway.
const NOT_COMPARED: [&str; 3] = ["content-length", "date", "server"];

/// Requests on one connection: a name, and what is written. A piece is written when something was read after the one before; a `$` in
/// it is the header of its row, with its line's end.
pub type Row = (&'static str, Vec<Vec<u8>>);

/// What clients and upstream saw of each row, in the simulator and in Envoy.
///
/// # Errors
/// When a gateway does not start.
pub fn seen(rows: &[Row]) -> anyhow::Result<Vec<[Vec<String>; 2]>> {
    let version = EnvoyVersion::V1_40;
    let mut case = Case::named("phases")?;
    case.scenario.upstream = Answer { body: "answer".to_owned(), ..Answer::default() }.into();
    let filters = case.filters()?;
    let simulator = Simulator::start(&case.scenario, &filters, version)?;
    let envoy = Envoy::start(&case.scenario, &filters, &differential::envoy(version)?)?;
    let (here, there) = (seen_by(&simulator, rows), seen_by(&envoy, rows));
    Ok(here.into_iter().zip(there).map(|(here, there)| [here, there]).collect())
}

/// The same of one gateway, to which all rows are written at once.
fn seen_by(gateway: &impl Contender, rows: &[Row]) -> Vec<Vec<String>> {
    let address = gateway.address();
    let answers: Vec<_> = thread::scope(|scope| {
        let clients = rows.iter().enumerate();
        let clients = clients.map(|(row, (_, pieces))| scope.spawn(move || client(address, row, pieces)));
        let clients: Vec<_> = clients.collect();
        let joined = clients.into_iter().map(|client| client.join().unwrap_or_default());
        joined.collect()
    });
    let mut seen: Vec<_> = answers.iter().map(|bytes| answered(bytes)).collect();
    for request in gateway.upstream().take_lines() {
        let of = |line: &String| line.strip_prefix(&format!("forwarded {HEADER}: "))?.parse::<usize>().ok();
        if let Some(row) = request.iter().find_map(of).and_then(|row| seen.get_mut(row)) {
            row.extend(request.into_iter().filter(|line| of(line).is_none()));
        }
    }
    seen
}

/// Writes the pieces, and then a request that ends the connection, each when something was read after the one before; and reads to
/// the end of the connection.
fn client(address: SocketAddr, row: usize, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut read = Vec::new();
    // A connection that breaks ends what is read.
    let _ = talk(address, row, pieces, &mut read);
    read
}

fn talk(address: SocketAddr, row: usize, pieces: &[Vec<u8>], read: &mut Vec<u8>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 4096];
    for piece in pieces.iter().map(Vec::as_slice).chain([LAST]) {
        stream.write_all(&tagged(piece, row))?;
        let found = stream.read(&mut buffer)?;
        read.extend_from_slice(&buffer[..found]);
    }
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            found => read.extend_from_slice(&buffer[..found]),
        }
    }
}

/// A piece with the header of its row.
fn tagged(piece: &[u8], row: usize) -> Vec<u8> {
    let header = format!("{HEADER}: {row}\r\n");
    let parts: Vec<_> = piece.split(|byte| *byte == ROW).collect();
    parts.join(header.as_bytes())
}

/// Answers line by line, each with its headers in the order of their names.
fn answered(bytes: &[u8]) -> Vec<String> {
    const BEGIN: &str = "HTTP/1.";
    let text = String::from_utf8_lossy(bytes);
    let mut lines = Vec::new();
    for answer in text.split(BEGIN).skip(1) {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let mut head = head.split("\r\n");
        let line = head.next().unwrap_or_default();
        let (minor, status) = line.split_once(' ').unwrap_or_default();
        lines.push(format!("status {}", status.split(' ').next().unwrap_or_default()));
        lines.extend((minor != "1").then(|| format!("answered by HTTP/1.{minor}")));
        let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let mut headers: Vec<_> = head.filter(|line| !NOT_COMPARED.contains(&name(line).as_str())).collect();
        headers.sort_unstable();
        lines.extend(headers.into_iter().map(|line| format!("answered {line}")));
        lines.extend((!body.is_empty()).then(|| format!("answered body {body:?}")));
    }
    lines
}
