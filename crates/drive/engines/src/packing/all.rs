//! `all`: values are packed back to back, for every arrival.
//!
//! DMA cannot deliver to any byte address. If the place of a DMA'd value is not on a slot boundary, DMA
//! delivers the value to the next slots, and firmware copies it down. This is the densest packing and copies
//! most. It is also used for the log head of value-log garbage collection, where every value is copied
//! anyway.

use kvdrive_link::Arrival;

use super::{LogView, Packing, Placement, SLOT_BYTES, restore_pointer};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct All {
    write_pointer: u64,
}

impl Packing for All {
    #[inline]
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        if bytes == 0 {
            return Placement { at: self.write_pointer, copied_bytes: 0 };
        }
        let at = log.uncrossed(self.write_pointer, bytes);
        self.write_pointer = at + u64::from(bytes);
        let by_dma = match arrival {
            Arrival::Inline => 0,
            Arrival::Dma => bytes,
            Arrival::Hybrid => bytes - bytes % SLOT_BYTES, // the tail comes inside commands
        };
        let on_slot = at.is_multiple_of(u64::from(SLOT_BYTES));
        Placement { at, copied_bytes: if on_slot { 0 } else { by_dma } }
    }

    fn skip_to(&mut self, at: u64) {
        self.write_pointer = self.write_pointer.max(at);
    }

    fn oldest_open(&self) -> u64 {
        self.write_pointer
    }

    fn frontier(&self) -> u64 {
        self.write_pointer
    }

    fn save(&self) -> Vec<u8> {
        self.write_pointer.to_le_bytes().to_vec()
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        restore_pointer(&mut self.write_pointer, saved)
    }
}
