//! `selective`: values that arrive in commands are packed; DMA'd values stay where DMA put them.
//!
//! There is one write pointer. A DMA'd value goes to the next slot boundary and the pointer moves to the end
//! of its last byte: the gap before the value is lost, its own tail is not. This is the policy of the
//! released BandSlim firmware.

use kvdrive_link::Arrival;

use super::{LogView, Packing, Placement, align_to_slot, restore_pointer};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Selective {
    write_pointer: u64,
}

impl Packing for Selective {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        if bytes == 0 {
            return Placement { at: self.write_pointer, copied_bytes: 0 };
        }
        let at = match arrival {
            Arrival::Inline => log.uncrossed(self.write_pointer, bytes),
            Arrival::Dma | Arrival::Hybrid => log.uncrossed_slots(align_to_slot(self.write_pointer), bytes),
        };
        self.write_pointer = at + u64::from(bytes);
        Placement { at, copied_bytes: 0 }
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
