//! Rollups: the clicks of each link in each UTC hour and day.
//!
//! The transaction that records a click counts it in both. Rollups therefore always equal the clicks, and they stay when
//! clicks expire.

pub(super) const HOUR: i64 = 3_600_000;
pub(super) const DAY: i64 = 24 * HOUR;

/// The start of the period of `length` that contains `at`.
pub(super) fn start_of(at: i64, length: i64) -> i64 {
    at - at.rem_euclid(length)
}

/// A range of time and the table that is read for it. `to` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) table: Table,
    pub(super) from: i64,
    pub(super) to: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Clicks,
    Hourly,
    Daily,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clicks => "clicks",
            Self::Hourly => "clicks_hourly",
            Self::Daily => "clicks_daily",
        }
    }
}

/// Splits `[from, to)` into parts, each for the coarsest table whose rows lie within it. `coarsest` is the coarsest
/// permitted table.
pub(super) fn pieces(from: i64, to: i64, coarsest: Table) -> Vec<Piece> {
    let (length, table, finer) = match coarsest {
        Table::Clicks => {
            return if from < to { vec![Piece { table: coarsest, from, to }] } else { Vec::new() };
        }
        Table::Hourly => (HOUR, Table::Hourly, Table::Clicks),
        Table::Daily => (DAY, Table::Daily, Table::Hourly),
    };
    let first = start_of(from + length - 1, length);
    let last = start_of(to, length);
    if first >= last {
        return pieces(from, to, finer);
    }
    let mut parts = pieces(from, first, finer);
    parts.push(Piece { table, from: first, to: last });
    parts.extend(pieces(last, to, finer));
    parts
}
