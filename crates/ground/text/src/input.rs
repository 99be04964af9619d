//! Files that people write: configurations, sweeps, figures.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::output::shown;

/// A longer file was not written by a person. Reading an endless device would fill the machine's memory.
const MOST_BYTES: u64 = 4 << 20;

/// Reads the text of a file or of a pipe (`--config <(...)`).
///
/// # Errors
/// One line that names the file: it cannot be read, is too long, or is not text.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let wrong = |what: &dyn std::fmt::Display| anyhow::anyhow!("{}: {what}", shown(path));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(wrong(&format!("longer than {} MiB; expected a TOML file", MOST_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| wrong(&"is no text; expected a TOML file"))
}
