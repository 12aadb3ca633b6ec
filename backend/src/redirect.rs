//! Short links at work: `GET /r/{key}` answers 302 and counts the click.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use jiff::{SignedDuration, Timestamp};
use moka::sync::Cache;
use url::{Url, form_urlencoded};

use crate::app::{App, Shared};
use crate::error::{ApiError, Code};
use crate::path::Name;
use crate::store::{Click, RedirectTarget, StoreError};
use crate::visitor::{self, Agent};

/// Targets kept in memory at most.
const CACHED_TARGETS: u64 = 100_000;
/// How long a target is trusted; a change made through this process is seen at once, one made through another within
/// this time.
const TRUSTED: SignedDuration = SignedDuration::from_secs(1);

/// Query parameters of the short link that are for the service and not for the destination.
const OWN_PARAMETERS: [&str; 2] = ["qr", "redir_url"];

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/r/{*key}", routing::get(follow))
}

/// Where short links lead, as seen lately.
#[derive(Debug)]
pub(crate) struct Targets {
    seen: Cache<(String, String), (Timestamp, Arc<RedirectTarget>)>,
}

impl Default for Targets {
    fn default() -> Self {
        Self { seen: Cache::new(CACHED_TARGETS) }
    }
}

impl Targets {
    async fn find(
        &self,
        app: &App,
        domain: &str,
        key: &str,
    ) -> Result<Option<Arc<RedirectTarget>>, StoreError> {
        let now = app.clock.now();
        let name = (domain.to_owned(), key.to_lowercase());
        if let Some((seen, target)) = self.seen.get(&name)
            && now.duration_since(seen).abs() < TRUSTED
        {
            return Ok(Some(target));
        }
        let Some(target) = app.store.redirect_target(domain, key).await? else { return Ok(None) };
        let target = Arc::new(target);
        self.seen.insert(name, (now, Arc::clone(&target)));
        Ok(Some(target))
    }

    /// To be called after a link has changed.
    pub(crate) fn forget(&self, domain: &str, key: &str) {
        self.seen.invalidate(&(domain.to_owned(), key.to_lowercase()));
    }
}

async fn follow(State(app): State<Shared>, Name(key): Name, request: Request) -> Result<Response, ApiError> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let domain = app.public_url.domain_of_host(host);
    let target = app.targets.find(&app, domain, &key).await?.ok_or_else(not_found)?;
    let now = app.clock.now();
    if target.details.disabled_at.is_some_and(|disabled| disabled <= now) {
        return Err(not_found());
    }
    if target.details.expires_at.is_some_and(|expires| expires <= now) {
        return match &target.details.expired_url {
            Some(url) => redirect(&target, &with_parameters(url, "")),
            None => Err(ApiError::new(Code::Gone, "This link has expired.")),
        };
    }
    let headers = request.headers();
    let query = request.uri().query().unwrap_or_default();
    let agent = Agent::parse(visitor::user_agent(headers));
    let destination = with_parameters(destination(&target, &agent), query);
    let response = redirect(&target, &destination)?;
    if request.method() == Method::GET && !agent.is_bot {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
        let qr = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "qr" && value == "1");
        let mut click = Click::new(&target.link_id, now);
        click.details = visitor::details(headers, agent, destination, qr, client_address(headers).or(peer));
        app.recorder.record(click).await;
    }
    Ok(response)
}

fn not_found() -> ApiError {
    ApiError::not_found("Link not found.")
}

/// The destination for this visitor's device.
fn destination<'a>(target: &'a RedirectTarget, agent: &Agent) -> &'a str {
    let for_device = match agent.os.as_str() {
        "iPhone" | "iPad" | "iPod" | "iOS" => target.details.ios.as_deref(),
        "Android" => target.details.android.as_deref(),
        _ => None,
    };
    for_device.unwrap_or(&target.url)
}

/// The destination with the short link's own query parameters merged in; they win over those it had.
fn with_parameters(destination: &str, query: &str) -> String {
    let added: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .filter(|(name, _)| !OWN_PARAMETERS.contains(&name.as_str()))
        .collect();
    let Ok(mut url) = Url::parse(destination) else { return destination.to_owned() };
    if !added.is_empty() {
        let kept: Vec<(String, String)> = url
            .query_pairs()
            .into_owned()
            .filter(|(name, _)| added.iter().all(|(other, _)| other != name))
            .collect();
        url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(added);
    }
    url.into()
}

fn redirect(target: &RedirectTarget, destination: &str) -> Result<Response, ApiError> {
    let location = HeaderValue::from_str(destination).map_err(|_| {
        ApiError::new(Code::InternalServerError, "The destination cannot be put into a header.")
    })?;
    let mut headers = HeaderMap::new();
    headers.insert(LOCATION, location);
    // Every visit is to be counted.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !target.details.do_index {
        headers.insert("x-robots-tag", HeaderValue::from_static("googlebot: noindex"));
    }
    Ok((StatusCode::FOUND, headers).into_response())
}

/// The visitor's address as the gateway saw it: the last entry of `X-Forwarded-For`, since only that is the gateway's.
fn client_address(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}
