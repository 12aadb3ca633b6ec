//! Where a database is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::sqlite::SqliteConnectOptions;
use url::Url;

use super::StoreError;

/// The parameters of a PostgreSQL URL that say where the database is.
const WHERE: [&str; 4] = ["host", "hostaddr", "port", "dbname"];

/// Where a database is: the URL of `--database`.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres(Url),
}

impl Location {
    /// The location that a URL names.
    ///
    /// # Errors
    /// [`StoreError::UnknownDatabase`] if the URL is neither `sqlite:<file>` nor `postgres://…`.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let unknown = || StoreError::UnknownDatabase(without_secrets(url).to_owned());
        if url.starts_with("sqlite:") {
            // Each connection would see a different database in memory.
            let in_memory = url.contains(":memory:") || url.contains("mode=memory");
            let file = SqliteConnectOptions::from_str(url).map_err(|_invalid| unknown())?;
            let path = file.get_filename();
            return if in_memory || path.as_os_str().is_empty() {
                Err(unknown())
            } else {
                Ok(Self::Sqlite(path.to_owned()))
            };
        }
        match Url::parse(url) {
            Ok(url) if matches!(url.scheme(), "postgres" | "postgresql") => Ok(Self::Postgres(url)),
            Ok(_) | Err(_) => Err(unknown()),
        }
    }

    /// The default file of the click log: beside a SQLite file, or in the working directory and named after the PostgreSQL database.
    pub(crate) fn click_log(&self) -> PathBuf {
        let database = match self {
            Self::Sqlite(file) => file.clone(),
            Self::Postgres(url) => {
                let name = url.path_segments().and_then(|mut names| names.next_back()).unwrap_or_default();
                PathBuf::from(if name.is_empty() { "weir" } else { name })
            }
        };
        with_suffix(&database, "-clicks")
    }
}

/// The path, or the address and what else says where the database is. A password may be before the host, and in the query.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return path.display().fmt(f),
            Self::Postgres(url) => url,
        };
        write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())?;
        for (name, value) in url.query_pairs().filter(|(name, _)| WHERE.contains(&name.as_ref())) {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

/// The path with more at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// A text that is not the URL of a database, as far as it has no password.
fn without_secrets(text: &str) -> &str {
    if text.starts_with("sqlite:") {
        text
    } else {
        text.split([':', '?', '=', '@']).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_click_log_has_the_name_of_the_database() {
        for (url, expected) in [
            ("sqlite:/var/lib/weir/weir.db", "/var/lib/weir/weir.db-clicks"),
            ("postgres://weir@db/links", "links-clicks"),
            ("postgres://weir@db", "weir-clicks"),
        ] {
            assert_eq!(Location::parse(url).unwrap().click_log(), Path::new(expected), "{url}");
        }
    }

    #[test]
    fn a_url_names_a_file_or_an_address_and_messages_contain_no_password() {
        //  URL, and what messages show
        for (url, expected) in [
            ("sqlite:weir.db", Some("weir.db")),
            ("sqlite:///var/lib/weir/weir.db", Some("/var/lib/weir/weir.db")),
            ("postgres://weir:s3cret@db:5432/weir", Some("postgres://db:5432/weir")),
            ("postgresql://db/weir", Some("postgresql://db/weir")),
            ("postgres://db/weir?user=weir&password=s3cret", Some("postgres://db/weir")),
            ("postgres://db/weir?%70assword=s3cret&sslmode=require", Some("postgres://db/weir")),
            (
                "postgres:///weir?host=/run/postgresql&port=5433&password=s3cret",
                Some("postgres:///weir host=/run/postgresql port=5433"),
            ),
            ("postgres://weir:s3cret%40@[::1]/weir", Some("postgres://[::1]/weir")),
            ("sqlite:", None),
            ("sqlite::memory:", None),
            ("sqlite:weir.db?mode=memory", None),
            ("mysql://weir:s3cret@db/weir", None),
            ("mysql://db/weir?password=s3cret", None),
            ("postgres://weir:s3cret@db:port/weir", None),
            ("host=db password=s3cret", None),
            ("weir.db", None),
            ("", None),
        ] {
            match (Location::parse(url), expected) {
                (Ok(location), Some(expected)) => assert_eq!(location.to_string(), expected),
                (Err(error), None) => {
                    assert!(matches!(error, StoreError::UnknownDatabase(_)), "{url}: {error}");
                    assert!(!error.to_string().contains("s3cret"), "{error}");
                }
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
    }
}
