//! `backfill`: DMA'd values go to slot boundaries ahead, and small values fill the gaps before them.
//!
//! ```text
//!        write pointer            DMA log table: (a, 2048) (b, 5000)
//!        v                                                          frontier
//!  ######......[ DMA'd value at a ]..........[ DMA'd value at b  ]..v
//!        small values go here      ... then here ...              ... then here
//! ```
//!
//! There are two pointers. A DMA'd value goes to the frontier and gets an entry in the table; the write
//! pointer stays. A small value goes to the write pointer. If it would overlap the oldest DMA'd value of the
//! table, the pointer first jumps to the end of that value, and the rest of the gap is lost for good (there
//! is no list of gaps; BandSlim, section 3.3).
//!
//! The papers leave two cases open: a full table (here the oldest entry is dropped, as if the pointer had
//! reached it), and a page with a gap that must leave the buffer (here [`Packing::skip_to`]).
//!
//! Address order is not time order: a small value may be younger than a DMA'd one at a higher address.

use std::collections::VecDeque;

use kvdrive_link::Arrival;

use super::{LINEAR_END, LogView, Packing, Placement, SLOT_BYTES, align_to_slot};

/// Bytes of a table entry in a saved state: a slot and a length, 4 B each, as in BandSlim (section 3.3.3). The paper has
/// the number of a page of flash and of a slot in it, 28 bits; here it is the distance of the slot from the frontier, since
/// the log's addresses only grow.
const ENTRY_BYTES: usize = 8;
/// The bits of a saved frontier that say how entries are saved; a frontier is on a slot boundary, so that they are free.
/// 0: as address and length, 12 B, as up to 0.2.0.
const FORM_BITS: u64 = SLOT_BYTES as u64 - 1;
const BY_SLOT: u64 = 1;

/// A DMA'd value that the write pointer has not passed.
#[derive(Clone, Copy, Debug)]
struct Logged {
    at: u64,
    bytes: u32,
}

impl Logged {
    fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }
}

/// See the head of this file.
///
/// Invariants: table entries ascend and are disjoint; the write pointer is at or before the first one; the
/// frontier is on a slot boundary at or beyond the end of the last one and the write pointer.
#[derive(Debug)]
pub struct Backfill {
    write_pointer: u64,
    frontier: u64,
    table: VecDeque<Logged>,
    capacity: usize,
    table_full_jumps: u64,
}

impl Backfill {
    /// Bytes of a saved state with a full table of `dlt_entries`: two pointers, and the entries.
    pub fn state_bytes(dlt_entries: u32) -> u64 {
        16 + ENTRY_BYTES as u64 * u64::from(dlt_entries)
    }

    /// With room for `dlt_entries` (at least 1) DMA'd values in the table.
    pub fn new(dlt_entries: u32) -> Backfill {
        assert!(dlt_entries > 0, "backfill needs a DMA log table");
        Backfill {
            write_pointer: 0,
            frontier: 0,
            table: VecDeque::with_capacity(dlt_entries as usize),
            capacity: dlt_entries as usize,
            table_full_jumps: 0,
        }
    }

    /// Moves the write pointer to the end of the oldest DMA'd value.
    fn pass_oldest(&mut self) {
        if let Some(oldest) = self.table.pop_front() {
            self.write_pointer = self.write_pointer.max(oldest.end());
        }
    }

    fn place_small(&mut self, bytes: u32, log: &LogView) -> u64 {
        let at = loop {
            let at = log.uncrossed(self.write_pointer, bytes);
            match self.table.front() {
                Some(oldest) if at + u64::from(bytes) > oldest.at => self.pass_oldest(),
                _ => break at,
            }
        };
        self.write_pointer = at + u64::from(bytes);
        self.frontier = self.frontier.max(align_to_slot(self.write_pointer));
        at
    }

    fn place_dma(&mut self, bytes: u32, log: &LogView) -> u64 {
        if self.table.len() == self.capacity {
            self.pass_oldest();
            self.table_full_jumps += 1;
        }
        let at = log.uncrossed_slots(self.frontier, bytes);
        self.frontier = align_to_slot(at + u64::from(bytes));
        self.table.push_back(Logged { at, bytes });
        at
    }
}

impl Packing for Backfill {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        let at = match arrival {
            _ if bytes == 0 => self.write_pointer,
            Arrival::Inline => self.place_small(bytes, log),
            Arrival::Dma | Arrival::Hybrid => self.place_dma(bytes, log),
        };
        Placement { at, copied_bytes: 0 }
    }

    fn skip_to(&mut self, at: u64) {
        self.write_pointer = self.write_pointer.max(at);
        while self.table.front().is_some_and(|oldest| oldest.at < self.write_pointer) {
            self.pass_oldest();
        }
        self.frontier = self.frontier.max(align_to_slot(self.write_pointer));
    }

    fn oldest_open(&self) -> u64 {
        self.write_pointer
    }

    fn frontier(&self) -> u64 {
        self.frontier
    }

    fn table_full_jumps(&self) -> u64 {
        self.table_full_jumps
    }

    /// Write pointer, frontier with the form of the entries, then for each entry the slots from it to the frontier, and
    /// its bytes.
    fn save(&self) -> Vec<u8> {
        let mut saved = Vec::with_capacity(16 + ENTRY_BYTES * self.table.len());
        saved.extend_from_slice(&self.write_pointer.to_le_bytes());
        saved.extend_from_slice(&(self.frontier | BY_SLOT).to_le_bytes());
        for logged in &self.table {
            let before = self.frontier - logged.at;
            assert!(before.is_multiple_of(u64::from(SLOT_BYTES)), "DMA'd values lie on slot boundaries");
            let slots =
                u32::try_from(before / u64::from(SLOT_BYTES)).expect("a table covers less than 16 TiB");
            saved.extend_from_slice(&slots.to_le_bytes());
            saved.extend_from_slice(&logged.bytes.to_le_bytes());
        }
        saved
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let Some((pointers, entries)) = saved.split_first_chunk::<16>() else {
            return false;
        };
        let (write_pointer, frontier) = (word(&pointers[..8]), word(&pointers[8..]));
        let (frontier, form) = (frontier & !FORM_BITS, frontier & FORM_BITS);
        let Some(entries) = saved_entries(entries, form, frontier) else { return false };
        let mut reached = write_pointer;
        let mut table = VecDeque::with_capacity(self.capacity);
        for logged in entries {
            let Some(end) = logged.at.checked_add(u64::from(logged.bytes)) else {
                return false;
            };
            if logged.at < reached || logged.bytes == 0 {
                return false;
            }
            reached = end;
            table.push_back(logged);
        }
        if reached > frontier || frontier > LINEAR_END || table.len() > self.capacity {
            return false;
        }
        self.write_pointer = write_pointer;
        self.frontier = frontier;
        self.table = table;
        true
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn half(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

/// The entries of a saved table before `frontier`; `None`: they are damaged.
fn saved_entries(saved: &[u8], form: u64, frontier: u64) -> Option<Vec<Logged>> {
    match form {
        0 => {
            let (entries, rest) = saved.as_chunks::<12>();
            let logged = |entry: &[u8; 12]| Logged { at: word(&entry[..8]), bytes: half(&entry[8..]) };
            rest.is_empty().then(|| entries.iter().map(logged).collect())
        }
        BY_SLOT => {
            let (entries, rest) = saved.as_chunks::<ENTRY_BYTES>();
            let logged = |entry: &[u8; ENTRY_BYTES]| {
                let at = frontier.checked_sub(u64::from(half(&entry[..4])) * u64::from(SLOT_BYTES))?;
                Some(Logged { at, bytes: half(&entry[4..]) })
            };
            rest.is_empty().then(|| entries.iter().map(logged).collect())?
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(frontier: u64, entries: &[&[u8]]) -> Vec<u8> {
        [&100_u64.to_le_bytes()[..], &frontier.to_le_bytes(), &entries.concat()].concat()
    }

    #[test]
    fn an_entry_takes_eight_bytes_and_a_state_of_0_2_0_is_read() {
        let mut old = Backfill::new(4);
        let entries = [(4096_u64, 2048_u32), (8192, 5000)];
        let bytes = entries.map(|(at, bytes)| [&at.to_le_bytes()[..], &bytes.to_le_bytes()].concat());
        assert!(old.restore(&saved(16384, &[&bytes[0], &bytes[1]])));
        let now = old.save();
        assert_eq!(now.len(), 16 + 2 * 8);
        assert_eq!(now.len() as u64 + 2 * 8, Backfill::state_bytes(4));
        let mut new = Backfill::new(4);
        assert!(new.restore(&now));
        assert_eq!(format!("{new:?}"), format!("{old:?}"));
        // The slot before the frontier by more than there is, another form, and half an entry.
        let entry = [&5_u32.to_le_bytes()[..], &1_u32.to_le_bytes()].concat();
        assert!(!new.restore(&saved(16384 | BY_SLOT, &[&entry])));
        assert!(
            !new.restore(&saved(16384 | 2, &[])) && !new.restore(&saved(16384 | BY_SLOT, &[&entry[..4]]))
        );
        assert_eq!(new.save(), now, "what cannot be read changes nothing");
    }
}
