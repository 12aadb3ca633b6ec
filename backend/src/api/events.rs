//! `GET /events`: the clicks, page by page. A page is read and sent in chunks, so that memory use does not depend on
//! the page size.

use std::collections::{HashMap, VecDeque};

use axum::extract::State;
use axum::response::Response;
use axum::{Router, routing};

use crate::api::analytics::Metric;
use crate::api::caller::Caller;
use crate::api::json_array::{self, Items, PART_BYTES, Part};
use crate::api::selection::ClickQuery;
use crate::api::state::{App, Shared};
use crate::domain::event_body::{ClickBody, EventBody};
use crate::domain::link_body::LinkBody;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::{ClicksAndLinks, Reader, Workspace};

/// Default number of events on a page.
const DEFAULT_LIMIT: i64 = 100;
/// Maximum number of events on a page.
pub(crate) const MAX_LIMIT: i64 = 1_000;
/// Maximum page number.
pub(crate) const MAX_PAGE: i64 = 1_000_000;
/// Number of events in the first chunk.
const FIRST_CHUNK: usize = 16;
/// Maximum number of events in a chunk.
const MAX_CHUNK: usize = 64;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/events", routing::get(events))
}

async fn events(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let metrics = [("clicks", Metric::Clicks), ("leads", Metric::Leads), ("sales", Metric::Sales)];
    let metric = query.choice("event", &metrics)?.unwrap_or(Metric::Clicks);
    let page = query.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}."))?.unwrap_or(1);
    let limit = query.integer("limit", 1..=MAX_LIMIT, &format!("Max pagination limit is {MAX_LIMIT}."))?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    query.choice("sortBy", &[("timestamp", ())])?;
    let directions = [("desc", true), ("asc", false)];
    // The published clients always send the deprecated `order=desc`, so only `asc` is significant.
    let newest_first = query.choice("sortOrder", &directions)?.unwrap_or(true)
        && query.choice("order", &directions)?.unwrap_or(true);
    let mut reader = app.store.reader().await?;
    let click_query = ClickQuery::read(&query, &app, &caller, &mut reader).await?;
    let seqs = match metric {
        Metric::Clicks => {
            let skip = (page - 1) * limit;
            app.store
                .page_of_clicks(
                    &mut reader,
                    &caller.workspace,
                    &click_query.selection,
                    newest_first,
                    skip,
                    limit,
                )
                .await?
        }
        Metric::Leads | Metric::Sales => Vec::new(),
    };
    let events = Events { workspace: caller.workspace.clone(), seqs: seqs.into(), next: FIRST_CHUNK };
    let begun = json_array::begin(events, &app, &mut reader).await?;
    Ok(json_array::in_parts(begun, app, caller.workspace.seq))
}

/// The remaining events of a page.
#[derive(Debug)]
struct Events {
    workspace: Workspace,
    seqs: VecDeque<i64>,
    /// Number of events in the next chunk.
    next: usize,
}

impl Items for Events {
    async fn read(&mut self, app: &App, reader: &mut Reader) -> Result<Part, ApiError> {
        let mut seqs: Vec<i64> = self.seqs.drain(..self.next.min(self.seqs.len())).collect();
        let ClicksAndLinks { clicks, links } = app.store.clicks(reader, &self.workspace, &seqs).await?;
        let bodies: HashMap<i64, LinkBody> =
            links.iter().map(|(seq, link)| (*seq, link.body(&app.public_url))).collect();
        let mut chunk = Part::default();
        for (seq, click, link) in &clicks {
            if chunk.is_full() {
                // The remaining events are read again.
                let written = seqs.iter().position(|next| next == seq).unwrap_or(seqs.len());
                for seq in seqs.drain(written..).rev() {
                    self.seqs.push_front(seq);
                }
                break;
            }
            let (Some(link), Some(body)) = (links.get(link), bodies.get(link)) else { continue };
            chunk.push(&EventBody::of(&ClickBody::of(click), link, body))?;
        }
        self.next = events_in(PART_BYTES, seqs.len(), chunk.len());
        Ok(chunk)
    }

    fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }
}

/// The number of events in a chunk of `bytes`, if `events` had `took` bytes.
fn events_in(bytes: usize, events: usize, took: usize) -> usize {
    (bytes * events).checked_div(took).map_or(MAX_CHUNK, |events| events.clamp(1, MAX_CHUNK))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, BodyDataStream, Bytes};
    use axum::http::Request;
    use futures_util::StreamExt;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::time::timeout;
    use tower::ServiceExt;

    use super::*;
    use crate::domain::click::Click;
    use crate::domain::link_input::LinkInput;
    use crate::domain::public_url::PublicUrl;
    use crate::store::NewLink;
    use crate::{Analytics, Backend, Clock, Settings, Store};

    #[test]
    fn a_chunk_has_fewer_events_the_larger_they_are() {
        const KIB: usize = 1024;
        //  events of the chunk before, their bytes, events of the next
        for (events, took, expected) in [
            (16, 16 * KIB, MAX_CHUNK),
            (16, 16 * 16 * KIB, 64),
            (16, 16 * 64 * KIB, 16),
            (16, 16 * 200 * KIB, 5),
            (5, 5 * KIB, MAX_CHUNK),
            (1, 2 * 1024 * KIB, 1),
            (0, 1, 1),
            (0, 0, MAX_CHUNK),
        ] {
            assert_eq!(events_in(PART_BYTES, events, took), expected, "{events} of {took} bytes");
        }
    }

    /// A service with one reader, and a page of three chunks of a workspace.
    async fn page(folder: &TempDir) -> (Backend, Workspace, BodyDataStream) {
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let analytics = Analytics { readers: 1, ..Analytics::default() };
        let store = Store::open_or_create_with(&url, analytics).await.unwrap();
        let (clock, public) = (Clock::system(), PublicUrl::parse("https://s.test").unwrap());
        let now = clock.now();
        let workspace = store.create_workspace("test", now).await.unwrap();
        let (_, key) = store.create_key(&workspace, "pro", None, now).await.unwrap();
        let input = LinkInput::create(&json!({"url": "https://example.com"}), "", now).unwrap();
        let links = [NewLink::of(input, &public)];
        let link = store.create_links(&workspace, &links, now, None, None).await.unwrap().remove(0).unwrap();
        let clicks: Vec<Click> = (0..3 * MAX_CHUNK).map(|_| Click::new(&link.id, now)).collect();
        store.record_clicks(&clicks).await.unwrap();
        let backend = Backend::start(store, clock, Settings::new(public));
        let request = Request::get("/events?limit=1000&interval=all");
        let request = request.header("authorization", format!("Bearer {key}")).body(Body::empty()).unwrap();
        let chunks = backend.router().oneshot(request).await.unwrap().into_body().into_data_stream();
        (backend, workspace, chunks)
    }

    #[tokio::test]
    async fn a_request_has_a_place_while_a_chunk_is_read_and_not_while_it_is_sent() {
        let folder = TempDir::new().unwrap();
        let (backend, workspace, mut chunks) = page(&folder).await;
        let app = backend.front().app;
        let mut text = chunks.next().await.unwrap().unwrap().to_vec();
        // The client reads nothing more for now, and another query has the only place.
        let place = timeout(Duration::from_secs(20), app.fair.place_of_part(workspace.seq)).await.unwrap();
        let mut next = Box::pin(chunks.next());
        let read = timeout(Duration::from_millis(200), &mut next).await;
        assert!(read.is_err(), "a chunk is read only with a place");
        drop(place);
        text.extend(timeout(Duration::from_secs(20), next).await.unwrap().unwrap().unwrap());
        let rest: Vec<Bytes> = chunks.map(Result::unwrap).collect().await;
        let events: Vec<serde_json::Value> = serde_json::from_slice(&[text, rest.concat()].concat()).unwrap();
        assert_eq!(events.len(), 3 * MAX_CHUNK);
        drop(app);
        backend.shut_down().await;
    }
}
