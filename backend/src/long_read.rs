//! Reads that may take long, such as lists of links. They have separate connections and a time limit, so that they take no connection
//! from authentication and redirects.

use tracing::Instrument;

use crate::background::Priority;
use crate::error::ApiError;
use crate::held::Held;
use crate::state::App;
use crate::store::{Reader, StoreError};

/// Runs a query. What the request holds is held until the query ends or is interrupted, even if the client has disconnected, because
/// the database still works on it.
pub(crate) async fn run<T: Send + 'static, F: Future<Output = Result<T, StoreError>> + Send>(
    app: &App,
    query: impl FnOnce(Reader) -> F + Send + 'static,
) -> Result<T, ApiError> {
    let (store, held) = (app.store.clone(), Held::of_request());
    let reading = async move {
        let found = match store.reader(Priority::Usual).await {
            Ok(reader) => query(reader).await,
            Err(error) => Err(error),
        };
        drop(held);
        found
    };
    let found = tokio::spawn(reading.in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a query panicked");
        ApiError::internal()
    });
    Ok(found??)
}
