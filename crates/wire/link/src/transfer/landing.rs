//! The drive's side of an arriving value.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Piece;
use kvdrive_nvme::{Key, Status};

/// How a value reaches the drive, as far as its placement is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum Arrival {
    /// In commands: firmware copies it to any byte.
    Inline,
    /// By page-unit DMA: it lands on a 4 KiB boundary first.
    Dma,
    /// Whole pages by DMA, the tail copied directly after them.
    Hybrid,
}

/// The destination of an arriving value in the drive. The engine implements it; transfer methods know nothing
/// else of an engine.
///
/// The order is `reserve`, then any mixture of `copy_in` and `dma_in` that covers the value, as far as `admit` has
/// room for it, then `settle`; or `abandon` at any point after `reserve`. The value is not visible under its key before the engine
/// commits it.
///
/// `K` names the value of a place: its key, or nothing for a structured value, which is unpacked after it has
/// landed.
pub trait Landing<K = Key> {
    /// A reserved place for one value.
    type Place;
    /// Reserves room for a value of `bytes` bytes.
    fn reserve(&self, key: &K, bytes: u32, arrival: Arrival) -> Result<Self::Place, Status>;
    /// Number of the next bytes of the value for which there is room now. A value that is written to flash while it
    /// arrives gets room for a part at a time, and this call may wait for it; the bytes of such a value come in order.
    ///
    /// Errors: there will be no room; the caller must abandon the place.
    fn admit(&self, _place: &Self::Place) -> Result<u32, Status> {
        Ok(u32::MAX)
    }
    /// Firmware copies bytes of a command to byte `at` of the value; takes time of a core.
    fn copy_in(&self, place: &Self::Place, at: u32, bytes: &[u8]);
    /// The DMA engine delivers a piece to byte `at` of the value; its time was taken on the link.
    fn dma_in(&self, place: &Self::Place, at: u32, piece: Piece<'_>);
    /// All bytes have arrived: makes the copies that the packing of DMA'd values requires.
    fn settle(&self, place: &Self::Place);
    /// Releases a place; its bytes are lost.
    fn abandon(&self, place: Self::Place);
}
