//! Builds SQL statements from parts.

use serde_json::{Value, json};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Any, Arguments, AssertSqlSafe, Encode, Row, Sqlite, Type};

use super::Dialect;

/// A statement and its arguments. Only constant text becomes part of the statement, and every value is bound as an
/// argument. Binding a value costs more than writing it, so many values are bound as one list.
pub(super) struct Sql {
    text: String,
    arguments: AnyArguments,
    failure: Option<sqlx::Error>,
}

impl Sql {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), arguments: AnyArguments::default(), failure: None }
    }

    /// Appends constant text.
    pub(super) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a placeholder and binds its value.
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

    /// Appends `($1, $2, …)`. An empty list becomes `(NULL)`, which contains no value.
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

    /// Appends the condition that the numbers before are in a list. The statement is the same, and stays prepared, for lists of any
    /// length. PostgreSQL finds the rows in an index: with `IN` and a query, it would read a table with the rows of all customers,
    /// because it does not know how few numbers there are.
    pub(super) fn in_numbers(&mut self, dialect: Dialect, numbers: &[i64]) -> &mut Self {
        self.in_listed(dialect, "BIGINT", &json!(numbers))
    }

    /// Like [`Self::in_numbers`], for texts.
    pub(super) fn in_texts(&mut self, dialect: Dialect, texts: &[impl serde::Serialize]) -> &mut Self {
        self.in_listed(dialect, "TEXT", &json!(texts))
    }

    fn in_listed(&mut self, dialect: Dialect, kind: &'static str, list: &Value) -> &mut Self {
        let (before, after) = match dialect {
            Dialect::Sqlite => (" IN ", ""),
            Dialect::Postgres => (" = ANY(ARRAY", ")"),
        };
        self.push(before).listed(dialect, kind, list).push(after)
    }

    /// Appends a list of texts as one argument.
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

    /// Appends the condition that the long text before contains another, in upper or lower case. It takes time in proportion to the length
    /// of the long text, where that of [`Self::contains`] is in proportion to the product of both lengths. In PostgreSQL, the square of
    /// the length of the other is added. SQLite needs a [`Reader`](super::Reader).
    pub(super) fn long_contains(&mut self, dialect: Dialect, text: &str) -> &mut Self {
        match dialect {
            Dialect::Sqlite => self.push(" REGEXP ").bind(format!("(?i){}", regex::escape(text))),
            // The text after the asterisks is taken literally.
            Dialect::Postgres => self.push(" ~* ").bind(format!("***={text}")),
        }
    }

    /// Appends a source of rows: the elements of a JSON list, in order. Each row has the element as `value` and its
    /// index as `key`. The list is one argument.
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

    /// Ends a query of [`Self::each`] so that the rows keep the order of the list. An `ON CONFLICT` clause may follow.
    pub(super) fn in_order(&mut self, dialect: Dialect) -> &mut Self {
        self.push(match dialect {
            // SQLite keeps the order. Without a condition, it would parse `ON CONFLICT` as the condition of a join.
            Dialect::Sqlite => " WHERE TRUE",
            Dialect::Postgres => " ORDER BY key",
        })
    }

    /// Appends a clause that locks the selected rows. SQLite needs none, because it has one writer at a time.
    pub(super) fn lock(&mut self, dialect: Dialect, clause: &'static str) -> &mut Self {
        self.push(match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => clause,
        })
    }

    /// Appends the rows of a `VALUES` clause. `row` binds the values of one row.
    pub(super) fn rows<T>(&mut self, items: &[T], row: impl Fn(&mut RowOfValues<'_>, &T)) -> &mut Self {
        for (index, item) in items.iter().enumerate() {
            self.text.push_str(if index == 0 { "(" } else { ", (" });
            row(&mut RowOfValues { sql: self, first: true }, item);
            self.text.push(')');
        }
        self
    }

    /// The steps in which SQLite answers a query.
    #[cfg(test)]
    pub(super) async fn steps(self, on: &sqlx::AnyPool) -> Vec<String> {
        let explained = Self { text: format!("EXPLAIN QUERY PLAN {}", self.text), ..self };
        let plan = explained.all(on).await.unwrap();
        plan.iter().map(|row| row.try_get("detail").unwrap()).collect()
    }

    fn query(self) -> Result<Query<'static, Any, AnyArguments>, sqlx::Error> {
        match self.failure {
            Some(error) => Err(error),
            None => Ok(sqlx::query_with(AssertSqlSafe(self.text), self.arguments)),
        }
    }

    /// The statement for SQLite's own connection type.
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

    /// The number in the only column and row of the result.
    pub(super) async fn number<'c>(
        self,
        on: impl sqlx::Executor<'c, Database = Any>,
    ) -> Result<i64, sqlx::Error> {
        self.one(on).await?.try_get(0)
    }
}

/// A row of a `VALUES` clause.
pub(crate) struct RowOfValues<'a> {
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
