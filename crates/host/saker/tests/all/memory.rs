//! A cache's memory, as the allocator counts it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kvdrive_content::Region;
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_saker::{NoSteps, Read, SakerConfig};

use crate::drive::{key, saker};

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed: each test has its own thread.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

/// Memory that the C library's allocator takes for a layout: a head of 8 bytes, in steps of 16.
fn taken(layout: Layout) -> u64 {
    (layout.size() as u64 + 8).next_multiple_of(16).max(32)
}

#[expect(unsafe_code, reason = "an allocator is unsafe code; this one counts, and calls the system's")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.with(|live| live.set(live.get() + taken(layout) as i64));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.with(|live| live.set(live.get() - taken(layout) as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The library's cache takes as much memory as it was given: at most a tenth more, and at least two fifths,
/// since tables grow by doubling. Sizes of values below and above those kept in place; caches whose tables
/// have just grown, or are about to.
#[test]
fn a_cache_takes_the_memory_that_it_was_given() {
    let sizes = [1, 16, 64, 500].into_iter().flat_map(|value| [3_u64, 4, 5, 6].map(|mib| (value, mib << 20)));
    for (row, (value_bytes, cache_bytes)) in
        EVICTIONS.iter().flat_map(|row| sizes.clone().map(move |size| (row, size)))
    {
        let mut config = SakerConfig::default();
        (config.cache.bytes, config.cache.eviction) = (cache_bytes, row.name.into());
        let saker = saker(config);
        let mut client = saker.client();
        let value = Region::from_bytes(vec![1; value_bytes]);
        let before = LIVE.with(Cell::get);
        for number in 0..3 * cache_bytes / (100 + value_bytes as u64) {
            let Read::Ask(ask) = client.retrieve(key(number), &mut Region::new(), &mut NoSteps) else {
                panic!("key {number} was never read")
            };
            client.fill(ask, &value, value_bytes as u32, &mut NoSteps);
        }
        let taken = LIVE.with(Cell::get) - before;
        let ratio = taken as f64 / cache_bytes as f64;
        assert!(saker.cache_bytes() <= cache_bytes && saker.cache_bytes() > cache_bytes / 10 * 9);
        assert!(
            (0.4..=1.1).contains(&ratio),
            "{} of {cache_bytes} B with values of {value_bytes} B takes {taken} B",
            row.name
        );
    }
}
