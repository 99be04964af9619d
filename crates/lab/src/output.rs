//! Files that results go to.

use std::fs::OpenOptions;
use std::path::Path;

/// Says before long work, and not behind it, that a file could not be written. Leaves what there is as it is.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let known = std::fs::symlink_metadata(path);
    if known.as_ref().is_ok_and(|known| !known.is_file() && !known.is_dir()) {
        return Ok(()); // A pipe is not opened twice, and what a link leads to is not ours to remove.
    }
    let is_new = known.is_err();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| anyhow::anyhow!("\"{}\": {error}", path.display()))?;
    if is_new {
        std::fs::remove_file(path).map_err(|error| anyhow::anyhow!("\"{}\": {error}", path.display()))?;
    }
    Ok(())
}
