//! Clicks that the database refused. They are kept in their spooled form, so that the operator can list them, delete them,
//! or replay them after the cause is fixed.

use sqlx::{Any, Row, Transaction};

use super::click_batch::Batch;
use super::reader::Reader;
use super::sql::Sql;
use super::{Click, Progress, Store, StoreError};
use crate::links::PublicUrl;

/// Maximum number of entries.
const MAX_ENTRIES: i64 = 10_000;
/// Maximum size of the clicks of all entries, in bytes.
const MAX_BYTES: i64 = 64 * 1024 * 1024;

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
    /// Sets clicks aside and marks them as recorded up to `reached`. False if there is no room for them.
    pub(crate) async fn set_aside(
        &self,
        id: &str,
        clicks: &[u8],
        reason: &str,
        reached: Option<Progress>,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let is_kept = has_room(&mut transaction, clicks.len()).await?;
        if is_kept {
            let mut sql = Sql::new("INSERT INTO set_aside_clicks (id, reason, clicks) VALUES (");
            sql.bind(id.to_owned()).push(", ").bind(reason.to_owned()).push(", ").bind(clicks.to_vec());
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

    use super::*;

    #[tokio::test]
    async fn the_size_of_all_entries_is_bounded() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open(&url).await.unwrap();
        // These bytes are not an encoded batch.
        let large = vec![u8::MAX; usize::try_from(MAX_BYTES / 4).unwrap()];
        for entry in 0..5 {
            let is_kept = store.set_aside(&entry.to_string(), &large, "too large", None).await.unwrap();
            assert_eq!(is_kept, entry < 4, "entry {entry}");
        }
        // The same batch is one entry, even if it is set aside twice.
        assert!(store.delete_set_aside("0").await.unwrap());
        for _ in 0..2 {
            assert!(store.set_aside("again", b"damaged", "cannot be read", None).await.unwrap());
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
}
