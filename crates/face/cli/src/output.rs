//! Where results go: text to the terminal, JSON to a file or to standard output. And messages, to standard error.

use std::io::Write;
use std::path::Path;

use kvdrive_run::report::Fault;
use kvdrive_run::report::fields::FORMAT;
use kvdrive_text::WIDTH;
pub use kvdrive_text::output::tell;
use kvdrive_text::output::{check_writable, shown};
use serde_json::Value;
use signal_hook::consts::SIGPIPE;

/// Exit status of a program whose output has lost its reader (`| head`), as shells report it: not 0, since the program
/// does not come to its verdict.
pub const CLOSED: i32 = 128 + SIGPIPE;

/// Prints to standard output. If its reader has gone away, the program ends without a message, with status [`CLOSED`].
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    if let Err(error) = written.and_then(|()| out.flush()) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(CLOSED);
        }
        tell(&format!("kvdrive: standard output: {error}"));
        std::process::exit(2);
    }
}

/// Says which fault rules have matched nothing: a test that relies on one has tested something else.
pub fn tell_unmatched(faults: &[Fault]) {
    for fault in faults.iter().filter(|fault| fault.matched == 0) {
        tell(&format!("kvdrive: fault rule {:?} has matched nothing", fault.rule));
    }
}

/// The file of [`write_json`], if it is one.
pub fn json_file(path: Option<&String>) -> Option<&Path> {
    path.filter(|path| *path != "-").map(Path::new)
}

/// [`check_writable`] for the file of [`write_json`].
pub fn check_json(path: Option<&String>) -> anyhow::Result<()> {
    json_file(path).map_or(Ok(()), check_writable)
}

/// Writes `value` as JSON to `path`, `-` being standard output. An object, and each of a list, has the number of the form.
pub fn write_json(path: &str, value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(value)?;
    match &mut value {
        Value::Array(documents) => documents.iter_mut().for_each(with_format),
        document => with_format(document),
    }
    let text = serde_json::to_string_pretty(&value)?;
    if path == "-" {
        print(&text);
        return Ok(());
    }
    write(Path::new(path), &(text + "\n"))
}

/// Puts the number of the form before the fields of a document that has none yet.
pub fn with_format(document: &mut Value) {
    const FIELD: &str = "format";
    if let Value::Object(fields) = document
        && !fields.contains_key(FIELD)
    {
        let others = std::mem::take(fields);
        fields.insert(FIELD.to_owned(), FORMAT.into());
        fields.extend(others);
    }
}

/// Writes a text file; the error names it.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).map_err(|error| anyhow::anyhow!("{}: {error}", shown(path)))
}

/// Columns of the terminal that standard output is; elsewhere those that the variable `COLUMNS` says, or those of a
/// report. Below 40 nothing is readable.
pub fn columns() -> usize {
    let asked = || std::env::var_os("COLUMNS")?.to_str()?.trim().parse().ok();
    terminal_columns().or_else(asked).unwrap_or(WIDTH).max(40)
}

/// Columns of the terminal that standard output is, if it is one.
pub fn terminal_columns() -> Option<usize> {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map(|(columns, _)| usize::from(columns.0).max(40))
}
