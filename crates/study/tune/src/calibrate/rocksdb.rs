//! The steps of an LSM-tree, measured on RocksDB: the time is RocksDB's, the steps are those that `lsmtree`
//! takes in the same calls on the same pairs.
//!
//! RocksDB runs as in SAKER's paper, on its own files in memory (`env/mock_env.h`), with its defaults and
//! without compression; the time of those files is part of the result. Searches are measured in blocks of the
//! block cache, so `block_insert` includes that a block is fetched from its file and unpacked.

use std::ops::Range;
use std::rc::Rc;

use kvdrive_nvme::Key;
use kvdrive_sim::ProcessorTime;
use kvdrive_store::Step;
use kvdrive_store::lsmtree::LsmtreeOptions;
use kvdrive_store::rocksdb::{RocksDb, RocksDbOptions, RocksDbRows, version};
use kvdrive_text::grouped;

use super::exercise::{Exercise, KEY_BYTES, Sample, Steps, WorkingSet, key_of, random_keys};
use super::saker::{COPY, EVICT, INSERT, PROBE};
use super::stores::{
    BLOOM_BITS, Caches, FEW_BLOCKS, MEMTABLE_BYTES, NO_CACHES, PAGE_BYTES, Rig, half_a_memtable,
};

/// Bytes of block cache per byte of a pair: more than blocks take, so that the cache holds every block.
const ROOM_OF_BLOCKS: u64 = 3;

/// RocksDB, and `lsmtree` with the same pairs.
struct Both {
    timed: RocksDb,
    counted: Rc<Rig>,
    value: Vec<u8>,
}

impl Both {
    fn new(set: &WorkingSet, pairs: u64, options: impl Fn(&mut LsmtreeOptions)) -> Rc<Both> {
        let mut shared = LsmtreeOptions::default();
        options(&mut shared);
        let timed = RocksDb::in_memory(&RocksDbOptions::from(shared)).expect("it is new");
        let counted =
            Rig::new("lsmtree", (PAGE_BYTES, set.value_bytes), pairs, |given| options(&mut given.lsmtree));
        Rc::new(Both { timed, counted, value: vec![7; set.value_bytes as usize] })
    }

    fn put(&self, key: Key) {
        self.timed.put(&bytes_of(key), &self.value, false).expect("memory takes everything");
    }

    fn load(&self, numbers: Range<u64>) {
        self.counted.load(numbers.clone());
        numbers.for_each(|number| self.put(key_of(number)));
    }

    /// Writes the memtables to tables, and waits for due merges.
    fn settle(&self) {
        self.counted.sync();
        self.timed.flush().expect("memory takes everything");
        self.timed.wait_until_idle().expect("its jobs succeed");
    }

    fn puts(&self, keys: &[Key]) -> Sample {
        self.sample(keys, |key| self.put(key), Rig::put)
    }

    fn gets(&self, keys: &[Key], is_there: bool) -> Sample {
        let get = |key| {
            let found = self.timed.find(&bytes_of(key)).expect("its files are whole");
            assert_eq!(found, is_there, "{key}");
        };
        self.sample(keys, get, |rig, key| rig.get(key, is_there))
    }

    /// The time of RocksDB's calls, with the steps of `lsmtree`'s.
    fn sample(&self, keys: &[Key], timed: impl Fn(Key), counted: impl Fn(&Rig, Key)) -> Sample {
        let Sample { steps, .. } = self.counted.sample(keys, counted);
        Sample { steps, ..Sample::of(keys.len() as u64, |at| timed(keys[at as usize]), Steps::new) }
    }
}

/// The bytes of a key.
fn bytes_of(key: Key) -> [u8; KEY_BYTES as usize] {
    std::array::from_fn(|at| key.to_array()[at])
}

fn describe(set: &WorkingSet, pairs: u64, what: &str) -> String {
    set.describe(pairs, &format!("in {what} of RocksDB {}", version()))
}

/// SAKER's cache as RocksDB's: the paper takes the row cache. Rows have a share of the cache's bytes by their hash, so a
/// cache that shall hold them all has more bytes than they have.
pub(super) fn cache(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls) = (set.pairs, set.calls());
    let row_bytes = u64::from(LsmtreeOptions::default().row_bytes) + KEY_BYTES + u64::from(set.value_bytes);
    let rounds = u64::from(set.repetitions) + 2;
    let filled = |bytes: u64, rows: u64| {
        let cache = RowCache { rows: RocksDbRows::new(bytes), value: vec![7; set.value_bytes as usize] };
        (0..rows).for_each(|number| cache.insert(key_of(number)));
        cache
    };
    let of = |what| format!("{}, {what}", describe(set, pairs, "the row cache"));
    let roomy = |rows: u64| rows * row_bytes * 2;
    let (cache, keys) = (filled(roomy(pairs), pairs), random_keys(calls, 0, pairs));
    let hit = Exercise::new(PROBE, of("hits"), move || {
        let mut into = Vec::new();
        cache.sample(&keys, &[PROBE], |cache, key| assert!(cache.get(key, &mut into), "{key}"))
    });
    let fills = |cost, what, cache: RowCache, steps: &'static [&'static str]| {
        let mut next = 1 << 40;
        Exercise::new(cost, of(what), move || {
            let keys: Vec<Key> = (next..next + calls).map(key_of).collect();
            next += calls;
            let mut into = Vec::new();
            cache.sample(&keys, steps, |cache, key| {
                assert!(!cache.get(key, &mut into), "{key}");
                cache.insert(key);
            })
        })
    };
    let room = filled(roomy(pairs + rounds * calls), pairs);
    let insert = fills(INSERT, "fills with room", room, &[PROBE, INSERT]);
    // Every part of the cache is full.
    let full = filled(pairs * row_bytes, 2 * pairs);
    let evict = fills(EVICT, "fills without room", full, &[PROBE, INSERT, EVICT]);
    vec![hit, insert, evict]
}

/// Rows of one value.
struct RowCache {
    rows: RocksDbRows,
    value: Vec<u8>,
}

impl RowCache {
    fn get(&self, key: Key, into: &mut Vec<u8>) -> bool {
        self.rows.get(&bytes_of(key), into).expect("it is in memory")
    }

    fn insert(&self, key: Key) {
        self.rows.insert(&bytes_of(key), &self.value).expect("it is in memory");
    }

    /// The time of calls that take each of `steps` once, and copy the value.
    fn sample(&self, keys: &[Key], steps: &[&'static str], mut call: impl FnMut(&RowCache, Key)) -> Sample {
        let copied = (COPY, self.value.len() as f64 / 1024.0);
        let taken = || steps.iter().map(|step| (*step, 1.0)).chain([copied]).collect();
        Sample::of(keys.len() as u64, |at| call(self, keys[at as usize]), taken)
    }
}

/// A memtable, log included.
pub(super) fn memtable(set: &WorkingSet) -> Vec<Exercise> {
    let pairs = half_a_memtable(set);
    // All repetitions find room in the other half of the memtable.
    let calls = set.calls().min(pairs / u64::from(set.repetitions + 2)).max(1);
    let both = Both::new(set, 4 * pairs, |options| options.write_buffer_size = MEMTABLE_BYTES);
    both.load(0..pairs);
    let (searched, keys) = (both.clone(), random_keys(calls, 0, pairs));
    let of = describe(set, pairs, "a memtable");
    let search = Exercise::new(Step::key(Step::MemtableLevel), format!("{of}, gets"), move || {
        searched.gets(&keys, true)
    });
    let mut next = pairs;
    let insert = Exercise::new(Step::key(Step::MemtableInsert), format!("{of}, puts of others"), move || {
        let keys: Vec<Key> = (next..next + calls).map(key_of).collect();
        next += calls;
        both.puts(&keys)
    });
    vec![search, insert]
}

/// Tables below an empty memtable: what is left of a get after the search of memtables is a step of its own.
pub(super) fn tables(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls) = (set.pairs, set.calls());
    let pair_bytes = KEY_BYTES + u64::from(set.value_bytes);
    let every_block = pairs * pair_bytes * ROOM_OF_BLOCKS;
    let tree = |caches: Caches, bloom_bits: u32| {
        let both = Both::new(set, 2 * pairs, |options| {
            options.write_buffer_size = MEMTABLE_BYTES;
            caches.set(options);
            options.bloom_bits = bloom_bits;
            // Without a log, a sync writes the memtable to a table.
            options.wal = false;
        });
        both.load(0..pairs);
        both.settle();
        both
    };
    let exercise = |step: Step, what: &str, both: &Rc<Both>, keys: Vec<Key>| {
        let (both, of) = (both.clone(), format!("{}, {what}", describe(set, pairs, "tables")));
        Exercise::new(step.key(), of, move || both.gets(&keys, true))
    };
    let in_blocks = Caches { block_bytes: every_block, ..NO_CACHES };
    let cached_blocks = tree(in_blocks, 0);
    let search =
        exercise(Step::IndexSearch, "gets, blocks cached", &cached_blocks, random_keys(calls, 0, pairs));
    let filtered = tree(in_blocks, BLOOM_BITS);
    let of = format!(
        "{}, gets of absent keys, in the range of the tables against beyond it",
        describe(set, pairs, "tables")
    );
    let others = random_keys(calls, pairs, 2 * pairs);
    let bloom = Exercise::new(Step::key(Step::BloomCheck), of, move || {
        let beyond = vec![Key::from_u64_be(u64::MAX); others.len()];
        let [some, none] = [&others, &beyond].map(|keys| filtered.gets(keys, false));
        some.minus(&none)
    });
    // The cache is one and a half times as large as its rows, since RocksDB gives each part of the cache a share of the
    // bytes. Twice as many rows are outside of it and read in turn, so none is read again before it was evicted.
    let cached = pairs / 4;
    let row_bytes = u64::from(LsmtreeOptions::default().row_bytes) + pair_bytes;
    let rows = tree(Caches { row_bytes: cached * row_bytes * 3 / 2, block_bytes: every_block }, 0);
    (0..cached).for_each(|number| assert!(rows.timed.find(&bytes_of(key_of(number))).expect("it is whole")));
    (0..cached).for_each(|number| rows.counted.get(key_of(number), true));
    let what = format!("gets of {} rows in the row cache", grouped(cached));
    let probe = exercise(Step::RowProbe, &what, &rows, random_keys(calls, 0, cached));
    let of = format!("{}, gets of rows that evict others", describe(set, pairs, "tables"));
    let mut next = 0;
    let insert = Exercise::new(Step::key(Step::RowInsert), of, move || {
        let keys: Vec<Key> =
            (next..next + calls).map(|number| key_of(cached + number % (pairs - cached))).collect();
        next += calls;
        rows.gets(&keys, true)
    });
    let few = tree(Caches { block_bytes: FEW_BLOCKS * u64::from(PAGE_BYTES), ..NO_CACHES }, 0);
    let what = "gets with a small block cache";
    let fill = exercise(Step::BlockInsert, what, &few, random_keys(calls, 0, pairs));
    vec![search, bloom, probe, insert, fill]
}

/// Four memtables are written to tables of level 0, and merged with level 1. The time of RocksDB's own
/// threads is measured.
pub(super) fn merges(set: &WorkingSet) -> Vec<Exercise> {
    let each = set.calls();
    let both = Both::new(set, 16 * each, |options| {
        options.write_buffer_size = 4 * each * (KEY_BYTES + u64::from(set.value_bytes) + 64);
        options.wal = false;
    });
    let of = format!(
        "4 memtables of {} pairs of RocksDB {} are written and merged into their level",
        grouped(each),
        version()
    );
    let repeat = move || {
        let mut sum = Sample::default();
        for _ in 0..4 {
            both.load(0..each);
            let counted = both.counted.sample_of(1, |_| {
                both.counted.sync();
                both.counted.do_background();
            });
            for (step, count) in counted.steps {
                *sum.steps.entry(step).or_default() += count;
            }
            let (all, own) = (ProcessorTime::of_program(), ProcessorTime::of_thread());
            both.timed.flush().expect("memory takes everything");
            both.timed.wait_until_idle().expect("its jobs succeed");
            sum.ns += all.ns() - own.ns();
        }
        sum
    };
    vec![Exercise::new(Step::key(Step::MergeEntry), of, repeat)]
}
