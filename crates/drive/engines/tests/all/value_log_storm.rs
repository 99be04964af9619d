//! All operations of a value log at the same time: several tasks, every packing policy, both eviction modes,
//! garbage collection, snapshots, power cuts. At every event the saved image must equal the folded records.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_engines::page_buffer::Eviction;
use kvdrive_engines::value_log::{Head, PastPin, Place, SegmentId};
use kvdrive_flash::Purpose;
use kvdrive_link::Arrival;
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;

use super::support;
use super::value_log::{PAGE_BYTES, PLAIN, Rig, Setup, Value, content, read};

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

/// State that tasks share: the drive, and an index that is always right.
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

    /// Makes a landed value the value of `key`. The task does not suspend between its live bytes and the old
    /// value's death, so a cut has both or neither.
    fn commit(&self, key: (usize, u8), place: Place, seed: u64) {
        let value = Value { address: place.address(), bytes: place.bytes(), seed };
        self.rig.log.note_live(value.address, value.bytes);
        if let Some(old) = self.pairs.borrow_mut().insert(key, value) {
            self.rig.kill(old);
        }
    }

    fn store(&self, key: (usize, u8), bytes: u32, arrival: Arrival, pieces: u32, rest_ns: u64) {
        let seed = self.next_seed.replace(self.next_seed.get() + 1);
        for _attempt in 0..3 {
            match self.rig.log.reserve(Head::Host, bytes, arrival) {
                Ok(mut place) => {
                    let cut = |part: u32| u64::from(bytes) * u64::from(part) / u64::from(pieces);
                    for part in 0..pieces {
                        let (from, to) = (cut(part) as u32, cut(part + 1) as u32);
                        place.write(from, content(seed, bytes).slice(from, to - from));
                        self.rig.sim.sleep(rest_ns / u64::from(pieces));
                    }
                    place.landed();
                    self.commit(key, place, seed);
                    return;
                }
                Err(Status::CAPACITY_EXCEEDED) => self.collect(),
                Err(Status::COMMAND_INTERRUPTED) => self.rig.sim.sleep(support::PROGRAM_NS),
                Err(status) => panic!("a store of {bytes} bytes came to {status}"),
            }
        }
    }

    /// Moves the live values of the segment that has the fewest live bytes.
    fn collect(&self) {
        if self.collecting.replace(true) {
            return;
        }
        let mut best: Option<(u64, SegmentId)> = None;
        self.rig.log.for_each_candidate(&mut |candidate| {
            best = best.into_iter().chain([(candidate.live_bytes, candidate.segment)]).min();
        });
        if let Some((_, segment)) = best {
            self.empty(segment);
        }
        self.collecting.set(false);
    }

    fn empty(&self, segment: SegmentId) {
        let _past = self.rig.log.pin_all();
        let addresses = self.rig.log.addresses(segment);
        let living: Vec<_> = {
            let pairs = self.pairs.borrow();
            let inside = |value: &Value| addresses.contains(&value.address) && value.bytes > 0;
            pairs.iter().filter(|(_, value)| inside(value)).map(|(key, value)| (*key, *value)).collect()
        };
        for (key, old) in living {
            let Ok(mut place) = self.rig.log.reserve(Head::Gc, old.bytes, Arrival::Inline) else {
                return;
            };
            let mut at = 0;
            let write = &mut |piece: Piece<'_>| {
                place.write(at, piece);
                at += piece.bytes();
            };
            let moved = self.rig.log.read(old.address, 0, old.bytes, old.bytes, Purpose::ValueGc, write);
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

    fn check(&self, value: Value) {
        match read(&self.rig.log, value, 0, value.bytes) {
            Ok(()) | Err(Status::COMMAND_INTERRUPTED) => {}
            Err(status) => panic!("{value:?} came to {status}"),
        }
    }

    fn live(self: Rc<World>, task: usize, steps: Vec<Step>) {
        let mut snapshot: Option<(PastPin, Pairs)> = None;
        for step in steps {
            match step {
                Step::Store { key, bytes, arrival, pieces, rest_ns } => {
                    self.store((task, key), bytes, arrival, pieces, rest_ns);
                }
                Step::Abandon { bytes, arrival, rest_ns } => {
                    let place = self.rig.log.reserve(Head::Host, bytes, arrival);
                    self.rig.sim.sleep(rest_ns);
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
                    self.rig.sim.sleep(1000); // the lookup
                    if let Some(value) = found {
                        self.check(value);
                    }
                }
                Step::Snapshot => snapshot = Some((self.rig.log.pin_all(), self.pairs.borrow().clone())),
                Step::CheckSnapshot => {
                    for value in snapshot.iter().flat_map(|(_, pairs)| pairs.values()) {
                        self.check(*value);
                    }
                }
                Step::Collect => self.collect(),
                Step::Drain => self.rig.log.drain(),
                Step::Rest(span) => self.rig.sim.sleep(span),
            }
        }
    }

    /// Every pair is readable, and no other byte counts as live.
    fn check_all(&self) {
        let pairs = self.pairs.borrow().clone();
        self.rig.sim.block_on(|| {
            for value in pairs.values() {
                read(&self.rig.log, *value, 0, value.bytes).unwrap();
            }
        });
        let living: u64 = pairs.values().map(|value| u64::from(value.bytes)).sum();
        assert_eq!(self.rig.log.live_bytes(), living);
        assert_eq!(self.rig.log.statistics().miscounted_bytes, 0);
    }
}

/// Runs scripts side by side, comparing images after every event. Every `cut_every` events the power is cut
/// in a copy of the drive, which must have every pair; returns the last such copy with its pairs.
fn run(world: &Rc<World>, setup: Setup, scripts: &[Vec<Step>], cut_every: u64) -> Option<(Rig, Pairs)> {
    let sim = world.rig.sim.clone();
    sim.step_every_event();
    let tasks: Vec<_> = scripts
        .iter()
        .enumerate()
        .map(|(task, steps)| {
            let (world, steps) = (world.clone(), steps.clone());
            sim.spawn(move || world.live(task, steps))
        })
        .collect();
    let mut survivor = None;
    while sim.step() {
        world.rig.check_image();
        if sim.events().is_multiple_of(cut_every) {
            let media = world.rig.ftl.flash().media_image(&mut Rng::stream(sim.events(), "cut"));
            let image = world.rig.journal.encode();
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
        // The log continues after the last cut.
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
    for (row, packing) in PACKINGS.iter().enumerate() {
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
        let row = packing.name;
        assert!(world.collected.get() > 20, "{row}: {} values moved", world.collected.get());
        assert!(statistics.segments_freed > 60, "{row}: {statistics:?}");
    }
}
