//! The commands `backend usage`.

use backend::{Account, Clock, SubscriberUsage, Sums};
use serde::Serialize;
use serde_json::json;

use super::arguments::{ExportFormat, ExportUsage, ListUsage};
use super::database::open;
use super::error::{CliError, say};

/// A row of the export in JSON.
#[derive(Serialize)]
struct Exported {
    #[serde(flatten)]
    account: Account,
    #[serde(flatten)]
    sums: Sums,
}

pub(crate) async fn export(options: ExportUsage) -> Result<(), CliError> {
    let store = open(&options.database).await?;
    let rows = store.export_usage(options.month, options.subscriber, Clock::system().now()).await?;
    store.close().await;
    match options.format {
        ExportFormat::Json => {
            let rows: Vec<_> = rows.into_iter().map(|(account, sums)| Exported { account, sums }).collect();
            say!("{}", json!(rows))
        }
        ExportFormat::Csv => {
            say!("subscriber,organisation,key,class,plan,requests,units,refused")?;
            rows.into_iter().try_for_each(|(account, sums)| {
                let Account { subscriber, organisation, key, class, plan } = account;
                let texts = [subscriber, organisation, key, class, plan].map(|text| cell(&text));
                say!("{},{},{},{}", texts.join(","), sums.requests, sums.units, sums.refused)
            })
        }
    }
}

/// A text as a cell of CSV.
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

pub(crate) async fn list(options: ListUsage) -> Result<(), CliError> {
    let store = open(&options.database).await?;
    let subscribers =
        store.list_usage(options.sort, None, (0, options.most.into()), Clock::system().now()).await?;
    store.close().await;
    say!("   share     units/24h  requests/24h   refused/24h  plan          quota             subscriber")?;
    subscribers.into_iter().try_for_each(|SubscriberUsage { account, tightest, day, .. }| {
        let share = tightest.as_ref().map_or("-".to_owned(), |of| format!("{} %", of.percent()));
        let (quota, Sums { requests, units, refused }) =
            (tightest.map_or("-".to_owned(), |of| of.quota), day);
        let Account { plan, subscriber, .. } = account;
        say!("{share:>8}  {units:>12}  {requests:>12}  {refused:>12}  {plan:<12}  {quota:<16}  {subscriber}")
    })
}
