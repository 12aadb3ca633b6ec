//! Statements put together from parts.

use serde_json::{Value, json};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Any, Arguments, AssertSqlSafe, Encode, Row, Sqlite, Type};

use super::Dialect;

/// A statement and its arguments. Only fixed texts become part of the statement; every value is an argument, which binding
/// costs more than writing it does: many values are better one list.
pub(super) struct Sql {
    text: String,
    arguments: AnyArguments,
    failure: Option<sqlx::Error>,
}

impl Sql {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), arguments: AnyArguments::default(), failure: None }
    }

    /// Appends a fixed text.
    pub(super) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a placeholder and its value.
    pub(super) fn bind<T>(&mut self, value: T) -> &mut Self
    where
        T: for<'q> Encode<'q, Any> + Type<Any>,
    {
        if let Err(error) = self.arguments.add(value) {
            self.failure.get_or_insert(sqlx::Error::Encode(error));
        }
        self.text.push('$');
        self.text.push_str(&self.arguments.len().to_string());
        self
    }

    /// Appends `($1, $2, …)`. An empty list becomes `(NULL)`, which nothing is in.
    pub(super) fn list<T>(&mut self, values: impl IntoIterator<Item = T>) -> &mut Self
    where
        T: for<'q> Encode<'q, Any> + Type<Any>,
    {
        self.text.push('(');
        let mut empty = true;
        for value in values {
            if !empty {
                self.text.push_str(", ");
            }
            self.bind(value);
            empty = false;
        }
        self.text.push_str(if empty { "NULL)" } else { ")" });
        self
    }

    /// Appends a list of numbers as one argument, so that a statement is the same, and stays prepared, for lists of any
    /// length.
    pub(super) fn numbers(&mut self, dialect: Dialect, numbers: &[i64]) -> &mut Self {
        self.listed(dialect, "BIGINT", &json!(numbers))
    }

    /// As [`Self::numbers`], with texts.
    pub(super) fn texts(&mut self, dialect: Dialect, texts: &[impl serde::Serialize]) -> &mut Self {
        self.listed(dialect, "TEXT", &json!(texts))
    }

    fn listed(&mut self, dialect: Dialect, kind: &'static str, list: &Value) -> &mut Self {
        let (before, after) = match dialect {
            Dialect::Sqlite => ("json_each(", ")"),
            Dialect::Postgres => ("jsonb_array_elements_text(CAST(", " AS JSONB))"),
        };
        self.push("(SELECT CAST(value AS ").push(kind).push(") FROM ").push(before);
        self.bind(list.to_string()).push(after).push(")")
    }

    /// Appends a column in lower case, as the indexes of names have it. Only letters of ASCII change.
    pub(super) fn folded(&mut self, dialect: Dialect, column: &'static str) -> &mut Self {
        self.push("lower(").push(column).push(match dialect {
            Dialect::Sqlite => ")",
            Dialect::Postgres => " COLLATE \"C\")",
        })
    }

    /// Appends the condition that a text contains another, in upper or lower case.
    pub(super) fn contains(&mut self, dialect: Dialect, column: &'static str, text: &str) -> &mut Self {
        let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        self.push(column).push(match dialect {
            Dialect::Sqlite => " LIKE ",
            Dialect::Postgres => " ILIKE ",
        });
        self.bind(format!("%{escaped}%")).push(" ESCAPE '\\'")
    }

    /// Appends a source of rows: the elements of a JSON list in their order, each as `value` with its place, from 0 on, as
    /// `key`. However many they are, they are one argument.
    pub(super) fn each(&mut self, dialect: Dialect, list: String) -> &mut Self {
        let (before, after) = match dialect {
            Dialect::Sqlite => ("jsonb_each(", ")"),
            Dialect::Postgres => (
                "(SELECT o.value, o.ordinality - 1 AS key FROM jsonb_array_elements(CAST(",
                " AS JSONB)) WITH ORDINALITY AS o) e",
            ),
        };
        self.push(before).bind(list).push(after)
    }

    /// Ends a query of [`Self::each`] so that the rows come in the order of the list. An `ON CONFLICT` may follow.
    pub(super) fn in_order(&mut self, dialect: Dialect) -> &mut Self {
        self.push(match dialect {
            // They come so by themselves. Without a condition, what follows is read as that of a join.
            Dialect::Sqlite => " WHERE TRUE",
            Dialect::Postgres => " ORDER BY key",
        })
    }

    /// Appends the rows of a `VALUES` clause; `row` binds the values of one.
    pub(super) fn rows<T>(&mut self, items: &[T], row: impl Fn(&mut RowOfValues<'_>, &T)) -> &mut Self {
        for (index, item) in items.iter().enumerate() {
            self.text.push_str(if index == 0 { "(" } else { ", (" });
            row(&mut RowOfValues { sql: self, first: true }, item);
            self.text.push(')');
        }
        self
    }

    fn query(self) -> Result<Query<'static, Any, AnyArguments>, sqlx::Error> {
        match self.failure {
            Some(error) => Err(error),
            None => Ok(sqlx::query_with(AssertSqlSafe(self.text), self.arguments)),
        }
    }

    /// The statement as SQLite itself takes it.
    pub(super) fn for_sqlite(self) -> Result<Query<'static, Sqlite, SqliteArguments>, sqlx::Error> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        let arguments = self.arguments.convert_into().map_err(sqlx::Error::Encode)?;
        Ok(sqlx::query_with(AssertSqlSafe(self.text), arguments))
    }

    pub(super) async fn execute<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<u64, sqlx::Error> {
        Ok(self.query()?.execute(on).await?.rows_affected())
    }

    pub(super) async fn all<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<Vec<AnyRow>, sqlx::Error> {
        self.query()?.fetch_all(on).await
    }

    pub(super) async fn optional<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<Option<AnyRow>, sqlx::Error> {
        self.query()?.fetch_optional(on).await
    }

    pub(super) async fn one<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<AnyRow, sqlx::Error> {
        self.query()?.fetch_one(on).await
    }

    /// The number in the only column of the only row.
    pub(super) async fn number<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<i64, sqlx::Error> {
        self.one(on).await?.try_get(0)
    }
}

/// One row of a `VALUES` clause in the making.
pub(super) struct RowOfValues<'a> {
    sql: &'a mut Sql,
    first: bool,
}

impl RowOfValues<'_> {
    pub(super) fn bind<T>(&mut self, value: T) -> &mut Self
    where
        T: for<'q> Encode<'q, Any> + Type<Any>,
    {
        if !self.first {
            self.sql.text.push_str(", ");
        }
        self.first = false;
        self.sql.bind(value);
        self
    }
}
