//! The schema of the database: which commands create it, and what the others say without it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

use crate::database::{Database, on_both_databases};
use crate::process::{Process, database_in, make_key, migrate};

on_both_databases! {
    only_serve_and_migrate_create_the_schema,
    a_database_of_another_program_or_version_is_refused_and_unchanged,
}

/// A command for each purpose, with the arguments that it needs.
const OTHERS: [&[&str]; 10] = [
    &["keys", "create", "--plan", "pro"],
    &["keys", "list"],
    &["keys", "revoke", "key_1"],
    &["domains", "list"],
    &["domains", "release", "go.test"],
    &["seed"],
    &["import", "--workspace", "ws_1", "--public-url", "https://s.test", "links.csv"],
    &["set-aside", "list"],
    &["set-aside", "delete", "1"],
    &["set-aside", "replay", "--public-url", "https://s.test"],
];

/// Runs a command and returns whether it succeeded, and its messages. A pool would try to connect for longer than the time limit.
fn run(database: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("timeout");
    command.arg("20").arg(env!("CARGO_BIN_EXE_backend")).args(arguments).args(["--database", database]);
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{arguments:?} does not end");
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// What messages call a database.
fn name(database: &Database) -> &str {
    let url = &database.url;
    url.strip_prefix("sqlite:").or(url.split_once('@').map(|(_, address)| address)).unwrap()
}

async fn only_serve_and_migrate_create_the_schema(database: Database) {
    for arguments in OTHERS {
        let (succeeded, message) = run(&database.url, arguments);
        assert!(!succeeded, "{arguments:?}");
        assert!(message.contains(name(&database)) && message.contains("`backend migrate`"), "{message}");
        assert_eq!(message.trim().lines().count(), 1, "{message}");
        assert!(!database.is_sqlite() || !fs::exists(name(&database)).unwrap(), "{arguments:?}");
    }
    // The second time, nothing is left to do.
    for _ in 0..2 {
        migrate(&database.url);
    }
    make_key(&database.url);
    assert!(run(&database.url, &["keys", "list"]).0);
    drop(Process::start(&database.url));
}

async fn a_database_of_another_program_or_version_is_refused_and_unchanged(database: Database) {
    sqlx::any::install_default_drivers();
    let url = if database.is_sqlite() { format!("{}?mode=rwc", database.url) } else { database.url.clone() };
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"];
    //  statement, and what is refused
    for (statement, expected) in [
        ("CREATE TABLE links (id TEXT)", "the database contains other tables"),
        (
            "CREATE TABLE schema_version (version BIGINT); INSERT INTO schema_version VALUES (2)",
            "schema version 2, and this program needs version 1",
        ),
    ] {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.unwrap();
        for arguments in [&serve[..], &["migrate"], &["keys", "list"], &["keys", "create", "--plan", "pro"]] {
            let (succeeded, message) = run(&database.url, arguments);
            assert!(!succeeded && message.contains(expected), "{arguments:?}: {message}");
            assert!(message.contains(name(&database)) && message.contains("`backend migrate`"), "{message}");
        }
        assert!(connection.execute("SELECT seq FROM workspaces").await.is_err(), "no table was created");
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_opened_is_named_at_once_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text.db"), "This is not a database, but a text of more than a header.\n".repeat(20))
        .unwrap();
    fs::create_dir(path("folder.db")).unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // It accepts connections and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address)).unwrap();
    let sqlite = |name: &str| format!("sqlite:{}", path(name).display());
    //  database, what messages call it, reason
    let table = [
        (sqlite("text.db"), path("text.db").display().to_string(), "file is not a database"),
        (sqlite("folder.db"), path("folder.db").display().to_string(), "Is a directory"),
        (format!("postgres://weir:s3cret@{closed}/weir"), format!("{closed}/weir"), "Connection refused"),
        (
            format!("postgres://weir:s3cret@{}/weir", silent.1),
            format!("{}/weir", silent.1),
            "no answer within",
        ),
    ];
    for (database, name, reason) in table {
        for arguments in [&["migrate"][..], &["keys", "list"]] {
            let (succeeded, message) = run(&database, arguments);
            assert!(!succeeded && message.contains(&name) && message.contains(reason), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
            assert_eq!(message.trim().lines().count(), 1, "{message}");
        }
    }
    let (succeeded, message) = run(&sqlite("none/test.db"), &["migrate"]);
    assert!(!succeeded && message.contains("none/test.db: No such file or directory"), "{message}");
}

#[tokio::test]
async fn only_the_owner_can_read_what_the_service_writes() {
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    migrate(&database);
    let process = Process::start(&database);
    make_key(&database);
    let backup = folder.path().join("backup");
    assert!(run(&database, &["backup", backup.to_str().unwrap()]).0);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap().chain(fs::read_dir(&backup).unwrap()) {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    for name in ["test.db", "test.db-wal", "test.db-shm", "test.db-clicks", "backup", "weir.db"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    drop(process);
}
