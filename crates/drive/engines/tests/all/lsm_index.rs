//! The index against an oracle, in every layout and under every compaction policy: contents, cursors,
//! snapshots, bytes of the value log that count as live, garbage collection with reused segments, and the
//! published page counts. Power cuts, damage and full drives are in [`faults`].

#[path = "lsm_index_dram.rs"]
mod dram;
#[path = "lsm_index_faults.rs"]
mod faults;
#[path = "lsm_index_values.rs"]
mod values;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_engines::Gap;
use kvdrive_engines::firmware::{Cores, Roles};
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::lsm::{
    Entry, FoundTables, Index, IndexConfig, IndexImage, IndexJournal, IndexParts, IndexRecord, Snapshot,
    ValueLiveness,
};
use kvdrive_engines::value_log::{Reserve, SegmentPool, Use, Vaddr};
use kvdrive_flash::ftl::{Ftl, FtlConfig, Lpa};
use kvdrive_flash::media::{self, MediaOptions};
use kvdrive_flash::{FlashConfig, FlashPort, Ppa, Purpose, ReadError};
use kvdrive_nvme::{Key, Status};
use kvdrive_record::{decode, encode};
use kvdrive_sim::{KeyedLock, Rng, Sim};
use proptest::prelude::*;
use values::{SEGMENT_BYTES, Values};

const KEYS: u32 = 40;

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

/// As collection moves a value: `key` refers to the copy at `new` if its newest entry is still `old`. `false`
/// if not.
fn repoint(index: &Index, key: &Key, old: &Entry, new: Vaddr) -> Result<bool, Status> {
    let mut pairs = vec![(*key, *old)];
    let since = index.retain_newest(&mut pairs, &|| ())?;
    // Other tasks work meanwhile.
    let is_newest = !pairs.is_empty() && index.is_newest(key, old, &since);
    if is_newest {
        index.insert(*key, new, old.bytes)?;
    }
    Ok(is_newest)
}

/// Applies every record to an image, once directly and once through its bytes.
#[derive(Default)]
struct Records {
    image: RefCell<IndexImage>,
    /// Set in tests of other things, with many records.
    ignored: bool,
}

impl IndexJournal for Records {
    fn record(&self, record: IndexRecord<'_>) {
        if self.ignored {
            return;
        }
        let mut image = self.image.borrow_mut();
        let mut other = image.clone();
        let again = decode(&encode(&record)).expect("a record can be read back");
        assert_eq!(image.apply(record).and(other.apply(again)), Ok(()));
        assert_eq!(other, *image);
    }
}

fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        blocks_per_die: 40,
        pages_per_block: 8,
        page_bytes: 512,
        sense_ns: 1_000,
        program_ns: 10_000,
        erase_ns: 50_000,
        transfer_ns_per_kib: 100,
        ..FlashConfig::default()
    }
}

fn ftl_config() -> FtlConfig {
    FtlConfig { over_provisioning: 0.07, victim: "greedy".to_owned(), gc_low_blocks: 2, placement_dies: 2 }
}

fn config(layout: &str, compaction: &str) -> IndexConfig {
    IndexConfig {
        layout: layout.into(),
        memtable_entries: 7,
        bloom_bits_per_key: 10,
        bloom_hashes: 7,
        compaction: compaction.into(),
        rings: vec![3, 4, 5],
        count_growth_percent: 0,
        memtable_insert_ns: 300,
        index_probe_ns: 200,
        table_entry_ns: 50,
        ..IndexConfig::default()
    }
}

fn configs() -> impl Iterator<Item = IndexConfig> {
    let all = LAYOUTS.iter().flat_map(|layout| COMPACTIONS.iter().map(|row| config(layout.name, row.name)));
    // Every other one has DRAM for some lists and pages.
    all.enumerate().map(|(at, config)| match at % 2 {
        0 => config,
        _ => IndexConfig { dram_bytes: 1_500, pinned_levels: 2, ..config },
    })
}

/// An index, and the parts that it needs.
struct Stand {
    sim: Sim,
    port: FlashPort,
    ftl: Ftl,
    pool: SegmentPool,
    values: Rc<Values>,
    records: Rc<Records>,
    index: Index,
}

fn pool_over(ftl: &Ftl) -> SegmentPool {
    let trimmed = ftl.clone();
    let reserve = Reserve { index_segments: 0, gc_segments: 0 };
    SegmentPool::new(ftl.logical_pages(), 4, reserve, move |pages| {
        pages.for_each(|lpa| trimmed.trim(Lpa(lpa)));
    })
}

impl Stand {
    fn parts(sim: &Sim, ftl: Ftl, pool: SegmentPool, values: Rc<Values>, records: Rc<Records>) -> IndexParts {
        IndexParts {
            sim: sim.clone(),
            cores: Cores::new(sim, Roles::Any(2)),
            page_bytes: ftl.page_bytes(),
            most_tables: u32::MAX,
            flash: Some((ftl, pool)),
            values,
            journal: records,
        }
    }

    fn on(sim: Sim, flash: &FlashConfig, config: IndexConfig) -> Stand {
        config.check().unwrap();
        // `ram` keeps trimmed pages, so that they are found again after a cut; `tags` is for large drives.
        let kind = if config.memtable_entries > 100 { "tags" } else { "ram" };
        let media = (media::kind(kind).unwrap().open)(&flash.geometry(), &MediaOptions::default()).unwrap();
        let port = FlashPort::new(&sim, flash.clone(), media);
        let ftl = Ftl::new(port.clone(), &ftl_config());
        let pool = pool_over(&ftl);
        let values = Rc::new(Values::default());
        let ignored = config.memtable_entries > 100;
        let records = Rc::new(Records { ignored, ..Records::default() });
        let index = Index::new(
            Stand::parts(&sim, ftl.clone(), pool.clone(), values.clone(), records.clone()),
            config,
        );
        *records.image.borrow_mut() = index.image();
        Stand { sim, port, ftl, pool, values, records, index }
    }

    fn new(config: IndexConfig) -> Stand {
        Stand::on(Sim::new(), &flash_config(), config)
    }

    /// Another life: from the medium and the image alone. The value log's counts continue unchanged.
    fn next_life(&self, config: &IndexConfig, rng: &mut Rng) -> Stand {
        let bytes = self.port.media_image(rng);
        let media = media::from_image("ram", &flash_config().geometry(), &bytes).unwrap();
        let image = decode::<IndexImage>(&encode(&self.index.image())).unwrap();
        let values = Rc::new((*self.values).clone());
        let sim = Sim::new();
        let port = FlashPort::new(&sim, flash_config(), media);
        let mut found = FoundTables::default();
        let ftl = sim.block_on(|| {
            Ftl::recover(port.clone(), &ftl_config(), &mut |lpa, kind, tag| {
                assert!(found.found(lpa, kind, tag), "only the index writes here");
            })
        });
        let pool = pool_over(&ftl);
        let records = Rc::new(Records::default());
        let parts = Stand::parts(&sim, ftl.clone(), pool.clone(), values.clone(), records.clone());
        let index = Index::recover(parts, config.clone(), image, found).unwrap();
        *records.image.borrow_mut() = index.image();
        Stand { sim, port, ftl, pool, values, records, index }
    }

    fn put(&self, number: u32, bytes: u32) -> Vaddr {
        let address = self.values.place(bytes);
        self.sim.block_on(|| self.index.insert(key(number), address, bytes)).unwrap();
        address
    }

    fn get(&self, number: u32) -> Result<Option<Vaddr>, Status> {
        let found = self.sim.block_on(|| self.index.get(&key(number)))?;
        Ok(found.map(|entry| entry.address))
    }

    fn walk(&self, snapshot: &Snapshot, from: u32, most: usize) -> Vec<(Key, Vaddr)> {
        let mut cursor = snapshot.cursor(Some(key(from)));
        let mut pairs = Vec::new();
        while pairs.len() < most
            && let Some((key, entry)) = self.sim.block_on(|| cursor.next_pair()).unwrap()
        {
            pairs.push((key, entry.address));
        }
        pairs
    }

    /// Every key that is listed, and the gaps between them.
    fn walk_past_gaps(&self, snapshot: &Snapshot) -> (BTreeSet<Key>, Vec<Gap>) {
        let mut cursor = snapshot.cursor(None);
        let (mut keys, mut gaps) = (BTreeSet::new(), Vec::new());
        loop {
            match self.sim.block_on(|| cursor.next_pair()) {
                Ok(Some((key, _))) => _ = keys.insert(key),
                Ok(None) => return (keys, gaps),
                Err(status) => {
                    assert_eq!(status, Status::UNRECOVERED_ERROR);
                    gaps.push(cursor.gap());
                }
            }
        }
    }

    /// Empties a segment of the value log as an engine would, and frees it for reuse.
    fn collect(&self, id: u64, oracle: &mut BTreeMap<u32, (Vaddr, u32)>) {
        if self.values.head.get() == Some(id) || self.values.free.borrow().contains(&id) {
            return;
        }
        let mut found: Vec<(Key, Entry)> = Vec::new();
        self.sim.block_on(|| self.index.references(&[Values::addresses(id)], &mut found, &|| ())).unwrap();
        let live = self.values.segments.borrow()[&id].live.clone();
        for (_, entry) in &found {
            assert_eq!(live.get(&entry.address.0), Some(&entry.bytes), "a stale entry was found");
        }
        let (mut newest, before) = (found.clone(), self.port.reads(Purpose::GcIndex));
        self.sim.block_on(|| self.index.retain_newest(&mut newest, &|| ())).unwrap();
        let reads = self.port.reads(Purpose::GcIndex) - before;
        assert!(reads <= self.index.pages_in_use().into(), "each page of the index is read once");
        for (key, entry) in found {
            let number = (key.halves().0 >> 32) as u32;
            // A newer value without bytes that was placed after a full segment may have the same address as
            // an older value with bytes.
            let is_newest = oracle.get(&number).is_some_and(|it| *it == (entry.address, entry.bytes));
            let new = self.values.place(entry.bytes);
            let moved = self.sim.block_on(|| repoint(&self.index, &key, &entry, new)).unwrap();
            assert_eq!((moved, newest.contains(&(key, entry))), (is_newest, is_newest));
            if moved {
                oracle.insert(number, (new, entry.bytes));
            } else {
                self.values.dead(new, entry.bytes);
            }
        }
        let left =
            oracle.values().find(|(address, bytes)| *bytes > 0 && Values::addresses(id).contains(address));
        assert_eq!(left, None, "a reference was not found");
        self.values.free(id);
    }

    /// Asserts that the index holds exactly these pairs, and that the value log counts exactly their values
    /// as live.
    fn check_all(&self, oracle: &BTreeMap<u32, (Vaddr, u32)>) {
        for number in 0..KEYS {
            assert_eq!(
                self.get(number),
                Ok(oracle.get(&number).map(|(address, _)| *address)),
                "key {number}"
            );
        }
        let all: Vec<_> = oracle.iter().map(|(number, (address, _))| (key(*number), *address)).collect();
        assert_eq!(self.walk(&self.index.snapshot(), 0, usize::MAX), all);
        assert_eq!(*self.records.image.borrow(), self.index.image(), "folded records are not the index");
        assert_eq!(self.ftl.statistics().live_pages, u64::from(self.index.pages_in_use()));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u32, u32),
    Remove(u32),
    Get(u32),
    Walk(u32, usize),
    Snapshot,
    CompactAll,
    Collect(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..KEYS, 0u32..30).prop_map(|(key, bytes)| Op::Put(key, bytes)),
        4 => (0..KEYS).prop_map(Op::Remove),
        3 => (0..KEYS).prop_map(Op::Get),
        1 => (0..KEYS, 0usize..20).prop_map(|(key, most)| Op::Walk(key, most)),
        1 => Just(Op::Snapshot),
        1 => Just(Op::CompactAll),
        1 => (0u64..12).prop_map(Op::Collect),
    ]
}

fn run(config: IndexConfig, ops: &[Op]) {
    let stand = Stand::new(config);
    let mut oracle: BTreeMap<u32, (Vaddr, u32)> = BTreeMap::new();
    let mut snapshots = Vec::new();
    for op in ops {
        match *op {
            Op::Put(number, bytes) => {
                oracle.insert(number, (stand.put(number, bytes), bytes));
            }
            Op::Remove(number) => {
                stand.sim.block_on(|| stand.index.remove(key(number))).unwrap();
                oracle.remove(&number);
            }
            Op::Get(number) => {
                assert_eq!(stand.get(number), Ok(oracle.get(&number).map(|(address, _)| *address)));
            }
            Op::Walk(from, most) => {
                let found = stand.walk(&stand.index.snapshot(), from, most);
                let expected = oracle.range(from..).take(most);
                assert_eq!(found, expected.map(|(number, pair)| (key(*number), pair.0)).collect::<Vec<_>>());
            }
            Op::Snapshot => snapshots.push((stand.index.snapshot(), oracle.clone())),
            Op::CompactAll => stand.sim.block_on(|| stand.index.compact_all()).unwrap(),
            Op::Collect(id) if stand.values.segments.borrow().contains_key(&id) => {
                stand.collect(id, &mut oracle);
            }
            Op::Collect(_) => {}
        }
    }
    stand.check_all(&oracle);
    for (snapshot, then) in &snapshots {
        let all: Vec<_> = then.iter().map(|(number, (address, _))| (key(*number), *address)).collect();
        assert_eq!(stand.walk(snapshot, 0, usize::MAX), all, "a snapshot has changed");
    }
    drop(snapshots);
    stand.sim.block_on(|| stand.index.compact_all()).unwrap();
    stand.check_all(&oracle);
    let live: BTreeMap<u64, u32> =
        oracle.values().filter(|(_, bytes)| *bytes > 0).map(|(address, bytes)| (address.0, *bytes)).collect();
    assert_eq!(stand.values.live(), live, "what is live and what is counted as live differ");
    assert_eq!(
        stand.index.entries(),
        oracle.len() as u64,
        "one run holds one entry of every key and no tombstone"
    );
    for number in 0..KEYS {
        stand.sim.block_on(|| stand.index.remove(key(number))).unwrap();
    }
    stand.sim.block_on(|| stand.index.compact_all()).unwrap();
    assert_eq!((stand.index.pages_in_use(), stand.index.entries()), (0, 0));
    assert_eq!(stand.pool.free_count(), stand.pool.segments(), "pages of dropped tables were kept");
}

/// An empty value placed after a full segment has the address at which the next segment begins.
#[test]
fn an_empty_value_is_not_taken_for_the_older_one_at_its_address() {
    let quarter = SEGMENT_BYTES as u32 / 4;
    // Segment 0, segment 1 with key 9 as its first, segment 2 with the keys of segment 0 again.
    let placed = [0, 1, 2, 3, 9, 4, 5, 6, 0, 1, 2, 3].map(|number| Op::Put(number, quarter));
    // Segment 0 is reused, to its end.
    let again = [10, 11, 12, 13].map(|number| Op::Put(number, quarter));
    let mut ops = placed.to_vec();
    ops.push(Op::Collect(0));
    ops.extend(again);
    ops.extend([Op::Put(9, 0), Op::Collect(1)]);
    for config in configs() {
        run(config, &ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn an_index_is_a_map_with_books(ops in proptest::collection::vec(op(), 0..400)) {
        for config in configs() {
            run(config, &ops);
        }
    }
}

/// State that the tasks of one drive share.
struct Shared {
    stand: Stand,
    locks: KeyedLock<u32>,
    oracle: RefCell<BTreeMap<u32, (Vaddr, u32)>>,
    /// Segments with a value that is not in the index yet.
    pending: RefCell<Vec<u64>>,
}

impl Shared {
    fn work(&self, mut rng: Rng) {
        let index = &self.stand.index;
        for _ in 0..200 {
            let number = rng.below(KEYS.into()) as u32;
            let _guard = self.locks.lock(number);
            match rng.below(4) {
                0 => {
                    let found = index.get(&key(number)).unwrap();
                    let expected = self.oracle.borrow().get(&number).map(|(address, _)| *address);
                    assert_eq!(found.map(|entry| entry.address), expected);
                }
                1 => {
                    index.remove(key(number)).unwrap();
                    self.oracle.borrow_mut().remove(&number);
                }
                _ => {
                    let address = self.stand.values.place(8);
                    self.pending.borrow_mut().push(address.0 / SEGMENT_BYTES);
                    index.insert(key(number), address, 8).unwrap();
                    let mut pending = self.pending.borrow_mut();
                    let place = pending.iter().position(|id| *id == address.0 / SEGMENT_BYTES).unwrap();
                    pending.swap_remove(place);
                    self.oracle.borrow_mut().insert(number, (address, 8));
                }
            }
        }
    }

    /// Empties and frees segments as long as other tasks work.
    fn collect(&self, mut rng: Rng) {
        for _ in 0..100 {
            self.stand.sim.sleep(20_000);
            let values = &self.stand.values;
            let id = rng.below(values.segments.borrow().len().max(1) as u64);
            let unused = !values.segments.borrow().contains_key(&id) || values.free.borrow().contains(&id);
            if unused || values.head.get() == Some(id) || self.pending.borrow().contains(&id) {
                continue;
            }
            let mut found = Vec::new();
            self.stand.index.references(&[Values::addresses(id)], &mut found, &|| ()).unwrap();
            for (key, entry) in found {
                let number = (key.halves().0 >> 32) as u32;
                let _guard = self.locks.lock(number);
                let new = values.place(entry.bytes);
                if repoint(&self.stand.index, &key, &entry, new).unwrap() {
                    self.oracle.borrow_mut().insert(number, (new, entry.bytes));
                } else {
                    values.dead(new, entry.bytes);
                }
            }
            values.free(id);
        }
    }
}

/// Four contexts and a collector that frees segments for reuse, during flushes and merges; events of one time
/// are in random order.
#[test]
fn contexts_work_side_by_side() {
    for (seed, config) in (0..12).flat_map(|seed| configs().map(move |config| (seed, config))) {
        let sim = Sim::permuted(seed);
        let shared = Rc::new(Shared {
            locks: KeyedLock::new(&sim),
            oracle: RefCell::default(),
            pending: RefCell::default(),
            stand: Stand::on(sim.clone(), &flash_config(), config),
        });
        for task in 0..4 {
            let (shared, rng) = (shared.clone(), Rng::stream(seed, &format!("context {task}")));
            sim.spawn(move || shared.work(rng));
        }
        let (collector, rng) = (shared.clone(), Rng::stream(seed, "collector"));
        let collected = sim.spawn(move || collector.collect(rng));
        sim.run();
        collected.try_take().expect("the collector ends");
        let (stand, oracle) = (&shared.stand, shared.oracle.borrow());
        stand.check_all(&oracle);
        sim.block_on(|| stand.index.compact_all()).unwrap();
        stand.check_all(&oracle);
        assert_eq!(stand.values.live().len(), oracle.len());
        assert!(
            stand.values.openings.get() > stand.values.segments.borrow().len() as u64,
            "nothing was reused"
        );
    }
}

#[test]
fn what_a_layout_cannot_hold_is_refused() {
    let stand = Stand::new(config("published", "tiered"));
    let long = Key::new(b"five!").unwrap();
    let insert = |key: Key, address: u64, bytes: u32| {
        stand.sim.block_on(|| stand.index.insert(key, Vaddr(address), bytes))
    };
    assert_eq!(insert(long, 0, 1), Err(Status::INVALID_KEY_SIZE));
    assert_eq!(stand.sim.block_on(|| stand.index.get(&long)), Err(Status::INVALID_KEY_SIZE));
    assert_eq!(stand.sim.block_on(|| stand.index.remove(long)), Err(Status::INVALID_KEY_SIZE));
    assert_eq!(insert(key(1), 1 << 40, 1), Err(Status::CAPACITY_EXCEEDED));
    assert_eq!(insert(key(1), 0, 1 << 24), Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(stand.index.entries(), 0);
}

/// Two memtables of 7 keys of 255 B take 2 * 7 * 239 B more of power-protected memory than of 16 B: as much as 670 tables.
#[test]
fn memtables_of_long_keys_leave_room_for_fewer_tables() {
    let of = |number: u8, bytes: usize| Key::from_padded([number; 16], bytes).unwrap();
    for (most_tables, fits) in [(670, false), (671, true)] {
        let stand = Stand::new(config("sound", "leveled"));
        let (ftl, pool) = (stand.ftl.clone(), stand.pool.clone());
        let parts = Stand::parts(&stand.sim, ftl, pool, stand.values.clone(), stand.records.clone());
        let index = Index::new(IndexParts { most_tables, ..parts }, config("sound", "leveled"));
        let put = |key| stand.sim.block_on(|| index.insert(key, Vaddr(0), 0));
        assert_eq!(put(of(1, 16)), Ok(()));
        assert_eq!(put(of(2, 255)).is_ok(), fits, "{most_tables}");
        assert_eq!(put(of(3, 16)), Ok(()), "what was refused changes nothing");
    }
}

#[test]
fn wrong_settings_name_their_key() {
    let wrong = |change: fn(&mut IndexConfig)| {
        let mut config = config("sound", "tiered");
        change(&mut config);
        config.check().unwrap_err()
    };
    assert_eq!(
        wrong(|config| config.layout = "x".into()),
        "layout: \"x\" is not one of published, sound, segments"
    );
    assert!(wrong(|config| config.compaction = "x".into()).starts_with("compaction: "));
    assert!(wrong(|config| config.memtable_entries = 0).starts_with("memtable_entries: 0 "));
    assert!(wrong(|config| config.bloom_hashes = 0).starts_with("bloom_hashes: 0 "));
    assert!(wrong(|config| config.rings.clear()).starts_with("rings: "));
}

/// The page accounting of the public firmware, with all layers down to flash.
#[test]
fn published_tables_take_the_published_pages() {
    let flash = FlashConfig {
        channels: 8,
        dies_per_channel: 1,
        planes: 1,
        blocks_per_die: 64,
        pages_per_block: 16,
        page_bytes: 16384,
        ..flash_config()
    };
    let stand = Stand::on(Sim::new(), &flash, IndexConfig::default());
    stand.sim.block_on(|| {
        for number in 0..1_000_000u32 {
            // Empty values: the counts of the test's value log do not matter here.
            stand.index.insert(key(number), Vaddr(0), 0).unwrap();
        }
    });
    let programs = stand.port.programs(Purpose::Index) + stand.port.programs(Purpose::Compaction);
    assert_eq!(stand.port.programs(Purpose::Index), 244 * 4);
    assert_eq!(programs, 2808);
    assert_eq!(stand.port.reads(Purpose::Compaction), 1374);
    assert_eq!(stand.index.tables_by_level(), [2, 13, 54, 0]);
    assert_eq!(stand.index.counters().merges, 121 + 54);
    for number in [0, 4095, 4096, 500_000, 999_999] {
        assert_eq!(stand.get(number), Ok(Some(Vaddr(0))));
    }
    assert_eq!(stand.get(1_000_000), Ok(None));
}

/// Flushes that leave merges of levels to a task make tables only; the task then merges until the policy asks for no more.
#[test]
fn merges_that_flushes_leave_are_carried_out_beside_commands() {
    for row in COMPACTIONS {
        let stand = Stand::new(config("sound", row.name));
        stand.index.leave_levels(true);
        let addresses: Vec<Vaddr> = (0..140).map(|number| stand.put(number * 37 % 101, 30)).collect();
        assert_eq!((stand.index.counters().merges, stand.index.counters().moves), (0, 0), "{}", row.name);
        assert!(stand.index.counters().flushes >= 19 && stand.index.is_level_waiting(), "{}", row.name);
        assert_eq!(stand.index.tables_by_level()[1..].iter().sum::<usize>(), 0, "{}", row.name);
        stand.sim.block_on(|| stand.index.merge_levels_beside(&|| ())).unwrap();
        assert!(stand.index.counters().merges > 0 && !stand.index.is_level_waiting(), "{}", row.name);
        stand.index.leave_levels(false);
        let merged = stand.index.counters().merges;
        stand.sim.block_on(|| stand.index.merge_levels_beside(&|| ())).unwrap();
        assert_eq!(stand.index.counters().merges, merged, "{}: nothing was left to merge", row.name);
        for number in 0..140 {
            let newest = (0..140).rev().find(|at| at * 37 % 101 == number * 37 % 101).unwrap();
            assert_eq!(stand.get(number * 37 % 101), Ok(Some(addresses[newest as usize])));
        }
    }
}
