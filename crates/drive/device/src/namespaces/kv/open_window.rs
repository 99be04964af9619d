//! One window into the page buffer: which of its bytes hold a value. A byte is taken by one value at most; the bytes of
//! a refused command are freed. Not here: which queue has which window ([`super::windows`]).

use kvdrive_engines::packing::SLOT_BYTES;
use kvdrive_link::transfer::window::lined;

/// Which bytes of a window hold a value.
struct Taken {
    /// A bit for each byte of the window: is it taken?
    bits: Vec<u64>,
    /// First byte after the last taken one.
    end: u32,
}

impl Taken {
    fn new(bytes: u32) -> Taken {
        Taken { bits: vec![0; bytes.div_ceil(64) as usize], end: 0 }
    }

    /// The words that `from..to` touches, each with the bits of it that are inside.
    fn words(from: u32, to: u32) -> impl Iterator<Item = (usize, u64)> {
        (from / 64..to.div_ceil(64)).map(move |word| {
            let (first, last) = ((word * 64).max(from) % 64, (word * 64 + 64).min(to) - word * 64);
            // A range of no bytes inside a word touches it and has none of its bits.
            (word as usize, u64::MAX.checked_shr(64 - (last - first)).unwrap_or(0) << first)
        })
    }

    /// The first byte after the last taken one in `from..to`; `None`: all of them are free.
    fn end_of_taken(&self, from: u32, to: u32) -> Option<u32> {
        Taken::words(from, to)
            .map(|(word, mask)| (word, self.bits[word] & mask))
            .filter(|(_, taken)| *taken != 0)
            .last()
            .map(|(word, taken)| word as u32 * 64 + 64 - taken.leading_zeros())
    }

    fn take(&mut self, from: u32, to: u32) {
        if from < to {
            Taken::words(from, to).for_each(|(word, mask)| self.bits[word] |= mask);
            self.end = self.end.max(to);
        }
    }

    /// Frees a range that [`Taken::take`] took.
    fn release(&mut self, from: u32, to: u32) {
        if from < to {
            Taken::words(from, to).for_each(|(word, mask)| self.bits[word] &= !mask);
            if self.end == to {
                self.end = self.end_of_taken(0, from).unwrap_or(0);
            }
        }
    }
}

/// An open window.
pub struct OpenWindow<W> {
    pub(super) generation: u32,
    /// The count of uses when it was opened or last took a value.
    pub(super) last_use: u64,
    pub(super) window: W,
    bytes: u32,
    taken: Taken,
}

impl<W> OpenWindow<W> {
    /// A window of `bytes` bytes, all of them free.
    pub(super) fn new(generation: u32, last_use: u64, window: W, bytes: u32) -> OpenWindow<W> {
        OpenWindow { generation, last_use, window, bytes, taken: Taken::new(bytes) }
    }

    /// The first byte after all values in it.
    pub(super) fn end(&self) -> u32 {
        self.taken.end
    }

    /// Takes `at..at + bytes` if it is inside and free.
    pub(super) fn take(&mut self, at: u32, bytes: u32) -> bool {
        let Some(end) = at.checked_add(bytes).filter(|end| *end <= self.bytes) else { return false };
        let free = self.taken.end_of_taken(at, end).is_none();
        if free {
            self.taken.take(at, end);
        }
        free
    }

    /// Takes `bytes` bytes at the first slot boundary at or after `from` where they are free; returns it.
    pub(super) fn take_slot(&mut self, from: u32, bytes: u32) -> Option<u32> {
        let mut at = from.checked_next_multiple_of(SLOT_BYTES)?;
        loop {
            let end = at.checked_add(bytes).filter(|end| *end <= self.bytes)?;
            match self.taken.end_of_taken(at, end) {
                Some(after) => at = after.next_multiple_of(SLOT_BYTES),
                None => {
                    self.taken.take(at, end);
                    return Some(at);
                }
            }
        }
    }

    /// Frees the bytes that a value had taken.
    pub(super) fn release(&mut self, at: u32, bytes: u32) {
        self.taken.release(at, at + bytes);
    }

    /// Would a host find room for a value of `bytes` bytes at or after `from`?
    pub(super) fn has_room(&self, mut from: u32, bytes: u32) -> bool {
        loop {
            let at = lined(from, bytes);
            let Some(end) = at.checked_add(bytes).filter(|end| *end <= self.bytes) else { return false };
            match self.taken.end_of_taken(at, end) {
                None => return true,
                Some(after) => from = after,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The bitmap against one flag a byte.
        #[test]
        fn bytes_are_taken_once(ranges in proptest::collection::vec((0u32..520, 0u32..200), 1..40)) {
            let mut open = OpenWindow::new(1, 0, (), 512);
            let mut flags = [false; 512];
            for (at, bytes) in ranges {
                let span = at as usize..(at + bytes) as usize;
                let free = span.end <= 512 && !flags[span.clone()].contains(&true);
                let fits = (0..512usize).any(|from| {
                    let at = lined(from as u32, bytes) as usize;
                    at >= span.start && at + bytes as usize <= 512
                        && !flags[at..at + bytes as usize].contains(&true)
                });
                prop_assert_eq!(open.has_room(at, bytes), fits);
                prop_assert_eq!(open.take(at, bytes), free);
                if free {
                    // Some are refused.
                    if bytes.is_multiple_of(3) {
                        open.release(at, bytes);
                    } else {
                        flags[span].fill(true);
                    }
                }
                let end = flags.iter().rposition(|taken| *taken).map_or(0, |last| last + 1);
                prop_assert_eq!(open.end() as usize, end);
            }
        }
    }
}
