//! `GET /r/{key}`: redirects to the destination of a short link with 302 and records the click.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, HeaderValue, LOCATION};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router, routing};
use url::{Url, form_urlencoded};

use crate::background;
use crate::error::{ApiError, Code};
use crate::metrics::ClickOutcome;
use crate::path::Name;
use crate::state::{App, Shared};
use crate::store::{Click, ClickRef, RedirectTarget};
use crate::visitor::{self, Agent, Location, Referer};

/// Query parameters of the short link that are not passed on to the destination.
const OWN_PARAMETERS: [&str; 2] = ["qr", "redir_url"];

/// Destinations and queries that are longer than this together, in bytes, are merged in the background. It takes milliseconds, which
/// other requests do not wait for.
const LONG: usize = 8 * 1024;

/// The path prefix of short links.
pub(crate) const PREFIX: &str = "/r/";
pub(crate) const ROUTE: &str = "/r/{*key}";

pub(crate) fn router() -> Router<Shared> {
    Router::new().route(ROUTE, routing::get(follow))
}

async fn follow(
    State(app): State<Shared>,
    Name(key): Name,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _body) = request.into_parts();
    visit(&app, &key, &parts, peer.map(|Extension(peer)| peer.0.ip())).await
}

/// Redirects a visitor of `key`, and records the click.
pub(crate) async fn visit(
    app: &App,
    key: &str,
    request: &Parts,
    peer: Option<IpAddr>,
) -> Result<Response, ApiError> {
    let headers = &request.headers;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let domain = app.public_url.domain_of_host(host);
    let target = app.targets.find(domain, key).await?.ok_or_else(not_found)?;
    app.gate.workloads.seen(target.workspace_seq);
    let now = app.clock.now();
    if target.details.disabled_at.is_some_and(|disabled| disabled <= now) {
        return Err(not_found());
    }
    if target.details.expires_at.is_some_and(|expires| expires <= now) {
        return match &target.details.expired_url {
            Some(url) => redirect(&target, url),
            None => Err(ApiError::new(Code::Gone, "This link has expired.")),
        };
    }
    let query = request.uri.query().unwrap_or_default();
    let user_agent = visitor::user_agent(headers);
    let agent = app.agents.parse(user_agent);
    let location = Location::of(headers, &app.click_rules.location);
    let destination = destination(&target, &agent, &location.country);
    let destination = if !query.is_empty() && destination.len() + query.len() > LONG {
        Cow::Owned(merged_in_background(app, destination.to_owned(), query.to_owned()).await?)
    } else {
        with_parameters(destination, query)
    };
    let response = redirect(&target, &destination)?;
    if request.method != Method::GET {
        return Ok(response);
    }
    if agent.is_bot && !app.click_rules.count_bots {
        app.metrics.clicks(ClickOutcome::Bot, 1);
        return Ok(response);
    }
    let qr = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "qr" && value == "1");
    let trigger = if qr { "qr" } else { "link" };
    let (user_agent, referer) = (visitor::kept_user_agent(user_agent), Referer::of(headers));
    let address = app.click_rules.client_address(headers).or(peer).map(|address| address.to_canonical());
    // The rest of the address reaches neither the spool nor the database.
    let ip = address.map(|address| app.click_rules.ip.of(address)).unwrap_or_default();
    let click = ClickRef {
        id: &Click::new_id(),
        link_id: &target.link_id,
        at: now,
        destination: visitor::kept_destination(&destination),
        visitor: visitor::stored(&location, &agent, user_agent, trigger, &referer),
        ip: &ip,
    };
    if app.click_rules.once_per_hour && app.repeats.is_repeated(&click, user_agent, address) {
        app.metrics.clicks(ClickOutcome::Repeated, 1);
        return Ok(response);
    }
    app.recorder.record(&click, target.workspace_seq).await;
    Ok(response)
}

fn not_found() -> ApiError {
    ApiError::not_found("Link not found.")
}

/// The destination for this visitor: that of the device, else that of the country, else the default.
fn destination<'a>(target: &'a RedirectTarget, agent: &Agent, country: &str) -> &'a str {
    let for_device = match agent.os.as_ref() {
        "iOS" => target.details.ios.as_deref(),
        "Android" => target.details.android.as_deref(),
        _ => None,
    };
    let by_country = target.details.geo.as_ref().and_then(|geo| geo.get(country)).map(String::as_str);
    for_device.or(by_country).unwrap_or(&target.url)
}

/// Merges the short link's query parameters into the destination. They replace parameters of the same name.
fn with_parameters<'a>(destination: &'a str, query: &str) -> Cow<'a, str> {
    let added: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .filter(|(name, _)| !OWN_PARAMETERS.contains(&name.as_str()))
        .collect();
    if added.is_empty() {
        return Cow::Borrowed(destination);
    }
    let Ok(mut url) = Url::parse(destination) else { return Cow::Borrowed(destination) };
    let names: HashSet<&str> = added.iter().map(|(name, _)| name.as_str()).collect();
    let kept: Vec<(String, String)> =
        url.query_pairs().into_owned().filter(|(name, _)| !names.contains(name.as_str())).collect();
    url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(added);
    Cow::Owned(url.into())
}

/// Merges a long query. The thread has a permit until it ends, because it continues if the client disconnects.
async fn merged_in_background(app: &App, destination: String, query: String) -> Result<String, ApiError> {
    let permit = Arc::clone(&app.merging).acquire_owned().await.map_err(|_closed| ApiError::internal())?;
    let merge = move || {
        let _permit = permit;
        with_parameters(&destination, &query).into_owned()
    };
    background::run(merge).await.ok_or_else(ApiError::internal)
}

fn redirect(target: &RedirectTarget, destination: &str) -> Result<Response, ApiError> {
    let location = HeaderValue::from_str(destination).map_err(|_| {
        ApiError::new(Code::InternalServerError, "The destination cannot be put into a header.")
    })?;
    let mut response = StatusCode::FOUND.into_response();
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    // Caches must not answer later visits, because each visit counts.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !target.details.do_index {
        headers.insert("x-robots-tag", HeaderValue::from_static("googlebot: noindex"));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::body::Body;
    use futures_util::poll;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use super::*;
    use crate::links::PublicUrl;
    use crate::links::input::LinkInput;
    use crate::store::NewLink;
    use crate::{Backend, Clock, Settings, Store};

    #[tokio::test]
    async fn long_queries_wait_for_each_other_and_short_ones_do_not() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let (clock, public) = (Clock::system(), PublicUrl::parse("https://s.test").unwrap());
        let body = serde_json::json!({"url": "https://example.com", "key": "k"});
        let link = NewLink::of(LinkInput::create(&body, "", clock.now()).unwrap(), &public).unwrap();
        let workspace = store.create_workspace("test", clock.now()).await.unwrap();
        store.create_links(&workspace, &[link], clock.now(), None).await.unwrap().remove(0).unwrap();
        let backend = Backend::start(store, clock, Settings::new(public));
        let (app, router) = (backend.front().app, backend.router());
        let visit = |query: &str| {
            let request =
                Request::get(format!("/r/k?q={query}")).header(HOST, "s.test").body(Body::empty()).unwrap();
            router.clone().oneshot(request)
        };
        assert_eq!(visit("short").await.unwrap().status(), StatusCode::FOUND);

        let permits =
            app.merging.acquire_many(u32::try_from(app.merging.available_permits()).unwrap()).await.unwrap();
        let long = "q".repeat(LONG);
        let mut waiting = pin!(visit(&long));
        for _ in 0..10 {
            assert!(poll!(waiting.as_mut()).is_pending());
            assert_eq!(visit("short").await.unwrap().status(), StatusCode::FOUND);
        }
        drop(permits);
        let location = waiting.await.unwrap().headers()[LOCATION].clone();
        assert_eq!(location, format!("https://example.com/?q={long}"));
    }
}
