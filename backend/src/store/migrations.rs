//! The steps that bring a database's schema up to date: the files in `migrations/`.
//!
//! They are listed here, since for `sqlx::migrate!` all of sqlx would be compiled a second time, for the compiler to run.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// A file's version, the rest of its name, and what is in it.
type Step = (i64, &'static str, &'static str);

/// The step that a file of `migrations/` is.
macro_rules! step {
    ($folder:literal, $version:literal, $name:literal) => {
        (
            match i64::from_str_radix($version, 10) {
                Ok(version) => version,
                Err(_) => panic!("the name of a migration begins with a number"),
            },
            $name,
            include_str!(concat!("../../migrations/", $folder, "/", $version, "_", $name, ".sql")),
        )
    };
}

const SQLITE: &[Step] = &[
    step!("sqlite", "0001", "schema"),
    step!("sqlite", "0002", "packed_clicks"),
    step!("sqlite", "0003", "spool"),
    step!("sqlite", "0004", "key_directory"),
    step!("sqlite", "0005", "key_order"),
    step!("sqlite", "0006", "published_values"),
    step!("sqlite", "0007", "deliveries_by_webhook"),
    step!("sqlite", "0008", "webhook_secrets"),
    step!("sqlite", "0009", "deleted_links"),
    step!("sqlite", "0010", "retention"),
    step!("sqlite", "0011", "tags_folders_domains"),
    step!("sqlite", "0012", "set_aside"),
];

#[cfg(feature = "postgres")]
const POSTGRES: &[Step] = &[
    step!("postgres", "0001", "schema"),
    step!("postgres", "0002", "packed_clicks"),
    step!("postgres", "0003", "key_directory"),
    step!("postgres", "0004", "key_order"),
    step!("postgres", "0005", "published_values"),
    step!("postgres", "0006", "deliveries_by_webhook"),
    step!("postgres", "0007", "webhook_secrets"),
    step!("postgres", "0008", "deleted_links"),
    step!("postgres", "0009", "spools"),
    step!("postgres", "0010", "retention"),
    step!("postgres", "0011", "tags_folders_domains"),
    step!("postgres", "0012", "set_aside"),
];

/// Those of a SQLite file.
pub(super) fn sqlite() -> Migrator {
    migrator(SQLITE)
}

/// Those of a database in PostgreSQL.
#[cfg(feature = "postgres")]
pub(super) fn postgres() -> Migrator {
    migrator(POSTGRES)
}

/// A database remembers version, description and a checksum of the file of each step that it has gone, and refuses others.
fn migrator(steps: &[Step]) -> Migrator {
    let migration = |&(version, name, sql): &Step| {
        let description = name.replace('_', " ").into();
        Migration::new(version, description, MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(steps.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// What is remembered of a step, and what decides how it is gone.
    fn listed(migrator: &Migrator) -> Vec<(i64, String, Vec<u8>, MigrationType, bool)> {
        let steps = migrator.iter().map(|step| {
            (
                step.version,
                step.description.to_string(),
                step.checksum.to_vec(),
                step.migration_type,
                step.no_tx,
            )
        });
        steps.collect()
    }

    /// As `sqlx::migrate!` reads the folder, which has made the databases that there are.
    async fn in_folder(name: &str) -> Migrator {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(name);
        Migrator::new(folder).await.unwrap()
    }

    #[tokio::test]
    async fn every_file_of_sqlite_is_a_step() {
        assert_eq!(listed(&sqlite()), listed(&in_folder("sqlite").await));
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn every_file_of_postgresql_is_a_step() {
        assert_eq!(listed(&postgres()), listed(&in_folder("postgres").await));
    }
}
