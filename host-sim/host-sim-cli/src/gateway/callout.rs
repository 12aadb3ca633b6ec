//! Calls of the filter to clusters, over the network.

use std::rc::Rc;

use host_sim::{LogLevel, Response, driver::Callout};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::{
    body::{self, Pipe},
    client::Failure,
    history::RequestId,
    local::Local,
    translate,
};

/// Makes a call, for a request if it was made in one, and hands its answer to the guest.
pub(super) async fn make(local: Rc<Local>, callout: Callout, request: Option<RequestId>) {
    let call = answer(&local, &callout);
    let response = match callout.timeout {
        Some(timeout) => tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Callout::timed_out()),
        None => call.await,
    };
    local.with_for(request, |worker| worker.finish_callout(callout.call, response));
}

async fn answer(local: &Local, callout: &Callout) -> Response {
    if let Some(response) = local.common.driver.answer(callout) {
        return response;
    }
    let Some(base) = local.common.options.clusters.get(&callout.cluster) else { return Response::reset() };
    let body = callout.request.body_bytes().clone();
    let headers = callout.request.headers().clone();
    let asked = local.now();
    let answer = if callout.is_grpc {
        // It goes without a `content-length`.
        let mut pipe = Pipe::default();
        let Some(request) = translate::outbound_http2(headers, pipe.open()) else { return Response::reset() };
        pipe.data(body, true);
        local.clients.call(&callout.cluster, base, request)
    } else {
        let Some(request) = translate::outbound(headers, base, body::whole(body)) else {
            return Response::reset();
        };
        local.clients.request(request)
    };
    let response = match answer.await.map_err(Failure::from) {
        Ok(response) => response,
        Err(Failure::Unreachable) => return Callout::unreachable(),
        Err(Failure::Broken) => return Callout::unanswered(),
        Err(Failure::Malformed) => return Callout::malformed(),
    };
    let taken = local.now().saturating_sub(asked).as_millis();
    let (parts, body) = response.into_parts();
    let limit = if callout.is_grpc { usize::MAX } else { Callout::MAX_ANSWER };
    let collected = match Limited::new(body, limit).collect().await {
        Ok(collected) => collected,
        Err(error) => {
            // Without a limit that was passed, the answer broke off.
            if error.is::<LengthLimitError>() {
                local.peek(|worker| worker.log(LogLevel::Warn, Callout::TOO_LARGE));
            }
            return Response::reset();
        }
    };
    let trailers = collected.trailers().map(translate::headers_of).unwrap_or_default();
    let response = Response::from_headers(translate::response_headers(&parts))
        .header("x-envoy-upstream-service-time", taken.to_string())
        .body(collected.to_bytes());
    trailers.iter().fold(response, |response, (name, value)| response.trailer(name.clone(), value.clone()))
}
