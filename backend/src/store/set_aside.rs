//! Clicks that the database refused. They are kept in their spooled form, so that the operator can list them, delete them,
//! or replay them after the cause is fixed.

use jiff::Timestamp;
use sqlx::{Any, Row, Transaction};

use super::click_batch::Batch;
use super::old_events::first_of;
use super::reader::Reader;
use super::sql::Sql;
use super::{Click, Progress, Store, StoreError};
use crate::links::PublicUrl;

/// Maximum number of entries.
const MAX_ENTRIES: i64 = 10_000;
/// Maximum size of the clicks of all entries, in bytes.
const MAX_BYTES: i64 = 64 * 1024 * 1024;

/// Maximum number of entries that one transaction deletes.
const ENTRIES_PER_STEP: i64 = 50;

/// An entry: one refused click, or a batch that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The id of the click. For a batch that cannot be read, its spool and number.
    pub id: String,
    /// The error of the database.
    pub reason: String,
    /// The clicks. None if they cannot be read.
    pub clicks: Option<Vec<Click>>,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of recorded clicks.
    pub recorded: usize,
    /// Number of clicks on links that were deleted in the meantime.
    pub orphaned: usize,
    /// The ids of the entries that are still refused, and the reasons.
    pub refused: Vec<(String, String)>,
}

/// An entry with its clicks in spooled form.
struct Kept {
    seq: i64,
    id: String,
    reason: String,
    clicks: Vec<u8>,
}

impl Store {
    /// Sets clicks aside and marks them as recorded up to `reached`. Clicks that cannot be read expire like clicks at `now`. False if
    /// there is no room for them.
    pub(crate) async fn set_aside(
        &self,
        id: &str,
        clicks: &[u8],
        reason: &str,
        reached: Option<Progress>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let is_kept = has_room(&mut transaction, clicks.len()).await?;
        if is_kept {
            let batch = Batch::decode(clicks).ok();
            let at = batch.and_then(|batch| batch.clicks().iter().map(|click| click.at).max());
            let mut sql = Sql::new("INSERT INTO set_aside_clicks (id, reason, clicks, at) VALUES (");
            sql.bind(id.to_owned()).push(", ").bind(reason.to_owned()).push(", ").bind(clicks.to_vec());
            sql.push(", ").bind(at.unwrap_or(now.as_millisecond()));
            // After a kill, the next process may set the same batch aside again.
            sql.push(") ON CONFLICT DO NOTHING");
            sql.execute(&mut *transaction).await?;
        }
        self.commit_recorded(transaction, reached).await?;
        Ok(is_kept)
    }

    /// Number of entries.
    pub(crate) async fn set_aside_entries(&self, reader: &mut Reader) -> Result<i64, StoreError> {
        reader.number(Sql::new("SELECT COUNT(*) FROM set_aside_clicks")).await
    }

    /// Calls `show` with each entry, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn each_set_aside<E: From<StoreError>>(
        &self,
        mut show: impl FnMut(SetAside) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = 0;
        while let Some(kept) = self.next_set_aside(last).await? {
            last = kept.seq;
            let clicks = Batch::decode(&kept.clicks).and_then(|batch| batch.unpack()).ok();
            show(SetAside { id: kept.id, reason: kept.reason, clicks })?;
        }
        Ok(())
    }

    /// Records the entries. Each transaction records an entry and removes it. Entries that the database still refuses stay.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails. Entries that were recorded before the error stay recorded.
    pub async fn replay_set_aside(&self, public: &PublicUrl) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        let mut last = 0;
        while let Some(kept) = self.next_set_aside(last).await? {
            last = kept.seq;
            match self.replay_one(&kept, public).await {
                Ok(Some((recorded, orphaned))) => {
                    replayed.recorded += recorded;
                    replayed.orphaned += orphaned;
                }
                // Another process has replayed it.
                Ok(None) => {}
                Err(error) if error.is_refusal() => replayed.refused.push((kept.id, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Ok(replayed)
    }

    /// Deletes the entry with this id. False if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn delete_set_aside(&self, id: &str) -> Result<bool, StoreError> {
        let mut sql = Sql::new("DELETE FROM set_aside_clicks WHERE id = ");
        sql.bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Deletes some entries with clicks from before the horizon, in one transaction. True if there may be more.
    pub(crate) async fn delete_expired_set_aside(&self, kept_from: Timestamp) -> Result<bool, StoreError> {
        let mut sql = Sql::new(
            "SELECT s.seq, CAST(octet_length(s.clicks) AS BIGINT) AS bytes FROM set_aside_clicks s WHERE s.at < ",
        );
        sql.bind(kept_from.as_millisecond()).push(" ORDER BY s.at LIMIT ").bind(ENTRIES_PER_STEP);
        let mut expired = Vec::new();
        for row in sql.all(&self.read).await? {
            expired.push((row.try_get("seq")?, row.try_get("bytes")?));
        }
        let expired: Vec<i64> = first_of(expired);
        if expired.is_empty() {
            return Ok(false);
        }
        let _turn = self.turn().await;
        let mut sql = Sql::new("DELETE FROM set_aside_clicks WHERE seq");
        sql.in_numbers(self.dialect, &expired);
        sql.execute(&self.write).await?;
        Ok(true)
    }

    async fn next_set_aside(&self, last: i64) -> Result<Option<Kept>, StoreError> {
        let mut sql =
            Sql::new("SELECT s.seq, s.id, s.reason, s.clicks FROM set_aside_clicks s WHERE s.seq > ");
        sql.bind(last).push(" ORDER BY s.seq LIMIT 1");
        let Some(row) = sql.optional(&self.read).await? else { return Ok(None) };
        Ok(Some(Kept {
            seq: row.try_get("seq")?,
            id: row.try_get("id")?,
            reason: row.try_get("reason")?,
            clicks: row.try_get("clicks")?,
        }))
    }

    /// Records an entry and removes it. Returns the number of recorded clicks and of clicks on deleted links. None if the
    /// entry no longer exists.
    async fn replay_one(
        &self,
        kept: &Kept,
        public: &PublicUrl,
    ) -> Result<Option<(usize, usize)>, StoreError> {
        let batch = Batch::decode(&kept.clicks)?;
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new("DELETE FROM set_aside_clicks WHERE seq = ");
        sql.bind(kept.seq);
        if sql.execute(&mut *transaction).await? == 0 {
            return Ok(None);
        }
        let recorded = self.record_within(&mut transaction, &batch, public).await?;
        transaction.commit().await?;
        Ok(Some((recorded, batch.len() - recorded)))
    }
}

async fn has_room(transaction: &mut Transaction<'static, Any>, bytes: usize) -> Result<bool, StoreError> {
    let sql = Sql::new(
        "SELECT COUNT(*) AS entries, CAST(COALESCE(SUM(LENGTH(s.clicks)), 0) AS BIGINT) AS bytes FROM set_aside_clicks s",
    );
    let kept = sql.one(&mut **transaction).await?;
    let bytes = kept.try_get::<i64, _>("bytes")?.saturating_add_unsigned(bytes as u64);
    Ok(kept.try_get::<i64, _>("entries")? < MAX_ENTRIES && bytes <= MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::ClickBuffer;
    use super::*;
    use crate::background::Priority;

    #[tokio::test]
    async fn the_size_of_all_entries_is_bounded() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        // These bytes are not an encoded batch.
        let large = vec![u8::MAX; usize::try_from(MAX_BYTES / 4).unwrap()];
        for entry in 0..5 {
            let is_kept = store
                .set_aside(&entry.to_string(), &large, "too large", None, Timestamp::UNIX_EPOCH)
                .await
                .unwrap();
            assert_eq!(is_kept, entry < 4, "entry {entry}");
        }
        // The same batch is one entry, even if it is set aside twice.
        assert!(store.delete_set_aside("0").await.unwrap());
        for _ in 0..2 {
            let kept = store.set_aside("again", b"damaged", "cannot be read", None, Timestamp::UNIX_EPOCH);
            assert!(kept.await.unwrap());
        }
        let mut found = Vec::new();
        let listed = store.each_set_aside(|entry| {
            found.push((entry.id, entry.clicks));
            Ok::<_, StoreError>(())
        });
        listed.await.unwrap();
        let expected = ["1", "2", "3", "again"].map(|id| (id.to_owned(), None));
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn entries_expire_with_their_last_click_or_as_if_it_were_from_now() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let clicks = |seconds: &[i64]| {
            let clicks: Vec<Click> = seconds.iter().map(|second| Click::new("link", at(*second))).collect();
            clicks.iter().collect::<ClickBuffer>().batch().encode().unwrap()
        };
        let now = at(50);
        for (id, clicks) in [("10", clicks(&[10])), ("30", clicks(&[30, 9])), ("50", b"damaged".to_vec())] {
            assert!(store.set_aside(id, &clicks, "refused", None, now).await.unwrap());
        }
        for number in 0..2 * ENTRIES_PER_STEP {
            let id = format!("20-{number}");
            assert!(store.set_aside(&id, &clicks(&[20]), "refused", None, now).await.unwrap());
        }
        //  the horizon, the number of transactions that delete, and the entries that are left
        for (horizon, expected, left) in [
            (10, 0, 3 + 2 * ENTRIES_PER_STEP),
            (11, 1, 2 + 2 * ENTRIES_PER_STEP),
            (30, 2, 2),
            (31, 1, 1),
            (50, 0, 1),
            (51, 1, 0),
        ] {
            let mut transactions = 0;
            while store.delete_expired_set_aside(at(horizon)).await.unwrap() {
                transactions += 1;
            }
            let mut reader = store.reader(Priority::Low).await.unwrap();
            let entries = store.set_aside_entries(&mut reader).await.unwrap();
            assert_eq!((transactions, entries), (expected, left), "before {horizon}");
        }
    }
}
