//! Answers to creations that a client may repeat.
//!
//! The transaction that creates an object also writes the answer. A repeated request therefore finds both or neither, whatever was
//! killed in between.

use jiff::{SignedDuration, Timestamp};
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Store, StoreError, Workspace};

/// Time for which an answer is kept. Clients repeat a request for minutes, and some queues for hours.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Maximum size of an answer, in bytes. A bulk call of 100 usual links has 150 KiB.
pub(crate) const MAX_ANSWER: usize = 512 * 1024;
/// Maximum number of answers that are kept of a workspace. The latest are kept, because repetitions usually come within minutes.
pub(crate) const MAX_ANSWERS: i64 = 10_000;
/// Maximum number of answers that one step of the sweeper deletes.
const DELETED_AT_ONCE: i64 = 500;

/// A creation that a client may repeat: its key, and a hash of the whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeatable {
    pub(crate) key: String,
    pub(crate) fingerprint: String,
}

/// The answer to a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    /// The hash of the request.
    pub(crate) fingerprint: String,
    pub(crate) status: u16,
    /// The body, as JSON.
    pub(crate) body: String,
}

/// How the answer to a creation of `T` is written.
pub(crate) struct Recording<'a, T> {
    pub(crate) request: &'a Repeatable,
    pub(crate) status: u16,
    /// Makes the body, as JSON. None if the creation was refused, so that its answer is not kept.
    pub(crate) write: &'a (dyn Fn(&T) -> Result<Option<String>, StoreError> + Send + Sync),
}

impl Store {
    /// The answer to an earlier request with this key.
    pub(crate) async fn kept_answer(
        &self,
        workspace: &Workspace,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<KeptAnswer>, StoreError> {
        let mut sql =
            Sql::new("SELECT a.fingerprint, a.status, a.body FROM answers a WHERE a.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND a.key = ").bind(key.to_owned());
        sql.push(" AND a.created_at > ").bind(kept_since(now));
        let Some(row) = sql.optional(&self.read).await? else { return Ok(None) };
        let status: i64 = row.try_get("status")?;
        let status = u16::try_from(status).map_err(|error| StoreError::corrupt("status", &error))?;
        Ok(Some(KeptAnswer { fingerprint: row.try_get("fingerprint")?, status, body: row.try_get("body")? }))
    }

    /// Writes the answer to a creation in its transaction.
    ///
    /// # Errors
    /// [`StoreError::AnswerTooLarge`], or [`StoreError::Repeated`] if another request with the key was faster.
    pub(super) async fn keep_answer<T>(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        recording: Option<&Recording<'_, T>>,
        made: &T,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(Recording { request, status, write }) = recording else { return Ok(()) };
        let Some(body) = write(made)? else { return Ok(()) };
        if body.len() > MAX_ANSWER {
            return Err(StoreError::AnswerTooLarge);
        }
        let mut sql = Sql::new("DELETE FROM answers WHERE workspace_seq = ");
        sql.bind(workspace.seq).push(" AND key = ").bind(request.key.clone());
        sql.push(" AND created_at <= ").bind(kept_since(now));
        sql.execute(&mut **transaction).await?;
        let mut sql = Sql::new(
            "INSERT INTO answers (workspace_seq, key, fingerprint, status, body, created_at) VALUES ",
        );
        sql.rows(&[()], |row, ()| {
            row.bind(workspace.seq).bind(request.key.clone()).bind(request.fingerprint.clone());
            row.bind(i64::from(*status)).bind(body.clone()).bind(now.as_millisecond());
        });
        sql.push(" ON CONFLICT DO NOTHING");
        // With PostgreSQL, this waits for the transaction of another process that creates with the same key.
        if sql.execute(&mut **transaction).await? == 0 { Err(StoreError::Repeated) } else { Ok(()) }
    }

    /// Deletes some answers that are not kept any more: expired ones, and the oldest of the workspace that has too many. False if there are
    /// none.
    pub(crate) async fn sweep_answers(&self, now: Timestamp) -> Result<bool, StoreError> {
        let mut sql =
            Sql::new("DELETE FROM answers WHERE seq IN (SELECT a.seq FROM answers a WHERE a.created_at <= ");
        sql.bind(kept_since(now)).push(" ORDER BY a.created_at LIMIT ").bind(DELETED_AT_ONCE).push(")");
        let expired = sql.execute(&self.write).await?;
        let mut sql = Sql::new(
            "SELECT a.workspace_seq, COUNT(*) AS answers FROM answers a GROUP BY a.workspace_seq HAVING COUNT(*) > ",
        );
        sql.bind(MAX_ANSWERS).push(" ORDER BY answers DESC LIMIT 1");
        let Some(row) = sql.optional(&self.read).await? else { return Ok(expired > 0) };
        let (workspace, answers): (i64, i64) = (row.try_get("workspace_seq")?, row.try_get("answers")?);
        let mut sql = Sql::new(
            "DELETE FROM answers WHERE seq IN (SELECT a.seq FROM answers a WHERE a.workspace_seq = ",
        );
        sql.bind(workspace)
            .push(" ORDER BY a.seq LIMIT ")
            .bind(DELETED_AT_ONCE.min(answers - MAX_ANSWERS))
            .push(")");
        sql.execute(&self.write).await?;
        Ok(true)
    }
}

/// The time until which answers are not kept any more, in milliseconds.
fn kept_since(now: Timestamp) -> i64 {
    now.saturating_sub(KEPT).unwrap_or(Timestamp::MIN).as_millisecond()
}
