//! Pages in Markdown: their blocks of code, links, headings and inline code.

use std::path::{Path, PathBuf};

use tests::artifacts;

/// A page.
pub(crate) struct Page {
    /// Path from the root of the repository.
    pub(crate) path: PathBuf,
    lines: Vec<Line>,
}

struct Line {
    text: String,
    /// The info string of the block that the line belongs to; `None` for prose.
    block: Option<String>,
}

/// A block of code.
pub(crate) struct Block {
    /// What follows the opening fence, split at commas.
    pub(crate) info: Vec<String>,
    pub(crate) text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let mut lines = Vec::new();
        let mut open: Option<String> = None;
        let whole = std::fs::read_to_string(artifacts::root().join(&path)).unwrap();
        assert!(!whole.contains("{{#"), "{}: a page read on a code host would show this", path.display());
        for text in whole.lines() {
            match (text.strip_prefix("```"), &open) {
                (Some(info), None) => open = Some(info.to_owned()),
                (Some(_), Some(_)) => open = None,
                (None, _) => lines.push(Line { text: text.to_owned(), block: open.clone() }),
            }
            if text.starts_with("```") {
                // A fence belongs to no block, and keeps two blocks apart.
                lines.push(Line { text: String::new(), block: None });
            }
        }
        assert!(open.is_none(), "{}: a block of code is not closed", path.display());
        Self { path, lines }
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let blocks = self.lines.chunk_by(|one, next| one.block == next.block);
        let block = |lines: &[Line]| {
            let info = lines.first()?.block.as_ref()?.split(',').map(str::to_owned).collect();
            Some(Block { info, text: lines.iter().map(|line| format!("{}\n", line.text)).collect() })
        };
        blocks.filter_map(block).collect()
    }

    /// The lines outside of blocks.
    pub(crate) fn prose(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|line| line.block.is_none()).map(|line| line.text.as_str())
    }

    /// The texts between backticks.
    pub(crate) fn inline_code(&self) -> impl Iterator<Item = &str> {
        self.prose().flat_map(|line| self.about_weir(line).split('`').skip(1).step_by(2))
    }

    /// A line without what is about other products: all but the last column of the tables that compare them with Weir.
    fn about_weir<'l>(&self, line: &'l str) -> &'l str {
        let is_row = line.starts_with('|') && self.path.ends_with("coming-from.md");
        if is_row { line.trim_end_matches('|').rsplit('|').next().unwrap_or_default() } else { line }
    }

    /// The targets of links.
    pub(crate) fn links(&self) -> Vec<String> {
        let without_code = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = |line: String| {
            let starts = line.match_indices("](").map(|(at, _)| at + 2).collect::<Vec<_>>();
            starts
                .into_iter()
                .map(move |start| line[start..].split(')').next().unwrap_or_default().to_owned())
        };
        self.prose().map(without_code).flat_map(targets).collect()
    }

    /// The anchors of the headings.
    pub(crate) fn anchors(&self) -> Vec<String> {
        self.prose().filter(|line| line.starts_with('#')).map(anchor).collect()
    }

    /// The file and the anchor that a link within the repository leads to.
    pub(crate) fn target<'l>(&self, link: &'l str) -> (PathBuf, Option<&'l str>) {
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let path = if file.is_empty() { self.path.clone() } else { below(self.path.parent().unwrap(), file) };
        (path, anchor)
    }
}

/// As mdBook and GitHub make an anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn below(folder: &Path, relative: &str) -> PathBuf {
    let mut path = folder.to_path_buf();
    for step in relative.split('/') {
        match step {
            "." => {}
            ".." => assert!(path.pop(), "{relative} leads out of the repository"),
            name => path.push(name),
        }
    }
    path
}

/// The pages of the book.
pub(crate) fn book() -> Vec<Page> {
    let mut pages = markdown_in(Path::new("docs/src"));
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages.into_iter().map(Page::read).collect()
}

/// The pages of the book, the first page of the repository, and those of the folders that the book describes.
pub(crate) fn all() -> Vec<Page> {
    let mut pages = book();
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|path| Page::read(path.into())));
    pages.extend(markdown_in(Path::new("envoy")).into_iter().map(Page::read));
    pages
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(artifacts::root().join(folder)).unwrap();
    let paths = entries.map(|entry| folder.join(entry.unwrap().file_name()));
    let pages = paths.flat_map(|path| match artifacts::root().join(&path).is_dir() {
        true => markdown_in(&path),
        false => vec![path],
    });
    pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}
