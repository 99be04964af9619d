//! A page of which parts were let go: what is left of its bytes, without holes.
//!
//! ```text
//!   grains u32 | present: u64 a 64 grains, bit by bit | the present grains of 16 B, one behind the other
//! ```

use std::rc::Rc;

use kvdrive_link::{Piece, Region, zeros};

/// What is kept or let go as one, bytes.
pub const GRAIN_BYTES: u32 = 16;
const HEAD_BYTES: usize = 4;

/// Which grains of a page are there.
#[derive(Clone)]
pub struct Grains {
    words: Vec<u64>,
    page_grains: u32,
    count: u32,
}

impl Grains {
    /// All of a page of `count` grains.
    pub fn all(count: u32) -> Grains {
        let words =
            (0..count.div_ceil(64)).map(|word| u64::MAX >> (64 - (count - word * 64).min(64))).collect();
        Grains { words, page_grains: count, count }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes out those that lie within `bytes` bytes from `at` on.
    pub fn remove(&mut self, at: u32, bytes: u32) {
        let end = ((at + bytes) / GRAIN_BYTES).min(self.page_grains);
        let mut grain = at.div_ceil(GRAIN_BYTES);
        while grain < end {
            let stop = end.min((grain / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (stop - grain))) << (grain % 64);
            let word = &mut self.words[(grain / 64) as usize];
            self.count -= (*word & mask).count_ones();
            *word &= !mask;
            grain = stop;
        }
    }
}

/// The grain behind those that follow `grain` without a gap, it included; `grain` itself if it is not there.
fn end_of_run(word: impl Fn(u32) -> u64, grain: u32, page_grains: u32) -> u32 {
    let mut here = grain;
    while here < page_grains {
        let ones = (word(here / 64) >> (here % 64)).trailing_ones();
        here += ones;
        if ones == 0 || !here.is_multiple_of(64) {
            break;
        }
    }
    here
}

/// Some grains of a page. Clones share them.
#[derive(Clone)]
pub struct Thin(Rc<[u8]>);

impl Thin {
    /// `grains` of a page; `read` hands out its bytes.
    pub fn new(grains: &Grains, read: impl Fn(u32, u32, &mut dyn FnMut(Piece<'_>))) -> Thin {
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + 8 * grains.words.len() + (grains.count * GRAIN_BYTES) as usize);
        bytes.extend_from_slice(&grains.page_grains.to_le_bytes());
        grains.words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let mut grain = 0;
        while grain < grains.page_grains {
            let end = end_of_run(|index| grains.words[index as usize], grain, grains.page_grains);
            read(grain * GRAIN_BYTES, (end - grain) * GRAIN_BYTES, &mut |piece| {
                let from = bytes.len();
                bytes.resize(from + piece.bytes() as usize, 0);
                piece.expand(&mut bytes[from..]);
            });
            grain = end.max(grain + 1);
        }
        Thin(bytes.into())
    }

    /// Grains of the whole page.
    fn grains(&self) -> u32 {
        u32::from_le_bytes(self.0[..HEAD_BYTES].try_into().expect("4 bytes"))
    }

    fn word(&self, index: u32) -> u64 {
        let at = HEAD_BYTES + 8 * index as usize;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    fn has(&self, grain: u32) -> bool {
        self.word(grain / 64) >> (grain % 64) & 1 == 1
    }

    /// Where a grain that is there lies.
    fn place(&self, grain: u32) -> usize {
        let below = (self.word(grain / 64) & ((1 << (grain % 64)) - 1)).count_ones();
        let before: u32 = (0..grain / 64).map(|index| self.word(index).count_ones()).sum();
        HEAD_BYTES + 8 * self.grains().div_ceil(64) as usize + ((before + below) * GRAIN_BYTES) as usize
    }

    /// Hands out `bytes` bytes of the page from `at` on; zeros behind its end.
    ///
    /// # Panics
    /// A part of them was let go.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let (mut here, end) = (at, at + bytes);
        while here < end {
            let (grain, within) = (here / GRAIN_BYTES, here % GRAIN_BYTES);
            if grain >= self.grains() {
                return zeros(end - here, sink);
            }
            assert!(self.has(grain), "byte {here} of a page is read after it was discarded");
            let run_end = end_of_run(|index| self.word(index), grain, self.grains());
            let stop = end.min(run_end * GRAIN_BYTES);
            let from = self.place(grain) + within as usize;
            sink(Piece::Bytes(&self.0[from..from + (stop - here) as usize]));
            here = stop;
        }
    }

    /// The page, with zeros for what was let go.
    pub fn unpack(&self) -> Region {
        let mut region = Region::new();
        for grain in (0..self.grains()).filter(|grain| self.has(*grain)) {
            let from = self.place(grain);
            region.write(grain * GRAIN_BYTES, Piece::Bytes(&self.0[from..from + GRAIN_BYTES as usize]));
        }
        region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_reads_as_before() {
        let page: Vec<u8> = (0..5000u32).map(|byte| (byte % 251) as u8).collect();
        let region = Region::from_bytes(page.clone());
        let mut grains = Grains::all(5000u32.div_ceil(GRAIN_BYTES));
        assert_eq!(grains.count(), 313);
        let mut thin = Thin::new(&grains, |at, bytes, sink| region.read(at, bytes, sink));
        for (at, bytes) in [(100, 900), (4100, 15), (1024, 2048), (4976, 200)] {
            grains.remove(at, bytes);
            let before = thin.clone();
            thin = Thin::new(&grains, |at, bytes, sink| before.read(at, bytes, sink));
        }
        // Whole grains alone: 7 to 61, none, 64 to 191, 311 and 312.
        let is_gone = |at: usize| matches!(at as u32 / GRAIN_BYTES, 7..=61 | 64..=191 | 311..=312);
        assert_eq!(grains.count(), 313 - 55 - 128 - 2);
        let all = thin.unpack().to_bytes(6000);
        for (at, byte) in all.iter().enumerate() {
            let expected = if is_gone(at) { 0 } else { page.get(at).copied().unwrap_or(0) };
            assert_eq!(*byte, expected, "byte {at}");
        }
        for (at, bytes) in [(0, 112), (10, 90), (1000, 20), (3072, 1900), (5010, 100)] {
            let mut read = Vec::new();
            thin.read(at, bytes, &mut |piece| {
                let from = read.len();
                read.resize(from + piece.bytes() as usize, 0);
                piece.expand(&mut read[from..]);
            });
            assert_eq!(read, all[at as usize..(at + bytes) as usize]);
        }
    }

    #[test]
    #[should_panic(expected = "byte 112 of a page is read after it was discarded")]
    fn what_was_let_go_cannot_be_read() {
        let mut grains = Grains::all(32);
        grains.remove(112, 64);
        let thin = Thin::new(&grains, |_, bytes, sink| sink(Piece::Bytes(&vec![1; bytes as usize])));
        thin.read(100, 60, &mut |_| {});
    }
}
