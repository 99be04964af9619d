//! Host memory of several threads: buffers with a lock each, found by address.
//!
//! A buffer is used by one command at a time, so its lock is always free; the lock is there because the
//! compiler cannot know that.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use kvdrive_content::{Piece, Region};
use kvdrive_sim::wall::lock;

use crate::memory::{BadAddress, HostMemory};

/// Address space between two buffers: buffer `n` begins at `(n + 1) << 32`.
const BUFFER_SHIFT: u32 = 32;

/// Memory that a buffer keeps for its next content, bytes.
const KEPT_BYTES: u32 = 4 << 20;

/// One buffer.
pub struct SharedBuffer {
    address: u64,
    bytes: u32,
    content: Mutex<Region>,
}

impl SharedBuffer {
    /// Address of its first byte, as commands name it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Zeroes it. Much memory is given back to the system.
    pub fn clear(&self) {
        lock(&self.content).clear_to(KEPT_BYTES);
    }

    /// Replaces its content by `piece`, followed by zeros. Panics if `piece` is longer than the buffer.
    pub fn fill(&self, piece: Piece<'_>) {
        assert!(piece.bytes() <= self.bytes, "{} bytes into a buffer of {}", piece.bytes(), self.bytes);
        let mut content = lock(&self.content);
        content.clear_to(KEPT_BYTES.max(piece.bytes()));
        content.write(0, piece);
    }

    /// Allocates memory for its first `bytes` bytes, so that writes up to there do not reallocate.
    pub fn reserve(&self, bytes: u32) {
        lock(&self.content).reserve(bytes.min(self.bytes));
    }

    /// Exchanges its content, without a copy.
    pub fn swap(&self, with: &mut Region) {
        std::mem::swap(&mut *lock(&self.content), with);
    }

    /// Exchanges its content for `bytes`, which must not be longer than the buffer, without a copy, if `may`
    /// accepts the length of the content. Otherwise, or while it holds patterns, returns `false` and
    /// exchanges nothing.
    pub fn exchange(&self, bytes: &mut Vec<u8>, may: impl FnOnce(usize) -> bool) -> bool {
        let mut content = lock(&self.content);
        bytes.len() <= self.bytes as usize && may(content.literal().len()) && content.exchange(bytes)
    }

    fn offset(&self, address: u64, bytes: u32) -> Result<u32, BadAddress> {
        let bad = BadAddress { address, bytes };
        let at = address.checked_sub(self.address).and_then(|at| u32::try_from(at).ok()).ok_or(bad)?;
        at.checked_add(bytes).filter(|end| *end <= self.bytes).map(|_| at).ok_or(bad)
    }
}

impl HostMemory for SharedBuffer {
    fn holds_capsules(&self) -> bool {
        true
    }

    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let at = self.offset(address, bytes)?;
        lock(&self.content).read(at, bytes, sink);
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let at = self.offset(address, piece.bytes())?;
        lock(&self.content).write(at, piece);
        Ok(())
    }

    /// A buffer that holds nothing takes all of `content` for its own.
    fn put(&self, address: u64, content: &mut Region, bytes: u32) -> Result<(), BadAddress> {
        let at = self.offset(address, bytes)?;
        let mut own = lock(&self.content);
        if (at, own.written_end(), content.written_end()) == (0, 0, bytes) {
            std::mem::swap(&mut *own, content);
            return Ok(());
        }
        let mut next = at;
        content.read(0, bytes, &mut |piece| {
            own.write(next, piece);
            next += piece.bytes();
        });
        Ok(())
    }
}

/// All buffers. They are never unmapped.
#[derive(Default)]
pub struct SharedMemory {
    buffers: Mutex<Vec<Arc<SharedBuffer>>>,
}

impl SharedMemory {
    /// Maps a new zeroed buffer. Memory is allocated as it is written.
    pub fn map(&self, bytes: u32) -> Arc<SharedBuffer> {
        let mut buffers = lock(&self.buffers);
        let address = (buffers.len() as u64 + 1) << BUFFER_SHIFT;
        let buffer = Arc::new(SharedBuffer { address, bytes, content: Mutex::default() });
        buffers.push(buffer.clone());
        buffer
    }
}

/// The memory as the drive's thread sees it: a copy of the table, refreshed when an address is not in it.
pub(super) struct DriveView {
    shared: Arc<SharedMemory>,
    known: RefCell<Vec<Arc<SharedBuffer>>>,
}

impl DriveView {
    pub(super) fn new(shared: Arc<SharedMemory>) -> DriveView {
        DriveView { shared, known: RefCell::default() }
    }

    /// Calls `act` with the buffer that contains `address`.
    fn with<T>(
        &self,
        address: u64,
        bytes: u32,
        act: impl FnOnce(&SharedBuffer) -> Result<T, BadAddress>,
    ) -> Result<T, BadAddress> {
        let bad = BadAddress { address, bytes };
        let index = (address >> BUFFER_SHIFT).checked_sub(1).ok_or(bad)? as usize;
        if index >= self.known.borrow().len() {
            self.known.borrow_mut().clone_from(&lock(&self.shared.buffers));
        }
        act(self.known.borrow().get(index).ok_or(bad)?)
    }
}

impl HostMemory for DriveView {
    fn holds_capsules(&self) -> bool {
        true
    }

    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        self.with(address, bytes, |buffer| buffer.read(address, bytes, sink))
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        self.with(address, piece.bytes(), |buffer| buffer.write(address, piece))
    }

    fn put(&self, address: u64, content: &mut Region, bytes: u32) -> Result<(), BadAddress> {
        self.with(address, bytes, |buffer| buffer.put(address, content, bytes))
    }
}
