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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;
    use tokio::sync::oneshot;

    use super::*;
    use crate::held::hold;
    use crate::links::PublicUrl;
    use crate::{Backend, Clock, Settings, Store};

    #[tokio::test]
    async fn a_permit_is_held_until_the_query_ends_though_the_client_is_gone() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let public = PublicUrl::parse("https://s.test").unwrap();
        let app = Backend::start(store, Clock::system(), Settings::new(public)).front().app;
        let permit = Arc::new(());
        let (begin, began) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let request = Held::during(async {
            hold(Arc::clone(&permit));
            let query = move |reader| async move {
                begin.send(()).unwrap();
                ended.await.unwrap();
                drop(reader);
                Ok(())
            };
            run(&app, query).await
        });
        tokio::select! {
            _ = request => panic!("the query does not end"),
            began = began => began.unwrap(),
        }
        assert_eq!(Arc::strong_count(&permit), 2, "the request was dropped");
        end.send(()).unwrap();
        while Arc::strong_count(&permit) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
