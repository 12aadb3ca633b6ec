//! A page of deliveries as a response.

use super::deliveries::DeliveryBody;
use crate::error::ApiError;
use crate::json_list::JsonList;
use crate::json_parts::{Items, JsonParts};
use crate::state::App;
use crate::store::{DeliveryRecord, Reader};

/// The parts of a page that are not read.
#[derive(Debug)]
pub(super) struct Page(std::vec::IntoIter<Vec<i64>>);

/// A page: the deliveries of its first part, and then those of the other parts.
pub(super) fn page(
    first: Vec<DeliveryRecord>,
    rest: std::vec::IntoIter<Vec<i64>>,
) -> Result<JsonParts<Page>, ApiError> {
    Ok(JsonParts::new(list(first)?, Page(rest)))
}

impl Items for Page {
    async fn read(&mut self, app: &App, reader: &mut Reader) -> Result<JsonList, ApiError> {
        let seqs = self.0.next().unwrap_or_default();
        list(app.store.deliveries(&seqs, reader).await?)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

fn list(records: Vec<DeliveryRecord>) -> Result<JsonList, ApiError> {
    let mut list = JsonList::default();
    for record in records {
        list.push(&DeliveryBody::of(record))?;
    }
    Ok(list)
}
