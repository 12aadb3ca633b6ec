//! A SQLite database for tests.

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use super::sql::Sql;
use super::{NewLink, NewWebhook, Store, Workspace};
use crate::domain::click::Click;
use crate::domain::event::Trigger;
use crate::domain::link::Link;
use crate::domain::link::LinkInput;
use crate::domain::public_url::PublicUrl;
use crate::domain::scope::ScopeInput;
use crate::domain::tag::Tag;

pub(crate) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A database with a workspace, in a folder that is deleted with it.
pub(crate) struct Sample {
    folder: TempDir,
    pub(crate) store: Store,
    pub(crate) workspace: Workspace,
}

impl Sample {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let workspace = store.create_workspace("test", NOW).await.unwrap();
        Self { folder, store, workspace }
    }

    /// Closes the database and opens it again, as the next process does.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.folder).await;
    }

    /// Creates equal links.
    pub(crate) async fn links(&self, count: usize, body: &Value) -> Vec<Link> {
        let new = NewLink::of(LinkInput::create(body, "", NOW).unwrap(), &public());
        let made = self.store.create_links(&self.workspace, &vec![new; count], NOW, None).await.unwrap();
        made.into_iter().map(Result::unwrap).collect()
    }

    /// Records clicks on a link.
    pub(super) async fn click(&self, link: &Link, count: i64) {
        let clicks: Vec<Click> = (0..count).map(|_| Click::new(&link.id, NOW)).collect();
        self.store.record_clicks(&clicks).await.unwrap();
    }

    /// The number that a query selects.
    pub(super) async fn number(&self, query: &'static str) -> i64 {
        Sql::new(query).number(&self.store.read).await.unwrap()
    }

    /// The number of rows of a table.
    pub(super) async fn rows(&self, table: &'static str) -> i64 {
        let mut sql = Sql::new("SELECT COUNT(*) FROM ");
        sql.push(table);
        sql.number(&self.store.read).await.unwrap()
    }
}

async fn open(folder: &TempDir) -> Store {
    Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display())).await.unwrap()
}

pub(crate) fn public() -> PublicUrl {
    PublicUrl::parse("https://s.test").unwrap()
}

impl Tag {
    /// A red tag.
    pub(crate) fn named(name: &str) -> Self {
        Self { id: format!("tag_{name}"), name: name.to_owned(), color: "red".to_owned() }
    }
}

impl NewWebhook {
    /// Of the clicks of all links.
    pub(crate) fn of_clicks() -> Self {
        Self {
            name: "rx".to_owned(),
            url: "https://rx.test/".to_owned(),
            secret: None,
            triggers: vec![Trigger::Clicked],
            scope: ScopeInput::default(),
        }
    }
}
