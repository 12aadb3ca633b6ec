//! The book as a browser shows it.

use std::collections::BTreeMap;
use std::process::Command;

use demo::artifacts::script;
use tests::artifacts;
use zune_png::PngDecoder;
use zune_png::zune_core::bytestream::ZCursor;

const WIDTH: usize = 1300;
const HEIGHT: usize = 1000;
/// The width of the list of pages on the left.
const SIDEBAR: usize = 280;

/// Counts the blocks of code that are wider than the page, so that readers have to scroll sideways.
const MEASURE: &str = r#"<script>
addEventListener("load", () => {
    const wider = [...document.querySelectorAll("pre > code")].filter(code => code.scrollWidth > code.clientWidth);
    document.body.dataset.wider = wider.length;
});
</script></body>"#;

/// How many pixels of the columns `from` to `to` have another colour than most.
fn ink(picture: &[u8], from: usize, to: usize) -> usize {
    let mut decoder = PngDecoder::new(ZCursor::new(picture));
    let pixels = decoder.decode_raw().unwrap();
    assert_eq!(decoder.dimensions(), Some((WIDTH, HEIGHT)));
    let samples = decoder.colorspace().unwrap().num_components();
    let mut colours: BTreeMap<&[u8], usize> = BTreeMap::new();
    for row in pixels.chunks_exact(WIDTH * samples) {
        for pixel in row.chunks_exact(samples).take(to).skip(from) {
            *colours.entry(pixel).or_default() += 1;
        }
    }
    colours.values().sum::<usize>() - colours.values().max().unwrap()
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn a_browser_shows_the_pages_of_the_book_and_the_list_of_them() {
    let made = Command::new("make").arg("book").current_dir(artifacts::root()).status().unwrap();
    assert!(made.success(), "make book: {made}");
    let folder = tempfile::tempdir().unwrap();
    for (page, heading) in [
        ("introduction", "Weir"),
        ("start", "Start in five minutes"),
        ("configuration", "Configuration"),
        ("gateways/istio", "Istio"),
    ] {
        let file = artifacts::root().join(format!("target/book/{page}.html"));
        let measured = file.with_extension("measured.html");
        let html = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&measured, html.replace("</body>", MEASURE)).unwrap();
        let [address, measured] = [file, measured].map(|file| format!("file://{}", file.display()));
        let dom = script("scripts/browse.sh", &["--dump-dom", &measured]).unwrap();
        assert!(dom.contains("data-wider=\"0\""), "{page}: code is cut off at the edge");
        let (_, main) = dom.split_once("<main>").unwrap_or_else(|| panic!("{page} has no content"));
        let first = main.split("</h1>").next().unwrap_or_default();
        assert!(first.contains("<h1") && first.contains(heading), "{page}: {first}");

        let picture = folder.path().join("page.png");
        let screenshot = format!("--screenshot={}", picture.display());
        let size = format!("--window-size={WIDTH},{HEIGHT}");
        script("scripts/browse.sh", &[&screenshot, &size, &address]).unwrap();
        let picture = std::fs::read(&picture).unwrap();
        let [list, text] = [(0, SIDEBAR), (SIDEBAR, WIDTH)].map(|(from, to)| ink(&picture, from, to));
        assert!(list > 5_000 && text > 20_000, "{page}: {list} pixels of the list and {text} of the text");
    }
}
