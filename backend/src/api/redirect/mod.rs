//! `GET /r/{key}`: redirects to the destination of a short link with 302 and records the click.

pub(crate) mod known_domains;
pub(crate) mod rules;
pub(crate) mod targets;
pub(crate) mod visitor;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, HeaderValue, LOCATION};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router, routing};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use url::form_urlencoded;

use self::rules::NO_TRACK;
use self::visitor::{Location, Referer};
use crate::api::state::{App, Shared};
use crate::domain::agent::Agent;
use crate::domain::click::{Click, ClickOutcome, ClickRef, kept_destination, kept_text};
use crate::domain::parameters;
use crate::http::error::{ApiError, Code};
use crate::http::path::Name;
use crate::store::RedirectTarget;

/// Query parameters of the short link that are not passed on to the destination.
const OWN_PARAMETERS: [&[u8]; 3] = [b"qr", b"redir_url", NO_TRACK.as_bytes()];

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
    // The authority of an absolute URL takes precedence over the header (RFC 9112, section 3.2.2).
    let host = request.uri.authority().map(Authority::as_str).or(host);
    let domain = app.domains.domain_of(host).await?.ok_or_else(not_found)?;
    // As in the creation of links, slashes at the ends of a key do not count.
    let target = app.targets.find(&domain, key.trim_matches('/')).await?.ok_or_else(not_found)?;
    let now = app.clock.now();
    if target.details.expires_at.is_some_and(|expires| expires <= now) {
        return match &target.details.expired_url {
            Some(url) => redirect(&target, url),
            None => Err(ApiError::new(Code::Gone, "This link has expired.")),
        };
    }
    let query = request.uri.query().unwrap_or_default();
    let user_agent = visitor::user_agent(headers);
    let agent = app.agents.parse(&user_agent);
    let location = Location::of(headers, &app.click_rules.location);
    let destination = destination(&target, &agent, &location.country);
    let destination = with_parameters(destination, query);
    let response = redirect(&target, &destination)?;
    if request.method != Method::GET {
        return Ok(response);
    }
    if let Some(outcome) = app.click_rules.uncounted(request, &agent) {
        app.metrics.clicks(outcome, 1);
        return Ok(response);
    }
    let qr = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "qr" && value == "1");
    let trigger = if qr { "qr" } else { "link" };
    let (user_agent, referer) = (kept_text(&user_agent), Referer::of(headers));
    let address = app.click_rules.client_address(headers).or(peer).map(|address| address.to_canonical());
    // The rest of the address reaches neither the click log nor the database.
    let ip = address.map(|address| app.click_rules.ip.of(address)).unwrap_or_default();
    let click = ClickRef {
        id: &Click::new_id(now),
        link_id: &target.link_id,
        at: now.as_millisecond(),
        destination: kept_destination(&destination),
        visitor: visitor::stored(&location, &agent, user_agent, trigger, &referer),
        ip: &ip,
    };
    if app.click_rules.once_per_hour && app.repeats.is_repeated(&click, now, user_agent, address) {
        app.metrics.clicks(ClickOutcome::Repeated, 1);
        return Ok(response);
    }
    app.recorder.record(&click);
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

/// Whether parameters of the short link may be appended. In other schemes, such as `mailto`, a query has another meaning.
fn has_web_query(destination: &str) -> bool {
    let scheme = destination.split(':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
}

/// The destination with the query parameters of the short link. They replace parameters of the same name.
fn with_parameters<'a>(destination: &'a str, query: &str) -> Cow<'a, str> {
    if !has_web_query(destination) {
        return Cow::Borrowed(destination);
    }
    // A header has only ASCII characters.
    let query = utf8_percent_encode(query, CONTROLS).to_string();
    let added: Vec<&str> = parameters::pairs(&query)
        .filter(|pair| !OWN_PARAMETERS.contains(&parameters::name_of(pair).as_ref()))
        .collect();
    if added.is_empty() {
        return Cow::Borrowed(destination);
    }
    let names = added.iter().map(|pair| parameters::name_of(pair)).collect();
    Cow::Owned(parameters::changed(destination, &names, &added))
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
