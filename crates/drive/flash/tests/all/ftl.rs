//! The FTL against an oracle: concurrent writers and readers, collection at high utilization, power cuts at
//! every event, cuts of the life after a cut, damaged pages.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_flash::ftl::victim::VICTIMS;
use kvdrive_flash::ftl::{Ftl, FtlConfig, Lpa, Placement};
use kvdrive_flash::media::{self, MediaOptions};
use kvdrive_flash::{FlashConfig, FlashPort, Media, Ppa, Purpose};
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim, join_all};
use proptest::prelude::*;

/// Two units of six blocks of four pages: 48 pages, 24 logical ones.
pub fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        blocks_per_die: 6,
        page_bytes: 512,
        sense_ns: 1_000,
        program_ns: 10_000,
        erase_ns: 50_000,
        transfer_ns_per_kib: 100,
        ..FlashConfig::default()
    }
}

pub fn config(victim: &str) -> FtlConfig {
    FtlConfig { over_provisioning: 0.07, victim: victim.to_owned(), gc_low_blocks: 2, placement_dies: 2 }
}

pub fn fresh_media(name: &str, flash: &FlashConfig) -> Box<dyn Media> {
    (media::kind(name).unwrap().open)(&flash.geometry(), &MediaOptions::default()).unwrap()
}

fn fresh(sim: &Sim, flash: &FlashConfig, victim: &str) -> Ftl {
    let port = FlashPort::new(sim, flash.clone(), fresh_media("tags", flash));
    Ftl::new(port, &config(victim))
}

/// Version `version` of logical page `lpa`.
pub fn page(lpa: u32, version: u64) -> Rc<Region> {
    let mut region = Region::new();
    region.write(0, Piece::Bytes(&version.to_le_bytes()));
    region.write(8, Piece::Bytes(&lpa.to_le_bytes()));
    region
        .write(100, Piece::Pattern(Pattern { seed: version ^ u64::from(lpa) << 32, offset: 0, bytes: 400 }));
    Rc::new(region)
}

/// The version that a page of `lpa` holds; panics if it is no version of it.
fn version(lpa: u32, data: &Region) -> u64 {
    let mut bytes = [0; 8];
    data.copy_to(0, &mut bytes);
    let version = u64::from_le_bytes(bytes);
    assert_eq!(data.to_bytes(512), page(lpa, version).to_bytes(512), "page {lpa} is no version of itself");
    version
}

pub fn tag(version: u64) -> [u8; 48] {
    let mut tag = [0; 48];
    tag[..8].copy_from_slice(&version.to_le_bytes());
    tag
}

pub fn put(ftl: &Ftl, lpa: u32, version: u64) {
    ftl.write(Lpa(lpa), page(lpa, version), 1, tag(version), Purpose::Value);
}

/// As [`put`]; some pages are freed together with their neighbours.
fn put_placed(ftl: &Ftl, lpa: u32, version: u64) {
    let number = u64::from(lpa / 8);
    let placement = match lpa % 3 {
        0 => Placement::Alone,
        1 => Placement::Together(number),
        _ => Placement::TogetherWide(number),
    };
    ftl.write_placed(Lpa(lpa), page(lpa, version), 1, tag(version), Purpose::Value, placement);
}

fn get(ftl: &Ftl, lpa: u32) -> Option<u64> {
    ftl.read(Lpa(lpa), Purpose::Lookup).ok().map(|data| version(lpa, &data))
}

#[test]
fn pages_are_written_read_and_trimmed() {
    let sim = Sim::new();
    let ftl = fresh(&sim, &flash_config(), "greedy");
    assert_eq!(ftl.logical_pages(), 24);
    sim.block_on(|| {
        assert_eq!(ftl.read(Lpa(3), Purpose::Lookup).unwrap_err(), Status::UNRECOVERED_ERROR);
        assert_eq!(ftl.read(Lpa(1000), Purpose::Lookup).unwrap_err(), Status::UNRECOVERED_ERROR);
        put(&ftl, 3, 1);
        put(&ftl, 3, 2);
        assert_eq!(get(&ftl, 3), Some(2));
        assert!(ftl.is_mapped(Lpa(3)) && !ftl.is_mapped(Lpa(4)));
        ftl.trim(Lpa(3));
        assert_eq!(get(&ftl, 3), None);
        assert_eq!(ftl.statistics().live_pages, 0);
    });
}

#[test]
fn writes_that_do_not_wait_use_all_units() {
    let sim = Sim::new();
    let ftl = fresh(&sim, &FlashConfig { dies_per_channel: 4, ..flash_config() }, "greedy");
    let ftl = &ftl;
    let writes = (0..8).map(|lpa| move || put(ftl, lpa, 1));
    sim.block_on(|| join_all(&sim, writes));
    // Four dies share a channel; a page with its spare area takes 704 / 1024 * 100 ns on it.
    assert_eq!(sim.now(), 4 * 69 + 10_000);
}

#[test]
fn writes_of_one_page_keep_their_order_and_a_trim_stops_them() {
    for seed in 0..20 {
        let sim = Sim::permuted(seed);
        let ftl = fresh(&sim, &flash_config(), "greedy");
        let writer = ftl.clone();
        let sim2 = sim.clone();
        let writes = sim.spawn(move || {
            let writer = &writer;
            join_all(&sim2, (1..=6).map(|version| move || put(writer, 5, version)))
        });
        sim.block_on(|| writes.join());
        assert_eq!(sim.block_on(|| get(&ftl, 5)), Some(6));
        let writer = ftl.clone();
        let write = sim.spawn(move || put(&writer, 5, 7));
        sim.block_on(|| sim.sleep(5_000));
        ftl.trim(Lpa(5));
        sim.block_on(|| write.join());
        assert_eq!((ftl.is_mapped(Lpa(5)), ftl.statistics().live_pages), (false, 0));
    }
}

#[test]
fn a_later_write_of_a_page_wins_even_on_a_faster_unit() {
    let sim = Sim::new();
    let ftl = fresh(&sim, &flash_config(), "greedy");
    sim.block_on(|| {
        put(&ftl, 0, 1);
        put(&ftl, 1, 1);
        // Unit 0 is busy with reads; the next write goes there and the one after it to unit 1.
        for _ in 0..20 {
            let ftl = ftl.clone();
            sim.spawn(move || get(&ftl, 0));
        }
        sim.yield_now();
        join_all(
            &sim,
            [7, 8].map(|version| {
                let ftl = &ftl;
                move || put(ftl, 5, version)
            }),
        );
        assert_eq!(get(&ftl, 5), Some(8));
    });
}

#[test]
fn everything_can_be_overwritten_at_once() {
    let sim = Sim::new();
    let ftl = fresh(&sim, &flash_config(), "greedy");
    for round in 1..20 {
        let ftl = &ftl;
        let writes = (0..ftl.logical_pages()).map(|lpa| move || put_placed(ftl, lpa, round));
        sim.block_on(|| join_all(&sim, writes));
    }
}

#[test]
fn the_least_worn_block_is_written_next() {
    let sim = Sim::new();
    let flash = FlashConfig { channels: 1, blocks_per_die: 16, ..flash_config() };
    let port = FlashPort::new(&sim, flash.clone(), fresh_media("tags", &flash));
    let ftl = Ftl::new(port, &FtlConfig { gc_low_blocks: 8, ..config("greedy") });
    sim.block_on(|| {
        for version in 1..4000 {
            put(&ftl, 0, version);
        }
    });
    let (fewest, most) = ftl.wear();
    assert!(most > 50 && most - fewest <= 2, "{fewest} to {most} erases");
}

/// Writers on disjoint pages, readers on all of them, trims; every read is checked against the last write.
fn churn(seed: u64, victim: &str, writers: u32, writes: u32) -> Ftl {
    let sim = Sim::permuted(seed);
    let ftl = fresh(&sim, &flash_config(), victim);
    let pages = ftl.logical_pages();
    let oracle: Rc<RefCell<BTreeMap<u32, u64>>> = Rc::default();
    let running = Rc::new(Cell::new(writers));
    for writer in 0..writers {
        let (ftl, oracle, running) = (ftl.clone(), oracle.clone(), running.clone());
        sim.spawn(move || {
            let mut rng = Rng::stream(seed, &format!("writer {writer}"));
            let own = (pages - writer).div_ceil(writers);
            for number in 0..writes {
                let lpa = writer + writers * rng.below(own.into()) as u32;
                if rng.one_in(16) {
                    oracle.borrow_mut().remove(&lpa);
                    ftl.trim(Lpa(lpa));
                    continue;
                }
                let version = u64::from(number) + 1;
                put_placed(&ftl, lpa, version);
                oracle.borrow_mut().insert(lpa, version);
            }
            running.set(running.get() - 1);
        });
    }
    for reader in 0..2 {
        let (ftl, running) = (ftl.clone(), running.clone());
        sim.spawn(move || {
            let mut rng = Rng::stream(seed, &format!("reader {reader}"));
            let mut newest = BTreeMap::new();
            while running.get() > 0 {
                let lpa = rng.below(pages.into()) as u32;
                if let Some(version) = get(&ftl, lpa) {
                    let before = newest.insert(lpa, version).unwrap_or(0);
                    assert!(version >= before, "page {lpa} went back from {before} to {version}");
                }
                ftl.flash().sim().sleep(rng.below(3_000));
            }
        });
    }
    sim.run();
    assert_eq!(running.get(), 0, "a writer is stuck");
    sim.block_on(|| {
        for lpa in 0..pages {
            assert_eq!(get(&ftl, lpa), oracle.borrow().get(&lpa).copied(), "page {lpa}, seed {seed}");
        }
    });
    ftl
}

#[test]
fn churn_agrees_with_the_oracle() {
    for kind in VICTIMS {
        for (seed, writers) in [(1, 1), (2, 2), (3, 3), (4, 8), (5, 24)] {
            let ftl = churn(seed, kind.name, writers, 1200 / writers);
            let statistics = ftl.statistics();
            assert!(statistics.copied_pages > 0, "{}: nothing was collected: {statistics:?}", kind.name);
            assert_eq!(ftl.flash().programs(Purpose::FtlGc), statistics.copied_pages);
            assert!(ftl.flash().erases_for(Purpose::FtlGc) >= statistics.collected_blocks);
            let (fewest, most) = ftl.wear();
            assert!(most - fewest <= most / 2 + 8, "{}: wear {fewest} to {most}", kind.name);
        }
    }
}

#[test]
fn a_full_logical_space_can_be_overwritten_for_ever() {
    for kind in VICTIMS {
        let sim = Sim::new();
        let ftl = fresh(&sim, &flash_config(), kind.name);
        let mut rng = Rng::stream(7, "full");
        sim.block_on(|| {
            let pages = ftl.logical_pages();
            for lpa in 0..pages {
                put_placed(&ftl, lpa, 1);
            }
            for version in 2..1500 {
                put_placed(&ftl, rng.below(pages.into()) as u32, version);
            }
        });
        assert_eq!(ftl.statistics().live_pages, 24);
    }
}

/// The owner's knowledge of one page: versions that it may have.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last version whose write has ended.
    acknowledged: Option<u64>,
    /// Versions whose write has begun and not ended.
    begun: BTreeSet<u64>,
}

type Ledger = Rc<RefCell<BTreeMap<u32, Known>>>;

fn put_on_record(ftl: &Ftl, ledger: &Ledger, lpa: u32, version: u64) {
    ledger.borrow_mut().entry(lpa).or_default().begun.insert(version);
    put_placed(ftl, lpa, version);
    let mut ledger = ledger.borrow_mut();
    let known = ledger.get_mut(&lpa).unwrap();
    known.begun.remove(&version);
    known.acknowledged = Some(version);
}

/// Starts `writers` tasks that overwrite random pages of their own for ever.
fn start_writers(ftl: &Ftl, ledger: &Ledger, seed: u64, writers: u32, versions: &Rc<Cell<u64>>) {
    let pages = ftl.logical_pages();
    for writer in 0..writers {
        let (ftl, ledger, versions) = (ftl.clone(), ledger.clone(), versions.clone());
        ftl.flash().sim().clone().spawn(move || {
            let mut rng = Rng::stream(seed, &format!("writer {writer}"));
            let own = (pages - writer).div_ceil(writers);
            loop {
                let lpa = writer + writers * rng.below(own.into()) as u32;
                versions.set(versions.get() + 1);
                put_on_record(&ftl, &ledger, lpa, versions.get());
            }
        });
    }
}

/// Powers a drive on and checks that every page has a version it may have. The ledger then has the versions
/// that were found.
fn power_on(port: FlashPort, victim: &str, ledger: &Ledger) -> Ftl {
    let mut found = BTreeMap::new();
    let ftl = Ftl::recover(port, &config(victim), &mut |lpa, kind, tag| {
        assert_eq!(kind, 1);
        found.insert(lpa.0, u64::from_le_bytes(tag[..8].try_into().unwrap()));
    });
    let before = ledger.borrow().clone();
    for lpa in 0..ftl.logical_pages() {
        let known = before.get(&lpa).cloned().unwrap_or_default();
        let version = get(&ftl, lpa);
        assert_eq!(found.get(&lpa).copied(), version, "page {lpa}: tag and content differ");
        let allowed =
            version == known.acknowledged || version.is_some_and(|version| known.begun.contains(&version));
        assert!(allowed, "page {lpa} has version {version:?}, known is {known:?}");
        ledger.borrow_mut().insert(lpa, Known { acknowledged: version, begun: BTreeSet::new() });
    }
    ftl
}

fn ledger_copy(ledger: &Ledger) -> Ledger {
    Rc::new(RefCell::new(ledger.borrow().clone()))
}

/// A drive after a power cut, with the medium `image`.
fn reopened(sim: &Sim, medium: &str, image: &[u8]) -> FlashPort {
    let flash = flash_config();
    let media = media::from_image(medium, &flash.geometry(), image).unwrap();
    FlashPort::new(sim, flash, media)
}

/// Cuts the power at every event of a run that collects garbage all the time; every fourth recovered drive is
/// written full to see that it still works.
fn cut_at_every_event(medium: &str, victim: &str, seed: u64, events: u32) {
    let sim = Sim::permuted(seed);
    sim.step_every_event();
    let flash = flash_config();
    let ftl = Ftl::new(FlashPort::new(&sim, flash.clone(), fresh_media(medium, &flash)), &config(victim));
    let (ledger, versions) = (Ledger::default(), Rc::new(Cell::new(0)));
    start_writers(&ftl, &ledger, seed, 3, &versions);
    let mut rng = Rng::stream(seed, "cut");
    for event in 0..events {
        assert!(sim.step(), "the writers are stuck");
        let image = ftl.flash().media_image(&mut rng);
        let (ledger, after) = (ledger_copy(&ledger), Sim::new());
        after.block_on(|| {
            let ftl = power_on(reopened(&after, medium, &image), victim, &ledger);
            if event % 4 == 0 {
                let ftl = &ftl;
                let writes = (0..ftl.logical_pages()).map(|lpa| move || put(ftl, lpa, u64::MAX));
                join_all(&after, writes);
                for lpa in 0..ftl.logical_pages() {
                    assert_eq!(get(ftl, lpa), Some(u64::MAX));
                }
            }
        });
        after.clear();
    }
    assert!(ftl.statistics().copied_pages > 20, "nothing was collected: {:?}", ftl.statistics());
    sim.clear();
}

#[test]
fn a_cut_at_every_event_loses_nothing_on_tags() {
    cut_at_every_event("tags", "greedy", 1, 2500);
}

#[test]
fn a_cut_at_every_event_loses_nothing_on_ram() {
    cut_at_every_event("ram", "cost-benefit", 2, 1500);
}

#[test]
fn a_cut_at_every_event_loses_nothing_in_a_file() {
    let path = tempfile::tempdir().unwrap();
    let flash = flash_config();
    let options = MediaOptions { path: Some(path.path().join("image")), sync: false, ..Default::default() };
    let empty = (media::kind("file").unwrap().open)(&flash.geometry(), &options).unwrap().image();
    let (sim, ledger, versions) = (Sim::new(), Ledger::default(), Rc::new(Cell::new(0)));
    sim.step_every_event();
    let ftl = Ftl::new(reopened(&sim, "file", &empty), &config("greedy"));
    start_writers(&ftl, &ledger, 3, 3, &versions);
    let mut rng = Rng::stream(3, "cut");
    for _ in 0..1500 {
        assert!(sim.step());
        let image = ftl.flash().media_image(&mut rng);
        let (ledger, after) = (ledger_copy(&ledger), Sim::new());
        after.block_on(|| power_on(reopened(&after, "file", &image), "greedy", &ledger));
        after.clear();
    }
    assert!(ftl.statistics().copied_pages > 20);
    sim.clear();
}

/// Life after life, each cut at a random event: during recovery, an erase, a collection or a write. A drive
/// that had come to a dead end could not write any more.
fn many_lives(seed: u64, flash: &FlashConfig, lives: u32) {
    let mut rng = Rng::stream(seed, "lives");
    let (ledger, versions) = (Ledger::default(), Rc::new(Cell::new(0)));
    let mut image = fresh_media("tags", flash).image();
    for life in 0..lives {
        let sim = Sim::permuted(rng.next_u64());
        sim.step_every_event();
        let media = media::from_image("tags", &flash.geometry(), &image).unwrap();
        let port = FlashPort::new(&sim, flash.clone(), media);
        let (ledger, versions) = (ledger.clone(), versions.clone());
        let (writers, seed) = (1 + rng.below(4) as u32, rng.next_u64());
        let alive = port.clone();
        sim.spawn(move || {
            let ftl = power_on(alive, "greedy", &ledger);
            start_writers(&ftl, &ledger, seed, writers, &versions);
        });
        let before = port.programs(Purpose::Value);
        // Most lives are short: their cut hits the work that the previous one left.
        let events = if life % 8 == 0 { 3000 } else { rng.below(500) };
        for _ in 0..events {
            assert!(sim.step(), "life {life} is stuck");
        }
        if life % 8 == 0 {
            assert!(port.programs(Purpose::Value) - before > 100, "life {life} hardly writes");
        }
        image = port.media_image(&mut rng);
        sim.clear();
    }
}

#[test]
fn a_drive_lives_on_after_any_number_of_cuts() {
    many_lives(1, &flash_config(), 200);
    many_lives(2, &FlashConfig { channels: 1, ..flash_config() }, 300);
    many_lives(3, &FlashConfig { pages_per_block: 2, blocks_per_die: 5, ..flash_config() }, 200);
}

#[test]
fn altered_bytes_give_an_error_or_nothing() {
    let sim = Sim::new();
    let flash = flash_config();
    let ftl = fresh(&sim, &flash, "greedy");
    sim.block_on(|| {
        for version in 1..4 {
            for lpa in 0..12 {
                put(&ftl, lpa, version * 100 + u64::from(lpa));
            }
        }
    });
    let image = ftl.flash().media_image(&mut Rng::stream(1, "cut"));
    let (mut lost, mut refused) = (0, 0);
    for at in 0..image.len() {
        let mut altered = image.clone();
        altered[at] ^= 1 << (at % 8);
        let Ok(media) = media::from_image("tags", &flash.geometry(), &altered) else {
            refused += 1;
            continue;
        };
        let after = Sim::new();
        let port = FlashPort::new(&after, flash.clone(), media);
        after.block_on(|| {
            let ftl = Ftl::recover(port, &config("greedy"), &mut |_, _, _| {});
            for lpa in 0..12 {
                match get(&ftl, lpa) {
                    Some(version) => {
                        assert_eq!(version, 300 + u64::from(lpa), "byte {at} brings an old version back")
                    }
                    None => lost += 1,
                }
            }
        });
        after.clear();
    }
    assert!(lost > 100 && refused > 100, "{lost} pages lost, {refused} images refused");
}

#[test]
fn a_damaged_page_stays_an_error_whatever_is_collected() {
    let sim = Sim::new();
    let flash = FlashConfig { channels: 1, ..flash_config() };
    let ftl = fresh(&sim, &flash, "greedy");
    let image = sim.block_on(|| {
        put(&ftl, 0, 1);
        put(&ftl, 0, 2);
        // The first block of the only unit: page 0 is the old version, page 1 the new one.
        ftl.flash().damage(Ppa(1));
        assert_eq!(get(&ftl, 0), None);
        for version in 0..200 {
            put(&ftl, 1 + version as u32 % 11, version);
        }
        assert_eq!(get(&ftl, 0), None);
        ftl.flash().media_image(&mut Rng::stream(1, "cut"))
    });
    assert_eq!(ftl.statistics().lost_pages, 1, "its block was never collected");
    let after = Sim::new();
    let media = media::from_image("tags", &flash.geometry(), &image).unwrap();
    let port = FlashPort::new(&after, flash, media);
    after.block_on(|| {
        let mut kinds = BTreeMap::new();
        let ftl = Ftl::recover(port, &config("greedy"), &mut |lpa, kind, _| {
            kinds.insert(lpa.0, kind);
        });
        assert_eq!(kinds.get(&0), Some(&0), "its kind is lost");
        assert_eq!(get(&ftl, 0), None);
        put(&ftl, 0, 3);
        assert_eq!(get(&ftl, 0), Some(3));
    });
    after.clear();
}

#[test]
fn recovery_reads_every_header_once_and_all_units_together() {
    let sim = Sim::new();
    let flash = flash_config();
    let ftl = fresh(&sim, &flash, "greedy");
    sim.block_on(|| {
        for lpa in 0..20 {
            put(&ftl, lpa, 1);
        }
    });
    let image = ftl.flash().media_image(&mut Rng::stream(1, "cut"));
    let after = Sim::new();
    let port = reopened(&after, "tags", &image);
    let counted = port.clone();
    after.block_on(|| Ftl::recover(port, &config("greedy"), &mut |_, _, _| {}));
    // Per unit: 10 pages in three blocks, and the first erased page of the third to the sixth block.
    assert_eq!(counted.reads(Purpose::Recovery), 2 * (10 + 4));
    assert_eq!(after.now(), 14 * (1_000 + 18));
    after.clear();
}

#[test]
fn a_large_empty_drive_costs_little() {
    let sim = Sim::new();
    let flash = FlashConfig {
        channels: 8,
        dies_per_channel: 4,
        blocks_per_die: 512,
        pages_per_block: 256,
        ..flash_config()
    };
    let flash = FlashConfig { page_bytes: 16384, spare_bytes: 1664, ..flash };
    assert_eq!(flash.geometry().data_bytes(), 64 << 30);
    let ftl = fresh(&sim, &flash, "greedy");
    sim.block_on(|| put(&ftl, ftl.logical_pages() - 1, 1));
    let image = ftl.flash().media_image(&mut Rng::stream(1, "cut"));
    assert!(image.len() < 4096);
}

#[test]
fn wrong_configurations_name_the_key() {
    let geometry = flash_config().geometry();
    let victims: Vec<_> = VICTIMS.iter().map(|kind| kind.name).collect();
    let no_such_victim = format!("victim: is \"oldest\", must be one of {}", victims.join(", "));
    for (wrong, expected) in [
        (
            FtlConfig { over_provisioning: 1.0, ..config("greedy") },
            "over_provisioning: is 1, must be at least 0 and below 1",
        ),
        (config("oldest"), no_such_victim.as_str()),
        (
            FtlConfig { gc_low_blocks: 9, ..config("greedy") },
            "gc_low_blocks: is 9, must be 2 to 4 (blocks of a unit - 2)",
        ),
    ] {
        assert_eq!(wrong.check(&geometry).unwrap_err().to_string(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_churn_agrees_with_the_oracle(
        seed in any::<u64>(),
        writers in 1u32..24,
        policy in 0..VICTIMS.len(),
    ) {
        churn(seed, VICTIMS[policy].name, writers, 300 / writers + 20);
    }
}
