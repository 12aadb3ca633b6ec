//! The horizon as it is written down: the first instant whose clicks are kept.

use jiff::Timestamp;

use super::StoreError;
use super::reader::Reader;
use super::sql::Sql;

/// Selects the horizon, in Unix milliseconds.
pub(super) const HORIZON: &str = "SELECT r.kept_from FROM retention r";

/// The horizon in Unix milliseconds: the one that is written down, or the operator's if that is later.
pub(super) async fn kept_from(reader: &mut Reader, retained_from: Timestamp) -> Result<i64, StoreError> {
    Ok(reader.number(Sql::new(HORIZON)).await?.max(retained_from.as_millisecond()))
}
