//! The command `backend serve`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use backend::server::StopSignals;
use backend::{
    AddressPolicy, Analytics, Backend, Clock, PublicUrl, Serving, Settings, Store, check_click_log, server,
};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::arguments::Serve;
use super::error::{CliError, say};

const SECONDS_PER_DAY: u64 = 86_400;

/// Lets the kernel give memory to this process in small pages only. It clears a huge page of 2 MiB when that is first used, which takes
/// milliseconds for which other requests would wait.
#[cfg(target_os = "linux")]
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "could not turn off transparent huge pages");
    }
}

pub(crate) async fn serve(options: Serve) -> Result<(), CliError> {
    #[cfg(target_os = "linux")]
    use_small_pages();
    let internal_token = match &options.internal_token_file {
        None => options.internal_token,
        Some(path) => Some(read_token(path)?),
    };
    let (public, public_address) = listen("--listen", options.listen)?;
    let (internal, internal_address) = listen("--internal-listen", options.internal_listen)?;
    let public_url = match options.public_url {
        Some(url) => url,
        None => PublicUrl::parse(&format!("http://{public_address}"))
            .map_err(|error| CliError::PublicUrl(public_address, error))?,
    };
    let webhook_addresses =
        if options.allow_private_webhooks { AddressPolicy::any() } else { AddressPolicy::public_only() };
    let analytics = Analytics {
        readers: options.analytics_readers,
        timeout: Duration::from_secs(options.analytics_timeout),
    };
    let mut store =
        Store::open_or_create_with(&options.database.url, analytics).await.map_err(CliError::Open)?;
    let _lock = Serving::lock(&options.database.url).map_err(CliError::Open)?;
    if let Some(click_log) = options.click_log {
        store = store.with_click_log(click_log);
    }
    check_click_log(store.click_log())?;
    let bounds = server::Bounds {
        connections: options.max_connections,
        write_timeout: Duration::from_secs(options.write_timeout),
        ..server::Bounds::default()
    };
    let settings = Settings {
        public_url,
        webhook_addresses,
        clicks: options.clicks,
        internal_token,
        request_timeout: Duration::from_secs(options.request_timeout),
        max_webhooks: options.max_webhooks,
        max_stale: Duration::from_secs(options.max_stale),
        retention: options.retention.map(|days| Duration::from_secs(u64::from(days) * SECONDS_PER_DAY)),
    };
    let backend = Backend::start(store, Clock::system(), settings);
    let mut signals = StopSignals::listen().map_err(CliError::Signals)?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(server::serve(public, backend.front(), bounds, stopped.clone()));
    let serving_internal = tokio::spawn(server::serve(internal, backend.internal_router(), bounds, stopped));
    // Scripts parse these two lines to find the ports.
    let said = say!("listening on http://{public_address}\ninternal on http://{internal_address}");
    if let Err(error) = said {
        tracing::warn!(%error, "could not print the addresses of the listeners");
    }
    signals.next().await;
    tracing::info!("stopping");
    stop.send_replace(true);
    let logged = backend.logged_clicks();
    let ended = async {
        let _ended = tokio::join!(serving, serving_internal);
        backend.shut_down().await;
    };
    let is_whole = tokio::select! {
        () = ended => true,
        () = signals.next() => false,
    };
    match logged() {
        0 => {}
        clicks => {
            tracing::warn!(
                "clicks of the click log that could not be recorded: {clicks}. The next process records them"
            );
        }
    }
    if is_whole { Ok(()) } else { Err(CliError::Interrupted) }
}

/// The token in a file. An empty token is refused, because every client knows it.
fn read_token(path: &Path) -> Result<String, CliError> {
    let unreadable =
        |source| CliError::NamedFile { option: "--internal-token-file", path: path.to_owned(), source };
    let token = std::fs::read_to_string(path).map_err(unreadable)?.trim().to_owned();
    if token.is_empty() { Err(CliError::EmptyToken(path.to_owned())) } else { Ok(token) }
}

fn listen(option: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let failed = |source| CliError::Listen { option, address, source };
    let listener = server::listen(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}
