//! Builds SQL statements from parts.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Any, AnyConnection, AnyPool, Arguments, AssertSqlSafe, Database, Encode, Row, Sqlite, Type};

use super::Column;

/// A statement and its arguments. Only constant text becomes part of the statement, and every value is bound as an
/// argument. Binding a value costs more than writing it, so many values are bound as one list.
pub(crate) struct Sql {
    sqlite: String,
    postgres: String,
    arguments: AnyArguments,
    failure: Option<sqlx::Error>,
}

impl Sql {
    pub(super) fn new(text: &'static str) -> Self {
        Self::by(text, text)
    }

    /// A statement that begins in SQLite and in PostgreSQL with these texts.
    pub(super) fn by(sqlite: &'static str, postgres: &'static str) -> Self {
        let (sqlite, postgres) = (sqlite.to_owned(), postgres.to_owned());
        Self { sqlite, postgres, arguments: AnyArguments::default(), failure: None }
    }

    /// Appends constant text.
    pub(super) fn push(&mut self, text: &'static str) -> &mut Self {
        self.push_by(text, text)
    }

    /// Appends constant text to the statement for SQLite, and to that for PostgreSQL.
    pub(super) fn push_by(&mut self, sqlite: &str, postgres: &str) -> &mut Self {
        self.sqlite.push_str(sqlite);
        self.postgres.push_str(postgres);
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
        let placeholder = format!("${}", self.arguments.len());
        self.push_by(&placeholder, &placeholder)
    }

    /// Appends `($1, $2, …)`. An empty list becomes `(NULL)`, which contains no value.
    pub(super) fn list<T>(&mut self, values: impl IntoIterator<Item = T>) -> &mut Self
    where
        T: for<'q> Encode<'q, Any> + Type<Any>,
    {
        let mut separator = "(";
        for value in values {
            self.push(separator).bind(value);
            separator = ", ";
        }
        self.push(if separator == "(" { "(NULL)" } else { ")" })
    }

    /// Appends the condition that the numbers before are in a list. The statement is the same, and stays prepared, for lists of any
    /// length. PostgreSQL finds the rows in an index: with `IN` and a query, it would read a table with the rows of all customers,
    /// because it does not know how few numbers there are.
    pub(super) fn in_numbers(&mut self, numbers: &[i64]) -> &mut Self {
        self.in_listed("BIGINT", &json!(numbers))
    }

    /// Like [`Self::in_numbers`], for texts.
    pub(super) fn in_texts(&mut self, texts: &[impl serde::Serialize]) -> &mut Self {
        self.in_listed("TEXT", &json!(texts))
    }

    fn in_listed(&mut self, kind: &'static str, list: &Value) -> &mut Self {
        self.push_by(" IN ", " = ANY(ARRAY").listed(kind, list).push_by("", ")")
    }

    /// Appends a list of texts as one argument.
    pub(super) fn texts(&mut self, texts: &[impl serde::Serialize]) -> &mut Self {
        self.listed("TEXT", &json!(texts))
    }

    fn listed(&mut self, kind: &'static str, list: &Value) -> &mut Self {
        self.push("(SELECT CAST(value AS ").push(kind).push(") FROM ");
        self.push_by("json_each(", "jsonb_array_elements_text(CAST(").bind(list.to_string());
        self.push_by("))", " AS JSONB)))")
    }

    /// Appends the value of a column.
    pub(super) fn column(&mut self, column: Column) -> &mut Self {
        self.push_by(column.sqlite, column.postgres)
    }

    /// Appends a column in lower case, as the indexes of names have it. Only letters of ASCII change.
    pub(super) fn folded(&mut self, column: &'static str) -> &mut Self {
        self.push("lower(").push(column).push_by(")", " COLLATE \"C\")")
    }

    /// Appends the condition that a text contains another, in upper or lower case.
    pub(super) fn contains(&mut self, column: &'static str, text: &str) -> &mut Self {
        let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        self.push(column).push_by(" LIKE ", " ILIKE ").bind(format!("%{escaped}%")).push(" ESCAPE '\\'")
    }

    /// Appends the condition that the long text before contains another, in upper or lower case. It takes time in proportion to the length
    /// of the long text, where that of [`Self::contains`] is in proportion to the product of both lengths. In PostgreSQL, the square of
    /// the length of the other is added. SQLite needs a [`Reader`](super::Reader).
    pub(super) fn long_contains(&mut self, text: &str) -> &mut Self {
        self.push_by(" REGEXP '(?i)' || ", " ~* ").bind(regex::escape(text))
    }

    /// Appends a source of rows: the elements of a JSON list, in order. Each row has the element as `value` and its
    /// index as `key`. The list is one argument.
    pub(super) fn each(&mut self, list: String) -> &mut Self {
        self.push_by(
            "jsonb_each(",
            "(SELECT o.value, o.ordinality - 1 AS key FROM jsonb_array_elements(CAST(",
        );
        self.bind(list).push_by(")", " AS JSONB)) WITH ORDINALITY AS o) e")
    }

    /// Ends a query of [`Self::each`] so that the rows keep the order of the list. An `ON CONFLICT` clause may follow.
    pub(super) fn in_order(&mut self) -> &mut Self {
        // SQLite keeps the order. Without a condition, it would parse `ON CONFLICT` as the condition of a join.
        self.push_by(" WHERE TRUE", " ORDER BY key")
    }

    /// Appends a clause that locks the selected rows. SQLite needs none, because it has one writer at a time.
    pub(super) fn lock(&mut self, clause: &'static str) -> &mut Self {
        self.push_by("", clause)
    }

    fn query(self, on: &On<'_>) -> Result<Query<'static, Any, AnyArguments>, sqlx::Error> {
        let text = if on.is_sqlite() { self.sqlite } else { self.postgres };
        match self.failure {
            Some(error) => Err(error),
            None => Ok(sqlx::query_with(AssertSqlSafe(text), self.arguments)),
        }
    }

    /// The statement for SQLite's own connection type.
    pub(super) fn for_sqlite(self) -> Result<Query<'static, Sqlite, SqliteArguments>, sqlx::Error> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        let arguments = self.arguments.convert_into().map_err(sqlx::Error::Encode)?;
        Ok(sqlx::query_with(AssertSqlSafe(self.sqlite), arguments))
    }

    pub(super) fn execute<'a>(self, on: impl Into<On<'a>>) -> Running<'a, u64> {
        let on = on.into();
        Box::pin(async move {
            let query = self.query(&on)?;
            let done = match on {
                On::Pool(pool) => query.execute(pool).await?,
                On::Connection(connection) => query.execute(connection).await?,
            };
            Ok(done.rows_affected())
        })
    }

    pub(super) fn all<'a>(self, on: impl Into<On<'a>>) -> Running<'a, Vec<AnyRow>> {
        let on = on.into();
        Box::pin(async move {
            let query = self.query(&on)?;
            match on {
                On::Pool(pool) => query.fetch_all(pool).await,
                On::Connection(connection) => query.fetch_all(connection).await,
            }
        })
    }

    /// The first row of the result.
    pub(super) fn optional<'a>(self, on: impl Into<On<'a>>) -> Running<'a, Option<AnyRow>> {
        let rows = self.all(on);
        Box::pin(async move { Ok(rows.await?.into_iter().next()) })
    }

    pub(super) fn one<'a>(self, on: impl Into<On<'a>>) -> Running<'a, AnyRow> {
        let row = self.optional(on);
        Box::pin(async move { row.await?.ok_or(sqlx::Error::RowNotFound) })
    }

    /// The number in the only column and row of the result.
    pub(super) fn number<'a>(self, on: impl Into<On<'a>>) -> Running<'a, i64> {
        let row = self.one(on);
        Box::pin(async move { row.await?.try_get(0) })
    }
}

/// A statement that runs. Boxed, so that its type does not depend on where the statement runs.
type Running<'a, T> = BoxFuture<'a, Result<T, sqlx::Error>>;

/// Where a statement runs.
pub(super) enum On<'a> {
    Pool(&'a AnyPool),
    Connection(&'a mut AnyConnection),
}

impl On<'_> {
    fn is_sqlite(&self) -> bool {
        match self {
            Self::Pool(pool) => pool.connect_options().database_url.scheme() == "sqlite",
            Self::Connection(connection) => connection.backend_name() == Sqlite::NAME,
        }
    }
}

impl<'a> From<&'a AnyPool> for On<'a> {
    fn from(pool: &'a AnyPool) -> Self {
        Self::Pool(pool)
    }
}

impl<'a> From<&'a mut AnyConnection> for On<'a> {
    fn from(connection: &'a mut AnyConnection) -> Self {
        Self::Connection(connection)
    }
}

/// Appends a row of values, which may have several types.
macro_rules! values {
    ($sql:expr, $first:expr $(, $value:expr)* $(,)?) => {
        $sql.push("(").bind($first)$(.push(", ").bind($value))*.push(")")
    };
}
pub(super) use values;

#[cfg(test)]
mod tests {
    use super::*;

    impl Sql {
        /// The steps in which SQLite answers a query.
        pub(in crate::store) async fn steps(self, on: &sqlx::AnyPool) -> Vec<String> {
            let explained = Self { sqlite: format!("EXPLAIN QUERY PLAN {}", self.sqlite), ..self };
            let plan = explained.all(on).await.unwrap();
            plan.iter().map(|row| row.try_get("detail").unwrap()).collect()
        }
    }
}
