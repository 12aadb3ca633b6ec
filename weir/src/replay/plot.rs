//! The plot of a replay: requests over time.

use jiff::Timestamp;

use super::summary::{Outcomes, Summary};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// About how many lines go across.
const LINES: u64 = 4;

/// The most times that stand below.
const TIMES: i64 = 8;

/// What a time needs to the right of its line.
const ROOM: f64 = 40.0;

/// How far apart times may stand, in seconds: parts of a day, so that they are round.
const APART: [i64; 11] =
    [60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 28 * 86_400];

/// Requests over time: those that went on below those that were refused. Positions are in the picture's units.
pub(super) struct Plot {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) base: f64,
    /// A bucket in words.
    pub(super) bucket: String,
    /// How wide a bar is.
    pub(super) wide: f64,
    pub(super) lines: Vec<Mark>,
    pub(super) bars: Vec<Bar>,
    pub(super) times: Vec<Mark>,
}

/// A line across with its number, or one below with its time.
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) text: String,
}

/// The requests of a bucket: where each part begins, and how high it is.
pub(super) struct Bar {
    pub(super) title: String,
    pub(super) x: f64,
    pub(super) forwarded: (f64, f64),
    pub(super) refused: (f64, f64),
}

/// The plot of a summary; `None` where there were no requests.
#[expect(clippy::cast_precision_loss, reason = "positions in a picture")]
pub(super) fn plot(summary: &Summary) -> Option<Plot> {
    let buckets = summary.buckets();
    let (first, last) = (buckets.first()?.start.as_second(), buckets.last()?.start.as_second());
    let width = summary.bucket_width().as_secs().max(1);
    let count = (last - first) / width + 1;
    let most = buckets.iter().map(|bucket| bucket.outcomes.total()).max().unwrap_or(1).max(1);
    let line = round(most.div_ceil(LINES));
    let top = most.div_ceil(line) * line;
    let step = (WIDTH - LEFT - RIGHT) / count as f64;
    let base = HEIGHT - BOTTOM;
    let height = |number: u64| (base - TOP) * number as f64 / top as f64;
    let place = |second: i64| LEFT + step * (second - first) as f64 / width as f64;

    let lines = (0..=top / line).map(|index| index * line);
    let lines = lines.map(|number| Mark { at: tenth(base - height(number)), text: number.to_string() });
    let bars = buckets.iter().map(|bucket| {
        let Outcomes { forwarded, refused } = bucket.outcomes;
        let (below, above) = (height(forwarded), height(refused));
        Bar {
            title: format!("{:.0}: {forwarded} went on, {refused} refused", bucket.start),
            x: tenth(place(bucket.start.as_second())),
            forwarded: (tenth(base - below), tenth(below)),
            refused: (tenth(base - below - above), tenth(above)),
        }
    });
    let length = last - first + width;
    let apart = APART.into_iter().find(|apart| length / apart <= TIMES).unwrap_or(length);
    let begin = first.div_euclid(apart) * apart;
    let times = (1..=TIMES + 1).map(|index| begin + index * apart).map(|second| (second, place(second)));
    let times = times.take_while(|(second, at)| *second < last + apart && *at <= WIDTH - ROOM);
    let times = times.filter_map(|(second, at)| {
        let time = Timestamp::from_second(second).ok()?;
        let text = time.strftime(if apart < 86_400 { "%H:%M" } else { "%b %-d" }).to_string();
        Some(Mark { at: tenth(at), text })
    });
    Some(Plot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        base,
        bucket: span_of(width),
        wide: tenth(if step < 3.0 { step } else { step - 1.0 }),
        lines: lines.collect(),
        bars: bars.collect(),
        times: times.collect(),
    })
}

/// A tenth of the picture's units is as near as one sees.
fn tenth(position: f64) -> f64 {
    (position * 10.0).round() / 10.0
}

/// A bucket's width in words.
fn span_of(seconds: i64) -> String {
    match seconds {
        60 => "minute".to_owned(),
        minutes if minutes < 7200 => format!("{} minutes", minutes / 60),
        hours => format!("{} hours", hours / 3600),
    }
}

/// The least of 1, 2, 5, 10, 20, 50 … that is at least `number`.
fn round(number: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for digit in [1, 2, 5] {
            let candidate = power.saturating_mul(digit);
            if candidate >= number {
                return candidate;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_in_round_numbers() {
        let rows = [(0, 1), (1, 1), (3, 5), (6, 10), (11, 20), (499, 500), (501, 1000), (u64::MAX, u64::MAX)];
        for (number, expected) in rows {
            assert_eq!(round(number), expected, "{number}");
        }
    }
}
