//! The commands `backend usage`.

use backend::{Account, Clock, SubscriberUsage, Sums, UsageOrder};
use serde::Serialize;
use serde_json::json;

use super::arguments::{ExportFormat, ExportUsage, ListUsage, Sort};
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
    let order = match options.sort {
        Sort::Used => UsageOrder::Used,
        Sort::Refused => UsageOrder::Refused,
        Sort::Share => UsageOrder::Share,
    };
    let subscribers = store.list_usage(order, options.most.into(), Clock::system().now()).await?;
    store.close().await;
    if options.json {
        return say!("{}", json!(subscribers.iter().map(body).collect::<Vec<_>>()));
    }
    say!(
        "{:>7}  {:>12}  {:>12}  {:>10}  {:<12}  quota, subscriber",
        "share",
        "units/24h",
        "requests",
        "refused",
        "plan"
    )?;
    for of in &subscribers {
        let (day, tightest) = (of.day(), of.tightest.as_ref());
        let share =
            tightest.map_or("-".to_owned(), |of| format!("{}.{} %", of.share() / 10, of.share() % 10));
        let quota = tightest.map_or("-", |of| &of.quota);
        let Sums { requests, units, refused } = day;
        say!(
            "{share:>7}  {units:>12}  {requests:>12}  {refused:>10}  {:<12}  {quota}  {}",
            of.plan,
            of.subscriber
        )?;
    }
    Ok(())
}

/// A subscriber in JSON.
fn body(of: &SubscriberUsage) -> serde_json::Value {
    let tightest = of
        .tightest
        .as_ref()
        .map(|of| json!({ "quota": of.quota, "limit": of.limit, "used": of.used, "to": of.until }));
    json!({
        "subscriber": of.subscriber, "organisation": of.organisation, "plan": of.plan, "tightest": tightest,
        "lastDay": of.day(), "firstRefusal": of.first_refusal,
    })
}
