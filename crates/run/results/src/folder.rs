//! The folder of a cache: one file an entry, written as a whole or not at all, of bounded size.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use anyhow::anyhow;
use kvdrive_text::output::shown;

/// Most bytes of all entries, unless a limit was set: some 30 000 runs.
pub const DEFAULT_LIMIT_BYTES: u64 = 256 << 20;

/// End of the names of entries. Other files in the folder are neither read nor removed, except unfinished
/// entries.
const SUFFIX: &str = ".results";
/// Prefix of the names of entries that are being written. A killed program leaves such files.
const UNFINISHED: &str = ".unfinished-";
/// File with the limit in bytes, if one was set.
const LIMIT: &str = "limit";
/// If the entries exceed the limit, some are removed until the others take this share of it, in percent.
const TRIM_PERCENT: u64 = 90;

/// The contents of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of entries, a session each.
    pub entries: u64,
    /// Bytes of all entries.
    pub bytes: u64,
    /// Limit of the bytes of all entries.
    pub limit_bytes: u64,
}

/// The folder for results in the cache folder of the user: `$XDG_CACHE_HOME/kvdrive/results`, by default
/// `~/.cache/kvdrive/results`; `None` for a user without a home.
pub fn folder_of_user() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = named.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(folder.join("kvdrive").join("results"))
}

pub(crate) struct Folder {
    path: PathBuf,
    /// Bytes of all entries, as far as known: other programs write here, too. `None` before the first write.
    held_bytes: Mutex<Option<u64>>,
}

/// An entry's file.
struct Stored {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Folder {
    pub fn open(path: PathBuf) -> Folder {
        Folder { path, held_bytes: Mutex::new(None) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{SUFFIX}"))
    }

    /// The entry of that name, if it exists and is no larger than the limit.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = self.limit_bytes();
        File::open(self.file(name)).ok()?.take(limit.saturating_add(1)).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= limit).then_some(bytes)
    }

    /// Whether there is an entry of that name.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Notes that an entry was used. A failure is no error: the entry is only removed earlier than others.
    #[expect(clippy::disallowed_methods, reason = "which entry leaves first; no run sees it")]
    pub fn touch(&self, name: &str) {
        let file = File::options().append(true).open(self.file(name));
        _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Writes an entry, as a whole or not at all; makes room if the limit is then exceeded.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let mut held = self.held_bytes.lock().expect("nothing panics under it");
        let path = self.file(name);
        let wrong = |error: io::Error| format!("{}: {error}", shown(&path));
        let limit_bytes = self.limit_bytes();
        if bytes.len() as u64 > limit_bytes {
            return Ok(());
        }
        fs::create_dir_all(&self.path).map_err(wrong)?;
        let before = match *held {
            Some(before) => before,
            None => self.stored().map_err(wrong)?.iter().map(|stored| stored.bytes).sum(),
        };
        let mut unfinished =
            tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.path).map_err(wrong)?;
        unfinished.write_all(bytes).map_err(wrong)?;
        // No sync: after a power cut the digest detects incomplete entries.
        unfinished.persist(&path).map_err(|error| wrong(error.error))?;
        let mut after = before + bytes.len() as u64;
        if after > limit_bytes {
            after = self.trim(limit_bytes / 100 * TRIM_PERCENT).map_err(wrong)?;
        }
        *held = Some(after);
        Ok(())
    }

    /// Removes the entries that were unused for longest, until the others have at most `limit_bytes`; returns
    /// the bytes of those that are left.
    fn trim(&self, limit_bytes: u64) -> io::Result<u64> {
        let mut all = self.stored()?;
        all.sort_by_key(|stored| stored.used);
        let mut bytes = all.iter().map(|stored| stored.bytes).sum::<u64>();
        for stored in &all {
            if bytes <= limit_bytes {
                break;
            }
            remove(&stored.path)?;
            bytes -= stored.bytes;
        }
        Ok(bytes)
    }

    /// Every entry, and unfinished entries of killed programs.
    fn stored(&self) -> io::Result<Vec<Stored>> {
        let mut all = Vec::new();
        let listed = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            listed => listed?,
        };
        for entry in listed {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours =
                name.to_str().is_some_and(|name| name.ends_with(SUFFIX) || name.starts_with(UNFINISHED));
            // A missing file was removed by another program meanwhile.
            let Ok(known) = entry.metadata() else { continue };
            if is_ours && known.is_file() {
                all.push(Stored { path: entry.path(), bytes: known.len(), used: known.modified()? });
            }
        }
        Ok(all)
    }

    /// The name of every entry, with the time of its last use, in no order.
    pub fn names(&self) -> Vec<(String, SystemTime)> {
        let name = |stored: Stored| {
            let name = stored.path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.to_owned();
            Some((name, stored.used))
        };
        self.stored().unwrap_or_default().into_iter().filter_map(name).collect()
    }

    /// Size and limit of the folder.
    ///
    /// # Errors
    /// The folder cannot be read: a line with the path.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let all = self.stored().map_err(|error| self.wrong(error))?;
        let bytes = all.iter().map(|stored| stored.bytes).sum();
        Ok(Usage { entries: all.len() as u64, bytes, limit_bytes: self.limit_bytes() })
    }

    /// Removes every entry; returns how many bytes they had.
    ///
    /// # Errors
    /// The folder cannot be read, or an entry cannot be removed: a line with the path.
    pub fn clear(&self) -> anyhow::Result<u64> {
        let before = self.usage()?;
        let left = self.trim(0).map_err(|error| self.wrong(error))?;
        *self.held_bytes.lock().expect("nothing panics under it") = Some(left);
        Ok(before.bytes - left)
    }

    fn limit_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(LIMIT)).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_LIMIT_BYTES)
    }

    /// Sets the limit for this folder, and makes room.
    ///
    /// # Errors
    /// The folder cannot be made, read or written: a line with its path.
    pub fn set_limit(&self, limit_bytes: u64) -> anyhow::Result<()> {
        fs::create_dir_all(&self.path).map_err(|error| self.wrong(error))?;
        fs::write(self.path.join(LIMIT), format!("{limit_bytes}\n")).map_err(|error| self.wrong(error))?;
        self.trim(limit_bytes).map_err(|error| self.wrong(error))?;
        Ok(())
    }

    fn wrong(&self, error: io::Error) -> anyhow::Error {
        anyhow!("{}: {error}", shown(&self.path))
    }
}

/// Removes a file, unless another program has.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
