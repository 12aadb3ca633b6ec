//! The migrations of the database schema: the files in `migrations/`.
//!
//! They are listed here because `sqlx::migrate!` would compile all of sqlx a second time, for the compiler's host.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Version, name and SQL of a migration.
type Step = (i64, &'static str, &'static str);

/// The migration in a file of `migrations/`.
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
    step!("sqlite", "0013", "rollups_alone"),
    step!("sqlite", "0014", "link_snapshots"),
    step!("sqlite", "0015", "webhook_scopes"),
    step!("sqlite", "0016", "click_events"),
    step!("sqlite", "0017", "published_devices"),
    step!("sqlite", "0018", "expiry_of_set_aside"),
    step!("sqlite", "0019", "sort_key"),
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
    step!("postgres", "0013", "rollups_alone"),
    step!("postgres", "0014", "link_snapshots"),
    step!("postgres", "0015", "webhook_scopes"),
    step!("postgres", "0016", "click_events"),
    step!("postgres", "0017", "locked_references"),
    step!("postgres", "0018", "published_devices"),
    step!("postgres", "0019", "expiry_of_set_aside"),
    step!("postgres", "0020", "sort_key"),
];

/// The migrations of a SQLite database.
pub(super) fn sqlite() -> Migrator {
    migrator(SQLITE)
}

/// The migrations of a PostgreSQL database.
#[cfg(feature = "postgres")]
pub(super) fn postgres() -> Migrator {
    migrator(POSTGRES)
}

/// Databases store the version, description and checksum of each applied migration and refuse a migration that differs.
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

    /// The properties of a migration that databases store, and those that determine how it is applied.
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

    /// Reads the folder like `sqlx::migrate!`, which created the existing databases.
    async fn in_folder(name: &str) -> Migrator {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(name);
        Migrator::new(folder).await.unwrap()
    }

    #[tokio::test]
    async fn every_file_for_sqlite_is_listed() {
        assert_eq!(listed(&sqlite()), listed(&in_folder("sqlite").await));
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn every_file_for_postgresql_is_listed() {
        assert_eq!(listed(&postgres()), listed(&in_folder("postgres").await));
    }
}
