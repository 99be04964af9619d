//! The page of doorbells. It is memory of a file that the client may map: then the guest's stores reach it without a
//! message, so the loop looks at it. A message that writes a doorbell stores to the same place.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Offset of the page in BAR 0.
pub const DOORBELLS_AT: u64 = 0x1000;
/// Its size.
pub const DOORBELLS_BYTES: u64 = 0x1000;
/// Bytes of a doorbell: CAP.DSTRD is 0.
const STRIDE: usize = 4;

/// See the module.
pub struct Doorbells {
    page: MmapRegion,
    file: File,
}

impl Doorbells {
    /// A page of zeros.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn new() -> io::Result<Doorbells> {
        let file = memfd_create("kvdrive-doorbells", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // The client maps the page at its offset in the registers.
        ftruncate(&file, DOORBELLS_AT + DOORBELLS_BYTES)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = File::from(file);
        let part = FileOffset::new(file.try_clone()?, DOORBELLS_AT);
        let page = MmapRegion::from_file(part, DOORBELLS_BYTES as usize).map_err(io::Error::other)?;
        Ok(Doorbells { page, file })
    }

    /// The file, for the client.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        self.page.get_atomic_ref(offset).ok()
    }

    /// Writes as the guest would; `offset` counts from the first doorbell. A write elsewhere is ignored.
    pub fn ring(&self, offset: u64, value: u32) {
        let word = usize::try_from(offset).ok().and_then(|offset| self.word(offset));
        if let Some(word) = word {
            word.store(value, Ordering::Release);
        }
    }

    /// The tail of a submission queue, as the guest wrote it last.
    pub fn submission_tail(&self, queue: u16) -> u32 {
        self.load(2 * usize::from(queue))
    }

    /// The head of a completion queue, as the guest wrote it last.
    pub fn completion_head(&self, queue: u16) -> u32 {
        self.load(2 * usize::from(queue) + 1)
    }

    fn load(&self, index: usize) -> u32 {
        // Entries that were written before the doorbell are there after it.
        self.word(index * STRIDE).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets both doorbells of a queue identifier to 0: a queue is made.
    pub fn clear_submission(&self, queue: u16) {
        self.ring(u64::from(queue) * 8, 0);
    }

    /// See [`Doorbells::clear_submission`].
    pub fn clear_completion(&self, queue: u16) {
        self.ring(u64::from(queue) * 8 + 4, 0);
    }
}
