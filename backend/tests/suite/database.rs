//! The two databases that every test runs on.
//!
//! PostgreSQL is a real server, started once for all tests of this process as a user without privileges, on a free
//! port of loopback. It ends with the process, however that ends: it is the child of a shell that reads from a pipe
//! whose other end is held here.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use tokio::time::timeout;

/// Defines each story as two tests, `on_sqlite::…` and `on_postgres::…`.
macro_rules! on_both_databases {
    ($($story:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test] async fn $story() {
                $crate::database::in_time(super::$story($crate::database::Database::sqlite())).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test] async fn $story() {
                $crate::database::in_time(super::$story($crate::database::Database::postgres().await)).await;
            })+
        }
    };
}
pub(crate) use on_both_databases;

/// Many times what a story takes on a slow machine. What it waits for may never come.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) async fn in_time(story: impl Future<Output = ()>) {
    timeout(LIMIT, story).await.expect("the story does not end");
}

/// An empty database of its own for one test.
pub(crate) struct Database {
    pub(crate) url: String,
    /// Where a SQLite file is; removed with the database.
    folder: Option<TempDir>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        Self { url: format!("sqlite:{}", folder.path().join("test.db").display()), folder: Some(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = tokio::task::spawn_blocking(|| SERVER.get_or_init(Server::start)).await.unwrap();
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut connection = server.connect().await;
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        Self { url: server.url(&name), folder: None }
    }
}

impl Database {
    /// A connection beside those of the service.
    pub(crate) async fn connect(&self) -> AnyConnection {
        sqlx::any::install_default_drivers();
        AnyConnection::connect(&self.url).await.unwrap()
    }

    /// Keeps clicks from being recorded, as long as the connection is there or until `ROLLBACK`. All else is answered by
    /// PostgreSQL, and by SQLite what only reads.
    pub(crate) async fn block_recording(&self) -> AnyConnection {
        let mut connection = self.connect().await;
        let block =
            if self.is_sqlite() { "BEGIN IMMEDIATE" } else { "BEGIN; LOCK TABLE clicks IN EXCLUSIVE MODE" };
        connection.execute(sqlx::raw_sql(block)).await.unwrap();
        connection
    }

    /// Returns once this number of PostgreSQL's connections to this database wait for a lock.
    pub(crate) async fn waits_for_locks(&self, connections: i64) {
        let mut connection = self.connect().await;
        let waiting = "SELECT COUNT(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waits = async {
            while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut connection).await.unwrap()
                < connections
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), waits).await.expect("they wait for a lock");
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.folder.is_some()
    }

    /// The same PostgreSQL database by way of another port of loopback, and its own port.
    pub(crate) fn through(&self, port: u16) -> (Self, u16) {
        let (server, name) = self.url.rsplit_once('/').unwrap();
        let (server, own) = server.rsplit_once(':').unwrap();
        (Self { url: format!("{server}:{port}/{name}"), folder: None }, own.parse().unwrap())
    }

    /// The same PostgreSQL database for another service.
    pub(crate) fn shared(&self) -> Self {
        assert!(self.folder.is_none(), "a SQLite file goes with its owner");
        Self { url: self.url.clone(), folder: None }
    }
}

/// A PostgreSQL for one test, which may be restarted.
pub(crate) struct OwnServer(Server);

impl OwnServer {
    /// Starts it, with an empty database.
    pub(crate) async fn start() -> (Self, Database) {
        Self::of(tokio::task::spawn_blocking(Server::start).await.unwrap()).await
    }

    /// Starts one that waits for the disk, in an environment that `prepare` sets.
    #[cfg(target_os = "linux")]
    pub(crate) async fn start_prepared(
        prepare: impl FnOnce(&mut Command) + Send + 'static,
    ) -> (Self, Database) {
        let start = || Server::start_prepared("on", prepare);
        Self::of(tokio::task::spawn_blocking(start).await.unwrap()).await
    }

    async fn of(server: Server) -> (Self, Database) {
        server.connect().await.close().await.unwrap();
        let url = server.url("postgres");
        (Self(server), Database { url, folder: None })
    }

    /// Ends it as if it were killed, and starts it again.
    pub(crate) async fn restart(&self) {
        let mut restart = self.0.command("pg_ctl");
        restart.args(["restart", "--mode", "immediate", "--wait", "--silent", "--log", "restarted.log"]);
        restart.arg("--pgdata").arg(&self.0.data);
        let restarted = tokio::task::spawn_blocking(move || restart.status()).await.unwrap().unwrap();
        assert!(restarted.success());
    }
}

struct Server {
    port: u16,
    data: PathBuf,
    /// Ends the server when it is closed, which happens when this process ends.
    _shell: Child,
}

impl Server {
    fn start() -> Self {
        Self::start_prepared("off", |_| {})
    }

    /// `fsync` decides whether the server waits for the disk.
    fn start_prepared(fsync: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let bin = bin();
        let data = TempDir::with_prefix("weir-postgres-").unwrap().keep();
        if let Some((uid, gid)) = unprivileged() {
            chown(&data, Some(uid), Some(gid)).unwrap();
        }
        let made = command_in(&data, &bin.join("initdb"))
            .args([
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--username=weir",
                "--pgdata",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let log = std::fs::File::create(data.join("server.log")).unwrap();
        let script = r#""$1" -D "$2" -p "$3" -k "" -h 127.0.0.1 -c fsync="$4" -c max_connections=500 -c log_min_messages=fatal </dev/null &
            trap '' INT TERM HUP; cat >/dev/null; read -r server <"$2/postmaster.pid"; kill -QUIT "$server"; wait
            while kill -0 "$server" 2>/dev/null; do sleep 0.1; done; rm -rf "$2""#;
        let mut shell = command_in(&data, Path::new("/bin/sh"));
        prepare(&mut shell);
        let shell = shell
            .args(["-c", script, "sh"])
            .arg(bin.join("postgres"))
            .arg(&data)
            .arg(port.to_string())
            .arg(fsync)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        Self { port, data, _shell: shell }
    }

    /// One of PostgreSQL's programs, as the user that the server runs as.
    fn command(&self, program: &str) -> Command {
        command_in(&self.data, &bin().join(program))
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://weir@127.0.0.1:{}/{database}", self.port)
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline for another process")]
    async fn connect(&self) -> PgConnection {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match PgConnection::connect(&self.url("postgres")).await {
                Ok(connection) => return connection,
                Err(error) => assert!(Instant::now() < deadline, "PostgreSQL does not answer: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn command_in(data: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(data).env_remove("PGDATA");
    if let Some((uid, gid)) = unprivileged() {
        command.uid(uid).gid(gid);
    }
    command
}

/// Where PostgreSQL's programs are: on PATH, or where Debian puts those of the newest version.
pub(crate) fn bin() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file());
    let debian = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let bins = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
        bins.filter(|bin| bin.join("initdb").is_file()).max()
    };
    on_path.or_else(debian).expect("PostgreSQL: initdb is neither on PATH nor under /usr/lib/postgresql")
}

/// A user without privileges where the tests run as root, whom PostgreSQL refuses and every file admits.
pub(crate) fn unprivileged() -> Option<(u32, u32)> {
    let id = |option: &str, user: &[&str]| {
        let output = Command::new("id").arg(option).args(user).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    (id("-u", &[]) == 0).then(|| (id("-u", &["nobody"]), id("-g", &["nobody"])))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
