//! `units`: every value takes whole units of 512 B, as PinK places pairs (USENIX ATC'20, after its public submission).
//!
//! Copied as by `all`, whenever DMA did not deliver to the place. Here a unit holds the value alone, in PinK the key as
//! well; keys of 32 B with values of 984 B or less take the same two units in both.

use kvdrive_link::Arrival;

use super::{All, LogView, Packing, Placement};

/// The unit, bytes.
pub const UNIT_BYTES: u32 = 512;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Units {
    /// Always on a boundary of a unit.
    packed: All,
}

fn align_to_unit(at: u64) -> u64 {
    at.next_multiple_of(u64::from(UNIT_BYTES))
}

impl Packing for Units {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        let placement = self.packed.place(bytes, arrival, log);
        self.packed.skip_to(align_to_unit(self.packed.frontier()));
        placement
    }

    fn skip_to(&mut self, at: u64) {
        self.packed.skip_to(align_to_unit(at));
    }

    fn oldest_open(&self) -> u64 {
        self.packed.oldest_open()
    }

    fn frontier(&self) -> u64 {
        self.packed.frontier()
    }

    fn save(&self) -> Vec<u8> {
        self.packed.save()
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let mut packed = All::default();
        let fits = packed.restore(saved) && align_to_unit(packed.frontier()) == packed.frontier();
        if fits {
            self.packed = packed;
        }
        fits
    }
}
