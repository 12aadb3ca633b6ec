//! The schema of the database: which commands create it, and what the others say without it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

use crate::database::{Database, on_both_databases, unprivileged};
#[cfg(target_os = "linux")]
use crate::preload::Library;
use crate::process::{Process, database_in, make_key, migrate};

on_both_databases! {
    only_serve_and_migrate_create_the_schema,
    a_database_of_another_program_or_version_is_refused_and_unchanged,
}

/// A command for each purpose, with the arguments that it needs.
const OTHERS: [&[&str]; 9] = [
    &["backup", "/no-such-folder/backup.db"],
    &["keys", "create", "--plan", "pro"],
    &["keys", "list"],
    &["keys", "revoke", "key_1"],
    &["domains", "list"],
    &["domains", "remove", "go.test"],
    &["usage", "export", "--month", "2026-11"],
    &["usage", "list"],
    &["seed"],
];

/// A command with a time limit. A pool would try to connect for longer.
fn command(database: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg("20").arg(env!("CARGO_BIN_EXE_backend")).args(arguments).args(["--database", database]);
    command
}

/// Whether a command succeeded, and its messages.
fn outcome(mut command: Command) -> (bool, String) {
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{command:?} does not end");
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn run(database: &str, arguments: &[&str]) -> (bool, String) {
    outcome(command(database, arguments))
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

/// A copied database: SQLite has no log beside it, and the first process creates one.
fn copied(folder: &TempDir) -> String {
    let database = database_in(folder.path());
    let original = format!("sqlite:{}", folder.path().join("original.db").display());
    migrate(&original);
    assert!(run(&original, &["backup", database.strip_prefix("sqlite:").unwrap()]).0);
    database
}

#[cfg(target_os = "linux")]
#[test]
fn a_database_on_a_read_only_disk_is_named_at_once_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let database = copied(&folder);
    let library = Library::compile("read_only.c", &[&format!("FOLDER=\"{}\"", folder.path().display())]);
    let missing = format!("sqlite:{}", folder.path().join("missing.db").display());
    for (database, arguments) in
        [(&database, &["keys", "list"][..]), (&database, &["migrate"]), (&missing, &["migrate"])]
    {
        let mut command = command(database, arguments);
        library.load(&mut command);
        let (succeeded, message) = outcome(command);
        let expected = format!("{}: Read-only file system", database.strip_prefix("sqlite:").unwrap());
        assert!(!succeeded && message.contains(&expected), "{arguments:?}: {message}");
        assert_eq!(message.trim().lines().count(), 1, "{message}");
    }
}

/// Root may read and write every file.
#[test]
fn a_database_of_another_owner_is_named_at_once_with_the_reason() {
    let Some((uid, gid)) = unprivileged() else { return };
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let database = copied(&folder);
    let file = database.strip_prefix("sqlite:").unwrap();
    let parent = folder.path().to_str().unwrap();
    //  mode of the file, mode of its folder, and what is named
    for (mode, folder_mode, named) in
        [(0o600, 0o755, file), (0o644, 0o755, file), (0o666, 0o755, parent), (0o666, 0o700, file)]
    {
        fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(parent, Permissions::from_mode(folder_mode)).unwrap();
        for arguments in [&["keys", "list"][..], &["migrate"]] {
            let mut command = command(&database, arguments);
            command.uid(uid).gid(gid);
            let (succeeded, message) = outcome(command);
            let expected = format!("{named}: Permission denied");
            assert!(
                !succeeded && message.contains(&expected),
                "{mode:o} {folder_mode:o} {arguments:?}: {message}"
            );
            assert_eq!(message.trim().lines().count(), 1, "{message}");
        }
    }
}

#[tokio::test]
async fn only_the_owner_can_read_what_the_service_writes() {
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    migrate(&database);
    let process = Process::start(&database);
    make_key(&database);
    let backup = folder.path().join("backup.db");
    assert!(run(&database, &["backup", backup.to_str().unwrap()]).0);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    for name in ["test.db", "test.db-wal", "test.db-shm", "test.db-clicks", "backup.db"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    drop(process);
}
