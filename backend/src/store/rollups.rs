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

/// A piece whose clicks are added or, if it is only in a coarser piece, subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) piece: Piece,
    pub(super) sign: i64,
}

/// The terms whose sum is the number of clicks in `[from, to)`, with few rows to read. All clicks are before `until`.
///
/// A link is in a day once, however many hours it was clicked in. A day of which most is wanted is therefore read whole, and the rest
/// of it is subtracted, and so is an hour. The time after `until` costs nothing, so that the current day and hour are read whole.
pub(super) fn terms(from: i64, to: i64, until: i64) -> Vec<Term> {
    let mut terms = Vec::new();
    push_terms(&mut terms, Table::Daily, (from, to.min(until)), until, 1);
    terms
}

fn push_terms(terms: &mut Vec<Term>, coarsest: Table, (from, to): (i64, i64), until: i64, sign: i64) {
    if from >= to {
        return;
    }
    let (length, finer) = match coarsest {
        Table::Clicks => {
            return terms.push(Term { piece: Piece { table: coarsest, from, to }, sign });
        }
        Table::Hourly => (HOUR, Table::Clicks),
        Table::Daily => (DAY, Table::Hourly),
    };
    let (first, last) = (start_of(from + length - 1, length), start_of(to, length));
    let mut part = |from: i64, to: i64| {
        if from >= to {
            return;
        }
        let start = start_of(from, length);
        let end = (start + length).min(until);
        let rest = (from - start) + (end - to);
        // Usually a whole bucket has fewer than half of the rows of its parts together.
        if (end - start) / 2 + rest < to - from {
            terms.push(Term { piece: Piece { table: coarsest, from: start, to: start + length }, sign });
            push_terms(terms, finer, (start, from), until, -sign);
            push_terms(terms, finer, (to, end), until, -sign);
        } else {
            push_terms(terms, finer, (from, to), until, sign);
        }
    };
    if first > last {
        return part(from, to);
    }
    part(from, first);
    part(last, to);
    if first < last {
        terms.push(Term { piece: Piece { table: coarsest, from: first, to: last }, sign });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_bucket_is_the_bucket_without_the_rest() {
        const UNTIL: i64 = 2 * DAY + 7 * HOUR + 20;
        let terms_of = |from, to| {
            let of = |term: &Term| (term.sign, term.piece.table, term.piece.from, term.piece.to);
            terms(from, to, UNTIL).iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(terms_of(5, 5), []);
        assert_eq!(terms_of(5, 9), [(1, Table::Clicks, 5, 9)]);
        assert_eq!(terms_of(DAY, 2 * DAY), [(1, Table::Daily, DAY, 2 * DAY)]);
        assert_eq!(terms_of(DAY + HOUR, DAY + 2 * HOUR), [(1, Table::Hourly, DAY + HOUR, DAY + 2 * HOUR)]);
        // A day until now, in the morning.
        assert_eq!(
            terms_of(DAY + 5 * HOUR + 10, UNTIL),
            [
                (1, Table::Daily, DAY, 2 * DAY),
                (-1, Table::Clicks, DAY + 5 * HOUR, DAY + 5 * HOUR + 10),
                (-1, Table::Hourly, DAY, DAY + 5 * HOUR),
                (1, Table::Daily, 2 * DAY, 3 * DAY),
            ]
        );
        // The current hour.
        assert_eq!(
            terms_of(UNTIL - 20, UNTIL + 9),
            [(1, Table::Hourly, 2 * DAY + 7 * HOUR, 2 * DAY + 8 * HOUR)]
        );
        // The end of an hour that is over.
        assert_eq!(terms_of(DAY + HOUR - 9, DAY + HOUR), [(1, Table::Clicks, DAY + HOUR - 9, DAY + HOUR)]);
    }

    #[test]
    fn the_terms_of_any_range_sum_up_to_its_clicks() {
        let quarters = 0..3 * DAY / (HOUR / 4);
        let clicks: Vec<i64> = quarters.map(|quarter| quarter * (HOUR / 4) + quarter % 7).collect();
        let until = 2 * DAY + 13 * HOUR + 2;
        let clicks: Vec<i64> = clicks.into_iter().filter(|at| *at < until).collect();
        let count = |from: i64, to: i64| clicks.iter().filter(|at| (from..to).contains(at)).count() as i64;
        let bounds: Vec<i64> = (0..=31).flat_map(|n| [n * 5 * HOUR / 2, n * 9 * HOUR + 1 + n % 3]).collect();
        for from in &bounds {
            for to in &bounds {
                let sum: i64 = terms(*from, *to, until)
                    .iter()
                    .map(|Term { piece, sign }| sign * count(piece.from, piece.to))
                    .sum();
                assert_eq!(sum, count(*from, *to), "from {from} to {to}");
            }
        }
    }

    #[test]
    fn a_range_is_covered_once_from_the_coarsest_tables() {
        let table = |from, to| {
            pieces(from, to, Table::Daily)
                .iter()
                .map(|piece| (piece.table, piece.from, piece.to))
                .collect::<Vec<_>>()
        };
        assert_eq!(table(0, 0), []);
        assert_eq!(table(5, 9), [(Table::Clicks, 5, 9)]);
        assert_eq!(table(0, HOUR), [(Table::Hourly, 0, HOUR)]);
        assert_eq!(
            table(DAY - HOUR - 1, 2 * DAY + HOUR + 1),
            [
                (Table::Clicks, DAY - HOUR - 1, DAY - HOUR),
                (Table::Hourly, DAY - HOUR, DAY),
                (Table::Daily, DAY, 2 * DAY),
                (Table::Hourly, 2 * DAY, 2 * DAY + HOUR),
                (Table::Clicks, 2 * DAY + HOUR, 2 * DAY + HOUR + 1),
            ]
        );
    }
}
