//! The command `weir-docs`: writes the files that are made from the code.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for file in docs_generator::files() {
        fs::write(root.join(file.path), file.text).context(file.path)?;
    }
    Ok(())
}
