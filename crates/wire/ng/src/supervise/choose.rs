//! Which way a program is served: most by a preloaded library, which costs less; others under supervision.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file that are examined: its headers and notes are in them.
const LOOKED_AT_BYTES: usize = 64 << 10;
/// Longest chain of scripts that name scripts as their interpreters.
const SCRIPTS_MAX: usize = 4;
const SET_ID: u32 = 0o6000;
/// The beginning of Go's note with the build number: 4 bytes of name, some of description, type 4.
const GO_NOTE: [Option<u8>; 16] = {
    let (four, any, zero) = (Some(4), None, Some(0));
    let (g, o) = (Some(b'G'), Some(b'o'));
    [four, zero, zero, zero, any, any, any, any, four, zero, zero, zero, g, o, zero, zero]
};
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// How a program's calls are served, and why so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServedBy {
    /// By the preloaded library.
    Preload,
    /// Under supervision, since it has no dynamic linker, or one of another C library.
    NoLinker,
    /// Under supervision, since Go calls the system itself.
    Go,
    /// Under supervision, since it would run as another user, where the loader ignores a preloaded library.
    SetId,
}

/// The file that a command of this name runs.
pub fn find(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(search).map(|folder| folder.join(name)).find(is_program)
}

/// How the program in this file is served. If the file cannot be read or is no program: by the library, so that the
/// system reports what is wrong.
pub fn served_by(path: &Path) -> ServedBy {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let Ok(file) = read(&path) else { return ServedBy::Preload };
        match file.strip_prefix(b"#!") {
            Some(line) => {
                let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let line = String::from_utf8_lossy(line);
                let mut words = line.split_whitespace();
                let Some(interpreter) = words.next() else { return ServedBy::Preload };
                path = match words.next().filter(|_| interpreter.ends_with("/env")) {
                    Some(name) => {
                        find(name.as_ref(), OsStr::new("/usr/local/bin:/usr/bin:/bin")).unwrap_or_default()
                    }
                    None => interpreter.into(),
                };
            }
            None => {
                return served_by_header(
                    &file,
                    fs::metadata(&path).is_ok_and(|it| it.permissions().mode() & SET_ID != 0),
                );
            }
        }
    }
    ServedBy::Preload
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LOOKED_AT_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The way of a program with these first bytes.
fn served_by_header(file: &[u8], is_set_id: bool) -> ServedBy {
    if !file.starts_with(b"\x7FELF\x02\x01") {
        return ServedBy::Preload;
    }
    if is_set_id {
        return ServedBy::SetId;
    }
    let segments = segments(file);
    let is_go =
        |note: &[u8]| GO_NOTE.iter().zip(note).all(|(should, is)| should.is_none_or(|should| should == *is));
    let of = |kind| segments.iter().filter(move |(it, _)| *it == kind).map(|(_, bytes)| *bytes);
    if of(PT_NOTE).any(|note| note.windows(GO_NOTE.len()).any(is_go)) {
        return ServedBy::Go;
    }
    match of(PT_INTERP).next() {
        Some(linker) if linker.windows(9).any(|it| it == b"/ld-linux") => ServedBy::Preload,
        _ => ServedBy::NoLinker,
    }
}

/// Kind and bytes of the segments, as far as they are among the bytes that were read.
fn segments(file: &[u8]) -> Vec<(u32, &[u8])> {
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let (Some(at), Some(bytes), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else {
        return Vec::new();
    };
    let segment = |index: u64| {
        let at = usize::try_from(at.checked_add(index * bytes)?).ok()?;
        let (from, length) = (usize::try_from(number(at.checked_add(8)?, 8)?).ok()?, number(at + 32, 8)?);
        let end = from.checked_add(usize::try_from(length).ok()?)?.min(file.len());
        Some((number(at, 4)? as u32, file.get(from..end)?))
    };
    (0..count).filter_map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_preloaded_and_what_is_no_program_too() {
        assert_eq!(served_by(Path::new("/bin/sh")), ServedBy::Preload);
        assert_eq!(served_by(Path::new("/etc/passwd")), ServedBy::Preload);
        assert_eq!(served_by(Path::new("/nothing")), ServedBy::Preload);
    }

    #[test]
    fn headers_cut_short_or_pointing_outside_are_no_linker() {
        let mut file = b"\x7FELF\x02\x01".to_vec();
        file.resize(64, 0xFF);
        assert_eq!(served_by_header(&file, false), ServedBy::NoLinker);
        file.truncate(20);
        assert_eq!(served_by_header(&file, false), ServedBy::NoLinker);
        assert_eq!(served_by_header(&file, true), ServedBy::SetId);
    }
}
