//! Host memory as the drive's DMA engine sees it: addresses, pieces of content, and the refusal of accesses
//! to unmapped memory. The meaning of the bytes, and the cost of moving them, are elsewhere.

use kvdrive_sim::TaskCell;

use kvdrive_content::{Piece, Region};

/// A DMA to an address range that is not mapped, or not wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host memory {address:#x}+{bytes} is not mapped")]
pub struct BadAddress {
    /// First byte asked for.
    pub address: u64,
    /// Length asked for.
    pub bytes: u32,
}

/// Memory that a drive may reach by DMA. In-process buffers, capsules of a fabric and guest memory implement
/// it.
pub trait HostMemory {
    /// Passes `bytes` bytes from `address` on to `sink`, in order. If any of them is not mapped, nothing is
    /// passed.
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress>;
    /// Does it hold the data of capsules, which descriptors of kind
    /// [`DATA_BLOCK_OFFSET`](kvdrive_nvme::SglDescriptor::DATA_BLOCK_OFFSET) then name by address?
    fn holds_capsules(&self) -> bool {
        false
    }
    /// Writes `piece` at `address`. Nothing is written when any byte of it is not mapped.
    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress>;
    /// Moves the first `bytes` bytes of `content` to `address`. The content of `content` is undefined afterwards:
    /// memory in the same form may swap its own with it instead of copying.
    fn put(&self, address: u64, content: &mut Region, bytes: u32) -> Result<(), BadAddress> {
        write_region(self, address, content, bytes)
    }
}

/// Writes the first `bytes` bytes of `content` at `address`, piece by piece. Pieces that are not mapped are left out;
/// the error is that of the first one.
pub(crate) fn write_region<M: HostMemory + ?Sized>(
    memory: &M,
    address: u64,
    content: &Region,
    bytes: u32,
) -> Result<(), BadAddress> {
    let (mut address, mut written) = (address, Ok(()));
    content.read(0, bytes, &mut |piece| {
        let here = memory.write(address, piece);
        written = written.and(here);
        address = address.wrapping_add(u64::from(piece.bytes()));
    });
    written
}

/// Address space between two buffers: buffer `n` begins at `(n + 1) << 32`.
const BUFFER_SHIFT: u32 = 32;

struct Buffer {
    bytes: u32,
    content: Region,
}

/// Buffers of one process on one thread. Addresses are artificial, page aligned, and never reused for another
/// buffer.
#[derive(Default)]
pub struct LocalMemory {
    buffers: TaskCell<Vec<Buffer>>,
}

impl LocalMemory {
    /// Memory without buffers.
    pub fn new() -> LocalMemory {
        LocalMemory::default()
    }

    /// Maps a new zeroed buffer and returns its address. Memory is allocated as it is written.
    pub fn map(&self, bytes: u32) -> u64 {
        let mut buffers = self.buffers.borrow_mut();
        buffers.push(Buffer { bytes, content: Region::new() });
        (buffers.len() as u64) << BUFFER_SHIFT
    }

    /// Clears the buffer at `address` (as returned by [`LocalMemory::map`]) for its next use.
    pub fn clear(&self, address: u64) {
        let index = (address >> BUFFER_SHIFT) as usize - 1;
        self.buffers.borrow_mut()[index].content.clear();
    }

    fn locate(&self, address: u64, bytes: u32) -> Result<(usize, u32), BadAddress> {
        let bad = BadAddress { address, bytes };
        let index = (address >> BUFFER_SHIFT).checked_sub(1).ok_or(bad)? as usize;
        let at = address as u32;
        let buffers = self.buffers.borrow();
        let buffer = buffers.get(index).ok_or(bad)?;
        let inside = at.checked_add(bytes).is_some_and(|end| end <= buffer.bytes);
        if inside { Ok((index, at)) } else { Err(bad) }
    }
}

impl HostMemory for LocalMemory {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let (index, at) = self.locate(address, bytes)?;
        self.buffers.borrow()[index].content.read(at, bytes, sink);
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let (index, at) = self.locate(address, piece.bytes())?;
        self.buffers.borrow_mut()[index].content.write(at, piece);
        Ok(())
    }
}
