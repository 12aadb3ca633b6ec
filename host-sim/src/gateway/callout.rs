//! Calls of the filter to clusters, over the network.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use super::{body::StreamBody, thread::Local, translate};
use crate::{
    message::Response,
    state::{CallKind, Callout},
    worker,
};

/// The most bytes of an answer that are kept: Envoy's buffer limit of a connection.
const MAX_BODY: usize = 1 << 20;

/// Makes a call, and hands its answer to the guest of `generation`.
pub(super) async fn make(local: Rc<Local>, generation: u64, callout: Callout) {
    let call = answer(&local, &callout);
    let response = match callout.timeout {
        Some(timeout) => tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| worker::timed_out()),
        None => call.await,
    };
    local.with(|worker| worker.finish_callout(generation, callout.token, response));
}

async fn answer(local: &Local, callout: &Callout) -> Response {
    let Some(base) = local.clusters.get(&callout.cluster) else { return Response::reset() };
    let body = StreamBody::whole(callout.request.body.clone());
    let Ok(request) = translate::outbound(&callout.request.headers, base, body) else {
        return Response::reset();
    };
    let client = match callout.kind {
        CallKind::Http => &local.client,
        CallKind::Grpc | CallKind::GrpcStream => &local.grpc_client,
    };
    let asked = local.now();
    let Ok(response) = client.request(request).await else { return unavailable() };
    let taken = local.now().saturating_sub(asked).as_millis();
    let (parts, body) = response.into_parts();
    // The answer broke off, or is beyond the limit.
    let Ok(collected) = Limited::new(body, MAX_BODY).collect().await else { return Response::reset() };
    let mut response = Response::from_headers(translate::response_headers(&parts))
        .header("x-envoy-upstream-service-time", taken.to_string());
    response.trailers = collected.trailers().map(translate::headers_of);
    response.body = collected.to_bytes();
    response
}

/// What a guest sees when the cluster cannot be reached: a response of the gateway's.
fn unavailable() -> Response {
    const BODY: &str = "upstream connect error or disconnect/reset before headers. reset reason: remote connection \
                        failure";
    Response::new(503)
        .header("content-length", BODY.len().to_string())
        .header("content-type", "text/plain")
        .body(Bytes::from_static(BODY.as_bytes()))
}
