//! A scenario's filters in a real Envoy with one worker.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    AgainstError, ChainedFilter, Contender,
    bootstrap::{ACCESS, WASM, bootstrap, cluster, filter, message},
    client,
    program::Program,
    response_timeout,
    upstream::Upstream,
    wait::until,
};
use crate::scenario::Scenario;

/// What a guest's line in Envoy's log begins with; then come the names of its plugin, root and VM, and a colon.
const PREFIX: &str = "wasm log";

/// How long Envoy may take to start.
const START: Duration = Duration::from_secs(60);

/// How long Envoy may take to answer for an update, and to write its access log.
const VERDICT: Duration = Duration::from_secs(30);

/// Lines of its log that are shown when it does not start.
const TAIL: usize = 20;

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    folder: TempDir,
    admin: SocketAddr,
    upstream: Upstream,
    /// The first filter as it was configured at the start.
    filter: Value,
    address: SocketAddr,
    clusters: BTreeMap<String, Upstream>,
}

/// The process and the file of its log. It ends with its owner.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(command: &mut Command, log: PathBuf) -> io::Result<Self> {
        let file = File::create(&log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Self { child, log })
    }

    fn lines(&self) -> Vec<String> {
        // A log that cannot be read has no lines, and what is waited for does not come.
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().map(str::to_owned).collect()
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the filter as a discovery response, in one step, which is what Envoy watches for.
fn write_discovery(folder: &Path, filter: &Value) -> io::Result<()> {
    let response = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "case",
        "typed_config": filter,
    }]});
    fs::write(folder.join("next.json"), response.to_string())?;
    fs::rename(folder.join("next.json"), folder.join("filter.json"))
}

impl Envoy {
    /// Starts it in front of the upstream and the clusters of a scenario.
    ///
    /// # Errors
    /// When Envoy does not take the filters, or an address is refused.
    pub fn start(
        scenario: &Scenario,
        filters: &[ChainedFilter],
        program: &Program,
    ) -> Result<Self, AgainstError> {
        let refused = AgainstError::system("the folder of Envoy's files");
        let folder = tempfile::tempdir().map_err(&refused)?;
        let upstream = Upstream::start(&scenario.upstream)?;
        let clusters = Upstream::start_all(&scenario.clusters)?;
        let mut configs = vec![cluster("upstream", upstream.address(), false)];
        let servers = clusters.iter().zip(scenario.clusters.values());
        configs.extend(
            servers.map(|((name, server), answers)| cluster(name, server.address(), answers.are_grpc())),
        );
        let mut chain = Vec::new();
        for (index, ChainedFilter { wasm, plugin, any, .. }) in filters.iter().enumerate() {
            let code = folder.path().join(format!("filter-{index}.wasm"));
            fs::write(&code, wasm).map_err(&refused)?;
            let config = filter(plugin, any.as_ref(), &code, program.version());
            chain.push(json!({"name": plugin.name, "typed_config": config}));
        }
        let first = chain.first().map(|filter| filter["typed_config"].clone()).unwrap_or_default();
        if scenario.steps.iter().any(|step| step.update.is_some())
            && let Some(filter) = chain.first_mut()
        {
            write_discovery(folder.path(), &first).map_err(&refused)?;
            *filter = json!({"name": "case", "config_discovery": {
                "config_source": {
                    "path_config_source": {"path": folder.path().join("filter.json")},
                    "resource_api_version": "V3",
                },
                "type_urls": [WASM],
            }});
        }
        for (index, filter) in chain.iter_mut().enumerate() {
            // Envoy requires a name.
            if filter["name"] == "" {
                filter["name"] = format!("filter-{index}").into();
            }
        }
        let bootstrap = bootstrap(chain, &configs, scenario.buffer_limit, response_timeout(scenario));
        let config = folder.path().join("envoy.json");
        fs::write(&config, bootstrap.to_string()).map_err(&refused)?;
        let mut process = Process::start(
            Command::new(program.path())
                .arg("--config-path")
                .arg(config)
                .arg("--admin-address-path")
                .arg(folder.path().join("admin"))
                .args(["--disable-hot-restart", "--log-level", "info", "--concurrency", "1"])
                // All that a guest logs.
                .args(["--component-log-level", "wasm:trace"])
                .args(["--service-node", "case", "--service-cluster", "case"])
                .args(["--file-flush-interval-msec", "10", "--drain-time-s", "1"]),
            folder.path().join("log"),
        )
        .map_err(|source| AgainstError::Program { path: program.path().to_owned(), source })?;
        let served = until("the start of Envoy", START, || {
            let serves = process.lines().iter().any(|line| line.contains("starting main dispatch loop"));
            if serves { Some(true) } else { process.has_ended().then_some(false) }
        })?;
        if !served {
            let lines = process.lines();
            let log = lines.iter().skip(lines.len().saturating_sub(TAIL)).map(String::as_str);
            return Err(AgainstError::Start { log: log.collect::<Vec<_>>().join("\n") });
        }
        let admin = until("the address of Envoy's admin interface", START, || {
            fs::read_to_string(folder.path().join("admin")).ok()?.trim().parse().ok()
        })?;
        let address = until("Envoy's listener", START, || listening(admin))?;
        Ok(Self { process, folder, admin, upstream, filter: first, address, clusters })
    }

    /// All that it has logged.
    pub fn lines(&self) -> Vec<String> {
        self.process.lines()
    }

    fn stat(&self, name: &str) -> Option<u64> {
        let stats: Value =
            serde_json::from_slice(&client::fetch(self.admin, Method::GET, "/stats?format=json")?).ok()?;
        let found = stats["stats"].as_array()?.iter().find(|stat| stat["name"] == name);
        Some(found.and_then(|stat| stat["value"].as_u64()).unwrap_or(0))
    }
}

/// Where the listener is bound, once it is.
fn listening(admin: SocketAddr) -> Option<SocketAddr> {
    let listeners: Value =
        serde_json::from_slice(&client::fetch(admin, Method::GET, "/listeners?format=json")?).ok()?;
    let bound = listeners.pointer("/listener_statuses/0/local_address/socket_address")?;
    format!("{}:{}", bound["address"].as_str()?, bound["port_value"]).parse().ok()
}

impl Contender for Envoy {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    fn clusters(&self) -> &BTreeMap<String, Upstream> {
        &self.clusters
    }

    fn log(&self) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        let mut goes_on = false;
        for line in self.process.lines() {
            let message = line.split_once(PREFIX).and_then(|(_, rest)| rest.split_once(": "));
            if let Some((_, message)) = message {
                messages.push(message.to_owned());
                goes_on = true;
            } else if line.starts_with('[') || line.starts_with(ACCESS) {
                goes_on = false;
            } else if let Some(message) = messages.last_mut().filter(|_| goes_on) {
                // A message of several lines.
                message.push('\n');
                message.push_str(&line);
            }
        }
        messages
    }

    fn end(mut self) -> Result<Vec<String>, AgainstError> {
        // The answer may be lost with the process.
        let _ = client::fetch(self.admin, Method::POST, "/quitquitquit");
        until("the end of Envoy", VERDICT, || self.process.has_ended().then_some(()))?;
        Ok(self.log())
    }

    fn details(&self, request: usize) -> Result<Option<String>, AgainstError> {
        let details = until("a line of Envoy's access log", VERDICT, || {
            let lines = self.process.lines();
            let mut details = lines.iter().filter_map(|line| line.strip_prefix(ACCESS));
            details.nth(request.checked_sub(1)?).map(str::to_owned)
        })?;
        Ok(Some(details))
    }

    fn metric(&self, name: &str) -> Option<u64> {
        self.stat(&format!("wasmcustom.{name}"))
    }

    fn update(&mut self, configuration: &[u8]) -> Result<bool, AgainstError> {
        const TAKEN: &str = "extension_config_discovery.http_filter.case.config_reload";
        const REFUSED: &str = "extension_config_discovery.http_filter.case.config_fail";
        let verdict = |envoy: &Self| Some((envoy.stat(TAKEN)?, envoy.stat(REFUSED)?));
        let before = until("Envoy's statistics", VERDICT, || verdict(self))?;
        let mut filter = self.filter.clone();
        filter["config"]["configuration"] = message(configuration);
        write_discovery(self.folder.path(), &filter)
            .map_err(AgainstError::system("the folder of Envoy's files"))?;
        until("Envoy's verdict on an update", VERDICT, || {
            let now = verdict(self)?;
            (now != before).then_some(now.1 == before.1)
        })
    }
}
