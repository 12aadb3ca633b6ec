//! The arguments of the command.

use std::net::SocketAddr;
use std::path::PathBuf;

use backend::keys::{parse_anchor, parse_limits, parse_name};
use backend::{ClickRules, Limits, PublicUrl, UsageOrder, parse_domain};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A link and analytics API with webhooks.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Examples:
  backend migrate
  backend keys create --plan pro
  backend serve --public-url https://go.example.com"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log format on stderr. RUST_LOG sets the log level, for example RUST_LOG=backend=debug.
    #[arg(long, global = true, env = "WEIR_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves the API until SIGINT or SIGTERM. Creates the tables of an empty database.
    Serve(Box<Serve>),
    /// Creates the tables of an empty database, or updates those of an earlier version.
    ///
    /// Other commands than migrate and serve refuse a database that does not have the tables of this version.
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
    /// Exports what subscribers used, and lists those who are near a limit.
    #[command(subcommand)]
    Usage(Usage),
    /// Copies a SQLite database to a new file. The service may be running. For PostgreSQL, use pg_dump.
    ///
    /// Clicks that are still in the click log are not in the copy.
    #[command(after_help = "\
Example:
  backend backup --database sqlite:/var/lib/weir/weir.db /var/backups/weir-2026-03-15.db")]
    Backup {
        #[command(flatten)]
        database: Database,
        /// The file to create.
        file: PathBuf,
    },
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
pub(crate) struct Database {
    /// Database URL: sqlite:<file> or postgres://<user>@<host>/<name>. Clicks that are not in the database yet are in a second
    /// file, <file>-clicks or <name>-clicks.
    #[arg(
        long = "database",
        env = "WEIR_DATABASE",
        default_value = "sqlite:weir.db",
        hide_env_values = true
    )]
    pub(crate) url: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  backend serve --database sqlite:/var/lib/weir/weir.db --public-url https://go.example.com
  backend serve --database postgres://weir@db/weir --public-url https://go.example.com --listen 0.0.0.0:8081 \\
      --internal-listen 10.0.0.5:8082 --country-header x-country --trusted-hops 1 --log-format json
  backend serve --public-url https://go.example.com --retention 90 --ip none")]
pub(crate) struct Serve {
    /// Address of the API. Port 0 selects a free port.
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8081", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Address of the internal listener: /usage for operators, /readyz, /metrics, /internal/keys and /internal/usage. Clients must not be able to
    /// reach it.
    #[arg(long, env = "WEIR_INTERNAL_LISTEN", default_value = "127.0.0.1:8082", value_parser = address)]
    pub(crate) internal_listen: SocketAddr,
    /// Public URL of the API. Short links are <URL>/r/<key> [default: the address of --listen].
    #[arg(long, env = "WEIR_PUBLIC_URL", value_parser = PublicUrl::parse)]
    pub(crate) public_url: Option<PublicUrl>,
    #[command(flatten)]
    pub(crate) database: Database,
    /// Allows webhooks to private, loopback and link-local addresses.
    #[arg(long, env = "WEIR_ALLOW_PRIVATE_WEBHOOKS")]
    pub(crate) allow_private_webhooks: bool,
    /// Bearer token of /internal/keys and /internal/usage.
    #[arg(long, env = "WEIR_INTERNAL_TOKEN", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) internal_token: Option<String>,
    /// File with the token of /internal/keys and /internal/usage, for example a systemd credential. White space around the token is ignored.
    #[arg(long, env = "WEIR_INTERNAL_TOKEN_FILE", conflicts_with = "internal_token")]
    pub(crate) internal_token_file: Option<PathBuf>,
    /// Time limit of a request, in seconds. After it, the response is 408. A request that has waited for others of its workspace for a third
    /// of it is answered with 503.
    #[arg(long, env = "WEIR_REQUEST_TIMEOUT", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) request_timeout: u64,
    /// Maximum number of connections of each listener. Further connections wait until one closes. Each may take 64 KiB for headers.
    #[arg(long, env = "WEIR_MAX_CONNECTIONS", default_value = "4096", value_parser = connections)]
    pub(crate) max_connections: usize,
    /// Time in seconds after which a connection is closed if the client reads nothing of the response.
    #[arg(long, env = "WEIR_WRITE_TIMEOUT", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) write_timeout: u64,
    /// Maximum number of concurrent analytics queries, searches and lists. One workspace uses at most half of them.
    #[arg(long, env = "WEIR_ANALYTICS_READERS", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) analytics_readers: u32,
    /// Time limit of an analytics query, a search or a list, in seconds. After it, the response is 503.
    #[arg(long, env = "WEIR_ANALYTICS_TIMEOUT", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) analytics_timeout: u64,
    /// Time for which short links are followed from memory, in seconds. After it, a visit waits for the database. While that is unavailable,
    /// it is answered with 503.
    #[arg(long, env = "WEIR_MAX_STALE", default_value = "600", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) max_stale: u64,
    /// File that stores clicks until they are in the database, also while that is unavailable. Each process needs a separate
    /// file [default: <database>-clicks, next to the SQLite file, or in the working directory with PostgreSQL].
    #[arg(long, env = "WEIR_CLICK_LOG", value_name = "FILE")]
    pub(crate) click_log: Option<PathBuf>,
    /// Maximum number of webhooks in a workspace. Existing webhooks are kept.
    #[arg(long, env = "WEIR_MAX_WEBHOOKS", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) max_webhooks: u32,
    /// Number of days for which clicks are kept. Totals and counts by hour and day are kept [default: clicks are kept
    /// forever].
    #[arg(long, value_name = "DAYS", env = "WEIR_RETENTION", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) retention: Option<u32>,
    #[command(flatten)]
    pub(crate) clicks: ClickRules,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Creates a key and prints it. It cannot be shown again.
    #[command(after_help = "\
Examples:
  backend keys create --plan pro
  backend keys create --plan pro --billing-anchor 2026-01-31
  backend keys create --plan enterprise --limits standard=5000/minute,analytics=20/second \\
      --workspace ws_01JB3S4T5V6W7X8Y9Z0A1B2C3D")]
    Create(CreateKey),
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

#[derive(Debug, Args)]
pub(crate) struct CreateKey {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Plan of the key, one of --plans. The gateway applies its quotas.
    #[arg(long, value_parser = parse_name)]
    pub(crate) plan: String,
    /// Names of the plans that the gateway knows, comma-separated. A key with another plan would be unknown to it.
    #[arg(
        long,
        value_name = "PLANS",
        env = "WEIR_PLANS",
        value_delimiter = ',',
        default_value = "free,pro,business,advanced,enterprise",
        value_parser = parse_name
    )]
    pub(crate) plans: Vec<String>,
    /// Quotas that override the plan's, for example standard=5000/minute,analytics=20/second. Required for the plan
    /// enterprise, which has no default quotas.
    #[arg(long, value_parser = parse_limits)]
    pub(crate) limits: Option<Limits>,
    /// File with quotas that override the plan's: JSON as `limits` of a subscriber in the gateway's configuration, for quotas of any kind.
    #[arg(long, value_name = "FILE", conflicts_with = "limits")]
    pub(crate) limits_file: Option<PathBuf>,
    /// Instant at which a billing period begins, for quotas of billing_month and billing_year, such as 2026-01-31T09:30:00Z or 2026-01-31.
    #[arg(long, value_name = "INSTANT", value_parser = parse_anchor)]
    pub(crate) billing_anchor: Option<Timestamp>,
    /// Id of the workspace that the key can access [default: a new workspace].
    #[arg(long)]
    pub(crate) workspace: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Domains {
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

#[derive(Debug, Subcommand)]
pub(crate) enum Usage {
    /// Prints what was used in a month: a row for each subscriber, organisation, key, class and plan.
    ///
    /// The month is UTC's. Requests of clients without a subscriber have a row with an empty one.
    #[command(after_help = "\
Examples:
  backend usage export --month 2026-11
  backend usage export --month 2026-11 --format json --subscriber acme")]
    Export(ExportUsage),
    /// Lists subscribers with their tightest quota and what they used in the last 24 hours.
    #[command(after_help = "\
Examples:
  backend usage list
  backend usage list --sort refused --most 10")]
    List(ListUsage),
}

#[derive(Debug, Args)]
pub(crate) struct ExportUsage {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The month, such as 2026-11.
    #[arg(long, value_parser = month)]
    pub(crate) month: Month,
    /// Format of the rows.
    #[arg(long, default_value = "csv")]
    pub(crate) format: ExportFormat,
    /// Id of the subscriber [default: all].
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) subscriber: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Comma-separated values with a header, as RFC 4180 says.
    Csv,
    /// A list of JSON objects.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ListUsage {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Who comes first: the largest share of the tightest quota, or the most units used or requests refused in the last 24 hours.
    #[arg(long, default_value = "share")]
    pub(crate) sort: UsageOrder,
    /// Maximum number of subscribers.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) most: u32,
}

/// A month of UTC: its start, and that of the next.
pub(crate) type Month = (Timestamp, Timestamp);

fn month(text: &str) -> Result<Month, String> {
    let start = |date: Date| date.to_zoned(TimeZone::UTC).map(|start| start.timestamp());
    let parse = || {
        // A date may also be written without separators.
        Some(()).filter(|()| text.as_bytes().get(4) == Some(&b'-') && text.len() == "2026-11".len())?;
        let first: Date = format!("{text}-01").parse().ok()?;
        Some((start(first).ok()?, start(first.checked_add(1.month()).ok()?).ok()?))
    };
    parse().ok_or_else(|| "expected a year and a month, for example 2026-11".to_owned())
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
        assert_eq!(examples, 17);
    }
}
