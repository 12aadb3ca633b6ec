//! The arguments of the command.

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::http::HeaderName;
use backend::keys::{parse_limits, parse_name};
use backend::{ClickRules, KeptAddress, Limits, LocationHeaders, PublicUrl, WhenFull, parse_domain};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A link and analytics API with webhooks.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Examples:
  backend migrate
  backend keys create --plan pro
  backend serve --public-url https://go.example.com
  backend import --workspace ws_01JB3S4T5V6W7X8Y9Z0A1B2C3D --public-url https://go.example.com links.csv"
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Log format on stderr. RUST_LOG sets the log level, for example RUST_LOG=backend=debug.
    #[arg(long, global = true, env = "WEIR_LOG_FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serves the API until SIGINT or SIGTERM. Creates the tables of an empty database.
    Serve(Box<Serve>),
    /// Creates the tables of an empty database, or updates those of an earlier version.
    ///
    /// Other commands than migrate, serve and restore refuse a database that does not have the tables of this version.
    #[command(after_help = "\
Example:
  backend migrate --database sqlite:/var/lib/weir/weir.db")]
    Migrate {
        #[command(flatten)]
        database: Database,
    },
    /// Creates, lists and revokes API keys.
    #[command(subcommand)]
    Keys(Keys),
    /// Assigns domains to workspaces, and lists and removes them.
    #[command(subcommand)]
    Domains(Domains),
    /// Creates a link for each line of a CSV file. The first line contains the API's field names.
    ///
    /// An empty cell is an absent field. Boolean fields are true or false, tagNames is comma-separated, and geo and
    /// testVariants are JSON. Each line is printed with its short link or with the reason why it is refused. A refused line
    /// does not affect the others. Columns without a field are ignored with a warning.
    #[command(after_help = "\
Exit code: 0 if every line created a link, 3 if lines were refused, 1 if the import failed or was stopped.
After a failure, or SIGINT or SIGTERM, the error message contains the number for --after-line.

Example, for a file that begins with url,key,title,tagNames:
  backend import --workspace ws_01JB3S4T5V6W7X8Y9Z0A1B2C3D --public-url https://go.example.com links.csv")]
    Import(Box<Import>),
    /// Copies the database and the spool of clicks to a new folder. The service may be running.
    #[command(after_help = "\
With PostgreSQL, pg_dump must be on PATH and at least as new as the server.

Examples:
  backend backup --database sqlite:/var/lib/weir/weir.db /var/backups/weir-2026-03-15
  backend backup --database postgres://weir@db/weir --spool /var/lib/weir/clicks /var/backups/weir-2026-03-15")]
    Backup(Backup),
    /// Restores a backup to a database that does not exist (SQLite) or is empty (PostgreSQL).
    #[command(after_help = "\
Examples:
  backend restore --database sqlite:/var/lib/weir/weir.db /var/backups/weir-2026-03-15
  backend restore --database postgres://weir@db/weir --spool /var/lib/weir/clicks /var/backups/weir-2026-03-15")]
    Restore(Backup),
    /// Lists, replays and deletes clicks that the database refused.
    #[command(subcommand)]
    SetAside(SetAside),
    /// Creates a workspace with one key per plan and prints the keys. They cannot be shown again.
    Seed {
        #[command(flatten)]
        database: Database,
        /// Name of the workspace.
        #[arg(long, default_value = "demo")]
        name: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct Database {
    /// Database URL: sqlite:<file> or postgres://<user>@<host>/<name>. Clicks that are not recorded yet are in a second file
    /// next to the SQLite file, <file>-clicks.
    #[arg(
        long = "database",
        env = "WEIR_DATABASE",
        default_value = "sqlite:weir.db",
        hide_env_values = true
    )]
    pub(super) url: String,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    #[command(flatten)]
    pub(super) database: Database,
    /// Id of the workspace in which the links are created.
    #[arg(long)]
    pub(super) workspace: String,
    /// Public URL of the API. Its host is the default domain of the links.
    #[arg(long, env = "WEIR_PUBLIC_URL", value_parser = PublicUrl::parse)]
    pub(super) public_url: PublicUrl,
    /// Skips the lines up to this one, to continue an import that was stopped.
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(super) after_line: u64,
    /// Path of the CSV file.
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Backup {
    #[command(flatten)]
    pub(super) database: Database,
    /// The spool file of a process. Repeatable; accepts a comma-separated list [default with SQLite: the spool next to the
    /// database].
    #[arg(long = "spool", env = "WEIR_SPOOL", value_delimiter = ',')]
    pub(super) spools: Vec<PathBuf>,
    /// The folder of the backup.
    pub(super) folder: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum SetAside {
    /// Prints one JSON object per line: the id, the reason and the clicks.
    List {
        #[command(flatten)]
        database: Database,
    },
    /// Records the clicks that were set aside. Clicks that the database still refuses are kept.
    #[command(after_help = "\
Exit code: 0 if every click was recorded, 3 if some are still refused, 1 if the command failed.

Example:
  backend set-aside replay --public-url https://go.example.com")]
    Replay {
        #[command(flatten)]
        database: Database,
        /// Public URL of the API, as for serve. Webhook events contain the URLs of links.
        #[arg(long, env = "WEIR_PUBLIC_URL", value_parser = PublicUrl::parse)]
        public_url: PublicUrl,
    },
    /// Deletes clicks that were set aside.
    Delete {
        #[command(flatten)]
        database: Database,
        /// Ids of the clicks, as printed by `set-aside list`.
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  backend serve --database sqlite:/var/lib/weir/weir.db --public-url https://go.example.com
  backend serve --database postgres://weir@db/weir --public-url https://go.example.com --listen 0.0.0.0:8081 \\
      --internal-listen 10.0.0.5:8082 --country-header x-country --trusted-hops 1 --log-format json
  backend serve --public-url https://go.example.com --retention 90 --ip none")]
pub(super) struct Serve {
    /// Address of the API. Port 0 selects a free port.
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8081", value_parser = address)]
    pub(super) listen: SocketAddr,
    /// Address of the internal listener: /readyz, /metrics and /internal/keys. Clients must not be able to reach it.
    #[arg(long, env = "WEIR_INTERNAL_LISTEN", default_value = "127.0.0.1:8082", value_parser = address)]
    pub(super) internal_listen: SocketAddr,
    /// Public URL of the API. Short links are <URL>/r/<key> [default: the address of --listen].
    #[arg(long, env = "WEIR_PUBLIC_URL", value_parser = PublicUrl::parse)]
    pub(super) public_url: Option<PublicUrl>,
    #[command(flatten)]
    pub(super) database: Database,
    /// Allows webhooks to private, loopback and link-local addresses.
    #[arg(long, env = "WEIR_ALLOW_PRIVATE_WEBHOOKS")]
    pub(super) allow_private_webhooks: bool,
    /// Bearer token of /internal/keys.
    #[arg(long, env = "WEIR_INTERNAL_TOKEN", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(super) internal_token: Option<String>,
    /// File with the token of /internal/keys, for example a systemd credential. White space around the token is ignored.
    #[arg(long, env = "WEIR_INTERNAL_TOKEN_FILE", conflicts_with = "internal_token")]
    pub(super) internal_token_file: Option<PathBuf>,
    /// Time limit of a request, in seconds. After it, the response is 408.
    #[arg(long, env = "WEIR_REQUEST_TIMEOUT", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(super) request_timeout: u64,
    /// Maximum number of connections of each listener. Further connections wait until one closes. One address has at most half of them,
    /// and further connections of it are closed: behind one gateway, this is twice the number of its connections.
    #[arg(long, env = "WEIR_MAX_CONNECTIONS", default_value = "4096", value_parser = connections)]
    pub(super) max_connections: usize,
    /// Time in seconds after which a connection is closed if the client reads nothing of the response.
    #[arg(long, env = "WEIR_WRITE_TIMEOUT", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(super) write_timeout: u64,
    /// Maximum number of concurrent analytics queries and link searches. One workspace uses at most half of them.
    #[arg(long, env = "WEIR_ANALYTICS_READERS", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) analytics_readers: u32,
    /// Time limit of an analytics query, a search or a list, in seconds. After it, the response is 503.
    #[arg(long, env = "WEIR_ANALYTICS_TIMEOUT", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(super) analytics_timeout: u64,
    /// Time for which cached short links are followed while the database is unavailable, in seconds. Other links are
    /// answered with 503.
    #[arg(long, env = "WEIR_MAX_STALE", default_value = "600", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(super) max_stale: u64,
    /// Behaviour of redirects while the click buffer is full, because the database is slow or unavailable or the disk
    /// is full.
    #[arg(long, env = "WEIR_WHEN_FULL", default_value = "wait")]
    pub(super) when_full: Full,
    /// File that stores clicks until they are recorded in PostgreSQL, also while PostgreSQL is unavailable. Each
    /// process needs a separate file. With SQLite, there is always such a file.
    #[arg(long, env = "WEIR_SPOOL")]
    pub(super) spool: Option<PathBuf>,
    /// Maximum number of webhooks in a workspace. Existing webhooks are kept.
    #[arg(long, env = "WEIR_MAX_WEBHOOKS", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) max_webhooks: u32,
    /// Number of days for which clicks are kept. Totals and counts by hour and day are kept [default: clicks are kept
    /// forever].
    #[arg(long, value_name = "DAYS", env = "WEIR_RETENTION", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(super) retention: Option<u32>,
    #[command(flatten)]
    pub(super) clicks: Clicks,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Full {
    /// Redirects wait, and no click is lost.
    Wait,
    /// Redirects continue, and their clicks are not counted.
    Drop,
}

impl From<Full> for WhenFull {
    fn from(full: Full) -> Self {
        match full {
            Full::Wait => Self::Wait,
            Full::Drop => Self::Drop,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_invalid| {
        "expected an IP address and a port, for example 127.0.0.1:8081, 0.0.0.0:8081 or [::]:8081".to_owned()
    })
}

fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1_000_000) => Ok(number),
        Ok(_) | Err(_) => Err("expected a number from 1 to 1000000".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(super) struct Clicks {
    /// Also counts crawlers and link preview fetchers.
    #[arg(long, env = "WEIR_COUNT_BOTS")]
    pub(super) count_bots: bool,
    /// Counts each visitor (address and user agent) at most once per hour and link.
    #[arg(long, env = "WEIR_ONCE_PER_HOUR")]
    pub(super) once_per_hour: bool,
    /// Number of proxies in front of the service that append to X-Forwarded-For. With 0, the visitor's address is the
    /// peer address of the connection.
    #[arg(long, env = "WEIR_TRUSTED_HOPS", default_value = "0")]
    pub(super) trusted_hops: u8,
    /// Part of the visitor's address that is stored, and sent in events and webhooks. --once-per-hour always compares whole
    /// addresses.
    #[arg(long, env = "WEIR_IP", default_value = "truncated")]
    pub(super) ip: Ip,
    /// Header in which the gateway sends the visitor's continent (AF, AN, AS, EU, NA, OC or SA).
    #[arg(long, env = "WEIR_CONTINENT_HEADER")]
    pub(super) continent_header: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's country (ISO 3166, two letters).
    #[arg(long, env = "WEIR_COUNTRY_HEADER")]
    pub(super) country_header: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's region (ISO 3166-2).
    #[arg(long, env = "WEIR_REGION_HEADER")]
    pub(super) region_header: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's city.
    #[arg(long, env = "WEIR_CITY_HEADER")]
    pub(super) city_header: Option<HeaderName>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Ip {
    /// The whole address, for new clicks only.
    Full,
    /// The network: /24 of IPv4, /48 of IPv6.
    Truncated,
    /// Nothing. The API returns "".
    None,
}

impl From<Ip> for KeptAddress {
    fn from(ip: Ip) -> Self {
        match ip {
            Ip::Full => Self::Full,
            Ip::Truncated => Self::Truncated,
            Ip::None => Self::None,
        }
    }
}

impl From<Clicks> for ClickRules {
    fn from(clicks: Clicks) -> Self {
        let location = LocationHeaders {
            continent: clicks.continent_header,
            country: clicks.country_header,
            region: clicks.region_header,
            city: clicks.city_header,
        };
        Self {
            count_bots: clicks.count_bots,
            once_per_hour: clicks.once_per_hour,
            location,
            trusted_hops: clicks.trusted_hops,
            ip: clicks.ip.into(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Creates a key and prints it. It cannot be shown again.
    #[command(after_help = "\
Examples:
  backend keys create --plan pro
  backend keys create --plan enterprise --limits standard=5000/minute,analytics=20/second \\
      --workspace ws_01JB3S4T5V6W7X8Y9Z0A1B2C3D")]
    Create {
        #[command(flatten)]
        database: Database,
        /// Plan of the key, one of --plans. The gateway applies its quotas.
        #[arg(long, value_parser = parse_name)]
        plan: String,
        /// Names of the plans that the gateway knows, comma-separated. A key with another plan would be unknown to it.
        #[arg(
            long,
            value_name = "PLANS",
            env = "WEIR_PLANS",
            value_delimiter = ',',
            default_value = "free,pro,business,advanced,enterprise",
            value_parser = parse_name
        )]
        plans: Vec<String>,
        /// Quotas that override the plan's, for example standard=5000/minute,analytics=20/second. Required for the plan
        /// enterprise, which has no default quotas.
        #[arg(long, value_parser = parse_limits)]
        limits: Option<Limits>,
        /// Id of the workspace that the key can access [default: a new workspace].
        #[arg(long)]
        workspace: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists the active keys.
    List {
        #[command(flatten)]
        database: Database,
        /// Prints JSON in the format of `subscribers` in the gateway's configuration.
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key.
    Revoke {
        #[command(flatten)]
        database: Database,
        /// Id of the key, as printed by `keys list`.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Domains {
    /// Assigns a domain to a workspace. Only this workspace can then create links on it.
    ///
    /// The domain must resolve to this service. Running services apply the change within a second. Once a domain is assigned, the
    /// service answers 404 to visitors of hosts that are neither assigned nor that of --public-url, unless the host is an
    /// IP address.
    #[command(after_help = "\
Example:
  backend domains assign --workspace ws_01JB3S4T5V6W7X8Y9Z0A1B2C3D go.example.com")]
    Assign {
        #[command(flatten)]
        database: Database,
        /// Id of the workspace.
        #[arg(long)]
        workspace: String,
        /// The domain.
        #[arg(value_parser = parse_domain)]
        domain: String,
    },
    /// Removes a domain. Its links stay, and are not followed until the domain is assigned again.
    #[command(after_help = "\
Example:
  backend domains remove go.example.com")]
    Remove {
        #[command(flatten)]
        database: Database,
        /// The domain.
        #[arg(value_parser = parse_domain)]
        domain: String,
    },
    /// Lists the assigned domains and their workspaces.
    List {
        #[command(flatten)]
        database: Database,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The help texts of the command and all subcommands.
    fn helps(command: &mut clap::Command) -> Vec<String> {
        let mut texts = vec![command.render_long_help().to_string()];
        texts.extend(command.get_subcommands_mut().flat_map(helps));
        texts
    }

    #[test]
    fn every_example_in_the_help_is_understood() {
        let mut examples = 0;
        for help in helps(&mut Cli::command()) {
            for line in help.replace("\\\n", " ").lines().filter(|line| line.starts_with("  backend ")) {
                let parsed = Cli::try_parse_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
                examples += 1;
            }
        }
        assert_eq!(examples, 18);
    }
}
