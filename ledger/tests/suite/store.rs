//! Real servers of Redis and Valkey, each on a free loopback port and in a temporary folder.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long a test waits for what must happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Redis,
    Valkey,
}

pub(crate) const ENGINES: [Engine; 2] = [Engine::Redis, Engine::Valkey];

impl Engine {
    fn program(self) -> &'static Path {
        static VALKEY: LazyLock<PathBuf> = LazyLock::new(|| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/valkey.sh");
            let run = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
            assert!(run.status.success(), "scripts/valkey.sh has said why");
            String::from_utf8(run.stdout).unwrap().trim().into()
        });
        match self {
            Self::Redis => Path::new("redis-server"),
            Self::Valkey => &VALKEY,
        }
    }

    pub(crate) async fn start(self) -> Redis {
        self.start_with(&[]).await
    }

    pub(crate) async fn start_with(self, options: &[&str]) -> Redis {
        let port = free_port();
        let options = ["--port", &port.to_string(), "--save", ""]
            .iter()
            .chain(options)
            .map(ToString::to_string)
            .collect();
        Redis::start_on(self, port, options, Vec::new()).await
    }

    /// A Sentinel, which needs a file that it can write.
    pub(crate) async fn start_sentinel(self, file: &Path) -> Redis {
        let port = free_port();
        let options = [file.to_str().unwrap(), "--sentinel", "--port", &port.to_string()];
        Redis::start_on(self, port, options.map(str::to_owned).to_vec(), Vec::new()).await
    }
}

/// A server; killed when this is dropped.
pub(crate) struct Redis {
    engine: Engine,
    child: Option<Child>,
    pub(crate) port: u16,
    folder: TempDir,
    options: Vec<String>,
    /// What `redis-cli` needs besides the port.
    client_options: Vec<String>,
}

/// A port below those that systems give to clients: none of them can take it while a server is restarted.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::random_range(10_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Engine::Redis.start().await
    }

    pub(crate) async fn start_with(options: &[&str]) -> Self {
        Engine::Redis.start_with(options).await
    }

    /// Starts a server that takes TLS connections only. The folder has then the certificate of a new authority, `ca.pem`, and those that it
    /// has signed with their keys: the server's, `cert.pem` and `key.pem`, and a client's, `client.pem` and `client.key`, without which no
    /// client is served if `with_clients`.
    pub(crate) async fn start_with_tls(folder: &Path, with_clients: bool) -> Self {
        let (port, path) = (free_port(), |name: &str| folder.join(name).display().to_string());
        let openssl = |arguments: &str| {
            let run =
                Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        };
        std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=authority -days 1");
        openssl("req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost");
        openssl(
            "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 1 -extfile names",
        );
        openssl("req -newkey rsa:2048 -nodes -keyout client.key -out request.pem -subj /CN=ledger");
        openssl(
            "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out client.pem -days 1 -extfile names",
        );
        let (authority, number) = (path("ca.pem"), port.to_string());
        let options = [
            "--port",
            "0",
            "--tls-port",
            &number,
            "--tls-cert-file",
            &path("cert.pem"),
            "--tls-key-file",
            &path("key.pem"),
            "--tls-ca-cert-file",
            &authority,
            "--tls-auth-clients",
            if with_clients { "yes" } else { "no" },
        ];
        let client =
            ["--tls", "--cacert", &authority, "--cert", &path("client.pem"), "--key", &path("client.key")];
        let [options, client] =
            [&options[..], &client].map(|all| all.iter().map(ToString::to_string).collect());
        Self::start_on(Engine::Redis, port, options, client).await
    }

    async fn start_on(engine: Engine, port: u16, options: Vec<String>, client_options: Vec<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let mut redis = Self { engine, child: None, port, folder, options, client_options };
        redis.run().await;
        redis
    }

    /// Starts the server, again if it was killed, in the same folder and on the same port.
    pub(crate) async fn run(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let child = Command::new(self.engine.program())
            // A Sentinel wants its file first.
            .args(&self.options)
            .args(["--bind", "127.0.0.1", "--dir", &self.folder.path().display().to_string()])
            .stdout(Stdio::null())
            .spawn()
            .expect("the server is there");
        self.child = Some(child);
        until("the server answers", async || {
            let answer = self.cli("ping");
            answer.contains("PONG") || answer.contains("NOAUTH")
        })
        .await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What `redis-cli` prints for a command.
    pub(crate) fn cli(&self, command: &str) -> String {
        let run = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(&self.client_options)
            .args(command.split(' '))
            .output()
            .unwrap();
        String::from_utf8(run.stdout).unwrap().trim_end().to_owned()
    }

    /// The port at which other nodes of its cluster reach it.
    pub(crate) fn cluster_port(&self) -> &str {
        let option =
            self.options.iter().position(|option| option == "--cluster-port").expect("one of a cluster");
        &self.options[option + 1]
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        kill_process(pid, signal).unwrap();
    }

    /// Lets it answer nothing, as if the network were cut, until it is resumed.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Removes its folder, so that it cannot save.
    pub(crate) fn remove_folder(&self) {
        std::fs::remove_dir_all(self.folder.path()).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// Three masters with a replica each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    pub(crate) async fn start(engine: Engine) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let bus = free_port().to_string();
            let options =
                ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &bus];
            let options: Vec<&str> = options
                .into_iter()
                .chain(["--cluster-require-full-coverage", "no", "--appendonly", "no"])
                .collect();
            nodes.push(engine.start_with(&options).await);
        }
        let mut create = "--cluster create".to_owned();
        for node in &nodes {
            write!(create, " 127.0.0.1:{}", node.port).unwrap();
        }
        create.push_str(" --cluster-replicas 1 --cluster-yes");
        let made = nodes[0].cli(&create);
        assert!(made.contains("All 16384 slots covered"), "{made}");
        for node in &nodes {
            until("the cluster is whole", async || node.cli("cluster info").contains("cluster_state:ok"))
                .await;
            until("each master has its replica", async || {
                node.cli("role").starts_with("master")
                    && node.cli("info replication").contains("state=online")
                    || node.cli("info replication").contains("master_link_status:up")
            })
            .await;
        }
        Self { nodes }
    }

    pub(crate) fn url(&self) -> String {
        let urls: Vec<String> = self.nodes.iter().map(Redis::url).collect();
        urls.join(",")
    }

    /// The index of the node that has the key as its master.
    pub(crate) fn master_of(&self, key: &str) -> usize {
        let masters = self.nodes.iter().enumerate().filter(|(_, node)| node.child.is_some());
        let mut own = masters.filter(|(_, node)| {
            let answer = node.cli(&format!("hlen {key}"));
            !answer.contains("MOVED") && !answer.contains("ERR") && node.cli("role").starts_with("master")
        });
        own.next().expect("one has it").0
    }
}
