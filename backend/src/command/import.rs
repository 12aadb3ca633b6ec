//! The command `backend import`.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend::Clock;
use backend::import::{Imported, import_csv};
use backend::server::StopSignals;
use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::Import;
use super::database::{known_workspace, open};
use super::error::{CliError, count};

pub(crate) async fn run(options: Import) -> Result<(), CliError> {
    let Import { database, workspace, public_url, after_line, file: path } = options;
    let store = open(&database).await?;
    let workspace = known_workspace(&store, workspace).await?;
    let unreadable = |source| CliError::File { path: path.clone(), source };
    let file = File::open(&path).map_err(unreadable)?;
    // The progress bar is drawn on stderr if that is a terminal.
    let bar = ProgressBar::new(file.metadata().map_err(unreadable)?.len());
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {eta} left") {
        bar.set_style(style);
    }
    let is_stopped = stopped_by_signals()?;
    let (mut reached, mut said) = (Imported::default(), Ok(()));
    let now = Clock::system().now();
    let imported =
        import_csv(&store, &workspace, &public_url, file, after_line, now, |imported, outcomes| {
            reached = imported.clone();
            bar.set_position(imported.bytes);
            bar.set_message(summary(imported));
            bar.suspend(|| {
                said = outcomes.iter().try_for_each(|outcome| writeln!(std::io::stdout(), "{outcome}"));
            });
            // Nothing is created whose address cannot be printed.
            if said.is_err() || is_stopped.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    let imported = imported.await;
    bar.finish_and_clear();
    store.close().await;
    said.map_err(CliError::Output)?;
    print(&reached)?;
    match imported {
        Ok(Imported { refused: 0, .. }) => Ok(()),
        Ok(Imported { refused, .. }) => Err(CliError::LinesRefused(refused)),
        Err(source) if reached.last_line > 0 => {
            Err(CliError::ImportStopped { path, last_line: reached.last_line, source })
        }
        Err(source) => Err(CliError::Import { path, source }),
    }
}

fn summary(imported: &Imported) -> String {
    format!("{} created, {} refused", count(imported.made, "link"), count(imported.refused, "line"))
}

fn print(imported: &Imported) -> Result<(), CliError> {
    let mut stdout = std::io::stdout();
    let mut lines = vec![summary(imported)];
    if !imported.tags.is_empty() {
        let tags: Vec<String> = imported.tags.iter().map(|tag| format!("{tag:?}")).collect();
        lines.push(format!("{} created: {}", count(tags.len() as u64, "tag"), tags.join(", ")));
    }
    lines.extend(imported.reasons.iter().map(|(reason, lines)| format!("  {lines} × {reason}")));
    lines.iter().try_for_each(|line| writeln!(stdout, "{line}")).map_err(CliError::Output)
}

/// Whether SIGINT or SIGTERM has asked to stop. The second signal ends the process at once.
fn stopped_by_signals() -> Result<Arc<AtomicBool>, CliError> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_stopped);
    let mut signals = StopSignals::listen().map_err(CliError::Signals)?;
    tokio::spawn(async move {
        signals.next().await;
        stop.store(true, Ordering::Relaxed);
        tracing::info!("stopping after the current lines");
        signals.next().await;
        std::process::exit(1);
    });
    Ok(is_stopped)
}
