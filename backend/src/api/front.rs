//! The handler of the public listener.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;

use crate::api::redirect::{PREFIX, ROUTE, visit};
use crate::api::state::Shared;
use crate::http::path;
use crate::http::scope::{RequestScope, request_id};
use crate::http::server::Handler;

/// The handler of the public listener. It answers redirects, which are most of the traffic, without the router: the
/// router would take longer than the rest of a redirect.
#[derive(Clone, Debug)]
pub struct Front {
    pub(crate) app: Shared,
    pub(crate) scope: Arc<RequestScope>,
    pub(crate) router: Router,
}

impl Handler for Front {
    async fn answer(self, request: hyper::Request<Incoming>, peer: SocketAddr) -> Response {
        let part = request.uri().path().strip_prefix(PREFIX).filter(|_| request.method() == Method::GET);
        if part.and_then(path::plain).is_none() {
            // Boxed, so that redirects do not carry this future.
            return Box::pin(self.router.answer(request, peer)).await;
        }
        let (parts, _body) = request.into_parts();
        let visit = pin!(async {
            let key = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
            visit(&self.app, key, &parts, Some(peer.ip())).await.into_response()
        });
        self.scope.handle(&parts.method, ROUTE, request_id(&parts.headers), visit).await
    }
}
