//! The plot of a replay: requests over time, as SVG.

use std::fmt::Write as _;

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

/// How far apart times may stand, in seconds: parts of a day, so that they are round.
const APART: [i64; 11] =
    [60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 28 * 86_400];

/// Requests over time, those that went on below those that were refused; nothing where there were none.
#[expect(clippy::cast_precision_loss, reason = "positions in a picture")]
pub(super) fn plot(summary: &Summary) -> String {
    let buckets = summary.buckets();
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return String::new() };
    let (first, last) = (first.start.as_second(), last.start.as_second());
    let width = summary.bucket_width().as_secs().max(1);
    let count = (last - first) / width + 1;
    let most = buckets.iter().map(|bucket| bucket.outcomes.total()).max().unwrap_or(1).max(1);
    let line = round(most.div_ceil(LINES));
    let top = most.div_ceil(line) * line;
    let step = (WIDTH - LEFT - RIGHT) / count as f64;
    let base = HEIGHT - BOTTOM;
    let height = |number: u64| (base - TOP) * number as f64 / top as f64;
    let place = |second: i64| LEFT + step * ((second - first) / width) as f64;

    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"requests per {}\">\n",
        span_of(width)
    );
    // Writing to a String cannot fail, here and below.
    for number in (0..=top / line).map(|index| index * line) {
        let y = base - height(number);
        let _ = writeln!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{number}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    let wide = if step < 3.0 { step } else { step - 1.0 };
    for bucket in &buckets {
        let x = place(bucket.start.as_second());
        let Outcomes { forwarded, refused } = bucket.outcomes;
        let (below, above) = (height(forwarded), height(refused));
        let _ = writeln!(
            svg,
            "<g><title>{:.0}: {forwarded} went on, {refused} refused</title><rect class=\"forwarded\" x=\"{x:.1}\" \
             y=\"{:.1}\" width=\"{wide:.1}\" height=\"{below:.1}\"/><rect class=\"refused\" x=\"{x:.1}\" y=\"{:.1}\" \
             width=\"{wide:.1}\" height=\"{above:.1}\"/></g>",
            bucket.start,
            base - below,
            base - below - above
        );
    }
    let length = last - first + width;
    let apart = APART.into_iter().find(|apart| length / apart <= TIMES).unwrap_or(length);
    let mut second = first.div_euclid(apart) * apart;
    while second < last {
        second += apart;
        let Ok(time) = Timestamp::from_second(second) else { break };
        let time = time.strftime(if apart < 86_400 { "%H:%M" } else { "%b %-d" });
        let x = LEFT + step * (second - first) as f64 / width as f64;
        if x > WIDTH - 40.0 {
            break;
        }
        let _ = writeln!(
            svg,
            "<line class=\"rule\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{base:.1}\" y2=\"{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">\
             {time}</text>",
            HEIGHT - 6.0,
            x + 5.0,
            HEIGHT - 8.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A bucket's width in words.
pub(super) fn span_of(seconds: i64) -> String {
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
