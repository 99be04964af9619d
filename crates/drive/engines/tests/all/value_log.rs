//! The value log, corner by corner, and against bytes from outside. All of it together is tested in
//! `value_log_storm`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece};
use kvdrive_engines::packing::{PACKINGS, PackingConfig, PackingCosts};
use kvdrive_engines::page_buffer::{Eviction, PageBuffer};
use kvdrive_engines::value_log::{
    DamagedLog, Head, LogImage, LogShape, Place, ProtectedValueLog, Record, RecordSink, Reserve, SegmentId,
    SegmentPool, Vaddr, ValueLog,
};
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::media::{self, MediaOptions};
use kvdrive_flash::{FlashConfig, FlashPort, Purpose};
use kvdrive_link::Arrival;
use kvdrive_nvme::Status;
use kvdrive_record::{decode, encode};
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;

use super::support;

pub(super) const PAGE_BYTES: u32 = 8192;
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
pub(super) struct Folded(pub(super) RefCell<ProtectedValueLog>);

impl RecordSink for Folded {
    fn record(&self, record: Record<'_>) {
        let decoded: Record<'_> = decode(&encode(&record)).expect("a record is understood");
        self.0.borrow_mut().apply(decoded).unwrap_or_else(|error| panic!("{error}: {record:?}"));
    }
}

impl Folded {
    /// The bytes of the image.
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self.0.borrow_mut().image())
    }
}

/// The image in these bytes.
fn image_of(bytes: &[u8], shape: &LogShape) -> Result<ProtectedValueLog, DamagedLog> {
    let image = decode::<LogImage>(bytes).map_err(|_| DamagedLog("it is no image"))?;
    ProtectedValueLog::restore(image, shape)
}

/// A drive with only a value log.
pub(super) struct Rig {
    pub(super) sim: Sim,
    pub(super) ftl: Ftl,
    pub(super) pool: SegmentPool,
    pub(super) buffer: PageBuffer,
    pub(super) log: ValueLog,
    pub(super) shape: LogShape,
    pub(super) journal: Rc<Folded>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) row: usize,
    pub(super) eviction: Eviction,
    pub(super) entries: u32,
}

pub(super) const PLAIN: Setup = Setup { row: 1, eviction: Eviction::Wait, entries: ENTRIES };

impl Setup {
    fn named(policy: &str) -> Setup {
        Setup { row: PACKINGS.iter().position(|row| row.name == policy).unwrap(), ..PLAIN }
    }

    fn rooms(&self, sim: &Sim, ftl: &Ftl) -> (SegmentPool, PageBuffer, LogShape) {
        let trimming = ftl.clone();
        let reserve = Reserve { index_segments: 0, gc_segments: 2 };
        let pool = SegmentPool::new(ftl.logical_pages(), SEGMENT_PAGES, reserve, move |lpas| {
            lpas.for_each(|lpa| trimming.trim(Lpa(lpa)));
        });
        let buffer = PageBuffer::new(sim, Some(ftl.clone()), self.entries, self.eviction, PAGE_BYTES);
        let shape = LogShape::new(&self.packing(), &pool, PAGE_BYTES, self.entries).unwrap();
        (pool, buffer, shape)
    }

    fn packing(&self) -> PackingConfig {
        let (policy, costs) = (PACKINGS[self.row].name.to_string(), PackingCosts::default());
        PackingConfig { policy, dlt_entries: 4, slots_cross_pages: false, costs, own: None }
    }

    pub(super) fn fresh(&self, sim: Sim) -> Rig {
        let config = flash_config();
        let media = (media::kind("tags").unwrap().open)(&config.geometry(), &MediaOptions::default());
        let ftl = Ftl::new(FlashPort::new(&sim, config, media.unwrap()), &support::ftl_config());
        let (pool, buffer, shape) = self.rooms(&sim, &ftl);
        let log = ValueLog::new(&sim, &shape, &pool, &buffer);
        Rig::with(sim, ftl, pool, buffer, log, shape)
    }

    /// Powers on: only these two byte strings are left.
    pub(super) fn power_on(&self, sim: Sim, media: &[u8], image: &[u8]) -> Result<Rig, DamagedLog> {
        let config = flash_config();
        let media = media::from_image("tags", &config.geometry(), media).unwrap();
        let port = FlashPort::new(&sim, config, media);
        let mut found = Vec::new();
        let ftl = sim.block_on(|| {
            Ftl::recover(port, &support::ftl_config(), &mut |lpa, kind, tag| {
                found.push((lpa, kind, *tag));
            })
        });
        let (pool, buffer, shape) = self.rooms(&sim, &ftl);
        let image = image_of(image, &shape)?;
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
        shape: LogShape,
    ) -> Rig {
        let journal = Rc::new(Folded(RefCell::new(log.save())));
        log.attach(&journal);
        Rig { sim, ftl, pool, buffer, log, shape, journal }
    }

    /// Checks that the image folded from records equals the present state.
    pub(super) fn check_image(&self) {
        let (folded, saved) = (self.journal.encode(), encode(self.log.save().image()));
        assert!(folded == saved, "the folded image is not the state at {} ns", self.sim.now());
        if self.sim.events().is_multiple_of(16) {
            let mut again = image_of(&folded, &self.shape).unwrap();
            assert!(encode(again.image()) == folded, "an image does not survive its own bytes");
        }
    }

    fn store(&self, bytes: u32, arrival: Arrival, seed: u64) -> Result<Value, Status> {
        let mut place = self.log.reserve(Head::Host, bytes, arrival)?;
        place.write(0, content(seed, bytes));
        place.landed();
        self.log.note_live(place.address(), bytes);
        Ok(Value { address: place.address(), bytes, seed })
    }

    pub(super) fn kill(&self, value: Value) {
        self.log.note_dead(value.address, value.bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) address: Vaddr,
    pub(super) bytes: u32,
    pub(super) seed: u64,
}

pub(super) fn content(seed: u64, bytes: u32) -> Piece<'static> {
    Piece::Pattern(Pattern { seed, offset: 0, bytes })
}

pub(super) fn read(log: &ValueLog, value: Value, at: u32, bytes: u32) -> Result<(), Status> {
    read_of(log, value, at, bytes, at + bytes)
}

/// Reads a part of a value, of a read that goes up to byte `until`, and checks it.
fn read_of(log: &ValueLog, value: Value, at: u32, bytes: u32, until: u32) -> Result<(), Status> {
    let mut found = Vec::new();
    log.read(value.address, at, bytes, until, Purpose::Lookup, &mut |piece| {
        let from = found.len();
        found.resize(from + piece.bytes() as usize, 0);
        piece.expand(&mut found[from..]);
    })?;
    let mut expected = vec![0; bytes as usize];
    content(value.seed, value.bytes).slice(at, bytes).expand(&mut expected);
    assert!(found == expected, "wrong bytes for {value:?}");
    Ok(())
}

/// Pages of the host are smaller than those of flash; a value of many pages is read from flash in the same
/// time by either.
#[test]
fn a_value_that_is_read_part_by_part_is_read_ahead_as_one_that_is_read_at_once() {
    let [at_once, by_parts] = [u32::MAX, 4096].map(|part_bytes| {
        let rig = Setup { entries: 64, ..PLAIN }.fresh(Sim::new());
        let value = rig.sim.block_on(|| {
            rig.store(3000, Arrival::Dma, 1).unwrap();
            let value = rig.store(7 * PAGE_BYTES, Arrival::Dma, 2).unwrap();
            // Other values take its place in the buffer.
            for seed in 0..80 {
                rig.store(PAGE_BYTES, Arrival::Dma, 3 + seed).unwrap();
            }
            rig.log.drain();
            value
        });
        let (before, fetched) = (rig.sim.now(), rig.buffer.statistics().fetched);
        rig.sim.block_on(|| {
            let mut at = 0;
            while at < value.bytes {
                let bytes = part_bytes.min(value.bytes - at);
                read_of(&rig.log, value, at, bytes, value.bytes).unwrap();
                at += bytes;
            }
        });
        let fetched = rig.buffer.statistics().fetched - fetched;
        assert!(fetched >= 7, "it was in the buffer");
        (rig.sim.now() - before, fetched)
    });
    assert_eq!(by_parts, at_once);
}

#[test]
fn a_segment_whose_values_are_dead_is_given_back() {
    let rig = PLAIN.fresh(Sim::new());
    let all = rig.pool.free_count();
    rig.sim.block_on(|| {
        let mut values = Vec::new();
        for seed in 0..3 * u64::from(SEGMENT_PAGES) {
            values.push(rig.store(PAGE_BYTES, Arrival::Dma, seed).unwrap());
        }
        assert_eq!(rig.pool.free_count(), all - 3);
        let lookup = rig.log.pin_all();
        let dying = values.drain(..SEGMENT_PAGES as usize).collect::<Vec<_>>();
        dying.iter().for_each(|value| rig.kill(*value));
        assert_eq!(rig.pool.free_count(), all - 3, "a lookup under way may read it");
        for value in dying {
            read(&rig.log, value, 0, value.bytes).unwrap();
        }
        drop(lookup);
        assert_eq!(rig.pool.free_count(), all - 2);
        for value in values {
            read(&rig.log, value, 5, value.bytes - 9).unwrap();
            rig.kill(value);
        }
        assert_eq!((rig.pool.free_count(), rig.log.live_bytes(), rig.log.segments_in_use()), (all, 0, 0));
        assert_eq!(rig.log.statistics().segments_freed, 3);
    });
    rig.check_image();
}

#[test]
fn a_segment_that_was_given_back_and_opened_again_is_not_the_one_that_was_collected() {
    let rig = PLAIN.fresh(Sim::new());
    let candidate_of = |segment: SegmentId| {
        let mut found = None;
        rig.log.for_each_candidate(&mut |candidate| {
            found = found.or(Some(candidate).filter(|candidate| candidate.segment == segment));
        });
        found
    };
    rig.sim.block_on(|| {
        let mut values = VecDeque::new();
        let mut victim = None;
        for seed in 0.. {
            values.push_back(rig.store(PAGE_BYTES, Arrival::Dma, seed).unwrap());
            victim = victim.or_else(|| candidate_of(rig.log.segment_of(values[0].address)));
            // The oldest value dies, so that the log reuses segments in turn.
            if values.len() > 2 * SEGMENT_PAGES as usize {
                rig.kill(values.pop_front().expect("there are many"));
            }
            let Some(victim) = victim else { continue };
            if candidate_of(victim.segment).is_some_and(|now| now.opening != victim.opening) {
                break;
            }
        }
        let victim = victim.expect("a sealed segment");
        let state = (rig.log.live_bytes(), rig.pool.free_count());
        rig.log.note_all_dead(&victim);
        assert_eq!((rig.log.live_bytes(), rig.pool.free_count()), state);
        for value in &values {
            read(&rig.log, *value, 0, value.bytes).unwrap();
        }
        rig.log.note_all_dead(&candidate_of(victim.segment).expect("it is sealed"));
        assert!(rig.log.live_bytes() < state.0);
    });
}

#[test]
fn a_value_that_arrives_keeps_its_segment() {
    let rig = PLAIN.fresh(Sim::new());
    let all = rig.pool.free_count();
    rig.sim.block_on(|| {
        let mut place = rig.log.reserve(Head::Host, 100, Arrival::Inline).unwrap();
        let fill = rig.store(5 * PAGE_BYTES, Arrival::Dma, 1).unwrap();
        let next = rig.store(5 * PAGE_BYTES, Arrival::Dma, 2).unwrap();
        rig.kill(fill);
        assert_eq!(rig.pool.free_count(), all - 2, "sealed and nothing lives in it, but a value comes");
        place.write(0, content(3, 100));
        place.landed();
        rig.log.note_live(place.address(), 100);
        let late = Value { address: place.address(), bytes: 100, seed: 3 };
        drop(place);
        read(&rig.log, late, 0, 100).unwrap();
        let abandoned = rig.log.reserve(Head::Host, 100, Arrival::Inline).unwrap();
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
    rig.sim.block_on(|| {
        let value = rig.store(0, Arrival::Inline, 1).unwrap();
        read(&rig.log, value, 0, 0).unwrap();
        rig.kill(value);
    });
    assert_eq!(rig.log.statistics().segments_opened, 0);
}

#[test]
fn a_full_log_refuses_and_takes_values_again_once_others_died() {
    for (row, packing) in PACKINGS.iter().enumerate() {
        let rig = Setup { row, ..PLAIN }.fresh(Sim::new());
        let sizes = [3000, 10, 9000, 700, 20_000];
        for cycle in 0..5 {
            let mut values = Vec::new();
            let refused = rig.sim.block_on(|| {
                loop {
                    let seed = values.len() as u64;
                    let bytes = sizes[values.len() % 5];
                    let arrival = if bytes < 100 { Arrival::Inline } else { Arrival::Dma };
                    match rig.store(bytes, arrival, seed) {
                        Ok(value) => values.push(value),
                        Err(status) => return status,
                    }
                }
            });
            assert_eq!(refused, Status::CAPACITY_EXCEEDED);
            rig.check_image();
            assert_eq!(rig.pool.free_count(), 2, "the reserve is left");
            rig.sim.block_on(|| {
                // A refusal changes nothing: the store is refused again, and collection may take the reserve.
                let again = rig.store(20_000, Arrival::Dma, 0).err();
                assert_eq!(again, Some(Status::CAPACITY_EXCEEDED));
                let moved = rig.log.reserve(Head::Gc, 20_000, Arrival::Inline);
                drop(moved.expect("collection may take the reserve"));
                for value in &values {
                    read(&rig.log, *value, 0, value.bytes).unwrap();
                }
            });
            values.iter().for_each(|value| rig.kill(*value));
            let row = packing.name;
            assert!(rig.log.segments_in_use() <= 3, "{row}, cycle {cycle}: {}", rig.log.segments_in_use());
        }
    }
}

#[test]
fn values_too_large_for_the_log_are_refused_and_all_that_the_buffer_takes_fit() {
    for row in 0..PACKINGS.len() {
        for entries in [8, 11, 16] {
            let rig = Setup { row, entries, ..PLAIN }.fresh(Sim::new());
            let most = rig.log.packed_max_bytes();
            assert_eq!(most, (entries * 3 / 8 - 1) * PAGE_BYTES);
            rig.sim.block_on(|| {
                for arrival in [Arrival::Inline, Arrival::Dma, Arrival::Hybrid] {
                    rig.store(10, Arrival::Inline, 9).unwrap();
                    let value = rig.store(most, arrival, 1).unwrap();
                    read(&rig.log, value, 0, most).unwrap();
                    let refused = rig.store(rig.log.max_value_bytes() + 1, arrival, 1).err();
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
    let packing = PackingConfig {
        policy: "backfill".to_string(),
        dlt_entries: 512,
        slots_cross_pages: false,
        costs: PackingCosts::default(),
        own: None,
    };
    let shape = LogShape::new(&packing, &pool, 16384, 512).unwrap();
    assert_eq!(shape.packed_max_bytes(), 2 << 20);
}

/// The host may pin its share of the buffer and no more, and blocks no other task by that.
#[test]
fn unfinished_values_interrupt_only_each_other() {
    let rig = PLAIN.fresh(Sim::new());
    rig.sim.block_on(|| {
        let mut unfinished: Vec<Place> = Vec::new();
        let refused = loop {
            match rig.log.reserve(Head::Host, PAGE_BYTES, Arrival::Inline) {
                Ok(place) => unfinished.push(place),
                Err(status) => break status,
            }
        };
        assert_eq!((refused, unfinished.len()), (Status::COMMAND_INTERRUPTED, 6));
        assert_eq!(rig.log.statistics().interrupted, 1);
        let most = rig.log.packed_max_bytes();
        let large = rig.store(most, Arrival::Dma, 1).unwrap();
        let mut moved = rig.log.reserve(Head::Gc, most, Arrival::Inline).unwrap();
        moved.write(0, content(2, most));
        moved.landed();
        rig.buffer.drain();
        read(&rig.log, large, 0, most).unwrap();
        unfinished.pop();
        rig.store(PAGE_BYTES, Arrival::Inline, 3).unwrap();
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
                    rig.sim.clone().spawn(move || {
                        let bytes = rig.log.packed_max_bytes() - task as u32;
                        let mut place = rig.log.reserve(Head::Host, bytes, Arrival::Dma).unwrap();
                        rig.sim.sleep(50_000 * (task % 3)); // DMA takes its time
                        place.write(0, content(task, bytes));
                        place.landed();
                        rig.log.note_live(place.address(), bytes);
                        Value { address: place.address(), bytes, seed: task }
                    })
                })
                .collect();
            rig.sim.block_on(|| {
                for task in tasks {
                    let value = task.join();
                    read(&rig.log, value, 0, value.bytes).unwrap();
                }
            });
            rig.check_image();
        }
    }
}

/// A page that is drained half full is filled further, and its later bytes survive a cut; a page that is only
/// on flash after a cut is filled no further.
#[test]
fn a_drained_page_is_filled_further_across_cuts() {
    let setup = PLAIN;
    let mut rig = setup.fresh(Sim::new());
    let mut values = Vec::new();
    let mut pages = Vec::new();
    for round in 0..4 {
        rig.sim.block_on(|| {
            values.push(rig.store(100, Arrival::Inline, 2 * round).unwrap());
            rig.log.drain();
            if round % 2 == 0 {
                values.push(rig.store(100, Arrival::Inline, 2 * round + 1).unwrap());
            }
        });
        rig.check_image();
        let media = rig.ftl.flash().media_image(&mut Rng::stream(round, "cut"));
        let image = rig.journal.encode();
        rig.sim.clear();
        rig = setup.power_on(Sim::new(), &media, &image).unwrap();
        rig.check_image();
        rig.sim.block_on(|| {
            for value in &values {
                read(&rig.log, *value, 0, value.bytes).unwrap();
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
    rig.sim.block_on(|| {
        let mut values = vec![rig.store(10, Arrival::Inline, 0).unwrap()];
        for seed in 1..60 {
            values.push(rig.store(4000, Arrival::Dma, seed).unwrap());
        }
        values.push(rig.store(10, Arrival::Inline, 60).unwrap());
        for value in values {
            read(&rig.log, value, 0, value.bytes).unwrap();
        }
    });
    let statistics = rig.log.statistics();
    assert!(statistics.forced_jumps + statistics.table_full_jumps > 0, "{statistics:?}");
    assert_eq!(
        statistics.pages_opened[0], 30,
        "two slots a page, and the first one shares with small values"
    );
}

/// Every byte of an image changed once: the image is refused, or is a valid image; never a panic.
#[test]
fn altered_images_are_refused_or_usable() {
    let setup = Setup::named("backfill");
    let rig = setup.fresh(Sim::new());
    rig.sim.block_on(|| {
        for seed in 0..12 {
            rig.store(10, Arrival::Inline, seed).unwrap();
            rig.store(5000, Arrival::Dma, seed).unwrap();
        }
        rig.log.drain();
        rig.store(10, Arrival::Inline, 1).unwrap();
        rig.store(5000, Arrival::Dma, 1).unwrap();
    });
    let image = encode(rig.log.save().image());
    assert!(image.len() < 2000, "{} bytes", image.len());
    let mut refused = 0;
    for index in 0..image.len() {
        for flip in [1, 0x80] {
            let mut altered = image.clone();
            altered[index] ^= flip;
            let sim = Sim::new();
            let (pool, buffer, shape) = setup.rooms(&sim, &rig.ftl);
            let restored = image_of(&altered, &shape)
                .and_then(|image| ValueLog::restore(&sim, &shape, &pool, &buffer, image));
            refused += u32::from(restored.is_err());
        }
    }
    assert!(refused > 100, "{refused} of {}", 2 * image.len());
    for length in 0..image.len() {
        assert!(image_of(&image[..length], &rig.shape).is_err());
    }
}

#[test]
#[should_panic(expected = "bytes come before the value has landed")]
fn bytes_after_the_landing_are_not_lost_silently() {
    let rig = PLAIN.fresh(Sim::new());
    rig.sim.block_on(|| {
        let mut place = rig.log.reserve(Head::Host, 100, Arrival::Inline).unwrap();
        place.landed();
        place.write(0, Piece::Bytes(&[1; 100]));
    });
}

#[test]
#[should_panic(expected = "page_bytes: 3000")]
fn a_page_is_a_power_of_two_of_bytes() {
    let (sim, entries, page_bytes) = (Sim::new(), PLAIN.entries, 3000);
    let pool = SegmentPool::new(64, SEGMENT_PAGES, Reserve { index_segments: 0, gc_segments: 2 }, |_| ());
    let buffer = PageBuffer::new(&sim, None, entries, Eviction::Wait, page_bytes);
    let shape = LogShape::new(&PLAIN.packing(), &pool, page_bytes, entries).unwrap();
    ValueLog::new(&sim, &shape, &pool, &buffer);
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64), tag in 0u8..12) {
        let rig = PLAIN.fresh(Sim::new());
        rig.sim.block_on(|| { rig.store(100, Arrival::Inline, 1).unwrap() });
        let mut image = rig.log.save();
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        if let Ok(record) = decode::<Record<'_>>(&bytes) {
            prop_assert_eq!(&encode(&record), &bytes);
            let _ = image.apply(record);
        }
    }
}
