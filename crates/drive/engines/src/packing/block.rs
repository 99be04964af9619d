//! `block`: every value takes whole 4 KiB slots, as on a drive with value addresses in units of 4 KiB.
//!
//! Nothing is copied: values stay where DMA puts them.

use kvdrive_link::Arrival;

use super::{LogView, Packing, Placement, SLOT_BYTES, align_to_slot, restore_pointer};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Block {
    /// Always on a slot boundary.
    next_slot: u64,
}

impl Packing for Block {
    fn place(&mut self, bytes: u32, _: Arrival, log: &LogView) -> Placement {
        if bytes == 0 {
            return Placement { at: self.next_slot, copied_bytes: 0 };
        }
        let at = log.uncrossed_slots(self.next_slot, bytes.next_multiple_of(SLOT_BYTES));
        self.next_slot = align_to_slot(at + u64::from(bytes));
        Placement { at, copied_bytes: 0 }
    }

    fn skip_to(&mut self, at: u64) {
        self.next_slot = self.next_slot.max(align_to_slot(at));
    }

    fn oldest_open(&self) -> u64 {
        self.next_slot
    }

    fn frontier(&self) -> u64 {
        self.next_slot
    }

    fn save(&self) -> Vec<u8> {
        self.next_slot.to_le_bytes().to_vec()
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let mut pointer = 0;
        let fits = restore_pointer(&mut pointer, saved) && align_to_slot(pointer) == pointer;
        if fits {
            self.next_slot = pointer;
        }
        fits
    }
}
