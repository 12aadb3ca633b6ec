//! The table that `make soak` prints: one row for each long form of a check.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;

/// Names the file that rows are added to. `make soak` sets it and prints the file when all is done; a row is what the check was,
/// in which form it ran, and what came of it, with tabs between them.
const TABLE: &str = "WEIR_SOAK_TABLE";

/// Adds a row, and prints it.
///
/// # Panics
/// When the table cannot be written: a figure that is lost was measured for nothing.
pub fn row(what: &str, form: impl Display, result: impl Display) {
    let row = format!("{what}\t{form}\t{result}");
    println!("{}", row.replace('\t', " | "));
    if let Some(path) = std::env::var_os(TABLE) {
        let table = File::options().create(true).append(true).open(&path);
        let written = table.and_then(|mut table| writeln!(table, "{row}"));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
