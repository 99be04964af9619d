//! The steps of the stores, on pages in memory: a page that is read is shared, not copied, and costs only its
//! memory accesses.

use std::hint::black_box;
use std::rc::Rc;

use kvdrive_nvme::Key;
use kvdrive_store::lsmtree::LsmtreeOptions;
use kvdrive_store::memory::{CountingCpu, MemoryPages};
use kvdrive_store::{Ground, Step, Store, StoreOptions, Thread, do_background, store_row};

use super::exercise::{Exercise, KEY_BYTES, Sample, WorkingSet, key_of, random_keys};
use kvdrive_text::grouped;

const MAIN: Thread = Thread(0);
pub(super) const PAGE_BYTES: u32 = 4096;
/// Bytes of a memtable: RocksDB's default.
pub(super) const MEMTABLE_BYTES: u64 = 64 << 20;
/// Approximate bytes charged for a pair in a memtable besides key and value.
const MEMTABLE_PAIR_BYTES: u64 = 48;
/// Bits of a filter per key, the usual setting for RocksDB.
pub(super) const BLOOM_BITS: u32 = 10;
/// Pages that stores need besides those of pairs; `lsmtree` needs them for its log and for merges of whole
/// memtables.
const SPARE_PAGES: u64 = 1 << 14;
const SPARE_PAGES_OF_LSMTREE: u64 = 1 << 20;

/// A store over pages in memory.
pub(super) struct Rig {
    store: Rc<dyn Store>,
    cpu: Rc<CountingCpu>,
    value: Vec<u8>,
}

impl Rig {
    /// A store with room for `pairs` pairs.
    pub fn new(
        name: &str,
        (page_bytes, value_bytes): (u32, u32),
        pairs: u64,
        set: impl FnOnce(&mut StoreOptions),
    ) -> Rc<Rig> {
        let row = store_row(name).expect("it is a row of the table");
        // 32 B for heads of records and pages, and a factor of 3 for nodes that are half full.
        let bytes = pairs * (KEY_BYTES + u64::from(value_bytes) + 32) * 3;
        let pages = bytes.div_ceil(page_bytes.into())
            + if name == "lsmtree" { SPARE_PAGES_OF_LSMTREE } else { SPARE_PAGES };
        let mut options = StoreOptions::default();
        options.hashlog.block_bytes = page_bytes;
        set(&mut options);
        (row.fit)(&mut options, page_bytes, pages, 1);
        (row.check)(&options, page_bytes, pages, 1).expect("these options go with so many pages");
        let cpu = Rc::new(CountingCpu::default());
        let pages = Rc::new(MemoryPages::new(page_bytes, pages));
        let store = (row.make)(&options, Ground { pages, cpu: cpu.clone(), threads: 1 });
        store.recover(MAIN).expect("blank pages are an empty store");
        Rc::new(Rig { store, cpu, value: vec![7; value_bytes as usize] })
    }

    pub fn put(&self, key: Key) {
        self.store.put(MAIN, key, self.value[..].into()).expect("there is room");
    }

    pub fn load(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.put(key_of(number));
            self.do_background();
        }
    }

    /// Asserts that a pair exists, or does not.
    pub fn get(&self, key: Key, is_there: bool) {
        let found = self.store.get(MAIN, key).expect("its pages are whole");
        assert_eq!(black_box(found).is_some(), is_there, "{key}");
    }

    pub fn sync(&self) {
        self.store.sync(MAIN).expect("its pages take everything");
    }

    /// Does all background work that is due.
    pub fn do_background(&self) {
        do_background(&*self.store, MAIN);
    }

    pub fn sample(&self, keys: &[Key], call: impl Fn(&Rig, Key)) -> Sample {
        self.sample_of(keys.len() as u64, |at| call(self, keys[at as usize]))
    }

    pub fn sample_of(&self, calls: u64, call: impl FnMut(u64)) -> Sample {
        self.cpu.take_steps();
        let counted = || {
            let steps = Step::ALL.iter().map(|(step, _)| step.key()).zip(self.cpu.take_steps());
            steps.filter(|(_, count)| *count > 0).map(|(key, count)| (key, count as f64)).collect()
        };
        Sample::of(calls, call, counted)
    }
}

/// Costs of a byte of a checksum and of a copied byte: long values, or large pages, compared with short ones.
pub(super) fn bytes(set: &WorkingSet) -> Vec<Exercise> {
    let count = set.calls().min(4000);
    let only = |step: Step, mut sample: Sample| {
        sample.steps.retain(|key, _| *key == step.key());
        sample
    };
    // One value per page.
    let [large, small] = [(16384, 16000), (4096, 3800)].map(|sizes| {
        let rig = Rig::new("hashlog", sizes, 2 * count, |_| {});
        rig.load(0..count);
        rig.sync();
        rig
    });
    let keys = random_keys(count, 0, count);
    let what = format!("pages of 16384 B against 4096 B, {} of them", grouped(count));
    let checksum = Exercise::new(Step::key(Step::ChecksumByte), what, move || {
        let [large, small] = [&large, &small].map(|rig| rig.sample(&keys, |rig, key| rig.get(key, true)));
        only(Step::ChecksumByte, large.minus(&small))
    });
    // The store is not synchronised and never full, so a put only copies and computes checksums.
    let calls = set.calls();
    let [long, short] = [1024, 16].map(|bytes| {
        Rig::new("hashlog", (PAGE_BYTES, bytes), calls * u64::from(set.repetitions + 2), |_| {})
    });
    let what = format!("puts of 1024 B against 16 B, {} pairs", grouped(calls));
    let copy = Exercise::new(Step::key(Step::CopyByte), what, move || {
        let keys = random_keys(calls, 0, calls);
        let [long, short] = [&long, &short].map(|rig| rig.sample(&keys, |rig, key| rig.put(key)));
        let mut more = long.minus(&short);
        more.steps.retain(|key, _| [Step::CopyByte, Step::ChecksumByte].map(Step::key).contains(key));
        more
    });
    vec![checksum, copy]
}

/// The index in memory, and reads through it.
pub(super) fn hashlog(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls) = (set.pairs, set.calls());
    let put = calls * u64::from(set.repetitions + 1);
    let rig = Rig::new("hashlog", (PAGE_BYTES, set.value_bytes), pairs + put, |_| {});
    rig.load(0..pairs);
    rig.sync();
    let exercise = |step: Step, what: &str, keys: Vec<Key>, call: fn(&Rig, Key)| {
        let rig = rig.clone();
        let of = set.describe(pairs, &format!("in hashlog, {what}"));
        Exercise::new(step.key(), of, move || rig.sample(&keys, call))
    };
    let probe =
        exercise(Step::Probe, "gets of absent keys", random_keys(calls, pairs, 2 * pairs), |rig, key| {
            rig.get(key, false);
        });
    let search =
        exercise(Step::BlockSearch, "gets", random_keys(calls, 0, pairs), |rig, key| rig.get(key, true));
    let insert = exercise(Step::Insert, "overwrites", random_keys(calls, 0, pairs), |rig, key| rig.put(key));
    let sorted = rig.clone();
    let compare = Exercise::new(
        Step::key(Step::Compare),
        set.describe(pairs, "in hashlog, a cursor is opened"),
        move || {
            sorted.sample_of(1, |_| {
                black_box(sorted.store.cursor(MAIN, None).expect("it only copies its index"));
            })
        },
    );
    // Puts come last: a block search would otherwise meet pages that are still open.
    vec![probe, search, compare, insert]
}

/// Pairs of a memtable that is half full.
pub(super) fn half_a_memtable(set: &WorkingSet) -> u64 {
    let each = MEMTABLE_PAIR_BYTES + KEY_BYTES + u64::from(set.value_bytes);
    (MEMTABLE_BYTES / 2 / each).min(set.pairs)
}

/// A memtable of `lsmtree`, log included.
pub(super) fn memtable(set: &WorkingSet) -> Vec<Exercise> {
    let pairs = half_a_memtable(set);
    // All repetitions find room in the other half of the memtable.
    let calls = set.calls().min(pairs / u64::from(set.repetitions + 2)).max(1);
    let rig = Rig::new("lsmtree", (PAGE_BYTES, set.value_bytes), 4 * pairs, |options| {
        options.lsmtree.write_buffer_size = MEMTABLE_BYTES;
    });
    rig.load(0..pairs);
    let searched = rig.clone();
    let keys = random_keys(calls, 0, pairs);
    let search = Exercise::new(
        Step::key(Step::MemtableLevel),
        set.describe(pairs, "in a memtable, gets"),
        move || searched.sample(&keys, |rig, key| rig.get(key, true)),
    );
    let mut next = pairs;
    let insert = Exercise::new(
        Step::key(Step::MemtableInsert),
        set.describe(pairs, "in a memtable, puts of new keys"),
        move || {
            let keys: Vec<Key> = (next..next + calls).map(key_of).collect();
            next += calls;
            rig.sample(&keys, |rig, key| rig.put(key))
        },
    );
    vec![search, insert]
}

/// Bytes of the caches of an LSM-tree.
#[derive(Clone, Copy)]
pub(super) struct Caches {
    pub row_bytes: u64,
    pub block_bytes: u64,
}

pub(super) const NO_CACHES: Caches = Caches { row_bytes: 0, block_bytes: 0 };
/// Blocks of a cache so small that few gets find their block in it, even if tables are as small as the
/// command allows.
pub(super) const FEW_BLOCKS: u64 = 2;

impl Caches {
    pub fn set(self, options: &mut LsmtreeOptions) {
        options.row_cache_bytes = self.row_bytes;
        options.block_cache_bytes = self.block_bytes;
    }
}

/// Tables of `lsmtree` below a memtable that is half full.
pub(super) fn tables(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls, memtable) = (set.pairs, set.calls(), half_a_memtable(set));
    let tree = |caches: Caches, bloom_bits: u32, has_memtable: bool| {
        let rig = Rig::new("lsmtree", (PAGE_BYTES, set.value_bytes), 2 * pairs, |options| {
            options.lsmtree.write_buffer_size = MEMTABLE_BYTES;
            caches.set(&mut options.lsmtree);
            options.lsmtree.bloom_bits = bloom_bits;
            // Without a log, a sync writes the memtable to a table.
            options.lsmtree.wal = false;
        });
        rig.load(0..pairs);
        rig.sync();
        if has_memtable {
            rig.load(2 * pairs..2 * pairs + memtable);
        }
        rig
    };
    let exercise = |step: Step, what: &str, rig: &Rc<Rig>, keys: Vec<Key>, is_there: bool| {
        let (rig, of) = (rig.clone(), set.describe(pairs, &format!("in tables, {what}")));
        Exercise::new(step.key(), of, move || rig.sample(&keys, |rig, key| rig.get(key, is_there)))
    };
    let search =
        exercise(Step::IndexSearch, "gets", &tree(NO_CACHES, 0, true), random_keys(calls, 0, pairs), true);
    let filtered = tree(NO_CACHES, BLOOM_BITS, false);
    let others = random_keys(calls, pairs, 2 * pairs);
    let of =
        set.describe(pairs, "in tables, gets of absent keys, in the range of the tables against beyond it");
    // A filter lets some absent keys pass. The block search that they cost was measured above.
    let bloom = Exercise::new(Step::key(Step::BloomCheck), of, move || {
        let beyond = vec![Key::from_u64_be(u64::MAX); others.len()];
        let [some, none] =
            [&others, &beyond].map(|keys| filtered.sample(keys, |rig, key| rig.get(key, false)));
        some.minus(&none)
    });
    // Three times as many rows are outside of the cache and read in turn, so none is read again before it was
    // evicted.
    let cached = pairs / 4;
    let row_bytes =
        u64::from(StoreOptions::default().lsmtree.row_bytes) + KEY_BYTES + u64::from(set.value_bytes);
    let rows = tree(Caches { row_bytes: cached * row_bytes, block_bytes: 0 }, 0, true);
    (0..cached).for_each(|number| rows.get(key_of(number), true));
    let some = format!("gets of {} rows in the row cache", grouped(cached));
    let probe = exercise(Step::RowProbe, &some, &rows, random_keys(calls, 0, cached), true);
    let (mut next, of) = (0, set.describe(pairs, "in tables, gets of rows that evict others"));
    let insert = Exercise::new(Step::key(Step::RowInsert), of, move || {
        let keys: Vec<Key> =
            (next..next + calls).map(|number| key_of(cached + number % (pairs - cached))).collect();
        next += calls;
        rows.sample(&keys, |rig, key| rig.get(key, true))
    });
    // Hardly any block is in the cache.
    let few = Caches { row_bytes: 0, block_bytes: FEW_BLOCKS * u64::from(PAGE_BYTES) };
    let keys = random_keys(calls, 0, pairs);
    let fill = exercise(Step::BlockInsert, "gets with a small block cache", &tree(few, 0, true), keys, true);
    vec![search, bloom, probe, insert, fill]
}

/// Tables that are merged: four of level 0 with level 1.
pub(super) fn merges(set: &WorkingSet) -> Vec<Exercise> {
    let each = set.calls();
    let rig = Rig::new("lsmtree", (PAGE_BYTES, set.value_bytes), 16 * each, |options| {
        options.lsmtree.write_buffer_size = 4 * each * (KEY_BYTES + u64::from(set.value_bytes) + 64);
        options.lsmtree.wal = false;
    });
    let of = format!("4 tables of {} pairs are merged into their level", grouped(each));
    let repeat = move || {
        for _ in 0..4 {
            rig.load(0..each);
            rig.sync();
        }
        rig.sample_of(1, |_| rig.do_background())
    };
    vec![Exercise::new(Step::key(Step::MergeEntry), of, repeat)]
}

/// A tree whose nodes are in its buffer.
pub(super) fn tree(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls) = (set.pairs, set.calls());
    let put = calls * u64::from(set.repetitions + 1);
    let rig = Rig::new("btree", (PAGE_BYTES, set.value_bytes), pairs + put, |options| {
        options.btree.buffer_bytes = 3 * (pairs + put) * (KEY_BYTES + u64::from(set.value_bytes) + 16);
        options.btree.buffer_bytes = options.btree.buffer_bytes.max(1 << 20);
        options.btree.checkpoint_bytes = u64::MAX;
    });
    rig.load(0..pairs);
    let exercise = |step: Step, what: &str, call: fn(&Rig, Key)| {
        let (rig, keys) = (rig.clone(), random_keys(calls, 0, pairs));
        let of = set.describe(pairs, &format!("in btree, {what}"));
        Exercise::new(step.key(), of, move || rig.sample(&keys, call))
    };
    let search = exercise(Step::NodeSearch, "gets", |rig, key| rig.get(key, true));
    let insert = exercise(Step::NodeInsert, "overwrites", |rig, key| rig.put(key));
    let (copied, keys) = (rig.clone(), random_keys(calls, 0, pairs));
    let of = set.describe(pairs, "in btree, puts after a checkpoint");
    let shadow = Exercise::new(Step::key(Step::Shadow), of, move || {
        copied.sync();
        copied.sample(&keys, |rig, key| rig.put(key))
    });
    let mut next = pairs;
    let of = set.describe(pairs, "in btree, puts of others");
    let split = Exercise::new(Step::key(Step::Split), of, move || {
        let keys: Vec<Key> = (next..next + calls).map(key_of).collect();
        next += calls;
        rig.sample(&keys, |rig, key| rig.put(key))
    });
    vec![search, insert, shadow, split]
}
