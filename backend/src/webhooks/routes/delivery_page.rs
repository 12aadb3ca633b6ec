//! A page of deliveries as a response. It is read and sent in parts, so that memory use does not depend on the size of the page.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

use super::deliveries::DeliveryBody;
use crate::error::ApiError;
use crate::state::Shared;
use crate::store::{DeliveryRecord, StoreError, Workspace};

/// The parts of a page that are not sent.
struct Rest {
    app: Shared,
    workspace: Workspace,
    parts: std::vec::IntoIter<Vec<i64>>,
    /// What precedes the next delivery: the start of the list, or a comma.
    before: u8,
}

/// Sends a page as a JSON array: the deliveries of its first part, and then those of the other parts. The first part is read before
/// the response starts, so that an error of the database has a status.
pub(super) fn answer(
    app: Shared,
    workspace: Workspace,
    first: Vec<DeliveryRecord>,
    parts: std::vec::IntoIter<Vec<i64>>,
) -> Result<Response, ApiError> {
    let rest = Rest { app, workspace, parts, before: b'[' };
    let (first, rest) = rest.text(first)?;
    let rest = stream::try_unfold(rest, |rest| async move {
        match rest {
            Some(rest) => rest.next_part().await.map(Some),
            None => Ok(None),
        }
    });
    let parts = stream::once(async { Ok::<_, ApiError>(first) }).chain(rest);
    Ok(([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
}

impl Rest {
    /// Reads the next part like a chunk of events: a client that reads slowly holds neither a permit nor a connection to the
    /// database.
    async fn next_part(mut self) -> Result<(Bytes, Option<Self>), ApiError> {
        let app = Arc::clone(&self.app);
        let admitted = app.admission.admit_chunk(&self.workspace).await?;
        let priority = admitted.priority;
        let answer = async move {
            let seqs = self.parts.next().unwrap_or_default();
            let mut reader = self.app.store.reader(priority).await?;
            let records = self.app.store.deliveries(&seqs, &mut reader).await?;
            Ok(self.text(records)?)
        };
        admitted.answer(answer).await
    }

    /// Deliveries as a part of the array. None after the last part.
    fn text(mut self, records: Vec<DeliveryRecord>) -> Result<(Bytes, Option<Self>), StoreError> {
        let mut text = Vec::new();
        for record in records {
            text.push(std::mem::replace(&mut self.before, b','));
            serde_json::to_writer(&mut text, &DeliveryBody::of(record))
                .map_err(|error| StoreError::Corrupt { what: "delivery", problem: error.to_string() })?;
        }
        let is_last = self.parts.len() == 0;
        if is_last {
            // The array may be empty.
            if self.before == b'[' {
                text.push(b'[');
            }
            text.push(b']');
        }
        Ok((text.into(), (!is_last).then_some(self)))
    }
}
