//! Files that results go to, and messages to the user.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a line to standard error. If that fails, because its reader has ended, the terminal is gone or the disk is
/// full, the program continues without the line: a message must not end a drive that is served.
pub fn tell(line: &str) {
    _ = writeln!(std::io::stderr(), "{line}");
}

/// A path as messages show it: without quotes, unless it would be invisible.
pub fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "\"\"".to_owned() } else { path.display().to_string() }
}

/// Reports before long work, and not after it, that a file cannot be written. Leaves an existing file
/// unchanged.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    check_is_file(path)?;
    let known = std::fs::symlink_metadata(path);
    if known.as_ref().is_ok_and(|known| !known.is_file() && !known.is_dir()) {
        return Ok(()); // A pipe is not opened twice, and what a link leads to is not ours to remove.
    }
    let is_new = known.is_err();
    let wrong = |error| anyhow::anyhow!("{}: {error}", shown(path));
    OpenOptions::new().append(true).create(true).open(path).map_err(wrong)?;
    if is_new {
        std::fs::remove_file(path).map_err(wrong)?;
    }
    Ok(())
}

/// Refuses `-`, which is never meant as the name of a file.
pub fn check_is_file(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(path != Path::new("-"), "-: is no name of a file here; ./- is a file of that name");
    Ok(())
}

/// Refuses two options whose files would overwrite each other or a file that is read.
pub fn check_apart(files: &[(&str, Option<&Path>)]) -> anyhow::Result<()> {
    let given = files.iter().filter_map(|(option, path)| Some((option, (*path)?)));
    // Devices and pipes keep no content that could be overwritten.
    let given = given.filter(|(_, path)| path.is_file() || !path.exists());
    let given: Vec<_> = given.map(|(option, path)| (option, path, spelled_out(path))).collect();
    for (index, (option, path, name)) in given.iter().enumerate() {
        if let Some((other, ..)) = given[..index].iter().find(|(.., known)| known == name) {
            anyhow::bail!("{option}: {} is the file of {other}; take another", shown(path));
        }
    }
    Ok(())
}

/// A path in canonical form, if its folder exists.
pub fn spelled_out(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize()
        .or_else(|_| {
            Ok::<_, std::io::Error>(folder.canonicalize()?.join(path.file_name().unwrap_or_default()))
        })
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_would_write_over_each_other_are_told_apart_by_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a"), folder.path().join("./b/../a"));
        std::fs::create_dir(folder.path().join("b")).unwrap();
        std::fs::write(&file, "").unwrap();
        let apart =
            |a: &Path, b: &Path| check_apart(&[("--record", Some(a)), ("--out", None), ("--json", Some(b))]);
        let error = apart(&file, &other).unwrap_err().to_string();
        assert_eq!(error, format!("--json: {} is the file of --record; take another", other.display()));
        apart(&file, &folder.path().join("c")).unwrap();
        apart(Path::new("/dev/null"), Path::new("/dev/null")).unwrap();
        assert!(check_writable(Path::new("-")).unwrap_err().to_string().contains("./-"));
        assert!(check_writable(Path::new("")).unwrap_err().to_string().starts_with("\"\": "));
    }
}
