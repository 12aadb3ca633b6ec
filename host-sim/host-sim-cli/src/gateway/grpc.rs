//! Streams of gRPC of the filter to clusters, over h2c.

use std::rc::Rc;

use bytes::BytesMut;
use futures_util::future::OptionFuture;
use host_sim::{
    Request,
    driver::{CallId, GrpcEvent, GrpcStep},
};
use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::{body::Pipe, local::Local, translate};

/// Runs one stream, from its opening to the end of both sides or until the guest gives it up.
pub(super) async fn run(
    local: Rc<Local>,
    call: CallId,
    cluster: String,
    request: Request,
    steps: mpsc::UnboundedReceiver<GrpcStep>,
) {
    // A stream that the guest has reset hears no more of its cluster.
    if !exchange(&local, call, &cluster, &request, steps).await {
        tell(&local, call, vec![GrpcEvent::broken()]);
    }
}

fn tell(local: &Rc<Local>, call: CallId, events: Vec<GrpcEvent>) {
    for event in events {
        local.with(|worker| worker.grpc_event(call, event));
    }
}

/// Whether the stream came to an end that the guest knows of.
async fn exchange(
    local: &Rc<Local>,
    call: CallId,
    cluster: &str,
    request: &Request,
    mut steps: mpsc::UnboundedReceiver<GrpcStep>,
) -> bool {
    let Some(base) = local.common.options.clusters.get(cluster) else { return false };
    let mut pipe = Pipe::default();
    let Some(request) = translate::outbound_http2(request.headers().clone(), pipe.open()) else {
        return false;
    };
    let mut asked = Some(local.clients.call(cluster, base, request));
    let mut answer: Option<Incoming> = None;
    let mut received = BytesMut::new();
    loop {
        tokio::select! {
            step = steps.recv() => match step {
                Some(GrpcStep::Send { message, end }) => pipe.data(message, end),
                Some(GrpcStep::Close) => pipe.data(bytes::Bytes::new(), true),
                Some(GrpcStep::Reset) | None => return true,
                // A stream is opened once, which is how it came here.
                Some(GrpcStep::Open { .. }) => {}
            },
            () = pipe.progress() => {}
            Some(response) = OptionFuture::from(asked.as_mut()) => {
                asked = None;
                let Ok(response) = response else { return false };
                let (events, body) = opened(response);
                let ended = body.is_none();
                answer = body;
                tell(local, call, events);
                if ended {
                    return true;
                }
            }
            Some(frame) = OptionFuture::from(answer.as_mut().map(Incoming::frame)) => {
                let Some(Ok(frame)) = frame else { return false };
                match frame.into_data() {
                    Ok(data) => {
                        received.extend_from_slice(&data);
                        let messages = GrpcEvent::of_body(&mut received);
                        tell(local, call, messages);
                    }
                    Err(frame) => {
                        let Ok(trailers) = frame.into_trailers() else { return false };
                        tell(local, call, GrpcEvent::of_trailers(translate::headers_of(&trailers)));
                        return true;
                    }
                }
            }
        }
    }
}

/// What the answer's headers say, and its body if there is more to come.
fn opened(response: Response<Incoming>) -> (Vec<GrpcEvent>, Option<Incoming>) {
    let (parts, body) = response.into_parts();
    let events = GrpcEvent::of_headers(translate::response_headers(&parts), body.is_end_stream());
    let closed = events.iter().any(|event| matches!(event, GrpcEvent::Closed { .. }));
    (events, (!closed).then_some(body))
}
