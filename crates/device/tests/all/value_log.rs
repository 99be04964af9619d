//! The value log against an oracle: several tasks, both eviction modes, every packing policy, garbage collection,
//! snapshots, power cuts; at every event the saved image must equal the folded records.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_device::flash::media::{self, MediaOptions};
use kvdrive_device::flash::{FlashConfig, FlashPort, Purpose};
use kvdrive_device::ftl::{Ftl, Lpa};
use kvdrive_device::packing::{PACKINGS, PackingConfig};
use kvdrive_device::page_buffer::{Eviction, PageBuffer};
use kvdrive_device::value_log::{
    Damaged, Head, Journal, PastPin, Place, ProtectedValueLog, Record, Reserve, SegmentId, SegmentPool,
    Shape, ValueLog, Vaddr,
};
use kvdrive_link::{Arrival, Pattern, Piece};
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::Status;
use proptest::prelude::*;

use super::support;

const PAGE_BYTES: u32 = 8192;
const SEGMENT_PAGES: u32 = 8;
const ENTRIES: u32 = 16;

fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 20,
        page_bytes: PAGE_BYTES,
        ..support::flash_config()
    }
}

/// Keeps the image up to date, record by record, through the records' bytes.
struct Folded(RefCell<ProtectedValueLog>);

impl Journal for Folded {
    fn record(&self, record: &Record<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let decoded = Record::decode(&bytes).expect("a record is understood");
        self.0.borrow_mut().apply(&decoded).unwrap_or_else(|error| panic!("{error}: {record:?}"));
    }
}

/// A drive of a log and nothing else.
struct Rig {
    sim: Sim,
    ftl: Ftl,
    pool: SegmentPool,
    buffer: PageBuffer,
    log: ValueLog,
    shape: Shape,
    journal: Rc<Folded>,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    row: usize,
    eviction: Eviction,
    entries: u32,
}

const PLAIN: Setup = Setup { row: 1, eviction: Eviction::Wait, entries: ENTRIES };

impl Setup {
    fn named(policy: &str) -> Setup {
        Setup { row: PACKINGS.iter().position(|row| row.name == policy).unwrap(), ..PLAIN }
    }

    fn rooms(&self, sim: &Sim, ftl: &Ftl) -> (SegmentPool, PageBuffer, Shape) {
        let trimming = ftl.clone();
        let reserve = Reserve { index_segments: 0, gc_segments: 2 };
        let pool = SegmentPool::new(ftl.logical_pages(), SEGMENT_PAGES, reserve, move |lpas| {
            lpas.for_each(|lpa| trimming.trim(Lpa(lpa)));
        });
        let buffer = PageBuffer::new(sim, Some(ftl.clone()), self.entries, self.eviction, PAGE_BYTES);
        let packing = PackingConfig { policy: PACKINGS[self.row].name.to_string(), dlt_entries: 4 };
        let shape = Shape::new(&packing, &pool, PAGE_BYTES, self.entries).unwrap();
        (pool, buffer, shape)
    }

    fn fresh(&self, sim: Sim) -> Rig {
        let config = flash_config();
        let media = (media::kind("tags").unwrap().open)(&config.geometry(), &MediaOptions::default());
        let ftl = Ftl::new(FlashPort::new(&sim, config, media.unwrap()), &support::ftl_config());
        let (pool, buffer, shape) = self.rooms(&sim, &ftl);
        let log = ValueLog::new(&sim, &shape, &pool, &buffer);
        Rig::with(sim, ftl, pool, buffer, log, shape)
    }

    /// Power comes back: only these two byte strings are left.
    fn power_on(&self, sim: Sim, media: &[u8], image: &[u8]) -> Result<Rig, Damaged> {
        let config = flash_config();
        let media = media::from_image("tags", &config.geometry(), media).unwrap();
        let port = FlashPort::new(&sim, config, media);
        let mut found = Vec::new();
        let ftl = sim.block_on(Ftl::recover(port, &support::ftl_config(), &mut |lpa, kind, tag| {
            found.push((lpa, kind, *tag));
        }));
        let (pool, buffer, shape) = self.rooms(&sim, &ftl);
        let image = ProtectedValueLog::decode(image, &shape)?;
        for (lpa, kind, tag) in found {
            if !image.owns(lpa.0, kind, &tag) {
                ftl.trim(lpa);
            }
        }
        let log = ValueLog::restore(&sim, &shape, &pool, &buffer, image)?;
        Ok(Rig::with(sim, ftl, pool, buffer, log, shape))
    }
}

impl Rig {
    fn with(
        sim: Sim,
        ftl: Ftl,
        pool: SegmentPool,
        buffer: PageBuffer,
        log: ValueLog,
        shape: Shape,
    ) -> Rig {
        let journal = Rc::new(Folded(RefCell::new(log.save())));
        log.attach(journal.clone());
        Rig { sim, ftl, pool, buffer, log, shape, journal }
    }

    /// Does the image folded from records equal the state it stands for?
    fn check_image(&self) {
        let (folded, saved) = (self.journal.0.borrow().encode(), self.log.save().encode());
        assert!(folded == saved, "the folded image is not the state at {} ns", self.sim.now());
        if self.sim.events() % 16 == 0 {
            let again = ProtectedValueLog::decode(&folded, &self.shape).unwrap();
            assert!(again.encode() == folded, "an image does not survive its own bytes");
        }
    }

    async fn store(&self, bytes: u32, arrival: Arrival, seed: u64) -> Result<Value, Status> {
        let mut place = self.log.reserve(Head::Host, bytes, arrival).await?;
        place.write(0, content(seed, bytes));
        place.landed();
        self.log.note_live(place.address(), bytes);
        Ok(Value { address: place.address(), bytes, seed })
    }

    fn kill(&self, value: Value) {
        self.log.note_dead(value.address, value.bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    address: Vaddr,
    bytes: u32,
    seed: u64,
}

fn content(seed: u64, bytes: u32) -> Piece<'static> {
    Piece::Pattern(Pattern { seed, offset: 0, bytes })
}

async fn read(log: &ValueLog, value: Value, at: u32, bytes: u32) -> Result<(), Status> {
    let mut found = Vec::new();
    log.read(value.address, at, bytes, Purpose::Lookup, &mut |piece| {
        let from = found.len();
        found.resize(from + piece.bytes() as usize, 0);
        piece.expand(&mut found[from..]);
    })
    .await?;
    let mut expected = vec![0; bytes as usize];
    content(value.seed, value.bytes).slice(at, bytes).expand(&mut expected);
    assert!(found == expected, "wrong bytes for {value:?}");
    Ok(())
}

// ---------------------------------------------------------------- corners

#[test]
fn a_segment_whose_values_are_dead_is_given_back() {
    let rig = PLAIN.fresh(Sim::new());
    let all = rig.pool.free_count();
    rig.sim.block_on(async {
        let mut values = Vec::new();
        for seed in 0..3 * u64::from(SEGMENT_PAGES) {
            values.push(rig.store(PAGE_BYTES, Arrival::Dma, seed).await.unwrap());
        }
        assert_eq!(rig.pool.free_count(), all - 3);
        let lookup = rig.log.pin_all();
        let dying = values.drain(..SEGMENT_PAGES as usize).collect::<Vec<_>>();
        dying.iter().for_each(|value| rig.kill(*value));
        assert_eq!(rig.pool.free_count(), all - 3, "a lookup under way may read it");
        for value in dying {
            read(&rig.log, value, 0, value.bytes).await.unwrap();
        }
        drop(lookup);
        assert_eq!(rig.pool.free_count(), all - 2);
        for value in values {
            read(&rig.log, value, 5, value.bytes - 9).await.unwrap();
            rig.kill(value);
        }
        assert_eq!((rig.pool.free_count(), rig.log.live_bytes(), rig.log.segments_in_use()), (all, 0, 0));
        assert_eq!(rig.log.statistics().segments_freed, 3);
    });
    rig.check_image();
}

#[test]
fn a_value_that_arrives_keeps_its_segment() {
    let rig = PLAIN.fresh(Sim::new());
    let all = rig.pool.free_count();
    rig.sim.block_on(async {
        let mut place = rig.log.reserve(Head::Host, 100, Arrival::Inline).await.unwrap();
        let fill = rig.store(5 * PAGE_BYTES, Arrival::Dma, 1).await.unwrap();
        let next = rig.store(5 * PAGE_BYTES, Arrival::Dma, 2).await.unwrap();
        rig.kill(fill);
        assert_eq!(rig.pool.free_count(), all - 2, "sealed and nothing lives in it, but a value comes");
        place.write(0, content(3, 100));
        place.landed();
        rig.log.note_live(place.address(), 100);
        let late = Value { address: place.address(), bytes: 100, seed: 3 };
        drop(place);
        read(&rig.log, late, 0, 100).await.unwrap();
        let abandoned = rig.log.reserve(Head::Host, 100, Arrival::Inline).await.unwrap();
        rig.kill(late);
        assert_eq!(rig.pool.free_count(), all - 1);
        drop(abandoned);
        rig.kill(next);
    });
    rig.check_image();
}

#[test]
fn values_without_bytes_lie_nowhere() {
    let rig = PLAIN.fresh(Sim::new());
    rig.sim.block_on(async {
        let value = rig.store(0, Arrival::Inline, 1).await.unwrap();
        read(&rig.log, value, 0, 0).await.unwrap();
        rig.kill(value);
    });
    assert_eq!(rig.log.statistics().segments_opened, 0);
}

#[test]
fn a_full_log_refuses_and_takes_values_again_once_others_died() {
    for row in 0..PACKINGS.len() {
        let rig = Setup { row, ..PLAIN }.fresh(Sim::new());
        let sizes = [3000, 10, 9000, 700, 20_000];
        for cycle in 0..5 {
            let mut values = Vec::new();
            let refused = rig.sim.block_on(async {
                loop {
                    let seed = values.len() as u64;
                    let bytes = sizes[values.len() % 5];
                    let arrival = if bytes < 100 { Arrival::Inline } else { Arrival::Dma };
                    match rig.store(bytes, arrival, seed).await {
                        Ok(value) => values.push(value),
                        Err(status) => return status,
                    }
                }
            });
            assert_eq!(refused, Status::CAPACITY_EXCEEDED);
            rig.check_image();
            assert_eq!(rig.pool.free_count(), 2, "the reserve is left");
            rig.sim.block_on(async {
                // A refusal changes nothing: what still fits goes in, and it stays refused.
                let again = rig.store(20_000, Arrival::Dma, 0).await.err();
                assert_eq!(again, Some(Status::CAPACITY_EXCEEDED));
                let moved = rig.log.reserve(Head::Gc, 20_000, Arrival::Inline).await;
                drop(moved.expect("collection may take the reserve"));
                for value in &values {
                    read(&rig.log, *value, 0, value.bytes).await.unwrap();
                }
            });
            values.iter().for_each(|value| rig.kill(*value));
            let row = PACKINGS[row].name;
            assert!(rig.log.segments_in_use() <= 3, "{row}, cycle {cycle}: {}", rig.log.segments_in_use());
        }
    }
}

#[test]
fn values_too_large_for_the_buffer_are_refused_and_all_others_fit() {
    for row in 0..PACKINGS.len() {
        for entries in [8, 11, 16] {
            let rig = Setup { row, entries, ..PLAIN }.fresh(Sim::new());
            let most = rig.log.max_value_bytes();
            assert_eq!(most, (entries * 3 / 8 - 1) * PAGE_BYTES);
            rig.sim.block_on(async {
                for arrival in [Arrival::Inline, Arrival::Dma, Arrival::Hybrid] {
                    rig.store(10, Arrival::Inline, 9).await.unwrap();
                    let value = rig.store(most, arrival, 1).await.unwrap();
                    read(&rig.log, value, 0, most).await.unwrap();
                    let refused = rig.store(most + 1, arrival, 1).await.err();
                    assert_eq!(refused, Some(Status::INVALID_VALUE_SIZE));
                }
            });
        }
    }
}

/// With the board's numbers, 2 MiB fit.
#[test]
fn the_published_buffer_takes_values_of_two_mebibytes() {
    let pool = SegmentPool::new(4096, 256, Reserve { index_segments: 1, gc_segments: 1 }, |_| ());
    let packing = PackingConfig { policy: "backfill".to_string(), dlt_entries: 512 };
    let shape = Shape::new(&packing, &pool, 16384, 512).unwrap();
    assert_eq!(shape.max_value_bytes(), 2 << 20);
}

/// The host may pin its share of the buffer and no more, and can stop nobody with it.
#[test]
fn unfinished_values_interrupt_only_each_other() {
    let rig = PLAIN.fresh(Sim::new());
    rig.sim.block_on(async {
        let mut unfinished: Vec<Place> = Vec::new();
        let refused = loop {
            match rig.log.reserve(Head::Host, PAGE_BYTES, Arrival::Inline).await {
                Ok(place) => unfinished.push(place),
                Err(status) => break status,
            }
        };
        assert_eq!((refused, unfinished.len()), (Status::COMMAND_INTERRUPTED, 6));
        assert_eq!(rig.log.statistics().interrupted, 1);
        let most = rig.log.max_value_bytes();
        let large = rig.store(most, Arrival::Dma, 1).await.unwrap();
        let mut moved = rig.log.reserve(Head::Gc, most, Arrival::Inline).await.unwrap();
        moved.write(0, content(2, most));
        moved.landed();
        rig.buffer.drain().await;
        read(&rig.log, large, 0, most).await.unwrap();
        unfinished.pop();
        rig.store(PAGE_BYTES, Arrival::Inline, 3).await.unwrap();
        unfinished.clear();
        rig.kill(large);
    });
    assert_eq!(rig.buffer.occupancy(), (ENTRIES, 0, 0));
}

/// Large values side by side wait for each other's pages, all or nothing.
#[test]
fn large_values_side_by_side_all_get_in() {
    for seed in 0..10 {
        for eviction in [Eviction::Wait, Eviction::Overlap] {
            let rig = Rc::new(Setup { eviction, ..PLAIN }.fresh(Sim::permuted(seed)));
            let tasks: Vec<_> = (0..12)
                .map(|task| {
                    let rig = rig.clone();
                    rig.sim.clone().spawn(async move {
                        let bytes = rig.log.max_value_bytes() - task as u32;
                        let mut place = rig.log.reserve(Head::Host, bytes, Arrival::Dma).await.unwrap();
                        rig.sim.sleep(50_000 * (task % 3)).await; // DMA takes its time
                        place.write(0, content(task, bytes));
                        place.landed();
                        rig.log.note_live(place.address(), bytes);
                        Value { address: place.address(), bytes, seed: task }
                    })
                })
                .collect();
            rig.sim.block_on(async {
                for task in tasks {
                    let value = task.join().await;
                    read(&rig.log, value, 0, value.bytes).await.unwrap();
                }
            });
            rig.check_image();
        }
    }
}

/// A page that drains half full goes on being filled, and its later bytes survive a cut; one that is on flash only
/// after a cut gets no more.
#[test]
fn a_drained_page_is_filled_further_across_cuts() {
    let setup = PLAIN;
    let mut rig = setup.fresh(Sim::new());
    let mut values = Vec::new();
    let mut pages = Vec::new();
    for round in 0..4 {
        rig.sim.block_on(async {
            values.push(rig.store(100, Arrival::Inline, 2 * round).await.unwrap());
            rig.log.drain().await;
            if round % 2 == 0 {
                values.push(rig.store(100, Arrival::Inline, 2 * round + 1).await.unwrap());
            }
        });
        rig.check_image();
        let media = rig.ftl.flash().media_image(&mut Rng::stream(round, "cut"));
        let image = rig.journal.0.borrow().encode();
        rig.sim.clear();
        rig = setup.power_on(Sim::new(), &media, &image).unwrap();
        rig.check_image();
        rig.sim.block_on(async {
            for value in &values {
                read(&rig.log, *value, 0, value.bytes).await.unwrap();
            }
        });
        pages.push(values.last().unwrap().address.0 / u64::from(PAGE_BYTES));
    }
    // Rounds 0 and 2 end with the page buffered, rounds 1 and 3 with it on flash only.
    assert_eq!(pages, [0, 0, 1, 1]);
}

#[test]
fn backfill_gives_gaps_up_when_their_pages_must_leave() {
    let rig = Setup::named("backfill").fresh(Sim::new());
    rig.sim.block_on(async {
        let mut values = vec![rig.store(10, Arrival::Inline, 0).await.unwrap()];
        for seed in 1..60 {
            values.push(rig.store(4000, Arrival::Dma, seed).await.unwrap());
        }
        values.push(rig.store(10, Arrival::Inline, 60).await.unwrap());
        for value in values {
            read(&rig.log, value, 0, value.bytes).await.unwrap();
        }
    });
    let statistics = rig.log.statistics();
    assert!(statistics.forced_jumps + statistics.table_full_jumps > 0, "{statistics:?}");
    assert_eq!(statistics.pages_opened[0], 30, "two slots a page, and the first one shares with small values");
}

// ---------------------------------------------------------------- everything at once

#[derive(Clone, Debug)]
enum Step {
    Store { key: u8, bytes: u32, arrival: Arrival, pieces: u32, rest_ns: u64 },
    Abandon { bytes: u32, arrival: Arrival, rest_ns: u64 },
    Delete { key: u8 },
    Read { key: u8 },
    Snapshot,
    CheckSnapshot,
    Collect,
    Drain,
    Rest(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![0u32..120, 0u32..6000, 0u32..5 * PAGE_BYTES + 1];
    let arrival = || prop_oneof![Just(Arrival::Inline), Just(Arrival::Dma), Just(Arrival::Hybrid)];
    let rest = || 0..2 * support::PROGRAM_NS;
    prop_oneof![
        16 => (0u8..12, bytes(), arrival(), 1u32..4, rest()).prop_map(|(key, bytes, arrival, pieces, rest_ns)| {
            Step::Store { key, bytes, arrival, pieces, rest_ns }
        }),
        1 => (bytes(), arrival(), rest())
            .prop_map(|(bytes, arrival, rest_ns)| Step::Abandon { bytes, arrival, rest_ns }),
        3 => (0u8..12).prop_map(|key| Step::Delete { key }),
        6 => (0u8..12).prop_map(|key| Step::Read { key }),
        1 => Just(Step::Snapshot),
        1 => Just(Step::CheckSnapshot),
        2 => Just(Step::Collect),
        1 => Just(Step::Drain),
        2 => rest().prop_map(Step::Rest),
    ]
}

type Pairs = BTreeMap<(usize, u8), Value>;

/// What the tasks share: the drive, and an index that is always right.
struct World {
    rig: Rig,
    pairs: RefCell<Pairs>,
    next_seed: Cell<u64>,
    collecting: Cell<bool>,
    collected: Cell<u32>,
}

impl World {
    fn new(rig: Rig, pairs: Pairs, next_seed: u64) -> Rc<World> {
        Rc::new(World {
            rig,
            pairs: RefCell::new(pairs),
            next_seed: Cell::new(next_seed),
            collecting: Cell::new(false),
            collected: Cell::new(0),
        })
    }

    /// Makes a value that has landed the value of `key`. Nothing is awaited between its live bytes and the old one's
    /// death, so a cut sees both or neither.
    fn commit(&self, key: (usize, u8), place: Place, seed: u64) {
        let value = Value { address: place.address(), bytes: place.bytes(), seed };
        self.rig.log.note_live(value.address, value.bytes);
        if let Some(old) = self.pairs.borrow_mut().insert(key, value) {
            self.rig.kill(old);
        }
    }

    async fn store(&self, key: (usize, u8), bytes: u32, arrival: Arrival, pieces: u32, rest_ns: u64) {
        let seed = self.next_seed.replace(self.next_seed.get() + 1);
        for _attempt in 0..3 {
            match self.rig.log.reserve(Head::Host, bytes, arrival).await {
                Ok(mut place) => {
                    let cut = |part: u32| u64::from(bytes) * u64::from(part) / u64::from(pieces);
                    for part in 0..pieces {
                        let (from, to) = (cut(part) as u32, cut(part + 1) as u32);
                        place.write(from, content(seed, bytes).slice(from, to - from));
                        self.rig.sim.sleep(rest_ns / u64::from(pieces)).await;
                    }
                    place.landed();
                    self.commit(key, place, seed);
                    return;
                }
                Err(Status::CAPACITY_EXCEEDED) => self.collect().await,
                Err(Status::COMMAND_INTERRUPTED) => self.rig.sim.sleep(support::PROGRAM_NS).await,
                Err(status) => panic!("a store of {bytes} bytes came to {status}"),
            }
        }
    }

    /// Moves what lives in the segment where least does.
    async fn collect(&self) {
        if self.collecting.replace(true) {
            return;
        }
        let mut best: Option<(u64, SegmentId)> = None;
        self.rig.log.for_each_candidate(&mut |candidate| {
            best = best.into_iter().chain([(candidate.live_bytes, candidate.segment)]).min();
        });
        if let Some((_, segment)) = best {
            self.empty(segment).await;
        }
        self.collecting.set(false);
    }

    async fn empty(&self, segment: SegmentId) {
        let _past = self.rig.log.pin_all();
        let addresses = self.rig.log.addresses(segment);
        let living: Vec<_> = {
            let pairs = self.pairs.borrow();
            let inside = |value: &Value| addresses.contains(&value.address) && value.bytes > 0;
            pairs.iter().filter(|(_, value)| inside(value)).map(|(key, value)| (*key, *value)).collect()
        };
        for (key, old) in living {
            let Ok(mut place) = self.rig.log.reserve(Head::Gc, old.bytes, Arrival::Inline).await else { return };
            let mut at = 0;
            let write = &mut |piece: Piece<'_>| {
                place.write(at, piece);
                at += piece.bytes();
            };
            let moved = self.rig.log.read(old.address, 0, old.bytes, Purpose::ValueGc, write).await;
            match moved {
                Ok(()) => {}
                Err(Status::COMMAND_INTERRUPTED) => return,
                Err(status) => panic!("a live value came to {status}"),
            }
            place.landed();
            if self.pairs.borrow().get(&key) == Some(&old) {
                self.commit(key, place, old.seed);
                self.collected.set(self.collected.get() + 1);
            }
        }
    }

    async fn check(&self, value: Value) {
        match read(&self.rig.log, value, 0, value.bytes).await {
            Ok(()) | Err(Status::COMMAND_INTERRUPTED) => {}
            Err(status) => panic!("{value:?} came to {status}"),
        }
    }

    async fn live(self: Rc<World>, task: usize, steps: Vec<Step>) {
        let mut snapshot: Option<(PastPin, Pairs)> = None;
        for step in steps {
            match step {
                Step::Store { key, bytes, arrival, pieces, rest_ns } => {
                    self.store((task, key), bytes, arrival, pieces, rest_ns).await;
                }
                Step::Abandon { bytes, arrival, rest_ns } => {
                    let place = self.rig.log.reserve(Head::Host, bytes, arrival).await;
                    self.rig.sim.sleep(rest_ns).await;
                    drop(place);
                }
                Step::Delete { key } => {
                    if let Some(old) = self.pairs.borrow_mut().remove(&(task, key)) {
                        self.rig.kill(old);
                    }
                }
                Step::Read { key } => {
                    let _past = self.rig.log.pin_all();
                    let found = self.pairs.borrow().get(&(task, key)).copied();
                    self.rig.sim.sleep(1000).await; // the lookup
                    if let Some(value) = found {
                        self.check(value).await;
                    }
                }
                Step::Snapshot => snapshot = Some((self.rig.log.pin_all(), self.pairs.borrow().clone())),
                Step::CheckSnapshot => {
                    for value in snapshot.iter().flat_map(|(_, pairs)| pairs.values()) {
                        self.check(*value).await;
                    }
                }
                Step::Collect => self.collect().await,
                Step::Drain => self.rig.log.drain().await,
                Step::Rest(span) => self.rig.sim.sleep(span).await,
            }
        }
    }

    /// Every pair is there, and nothing else counts as live.
    fn check_all(&self) {
        let pairs = self.pairs.borrow().clone();
        self.rig.sim.block_on(async {
            for value in pairs.values() {
                read(&self.rig.log, *value, 0, value.bytes).await.unwrap();
            }
        });
        let living: u64 = pairs.values().map(|value| u64::from(value.bytes)).sum();
        assert_eq!(self.rig.log.live_bytes(), living);
    }
}

/// Runs scripts side by side, comparing images after every event. Every `cut_every` events the power is cut, in a copy
/// of the drive, which must have every pair; the last such copy is handed back with its pairs.
fn run(world: &Rc<World>, setup: Setup, scripts: &[Vec<Step>], cut_every: u64) -> Option<(Rig, Pairs)> {
    let sim = world.rig.sim.clone();
    sim.step_every_event();
    let tasks: Vec<_> = scripts
        .iter()
        .enumerate()
        .map(|(task, steps)| sim.spawn(world.clone().live(task, steps.clone())))
        .collect();
    let mut survivor = None;
    while sim.step() {
        world.rig.check_image();
        if sim.events() % cut_every == 0 {
            let media = world.rig.ftl.flash().media_image(&mut Rng::stream(sim.events(), "cut"));
            let image = world.rig.journal.0.borrow().encode();
            let again = setup.power_on(Sim::new(), &media, &image).unwrap();
            again.check_image();
            let world = World::new(again, world.pairs.borrow().clone(), 0);
            world.check_all();
            let World { rig, pairs, .. } = Rc::into_inner(world).unwrap();
            survivor = Some((rig, pairs.into_inner()));
        }
    }
    for task in tasks {
        assert!(task.try_take().is_some(), "a task waits for ever");
    }
    world.check_all();
    assert_eq!(world.rig.buffer.occupancy().1, 0, "a pin was left");
    survivor
}

fn setup() -> impl Strategy<Value = Setup> {
    (0..PACKINGS.len(), any::<bool>(), 14u32..20).prop_map(|(row, overlap, entries)| {
        let eviction = if overlap { Eviction::Overlap } else { Eviction::Wait };
        Setup { row, eviction, entries }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn values_survive_each_other_collection_and_cuts(
        setup in setup(),
        scripts in proptest::collection::vec(proptest::collection::vec(step(), 1..60), 1..5),
        after in proptest::collection::vec(step(), 1..40),
        cut_every in 20u64..300,
        seed in any::<u64>(),
    ) {
        let limit = setup.entries * 3 / 8 - 1;
        let fits = |step: &Step| !matches!(step, Step::Store { bytes, .. } | Step::Abandon { bytes, .. }
            if *bytes > limit * PAGE_BYTES);
        let scripts: Vec<Vec<Step>> =
            scripts.into_iter().map(|steps| steps.into_iter().filter(fits).collect()).collect();
        let world = World::new(setup.fresh(Sim::permuted(seed)), BTreeMap::new(), 0);
        let survivor = run(&world, setup, &scripts, cut_every);
        // Life goes on after the last cut.
        if let Some((rig, pairs)) = survivor {
            let after = after.into_iter().filter(fits).collect();
            let world = World::new(rig, pairs, 1 << 32);
            run(&world, setup, &[after], u64::MAX);
        }
    }
}

/// Long enough to wrap the drive many times, with collection that moves values.
#[test]
fn collection_keeps_a_crowded_log_going() {
    for row in 0..PACKINGS.len() {
        let setup = Setup { row, ..PLAIN };
        let world = World::new(setup.fresh(Sim::new()), BTreeMap::new(), 0);
        let mut rng = Rng::stream(row as u64, "crowded");
        let script = |rng: &mut Rng| {
            let store = |rng: &mut Rng| Step::Store {
                key: rng.below(110) as u8,
                bytes: 2000 + rng.below(12_000) as u32,
                arrival: [Arrival::Inline, Arrival::Dma][rng.below(2) as usize],
                pieces: 1,
                rest_ns: 0,
            };
            (0..700).map(|_| store(rng)).collect::<Vec<_>>()
        };
        let scripts = [script(&mut rng)];
        run(&world, setup, &scripts, u64::MAX);
        let statistics = world.rig.log.statistics();
        let row = PACKINGS[row].name;
        assert!(world.collected.get() > 20, "{row}: {} values moved", world.collected.get());
        assert!(statistics.segments_freed > 60, "{row}: {statistics:?}");
    }
}

// ---------------------------------------------------------------- bytes from outside

/// Every byte of an image changed once: it is refused, or it is an image of something; never a panic.
#[test]
fn altered_images_are_refused_or_usable() {
    let setup = Setup::named("backfill");
    let rig = setup.fresh(Sim::new());
    rig.sim.block_on(async {
        for seed in 0..12 {
            rig.store(10, Arrival::Inline, seed).await.unwrap();
            rig.store(5000, Arrival::Dma, seed).await.unwrap();
        }
        rig.log.drain().await;
        rig.store(10, Arrival::Inline, 1).await.unwrap();
        rig.store(5000, Arrival::Dma, 1).await.unwrap();
    });
    let image = rig.log.save().encode();
    assert!(image.len() < 2000, "{} bytes", image.len());
    let mut refused = 0;
    for index in 0..image.len() {
        for flip in [1, 0x80] {
            let mut altered = image.clone();
            altered[index] ^= flip;
            let sim = Sim::new();
            let (pool, buffer, shape) = setup.rooms(&sim, &rig.ftl);
            let restored = ProtectedValueLog::decode(&altered, &shape)
                .and_then(|image| ValueLog::restore(&sim, &shape, &pool, &buffer, image));
            refused += u32::from(restored.is_err());
        }
    }
    assert!(refused > 100, "{refused} of {}", 2 * image.len());
    for length in 0..image.len() {
        assert!(ProtectedValueLog::decode(&image[..length], &rig.shape).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64), tag in 0u8..12) {
        let rig = PLAIN.fresh(Sim::new());
        rig.sim.block_on(async { rig.store(100, Arrival::Inline, 1).await.unwrap() });
        let mut image = rig.log.save();
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        if let Some(record) = Record::decode(&bytes) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
            let _ = image.apply(&record);
        }
    }
}
