//! Where results go: text to the terminal, JSON to a file or to standard output.

use std::io::Write;
use std::path::Path;

use kvdrive_lab::output::check_writable;

/// Prints to standard output. A reader that has gone away (`| head`) ends the program quietly.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    if let Err(error) = written.and_then(|()| out.flush()) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("kvdrive: standard output: {error}");
        std::process::exit(1);
    }
}

/// [`check_writable`] for the file of [`write_json`].
pub fn check_json(path: Option<&String>) -> anyhow::Result<()> {
    path.filter(|path| *path != "-").map_or(Ok(()), |path| check_writable(Path::new(path)))
}

/// Writes `value` as JSON to `path`, `-` being standard output.
pub fn write_json(path: &str, value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    if path == "-" {
        print(&text);
        return Ok(());
    }
    std::fs::write(path, text + "\n").map_err(|error| anyhow::anyhow!("{path}: {error}"))
}
