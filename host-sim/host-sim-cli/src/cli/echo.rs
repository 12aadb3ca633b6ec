//! An upstream that answers each request with what it said.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, runtime, time};

/// How long it waits where the system refuses a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts one on a free port of this machine. It ends with the process.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _within = runtime.enter();
        TcpListener::from_std(listener)?
    };
    thread::Builder::new().name("echo".to_owned()).spawn(move || runtime.block_on(serve(&listener)))?;
    Ok(address)
}

async fn serve(listener: &TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(PAUSE).await;
            continue;
        };
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            // The gateway reports a connection that breaks off.
            let _ = connection.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
        });
    }
}

async fn echo(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let mut said = format!("{} {}\n", head.method, head.uri).into_bytes();
    for (name, value) in &head.headers {
        said.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
    }
    said.extend(b"\n");
    said.extend(body.collect().await?.to_bytes());
    let mut response = Response::new(Full::from(said));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
