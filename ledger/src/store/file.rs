//! The store of a single ledger that outlives the process: the map decides, and a file of SQLite has what it has decided.
//!
//! A call is answered once its rows are written, in one transaction. The system has them then, so a process that is killed loses nothing.
//! The disk has them after the next checkpoint, so a power cut loses what was written since the last.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ledger_wire::{Answer, ItemError};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor, SqliteConnection};
use tokio::sync::Mutex;

use super::memory::{Memory, Row};
use super::{Call, Unusable};
use crate::clock;
use crate::error::Reason;

/// Time between two checkpoints.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// By this a database says that it is a ledger's: "weir" in ASCII.
const APPLICATION: i64 = 0x7765_6972;
/// Of which program the database is, how many tables it has, and whether it is whole.
const LOOK: &str = "SELECT application_id, (SELECT count(*) FROM sqlite_schema), quick_check
    FROM pragma_application_id, pragma_quick_check";
/// Rows of a counter stand together, and what has expired stands first.
const PREPARE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA application_id = 0x77656972;
    CREATE TABLE IF NOT EXISTS shares (
        expires INTEGER, name TEXT, gateway TEXT, generation INTEGER, seq INTEGER NOT NULL, share INTEGER NOT NULL,
        reset INTEGER NOT NULL, PRIMARY KEY (expires, name, gateway, generation)
    ) STRICT, WITHOUT ROWID";
/// One statement, and so one transaction, whatever the number of rows.
const WRITE: &str = "INSERT OR REPLACE INTO shares
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM json_each(?)";
const READ: &str =
    "SELECT expires, name, gateway, generation, seq, share, reset FROM shares WHERE expires > ?";
const FORGET: &str = "DELETE FROM shares WHERE expires <= ?";
/// Writes a page, whether or not anything changes.
const TRY: &str = "PRAGMA application_id = 0x77656972";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("the file is in use by another process")]
    InUse,
    #[error("the file is a database of another program")]
    Foreign,
    #[error("the file is damaged: {0}")]
    Damaged(String),
    #[error("{0}")]
    Failed(Reason),
}

impl From<sqlx::Error> for FileError {
    fn from(error: sqlx::Error) -> Self {
        let sqlx::Error::Database(error) = error else { return Self::Failed(error.into()) };
        let code = error.code().and_then(|code| code.parse::<i32>().ok());
        // The lowest byte is the kind: SQLITE_BUSY, SQLITE_CORRUPT, SQLITE_NOTADB.
        match code.map(|code| code & 0xff) {
            Some(5) => Self::InUse,
            Some(11 | 26) => Self::Damaged(error.message().to_owned()),
            _ => Self::Failed(error.message().into()),
        }
    }
}

/// The counters, in this process and in the file.
#[derive(Debug)]
pub(super) struct File {
    kept: Arc<Mutex<Kept>>,
    /// Why the file took nothing when it was written last, if so.
    unusable: Arc<RwLock<Option<Arc<Unusable>>>>,
}

#[derive(Debug)]
struct Kept {
    memory: Memory,
    connection: SqliteConnection,
}

impl File {
    /// Opens the file, which no other process may have, and makes it if there is none. `now` is in milliseconds since 1970.
    pub(super) async fn open(path: &Path, now: u64) -> Result<Self, FileError> {
        let mut options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        options = options.locking_mode(SqliteLockingMode::Exclusive).busy_timeout(Duration::ZERO);
        options = options.synchronous(SqliteSynchronous::Normal).disable_statement_logging();
        let mut connection = options.connect().await?;
        // What is not a ledger's stays as it is.
        match sqlx::query_as(LOOK).fetch_one(&mut connection).await? {
            (APPLICATION, _, ref check) | (0, 0, ref check) if check == "ok" => {}
            (APPLICATION, _, check) => return Err(FileError::Damaged(check)),
            (_, _, _) => return Err(FileError::Foreign),
        }
        connection.execute(sqlx::raw_sql(PREPARE)).await?;
        let mut memory = Memory::default();
        for row in sqlx::query_as(READ).bind(stored(now)).fetch_all(&mut connection).await? {
            memory.restore(row).map_err(|error| FileError::Damaged(error.to_owned()))?;
        }
        let kept = Arc::new(Mutex::new(Kept { memory, connection }));
        Ok(Self { kept, unusable: Arc::default() })
    }

    /// Why it can be neither read nor written, if so.
    pub(super) fn unusable(&self) -> Option<Arc<Unusable>> {
        self.unusable.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer to each call, in their order, once what they change is written. If it cannot be, nothing has changed.
    pub(super) async fn call(
        &self,
        calls: Vec<Result<Call, ItemError>>,
        now: u64,
    ) -> Result<Vec<Answer>, Arc<Unusable>> {
        let kept = Arc::clone(&self.kept);
        // The end of a request whose client leaves must not come between the file and the map.
        let called = tokio::spawn(async move { kept.lock().await.call(&calls, now).await });
        self.note(called.await.unwrap_or_else(|error| Err(FileError::Failed(error.into()))))
    }

    /// Forgets what has expired and makes a checkpoint, each second, until this is dropped.
    pub(super) async fn follow(&self) {
        loop {
            tokio::time::sleep(CHECKPOINT).await;
            let is_tried = self.unusable().is_some();
            let tended = self.kept.lock().await.tend(is_tried).await;
            let _noted = self.note(tended);
        }
    }

    /// Notes whether the file could be written.
    fn note<T>(&self, result: Result<T, FileError>) -> Result<T, Arc<Unusable>> {
        let result = result.map_err(|error| Arc::new(Unusable::File(error)));
        let mut unusable = self.unusable.write().unwrap_or_else(PoisonError::into_inner);
        match (&result, &*unusable) {
            (Err(error), None) => tracing::error!("{error}"),
            (Ok(_), Some(_)) => tracing::info!("the store can be used again"),
            _ => {}
        }
        *unusable = result.as_ref().err().cloned();
        result
    }
}

impl Kept {
    async fn call(&mut self, calls: &[Result<Call, ItemError>], now: u64) -> Result<Vec<Answer>, FileError> {
        let mut draft = self.memory.draft(calls.iter().flatten());
        let answers = draft.call_all(calls, now);
        let rows = calls.iter().flatten().filter_map(|call| {
            let row = draft.row(call)?;
            (self.memory.row(call).as_ref() != Some(&row)).then_some(row)
        });
        let rows: Vec<Row> = rows.collect();
        if !rows.is_empty() {
            sqlx::query(WRITE).bind(json!(rows).to_string()).execute(&mut self.connection).await?;
            self.memory.accept(draft, now);
        }
        Ok(answers)
    }

    /// What is to be done each second. A file that took nothing is tried.
    async fn tend(&mut self, is_tried: bool) -> Result<(), FileError> {
        if is_tried {
            self.connection.execute(TRY).await?;
        }
        sqlx::query(FORGET).bind(stored(clock::now())).execute(&mut self.connection).await?;
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
        Ok(())
    }
}

/// A time as SQLite has it.
fn stored(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use ledger_wire::{Hex128, Says, Statement};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    use tempfile::TempDir;

    use super::*;
    use crate::share::Terms;

    /// A statement about one of four counters by one of three gateways, whose reset number is now and then raised.
    fn any_call(random: &mut SmallRng, seq: u32, now: u64) -> Result<Call, ItemError> {
        let says = match random.random_bool(0.7) {
            true => Says::Ask { need: random.random_range(0..5), cost: 1, hold: random.random_range(0..20) },
            false => Says::Return { keep: random.random_range(0..3) },
        };
        let statement = Statement {
            counter: Hex128(random.random_range(0..4)),
            window: 1,
            begins: now / 1_000 - 60,
            ends: now / 1_000 + random.random_range(1..3_600),
            limit: 100,
            generation: random.random_range(1..3),
            seq,
            used: random.random_range(0..30),
            reset: u64::from(seq / 20),
            says,
        };
        let terms = Terms { settling: false, gateways: 2 };
        Ok(Call::new(Hex128(random.random_range(0..3)), statement, terms, now))
    }

    #[tokio::test]
    async fn a_file_that_is_opened_again_has_what_the_map_had_whatever_was_stated() {
        for seed in 0..30 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (folder, mut now) = (TempDir::new().unwrap(), 1_764_081_240_000);
            let path = folder.path().join("ledger.db");
            let (mut in_memory, mut seq) = (Memory::default(), 0);
            for _ in 0..3 {
                let file = File::open(&path, now).await.unwrap();
                assert_eq!(file.kept.lock().await.memory.live(now), in_memory.live(now), "seed {seed}");
                for _ in 0..random.random_range(1..20) {
                    seq += 1;
                    // Some windows end and are forgotten meanwhile.
                    now += random.random_range(0..20_000);
                    let calls: Vec<_> =
                        (0..random.random_range(0..6)).map(|_| any_call(&mut random, seq, now)).collect();
                    let expected = in_memory.call_all(&calls, now);
                    assert_eq!(file.call(calls, now).await.unwrap(), expected, "seed {seed}");
                }
                let kept = Arc::into_inner(file.kept).unwrap().into_inner();
                sqlx::Connection::close(kept.connection).await.unwrap();
            }
        }
    }
}
