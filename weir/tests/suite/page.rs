//! The page of a replay, in a browser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use zune_png::PngDecoder;
use zune_png::zune_core::bytestream::ZCursor;

use crate::replays::replayed;
use crate::repository;

/// Colours of the plot: forwarded requests and refused ones.
const FORWARDED: [u8; 3] = [0x3b, 0x7d, 0xd8];
const REFUSED: [u8; 3] = [0xd9, 0x48, 0x2b];

const WIDTH: usize = 1100;
const HEIGHT: usize = 1500;

/// Opens a page in a headless browser and returns what the browser prints.
fn browse(address: &str, arguments: &[&str]) -> String {
    let script = repository().join("scripts/browse.sh");
    let output = Command::new(script).args(arguments).arg(address).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A day of requests by three clients, one of which asks for too much at noon.
fn written(folder: &Path) -> PathBuf {
    let mut log = String::new();
    for minute in 0..1440 {
        let noon = (600..840).contains(&minute);
        for request in 0..(3 + minute % 5 + if noon { 12 } else { 0 }) {
            let path = if noon && request > 4 { "/analytics" } else { "/links" };
            log += &format!(
                "{{\"start_time\":\"2026-01-01T{:02}:{:02}:{:02}Z\",\"path\":\"{path}/{}?page={request}\",\
                 \"downstream_remote_address\":\"203.0.113.{}:5000\"}}\n",
                minute / 60,
                minute % 60,
                request * 2,
                minute / 10,
                request % 3,
            );
        }
    }
    let (mut report, _) = replayed(&log, "limiter");
    report.notes.push("A <note>.".to_owned());
    let path = folder.join("page.html");
    fs::write(&path, report.page("Replay of <a day>", 20)).unwrap();
    path
}

#[test]
fn a_browser_draws_its_plot_and_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let page = format!("file://{}", written(folder.path()).display());

    let dom = browse(&page, &["--dump-dom"]);
    let bars = dom.matches("<rect class=\"forwarded\"").count();
    assert!(bars > 100, "{bars} bars");
    for part in [
        "<h1>Replay of &lt;a day&gt;</h1>",
        "/analytics/",
        "203.0.113.1",
        "A &lt;note&gt;.",
        "<td class=\"name\">429 limited</td>",
    ] {
        assert!(dom.contains(part), "no {part} in the page");
    }

    let shot = folder.path().join("page.png");
    browse(&page, &[&format!("--screenshot={}", shot.display()), &format!("--window-size={WIDTH},{HEIGHT}")]);
    let picture = fs::read(&shot).unwrap();
    if let Some(keep) = std::env::var_os("SCREENSHOT") {
        fs::write(keep, &picture).unwrap();
    }
    let mut decoder = PngDecoder::new(ZCursor::new(picture));
    let pixels = decoder.decode_raw().unwrap();
    assert_eq!(decoder.dimensions(), Some((WIDTH, HEIGHT)));
    let samples = decoder.colorspace().unwrap().num_components();
    let mut colours: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    for pixel in pixels.chunks_exact(samples) {
        *colours.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
    }
    let of = |colour: &[u8; 3]| colours.get(colour).copied().unwrap_or(0);
    let (forwarded, refused) = (of(&FORWARDED), of(&REFUSED));
    assert!(forwarded > 5000 && refused > 2000, "{forwarded} and {refused} pixels of bars");
    assert!(colours.len() > 50, "{} colours: no text was drawn", colours.len());
}
