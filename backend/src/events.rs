//! `GET /events`: the clicks, page by page. A page is read and sent in chunks, so that memory use does not depend on
//! the page size.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use futures_util::{StreamExt, stream};

use crate::analytics::Metric;
use crate::auth::{AnalyticsCaller, Caller};
use crate::background::Priority;
use crate::error::ApiError;
use crate::event_body::{ClickBody, EventBody};
use crate::links::LinkBody;
use crate::query::Query;
use crate::selection::ClickQuery;
use crate::state::Shared;
use crate::store::{ClicksAndLinks, Reader, StoreError, Workspace};

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
/// About the most bytes of a chunk after the first. An event repeats its link and the destination, which may have 64 KiB each.
const CHUNK_BYTES: usize = 1024 * 1024;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/events", routing::get(events))
}

async fn events(
    State(app): State<Shared>,
    AnalyticsCaller { caller, place }: AnalyticsCaller,
    query: Query,
) -> Result<Response, ApiError> {
    let admitted = app.admission.admit(&caller.workspace, place).await?;
    // The first chunk is read before the response starts, so that a database error is answered with 500.
    let priority = admitted.priority;
    let first_chunk = async move { first_chunk(app, caller, &query, priority).await };
    let (first, rest) = admitted.answer(first_chunk).await?;
    let rest = stream::try_unfold(rest, |events| async move {
        match events {
            Some(events) => events.next_chunk().await.map(Some),
            None => Ok(None),
        }
    });
    let chunks = stream::once(async { Ok(first) }).chain(rest);
    Ok(([(CONTENT_TYPE, "application/json")], Body::from_stream(chunks)).into_response())
}

/// Selects the events of a page and reads the first chunk.
async fn first_chunk(
    app: Shared,
    caller: Caller,
    query: &Query,
    priority: Priority,
) -> Result<(Bytes, Option<Events>), ApiError> {
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
    let mut reader = app.store.reader(priority).await?;
    let click_query = ClickQuery::read(query, &app, &caller, &mut reader).await?;
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
    let (workspace, seqs) = (caller.workspace, seqs.into_iter());
    let events = Events { app, workspace, seqs, next: FIRST_CHUNK, is_first: true, sent: false };
    Ok(events.chunk(&mut reader).await?)
}

/// The remaining events of a page.
struct Events {
    app: Shared,
    workspace: Workspace,
    seqs: std::vec::IntoIter<i64>,
    /// Number of events in the next chunk.
    next: usize,
    /// No event was sent yet.
    is_first: bool,
    /// At least one event was sent.
    sent: bool,
}

impl Events {
    /// Waits for a permit, and releases it when the next chunk is read. A client that reads slowly thereby holds no permit.
    async fn next_chunk(self) -> Result<(Bytes, Option<Self>), ApiError> {
        let app = Arc::clone(&self.app);
        let admitted = app.admission.admit_chunk(&self.workspace).await?;
        let priority = admitted.priority;
        let answer = async move {
            let mut reader = self.app.store.reader(priority).await?;
            Ok(self.chunk(&mut reader).await?)
        };
        admitted.answer(answer).await
    }

    /// Reads the next chunk and writes it as part of a JSON array. None after the last chunk.
    async fn chunk(mut self, reader: &mut Reader) -> Result<(Bytes, Option<Self>), StoreError> {
        let seqs: Vec<i64> = self.seqs.by_ref().take(self.next).collect();
        let ClicksAndLinks { clicks, links } = self.app.store.clicks(reader, &self.workspace, &seqs).await?;
        let bodies: HashMap<i64, LinkBody> =
            links.iter().map(|(seq, link)| (*seq, link.body(&self.app.public_url))).collect();
        let mut text = Vec::new();
        if self.is_first {
            text.push(b'[');
            self.is_first = false;
        }
        for (click, link) in &clicks {
            let (Some(link), Some(body)) = (links.get(link), bodies.get(link)) else { continue };
            if self.sent {
                text.push(b',');
            }
            self.sent = true;
            let click = ClickBody::of(click);
            serde_json::to_writer(&mut text, &EventBody::of(&click, link, body))
                .map_err(|error| StoreError::Corrupt { what: "event", problem: error.to_string() })?;
        }
        self.next = events_in(CHUNK_BYTES, seqs.len(), text.len());
        let is_last = self.seqs.len() == 0;
        if is_last {
            text.push(b']');
        }
        Ok((text.into(), (!is_last).then_some(self)))
    }
}

/// The number of events in a chunk of `bytes`, if `events` had `took` bytes.
fn events_in(bytes: usize, events: usize, took: usize) -> usize {
    (bytes * events).checked_div(took).map_or(MAX_CHUNK, |events| events.clamp(1, MAX_CHUNK))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::time::timeout;
    use tower::ServiceExt;

    use super::*;
    use crate::links::PublicUrl;
    use crate::links::input::LinkInput;
    use crate::store::{Click, NewLink};
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
            assert_eq!(events_in(CHUNK_BYTES, events, took), expected, "{events} of {took} bytes");
        }
    }

    #[tokio::test]
    async fn a_permit_is_held_while_a_chunk_is_read_and_not_while_it_is_sent() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let analytics = Analytics { readers: 1, ..Analytics::default() };
        let store = Store::open_with(&url, analytics).await.unwrap();
        let (clock, public) = (Clock::system(), PublicUrl::parse("https://s.test").unwrap());
        let now = clock.now();
        let workspace = store.create_workspace("test", now).await.unwrap();
        let (_, key) = store.create_key(&workspace, "pro", None, now).await.unwrap();
        let input = LinkInput::create(&json!({"url": "https://example.com"}), "", now).unwrap();
        let links = [NewLink { input, domain: "s.test".to_owned() }];
        let link = store.create_links(&workspace, &links, now, None).await.unwrap().remove(0).unwrap();
        let clicks: Vec<Click> = (0..3 * MAX_CHUNK).map(|_| Click::new(&link.id, now)).collect();
        store.record_clicks(&clicks, &public).await.unwrap();
        let backend = Backend::start(store, clock, Settings::new(public));
        let app = backend.front().app;

        let request = Request::get("/events?limit=1000&interval=all");
        let request = request.header("authorization", format!("Bearer {key}")).body(Body::empty()).unwrap();
        let mut chunks = backend.router().oneshot(request).await.unwrap().into_body().into_data_stream();
        let mut text = chunks.next().await.unwrap().unwrap().to_vec();
        // The client reads nothing more for now, and other queries are admitted.
        let place = app.admission.place(&workspace).unwrap();
        let permit = app.admission.admit(&workspace, place).await.unwrap();
        let mut next = Box::pin(chunks.next());
        let read = timeout(Duration::from_millis(200), &mut next).await;
        assert!(read.is_err(), "a chunk is read only with a permit");
        drop(permit);
        text.extend(timeout(Duration::from_secs(20), next).await.unwrap().unwrap().unwrap());
        let rest: Vec<Bytes> = chunks.map(Result::unwrap).collect().await;
        let events: Vec<serde_json::Value> = serde_json::from_slice(&[text, rest.concat()].concat()).unwrap();
        assert_eq!(events.len(), 3 * MAX_CHUNK);
        drop(app);
        backend.shut_down().await;
    }
}
