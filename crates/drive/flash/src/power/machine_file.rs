//! The files of a drive on the machine, and the handling of I/O errors: every read, write and sync of an
//! image file ([`crate::media::file`]) and of a protected image ([`super::file_log`]) passes through this
//! module.
//!
//! *A read that fails* is reported to the caller: it costs a page, and so one value.
//!
//! *A write or sync that fails* ends writing for good ([`WriteProtection`]): the files then hold the state that a kill
//! at this instant would have left, which recovery understands, and nothing more is written to them. The drive
//! continues from memory, where later changes of the medium go ([`Shadow`]): commands that would change a pair are
//! refused, reads continue, and nothing that was acknowledged is missing in the files.
//!
//! [`faults`] makes calls fail, for tests.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use faults::Call;
use kvdrive_sim::TaskCell;

/// Why a drive is read-only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; the drive is read-only", self.cause())]
pub struct WriteFailure {
    /// The file that cannot be written, if it is one of the machine's.
    pub path: Option<PathBuf>,
    /// What failed, and the machine's error.
    pub what: String,
}

impl WriteFailure {
    /// The cause, with the file.
    pub fn cause(&self) -> String {
        match &self.path {
            Some(path) => format!("{}: {}", path.display(), self.what),
            None => self.what.clone(),
        }
    }
}

/// Whether a drive may write, and if not, why. Clones belong to one drive; protection is never turned off.
#[derive(Clone, Default)]
pub struct WriteProtection(Rc<Protected>);

#[derive(Default)]
struct Protected {
    reason: OnceCell<WriteFailure>,
    /// Called when protection is turned on.
    on_turn: OnceCell<Rc<dyn Fn()>>,
}

impl std::fmt::Debug for WriteProtection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("WriteProtection").field(&self.0.reason).finish()
    }
}

impl WriteProtection {
    /// Is writing forbidden?
    pub fn is_on(&self) -> bool {
        self.0.reason.get().is_some()
    }

    /// The first failure.
    pub fn reason(&self) -> Option<&WriteFailure> {
        self.0.reason.get()
    }

    /// Registers `told`, which is called when protection is turned on; it must not wait.
    ///
    /// # Panics
    /// A function is registered already.
    pub fn on_turn(&self, told: Rc<dyn Fn()>) {
        assert!(self.0.on_turn.set(told).is_ok(), "one controller tells hosts of it");
    }

    /// Turns protection on because writing to `path` failed. Only the first failure counts.
    pub fn turn_on(&self, path: &Path, what: &str, error: &io::Error) {
        self.turn(|| WriteFailure { path: Some(path.to_owned()), what: format!("{what}: {error}") });
    }

    /// Turns protection on because the drive in `path` was opened read-only.
    pub fn turn_on_as_asked(&self, path: &Path) {
        self.turn(|| WriteFailure { path: Some(path.to_owned()), what: "was opened read-only".to_owned() });
    }

    /// Turns protection on because a record of another version was met in the medium, which is in `path` if it is in a file.
    pub fn turn_on_at_version(&self, path: Option<&Path>, what: String) {
        self.turn(|| WriteFailure { path: path.map(Path::to_owned), what });
    }

    /// Turns protection on because flash failed and no spare block was left.
    pub fn turn_on_without_spares(&self) {
        let what = || "flash has failed where it has no spare block left".to_owned();
        self.turn(|| WriteFailure { path: None, what: what() });
    }

    fn turn(&self, reason: impl FnOnce() -> WriteFailure) {
        if self.is_on() {
            return;
        }
        assert!(self.0.reason.set(reason()).is_ok(), "it was off");
        if let Some(told) = self.0.on_turn.get() {
            told();
        }
    }
}

/// An open file.
#[derive(Debug)]
pub struct MachineFile {
    file: File,
    path: PathBuf,
    is_locked: Cell<bool>,
}

impl MachineFile {
    /// Opens the file at `path`.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<MachineFile> {
        Ok(MachineFile { file: options.open(path)?, path: path.to_owned(), is_locked: Cell::new(false) })
    }

    /// Locks the file against other processes until it is closed, also by a kill.
    ///
    /// # Errors
    /// Another process has locked it, or the machine does not support locks.
    pub fn lock(&self) -> Result<(), TryLockError> {
        self.file.try_lock()?;
        self.is_locked.set(true);
        Ok(())
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The underlying file; not for reading or writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Checks that the file is still at its path, with at least `bytes` bytes. The content of a removed file is lost when
    /// this process ends, and a file that has taken its place is another drive's.
    ///
    /// # Errors
    /// What happened to it.
    pub fn check_there(&self, bytes: u64) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_at_path = std::fs::metadata(&self.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
        if is_at_path {
            long_enough(own.len(), bytes)
        } else {
            Err(happened("was removed, moved or replaced"))
        }
    }

    /// Checks that it has at least `bytes` bytes. A write behind its end would hide that its end was cut off.
    ///
    /// # Errors
    /// It was shortened.
    pub fn check_length(&self, bytes: u64) -> io::Result<()> {
        long_enough(self.bytes()?, bytes)
    }

    /// Fills `out` from byte `at` on; bytes after the end read as zero. After an error `out` has any content.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        faults::pass(Call::Read)?;
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out[done..].fill(0);
        Ok(())
    }

    /// Writes all of `data` from byte `at` on. A write that fails may have written a part.
    pub fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        if let Err(error) = faults::pass(Call::Write) {
            self.file.write_all_at(&data[..data.len() / 2], at)?;
            return Err(error);
        }
        faults::note_written(data.len());
        self.file.write_all_at(data, at)
    }

    /// Makes the file at least `bytes` long. The new part reads as zeros and takes no room on storage.
    pub fn grow_to(&self, bytes: u64) -> io::Result<()> {
        faults::pass(Call::Write)?;
        if self.bytes()? < bytes { self.file.set_len(bytes) } else { Ok(()) }
    }

    /// Waits until everything written is on the machine's storage.
    pub fn sync(&self) -> io::Result<()> {
        faults::pass(Call::Sync)?;
        if UNSYNCED.get() { Ok(()) } else { self.file.sync_data() }
    }
}

fn long_enough(is: u64, bytes: u64) -> io::Result<()> {
    if is >= bytes { Ok(()) } else { Err(happened("was shortened")) }
}

fn happened(what: &str) -> io::Error {
    io::Error::other(format!("the file {what} while the drive was using it"))
}

thread_local! {
    static UNSYNCED: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, nothing on this thread waits for the machine's storage.
pub struct Unsynced(());

/// For files that are thrown away before the machine could lose its power: a test of recovery makes hundreds of them, each
/// with a checkpoint for which it would wait twice.
pub fn unsynced() -> Unsynced {
    UNSYNCED.set(true);
    Unsynced(())
}

impl Drop for Unsynced {
    fn drop(&mut self) {
        UNSYNCED.set(false);
    }
}

/// A lock ends with the *last* descriptor of its file. A child process that another thread starts has a copy
/// of every descriptor of this process until it is loaded, so closing the file would leave it locked for a
/// moment, and opening the drive again at that moment would fail because the file is in use.
impl Drop for MachineFile {
    fn drop(&mut self) {
        if self.is_locked.get() {
            // Closing also ends the lock, but possibly later.
            let _ = self.file.unlock();
        }
    }
}

/// Syncs the folder of the file at `path`: only then is a new file found after a power cut.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    faults::pass(Call::Sync)?;
    if UNSYNCED.get() {
        return Ok(());
    }
    let path = path.canonicalize()?;
    File::open(path.parent().expect("a file is in a folder"))?.sync_all()
}

/// Removes the file at `path`.
pub fn remove(path: &Path) -> io::Result<()> {
    faults::pass(Call::Write)?;
    std::fs::remove_file(path)
}

/// The whole content of the file at `path`.
pub fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let file = MachineFile::open(path, OpenOptions::new().read(true))?;
    let mut bytes = vec![0; file.bytes()? as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Bytes of a piece of a [`Shadow`]: the unit in which a file system reads and writes.
const PIECE_BYTES: u64 = 4096;
/// Stands for bytes that could not be read: neither erased nor a header.
const UNREADABLE: u8 = 0xA5;

/// Writes to a file that can no longer be written, kept in memory. Empty as long as the file can be written.
#[derive(Debug, Default)]
pub struct Shadow(TaskCell<BTreeMap<u64, Box<[u8]>>>);

impl Shadow {
    /// First byte after everything in it.
    pub fn end(&self) -> u64 {
        self.0.borrow().last_key_value().map_or(0, |(piece, _)| (piece + 1) * PIECE_BYTES)
    }

    /// Writes `data` over `file` from byte `at` on.
    pub fn write_at(&self, file: &MachineFile, at: u64, data: &[u8]) {
        let mut pieces = self.0.borrow_mut();
        let mut done = 0;
        while done < data.len() {
            let (piece, from) =
                ((at + done as u64) / PIECE_BYTES, ((at + done as u64) % PIECE_BYTES) as usize);
            let count = (data.len() - done).min(PIECE_BYTES as usize - from);
            let bytes = pieces.entry(piece).or_insert_with(|| {
                let mut bytes = vec![0; PIECE_BYTES as usize];
                if file.read_at(piece * PIECE_BYTES, &mut bytes).is_err() {
                    bytes.fill(UNREADABLE);
                }
                bytes.into()
            });
            bytes[from..from + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
    }

    /// Copies its content over `out`, which was read from byte `at` on. `true` if it covered all of `out`.
    pub fn read_over(&self, at: u64, out: &mut [u8]) -> bool {
        let pieces = self.0.borrow();
        let end = at + out.len() as u64;
        let mut covered = 0;
        for (piece, bytes) in pieces.range(at / PIECE_BYTES..end.div_ceil(PIECE_BYTES)) {
            let begin = piece * PIECE_BYTES;
            let (from, to) = (begin.max(at), (begin + PIECE_BYTES).min(end));
            out[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - begin) as usize..(to - begin) as usize]);
            covered += (to - from) as usize;
        }
        covered == out.len()
    }
}

pub mod faults {
    //! Calls that fail on the thread that arms them: simulated I/O errors for tests.

    use std::cell::{Cell, RefCell};
    use std::io;
    use std::ops::Range;

    /// A call to the machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Call {
        /// Reading bytes of a file.
        Read,
        /// A write, of which a failing call writes the first half; or the removal of a file.
        Write,
        /// Syncing to storage.
        Sync,
    }

    /// Which calls fail, and how.
    #[derive(Clone, Debug)]
    pub struct Fault {
        /// The kind of call.
        pub call: Call,
        /// The numbers of the calls, counted from 0 since arming.
        pub which: Range<u64>,
        /// The error that they return.
        pub error: io::ErrorKind,
    }

    thread_local! {
        static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
        static PASSED: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
        static WRITTEN: Cell<u64> = const { Cell::new(0) };
    }

    /// Makes this thread's calls fail in this way until the next call of this function; `None`: none fails.
    /// Returns the number of reads, writes and syncs since the last call.
    pub fn arm(fault: Option<Fault>) -> [u64; 3] {
        FAULT.set(fault);
        PASSED.replace([0; 3])
    }

    /// Bytes that this thread has written so far.
    pub fn written_bytes() -> u64 {
        WRITTEN.get()
    }

    pub(super) fn note_written(bytes: usize) {
        WRITTEN.set(WRITTEN.get() + bytes as u64);
    }

    pub(super) fn pass(call: Call) -> io::Result<()> {
        let mut passed = PASSED.get();
        let number = passed[call as usize];
        passed[call as usize] += 1;
        PASSED.set(passed);
        let fails = |fault: &Fault| fault.call == call && fault.which.contains(&number);
        FAULT.with_borrow(|fault| match fault.as_ref().filter(|fault| fails(fault)) {
            Some(fault) => Err(fault.error.into()),
            None => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_what_was_opened_says_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        std::fs::write(&path, [1; 10]).unwrap();
        let file = MachineFile::open(&path, OpenOptions::new().read(true)).unwrap();
        let check = || file.check_there(10).map_err(|error| error.to_string());
        let says = |what: &str| Err(format!("the file {what} while the drive was using it"));
        assert_eq!(check(), Ok(()));
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(check(), says("was removed, moved or replaced"));
        std::fs::write(&path, [2; 10]).unwrap();
        assert_eq!(check(), says("was removed, moved or replaced"));
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(check(), Ok(()));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(9).unwrap();
        assert_eq!(check(), says("was shortened"));
    }

    #[test]
    fn a_shadow_lies_over_what_the_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 5000]).unwrap();
        let file = MachineFile::open(&path, OpenOptions::new().read(true)).unwrap();
        let shadow = Shadow::default();
        let read = |at: u64, bytes: usize| {
            let mut out = vec![9; bytes];
            file.read_at(at, &mut out).unwrap();
            let covered = shadow.read_over(at, &mut out);
            (out, covered)
        };
        assert_eq!((read(4090, 20), shadow.end()), ((vec![1; 20], false), 0));
        shadow.write_at(&file, 8185, &[2; 20]);
        assert_eq!(shadow.end(), 12288);
        assert_eq!(read(8180, 30), ([&[0; 5][..], &[2; 20], &[0; 5]].concat(), true));
        assert_eq!(read(4090, 8), (vec![1; 8], false));
        assert_eq!(read(4096, 4096).0[..904], [1; 904]);
        assert_eq!(std::fs::read(&path).unwrap(), [1; 5000]);
    }

    /// A child process that another thread starts holds copies of this process's descriptors until it is
    /// loaded.
    #[test]
    fn a_copy_of_its_descriptor_keeps_no_file_locked() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let path = folder.path().join("file");
            MachineFile::open(&path, OpenOptions::new().write(true).create(true).truncate(false)).unwrap()
        };
        let (first, second) = (open(), open());
        first.lock().unwrap();
        let copy = first.file().try_clone().unwrap();
        assert!(matches!(second.lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        second.lock().expect("the other owner of the lock has closed it");
        drop(copy);
        assert!(matches!(open().lock(), Err(TryLockError::WouldBlock)), "the copy's end ends no other lock");
    }
}
