//! Pages of an image file that were read and whose checks were right, in a bounded amount of memory, so that the next
//! lookup of one needs no system call and no check; and, for pages that are not kept, the checks that their headers name,
//! so that reading one is a single system call.
//!
//! It is no copy of the file that anything is written through: a page enters when it is read, and leaves when it is
//! programmed, erased, torn or blanked. What happens to the file beside this program (a sector that goes bad, a byte that
//! another program changes) is seen by the next read that reaches the file. The file is not mapped: a mapping answers a sector that
//! cannot be read with a signal, where a drive has to answer 88h.
//!
//! A page's place is one of the [`WAYS`] of a set that its address names. A set is a clock: a page that was found since the
//! hand passed it stays once more, so that pages of values, each read once, do not push out those of the index.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvdrive_content::Region;

use crate::geometry::{BlockId, Geometry, Ppa};

/// Pages of a set.
const WAYS: usize = 8;

/// Bytes of all pages that drives of this program keep at the moment.
static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Memory of all kept pages of drives in files of this program, for reports of the program's memory.
pub fn kept_bytes() -> u64 {
    KEPT_BYTES.load(Relaxed)
}

struct Way {
    ppa: Ppa,
    page: Rc<Region>,
    /// It was found since the hand passed.
    is_found: bool,
}

#[derive(Default)]
struct Set {
    ways: Vec<Way>,
    hand: usize,
}

/// The pages and checks of one file.
pub(super) struct PageCache {
    page_bytes: usize,
    /// None if no page is to be kept.
    sets: Vec<Set>,
    /// Most pages of a set.
    ways: usize,
    /// Memory of a page that left, for the next one that is read.
    idle: Option<Rc<Region>>,
    /// By block, and then by page: the check of a page whose header is known to be whole and not that of a lost page; 0:
    /// unknown.
    checks: Vec<Option<Box<[u64]>>>,
    pages_per_block: usize,
}

impl PageCache {
    /// Of a file of `geometry`; keeps at most `bytes` bytes of pages.
    pub(super) fn new(geometry: &Geometry, bytes: u64) -> PageCache {
        let page_bytes = geometry.page_bytes as usize;
        let pages = bytes / u64::from(geometry.page_bytes);
        let pages = pages.min(geometry.pages()) as usize;
        let (sets, ways) = if pages < WAYS { (pages.min(1), pages) } else { (pages / WAYS, WAYS) };
        PageCache {
            page_bytes,
            sets: std::iter::repeat_with(Set::default).take(sets).collect(),
            ways,
            idle: None,
            checks: std::iter::repeat_with(|| None).take(geometry.media_blocks() as usize).collect(),
            pages_per_block: geometry.pages_per_block as usize,
        }
    }

    fn set(&mut self, ppa: Ppa) -> Option<&mut Set> {
        // Neighbours in a block are in different sets, and so are pages at the same position of different blocks.
        let mixed = u64::from(ppa.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let index = (mixed * self.sets.len() as u64) >> 32;
        self.sets.get_mut(index as usize)
    }

    /// The page, if it is kept.
    pub(super) fn find(&mut self, ppa: Ppa) -> Option<Rc<Region>> {
        let way = self.set(ppa)?.ways.iter_mut().find(|way| way.ppa == ppa)?;
        way.is_found = true;
        Some(way.page.clone())
    }

    /// Memory of a page, with any content, for which there is no other use.
    pub(super) fn memory(&mut self) -> Rc<Region> {
        // Whoever still reads a page that left keeps its memory.
        let idle = self.idle.take().filter(|idle| Rc::strong_count(idle) == 1);
        idle.unwrap_or_else(|| Rc::new(Region::from_bytes(vec![0; self.page_bytes])))
    }

    /// Takes the memory of a page that is not kept any more.
    pub(super) fn give_back(&mut self, memory: Rc<Region>) {
        self.idle = Some(memory);
    }

    /// Keeps a page that was read and is whole.
    pub(super) fn keep(&mut self, ppa: Ppa, page: Rc<Region>) {
        let (most, page_bytes) = (self.ways, self.page_bytes as u64);
        let Some(set) = self.set(ppa) else { return self.give_back(page) };
        debug_assert!(set.ways.iter().all(|way| way.ppa != ppa), "a page that is kept is found");
        let way = Way { ppa, page, is_found: false };
        if set.ways.len() < most {
            KEPT_BYTES.fetch_add(page_bytes, Relaxed);
            return set.ways.push(way);
        }
        while std::mem::take(&mut set.ways[set.hand].is_found) {
            set.hand = (set.hand + 1) % most;
        }
        let left = std::mem::replace(&mut set.ways[set.hand], way);
        set.hand = (set.hand + 1) % most;
        self.give_back(left.page);
    }

    /// The check of a page whose header was read or written before.
    pub(super) fn check(&self, ppa: Ppa, block: BlockId) -> Option<u64> {
        let page = ppa.0 as usize % self.pages_per_block;
        self.checks[block.0 as usize].as_ref().map(|checks| checks[page]).filter(|check| *check != 0)
    }

    /// Notes the check in the header of a page that is not lost.
    pub(super) fn note_check(&mut self, ppa: Ppa, block: BlockId, check: u64) {
        let pages = self.pages_per_block;
        let of_block = &mut self.checks[block.0 as usize];
        of_block.get_or_insert_with(|| vec![0; pages].into())[ppa.0 as usize % pages] = check;
    }

    /// Forgets a page that is about to change.
    pub(super) fn forget(&mut self, ppa: Ppa, block: BlockId) {
        let pages = self.pages_per_block;
        if let Some(checks) = &mut self.checks[block.0 as usize] {
            checks[ppa.0 as usize % pages] = 0;
        }
        let page_bytes = self.page_bytes as u64;
        let Some(set) = self.set(ppa) else { return };
        if let Some(index) = set.ways.iter().position(|way| way.ppa == ppa) {
            let way = set.ways.swap_remove(index);
            set.hand = 0;
            KEPT_BYTES.fetch_sub(page_bytes, Relaxed);
            self.give_back(way.page);
        }
    }

    /// Forgets all pages of a block that is about to be erased.
    pub(super) fn forget_block(&mut self, pages: impl Iterator<Item = Ppa>, block: BlockId) {
        self.checks[block.0 as usize] = None;
        if !self.sets.is_empty() {
            pages.for_each(|ppa| self.forget(ppa, block));
        }
    }

    /// Bytes of the pages that are kept.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.sets.iter().map(|set| set.ways.len() as u64).sum::<u64>() * self.page_bytes as u64
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        let pages: usize = self.sets.iter().map(|set| set.ways.len()).sum();
        KEPT_BYTES.fetch_sub(pages as u64 * self.page_bytes as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u32 = 1024;

    fn cache(pages: u64) -> PageCache {
        let geometry = Geometry {
            channels: 1,
            dies_per_channel: 2,
            planes: 1,
            blocks_per_die: 64,
            pages_per_block: 16,
            page_bytes: PAGE_BYTES,
            spare_bytes: 256,
            spare_blocks: 0,
        };
        PageCache::new(&geometry, pages * u64::from(PAGE_BYTES))
    }

    /// Looks for a page as a reader does; returns whether it was kept.
    fn look(cache: &mut PageCache, ppa: u32) -> bool {
        if let Some(page) = cache.find(Ppa(ppa)) {
            assert_eq!(page.literal()[..4], ppa.to_le_bytes());
            return true;
        }
        let mut memory = cache.memory();
        let mut content = vec![0; PAGE_BYTES as usize];
        content[..4].copy_from_slice(&ppa.to_le_bytes());
        assert!(Rc::get_mut(&mut memory).expect("no other use").exchange(&mut content));
        cache.keep(Ppa(ppa), memory);
        false
    }

    #[test]
    fn no_more_pages_are_kept_than_fit() {
        for pages in [0, 1, 3, 8, 100, 1000, 1 << 40] {
            let mut cache = cache(pages);
            (0..2048).for_each(|ppa| _ = look(&mut cache, ppa));
            let (kept, all) = (cache.bytes() / u64::from(PAGE_BYTES), pages.min(2048));
            assert!(kept <= all && kept >= all * 7 / 10, "{kept} of {pages}");
        }
    }

    #[test]
    fn pages_that_are_found_again_stay_before_those_that_are_read_once() {
        let mut cache = cache(256);
        let mut found = 0;
        for round in 0..200 {
            found += (0..64).filter(|hot| look(&mut cache, *hot)).count();
            (0..64).for_each(|cold| _ = look(&mut cache, 64 + (round * 64 + cold) % 1984));
        }
        assert!(found > 190 * 64, "{found} of {}", 200 * 64);
    }

    #[test]
    fn a_page_that_changes_is_forgotten_with_its_check() {
        let mut cache = cache(64);
        let block = BlockId(1);
        (16..32).for_each(|ppa| {
            look(&mut cache, ppa);
            cache.note_check(Ppa(ppa), block, ppa.into());
        });
        assert_eq!((cache.check(Ppa(17), block), cache.check(Ppa(1), BlockId(0))), (Some(17), None));
        cache.forget(Ppa(17), block);
        assert_eq!((cache.check(Ppa(17), block), cache.check(Ppa(18), block)), (None, Some(18)));
        assert!(cache.find(Ppa(17)).is_none() && cache.find(Ppa(18)).is_some());
        cache.forget_block((16..32).map(Ppa), block);
        assert!((16..32).all(|ppa| cache.find(Ppa(ppa)).is_none() && cache.check(Ppa(ppa), block).is_none()));
        assert_eq!(cache.bytes(), 0);
    }
}
