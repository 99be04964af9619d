//! The files of a drive on the machine, and what to do when the machine refuses: every read, write and sync
//! of an image file ([`crate::media::file`]) and of a protected image ([`super::file_log`]) passes
//! here.
//!
//! *A read that fails* is the business of whoever asked: a page, and so one value.
//!
//! *A write or sync that fails* ends writing for good ([`WriteProtection`]): what is on the files then is
//! what a kill at this instant would have left, which recovery knows, and nothing more is written to them.
//! The drive goes on from its memory, where changes of the medium go from then on ([`Shadow`]): commands that
//! would change a pair are refused, reads go on, and nothing that was acknowledged is missing on the files.
//!
//! [`faults`] makes calls fail, for tests.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use faults::Call;
use kvdrive_sim::TaskCell;

/// Why a drive writes no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; the drive is read-only", self.cause())]
pub struct WriteFailure {
    /// The file, if it is one of the machine's that cannot be written.
    pub path: Option<PathBuf>,
    /// What could not be done, and what the machine said.
    pub what: String,
}

impl WriteFailure {
    /// What happened, and to which file.
    pub fn cause(&self) -> String {
        match &self.path {
            Some(path) => format!("{}: {}", path.display(), self.what),
            None => self.what.clone(),
        }
    }
}

/// Whether a drive may write, and if not, why. Clones are of one drive; it never comes off.
#[derive(Clone, Default)]
pub struct WriteProtection(Rc<Protected>);

#[derive(Default)]
struct Protected {
    reason: OnceCell<WriteFailure>,
    /// Called when it is turned on.
    on_turn: OnceCell<Rc<dyn Fn()>>,
}

impl std::fmt::Debug for WriteProtection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("WriteProtection").field(&self.0.reason).finish()
    }
}

impl WriteProtection {
    /// May nothing be written any more?
    pub fn is_on(&self) -> bool {
        self.0.reason.get().is_some()
    }

    /// The first failure.
    pub fn reason(&self) -> Option<&WriteFailure> {
        self.0.reason.get()
    }

    /// Has `told` called at the moment it is turned on; it may not wait.
    ///
    /// # Panics
    /// Somebody asked before.
    pub fn on_turn(&self, told: Rc<dyn Fn()>) {
        assert!(self.0.on_turn.set(told).is_ok(), "one controller tells hosts of it");
    }

    /// Writing to `path` failed. Only the first failure counts.
    pub fn turn_on(&self, path: &Path, what: &str, error: &io::Error) {
        self.turn(|| WriteFailure { path: Some(path.to_owned()), what: format!("{what}: {error}") });
    }

    /// Flash failed where it has no spare block left.
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

    /// Nobody else can lock the file until this one is closed, also by a kill.
    ///
    /// # Errors
    /// When somebody else has locked it, or the machine knows no locks.
    pub fn lock(&self) -> Result<(), TryLockError> {
        self.file.try_lock()?;
        self.is_locked.set(true);
        Ok(())
    }

    /// As messages name it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the machine has of it; not for reading or writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Fills `out` from byte `at` on; what lies beyond the end reads as zero.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        faults::pass(Call::Read)?;
        out.fill(0);
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `data` from byte `at` on. One that fails may have written a part.
    pub fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        if let Err(error) = faults::pass(Call::Write) {
            self.file.write_all_at(&data[..data.len() / 2], at)?;
            return Err(error);
        }
        self.file.write_all_at(data, at)
    }

    /// Waits until everything written is on the machine's storage.
    pub fn sync(&self) -> io::Result<()> {
        faults::pass(Call::Sync)?;
        self.file.sync_data()
    }
}

/// A lock ends with the *last* descriptor of its file. A program that another thread starts has a copy of
/// every descriptor of this process until it is loaded, so closing ours would leave the file locked for some
/// moments, and whoever opens the drive again right then would be told that another drive has it.
impl Drop for MachineFile {
    fn drop(&mut self) {
        if self.is_locked.get() {
            // Closing ends the lock, too, if later.
            let _ = self.file.unlock();
        }
    }
}

/// Waits until the machine's storage knows of the file at `path`: a file that was made is only then found
/// after a power cut.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    faults::pass(Call::Sync)?;
    let path = path.canonicalize()?;
    File::open(path.parent().expect("a file is in a folder"))?.sync_all()
}

/// Takes the file at `path` away.
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

/// Bytes of a piece of a [`Shadow`]: what a file system reads and writes at a time.
const PIECE_BYTES: u64 = 4096;
/// What stands where the file could not be read: neither erased nor a header.
const UNREADABLE: u8 = 0xA5;

/// What was written to a file that takes no more, in memory. Empty as long as the file does.
#[derive(Debug, Default)]
pub struct Shadow(TaskCell<BTreeMap<u64, Box<[u8]>>>);

impl Shadow {
    /// First byte behind everything in it.
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

    /// Lays what is in it over `out`, which was read from byte `at` on. `true`: over all of it.
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
    //! Calls that fail, on the thread that arms them: the machine's disk for test engineers.

    use std::cell::{Cell, RefCell};
    use std::io;
    use std::ops::Range;

    /// What is asked of the machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Call {
        /// Bytes of a file.
        Read,
        /// To write some, of which one that fails writes the first half; or to take a file away.
        Write,
        /// To have them on storage.
        Sync,
    }

    /// Which calls fail, and how.
    #[derive(Clone, Debug)]
    pub struct Fault {
        /// Of this kind
        pub call: Call,
        /// those with these numbers, from 0 on since they were armed,
        pub which: Range<u64>,
        /// and what the machine says.
        pub error: io::ErrorKind,
    }

    thread_local! {
        static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
        static PASSED: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
    }

    /// Has this thread's calls fail so from now on, until the next call of this; `None`: none fails. Returns
    /// how many reads, writes and syncs there were since the last one.
    pub fn arm(fault: Option<Fault>) -> [u64; 3] {
        FAULT.set(fault);
        PASSED.replace([0; 3])
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

    /// What a program that another thread starts has of our files until it is loaded: copies of descriptors.
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
        second.lock().expect("whoever locked it has closed it");
        drop(copy);
        assert!(matches!(open().lock(), Err(TryLockError::WouldBlock)), "the copy's end ends no other lock");
    }
}
