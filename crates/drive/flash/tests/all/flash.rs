//! Flash port and media: time, order, content, images, power cuts in flight.

use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_flash::media::items::Items;
use kvdrive_flash::media::{self, MediaOptions};
use kvdrive_flash::timing::TIMINGS;
use kvdrive_flash::timing::flat::FlatConfig;
use kvdrive_flash::{
    BlockId, FlashConfig, FlashPort, Geometry, Media, MediaPage, PageData, Ppa, Purpose, ReadError, Spare,
    TimingConfig,
};
use kvdrive_sim::{Rng, Sim, join_all};

/// Two channels with two dies each; 1 KiB takes 100 ns on a channel.
pub fn config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        dies_per_channel: 2,
        page_bytes: 1024,
        spare_bytes: 1024,
        sense_ns: 1_000,
        program_ns: 10_000,
        erase_ns: 50_000,
        transfer_ns_per_kib: 100,
        ..FlashConfig::default()
    }
}

pub fn tags(geometry: &Geometry) -> Box<dyn Media> {
    (media::kind("tags").unwrap().open)(geometry, &MediaOptions::default()).unwrap()
}

pub fn drive(sim: &Sim, config: FlashConfig) -> FlashPort {
    let media = tags(&config.geometry());
    FlashPort::new(sim, config, media)
}

/// Literal bytes at both ends and a pattern between them.
pub fn page(seed: u64) -> PageData {
    let mut region = Region::new();
    region.write(0, Piece::Bytes(&seed.to_le_bytes()));
    region.write(100, Piece::Pattern(Pattern { seed, offset: 3, bytes: 500 }));
    region.write(1000, Piece::Bytes(&[seed as u8 | 1; 24]));
    Rc::new(region).into()
}

/// Three items with gaps between them.
pub fn page_of_items() -> PageData {
    let mut items = Items::default();
    (0..3).for_each(|slot| items.push(slot * 300, vec![slot as u8 + 1; 200].into()));
    PageData::Items(Rc::new(items))
}

pub fn spare(number: u64) -> Spare {
    let mut tag = [0; 48];
    tag[0] = number as u8;
    Spare::new(1, number, number, tag)
}

pub fn open(name: &str, geometry: &Geometry, directory: &tempfile::TempDir) -> Box<dyn Media> {
    let options =
        MediaOptions { path: Some(directory.path().join("image")), sync: false, ..Default::default() };
    (media::kind(name).unwrap().open)(geometry, &options).unwrap()
}

#[test]
fn operations_take_their_time() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Value));
    assert_eq!(sim.now(), 10_200);
    sim.block_on(|| port.read(Ppa(0), Purpose::Lookup)).unwrap();
    assert_eq!(sim.now(), 10_200 + 1_200);
    let (header, since) = (sim.block_on(|| port.read_spare(Ppa(0), Purpose::Recovery)).unwrap(), sim.now());
    assert_eq!((header, since), (spare(1), 11_400 + 1_018), "176 B take 17.2 ns");
    sim.block_on(|| port.erase(BlockId(0), Purpose::FtlGc));
    assert_eq!(sim.now(), 12_418 + 50_000);
    assert_eq!((port.programs(Purpose::Value), port.programs(Purpose::Index)), (1, 0));
    assert_eq!((port.reads(Purpose::Lookup), port.reads(Purpose::Recovery), port.erases()), (1, 1, 1));
    let [(_, die), (_, channel)] = port.resources();
    assert_eq!((die.busy_ns, die.servers, channel.busy_ns, channel.servers), (62_418, 4, 418, 2));
}

/// A block here has 4 KiB: its erase takes a quarter of the time for 16 KiB, and four times that for 1 KiB.
#[test]
fn an_erase_takes_its_share_of_the_time_of_the_block_that_is_named() {
    for (erase_block_bytes, expected) in
        [(0, 50_000), (16 << 10, 12_500), (1 << 10, 200_000), (4_097, 49_988)]
    {
        let sim = Sim::new();
        let timing = TimingConfig { erase_block_bytes, ..TimingConfig::default() };
        let port = drive(&sim, FlashConfig { timing, ..config() });
        sim.block_on(|| port.erase(BlockId(0), Purpose::FtlGc));
        assert_eq!(sim.now(), expected, "{erase_block_bytes}");
    }
}

/// Of three pages of a block the first is sensed faster than the second, and the third slower by as much.
#[test]
fn pages_of_cells_with_three_bits_sense_in_three_times() {
    let sim = Sim::new();
    let timing = TimingConfig { sense_spread_ns: 300, ..TimingConfig::default() };
    let port = drive(&sim, FlashConfig { timing, ..config() });
    sim.block_on(|| (0..4).for_each(|at| port.program(Ppa(at), page(1), spare(1), Purpose::Value)));
    for (at, expected) in [900, 1_200, 1_500, 900].into_iter().enumerate() {
        let since = sim.now();
        sim.block_on(|| port.read(Ppa(at as u32), Purpose::Lookup)).unwrap();
        assert_eq!(sim.now() - since, expected, "page {at}");
    }
    let timing = TimingConfig { sense_spread_ns: 1_001, ..TimingConfig::default() };
    let error = FlashConfig { timing, ..config() }.check().unwrap_err().to_string();
    assert_eq!(error, "sense_spread_ns: is 1001, must be at most sense_ns, 1000");
}

#[test]
fn dies_work_at_the_same_time_and_share_channels() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    let first_page = |die: u32| Ppa(die * 16);
    // Four dies, two a channel: the second transfer of a channel waits for the first one.
    let (port, first_page) = (&port, &first_page);
    let programs = (0..4).map(|die| move || port.program(first_page(die), page(1), spare(1), Purpose::Value));
    sim.block_on(|| join_all(&sim, programs));
    assert_eq!(sim.now(), 200 + 200 + 10_000);
    // The same die four times: one after the other.
    let since = sim.now();
    let programs =
        (1..4).map(|page_number| move || port.program(Ppa(page_number), page(2), spare(2), Purpose::Value));
    sim.block_on(|| join_all(&sim, programs));
    assert_eq!(sim.now() - since, 3 * 10_200);
}

#[test]
fn planes_are_units_of_their_own() {
    let sim = Sim::new();
    let port = drive(&sim, FlashConfig { planes: 2, ..config() });
    let port = &port;
    let programs = [Ppa(0), Ppa(4)].map(|ppa| move || port.program(ppa, page(1), spare(1), Purpose::Value));
    sim.block_on(|| join_all(&sim, programs));
    assert_eq!(sim.now(), 400 + 10_000);
}

#[test]
fn what_is_not_charged_is_counted_and_takes_no_time() {
    let with = |uncharged: &[&str]| {
        let sim = Sim::new();
        let uncharged = uncharged.iter().map(|text| text.parse().unwrap()).collect();
        let port = drive(&sim, FlashConfig { uncharged, ..config() });
        sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Map));
        let programmed = sim.now();
        sim.block_on(|| port.read(Ppa(0), Purpose::Map)).unwrap();
        let read = sim.now() - programmed;
        assert_eq!((port.programs(Purpose::Map), port.reads(Purpose::Map)), (1, 1));
        (programmed > 0, read > 0)
    };
    assert_eq!(with(&["read:map", "program:map"]), (false, false));
    assert_eq!(with(&["read:map", "program:map_gc"]), (true, false));
    assert_eq!(with(&["program:map:0"]), (false, true));
    assert_eq!(with(&["program:map:1", "erase:map"]), (true, true), "the page lies on channel 0");
    for wrong in ["map", "program", "write:map", "read:mop", "read:map:x", "read:map:1:2", ""] {
        assert!(wrong.parse::<kvdrive_flash::Uncharged>().is_err(), "{wrong}");
    }
}

/// The same flash with four numbers: a page of 1 KiB takes 1 us on the line of reads and 2 us on that of
/// writes (rounded up), and 5 or 20 us after it.
fn flat() -> FlashConfig {
    let flat =
        FlatConfig { read_latency_ns: 5_000, read_mib_s: 977, write_latency_ns: 20_000, write_mib_s: 489 };
    FlashConfig {
        timing: TimingConfig { name: "flat".to_owned(), flat, ..TimingConfig::default() },
        ..config()
    }
}

const FLAT_READ_NS: u64 = 1_000;
const FLAT_WRITE_NS: u64 = 1_998;

#[test]
fn flat_flash_takes_bytes_over_bandwidth_and_a_latency() {
    let sim = Sim::new();
    let port = drive(&sim, flat());
    sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Value));
    assert_eq!(sim.now(), FLAT_WRITE_NS + 20_000);
    let taking = |operation: &dyn Fn()| {
        let since = sim.now();
        sim.block_on(operation);
        sim.now() - since
    };
    let whole = taking(&|| assert_eq!(port.read(Ppa(0), Purpose::Lookup), Ok((page(1), spare(1)))));
    assert_eq!(whole, FLAT_READ_NS + 5_000);
    let part = taking(&|| drop(port.read_part(Ppa(0), 512, Purpose::Lookup).unwrap()));
    assert_eq!(part, FLAT_READ_NS / 2 + 5_000);
    let header = taking(&|| assert_eq!(port.read_spare(Ppa(0), Purpose::Recovery), Ok(spare(1))));
    assert_eq!(header, 172 + 5_000, "176 B");
    assert_eq!(taking(&|| drop(port.read_part(Ppa(0), 0, Purpose::Lookup).unwrap())), 5_000, "no bytes");
    assert_eq!(taking(&|| port.erase(BlockId(0), Purpose::FtlGc)), 0);
    assert_eq!(sim.block_on(|| port.read(Ppa(0), Purpose::Lookup)).unwrap_err(), ReadError::Erased);
    assert_eq!((port.programs(Purpose::Value), port.reads(Purpose::Lookup), port.erases()), (1, 4, 1));
    let [(reads, read), (writes, written)] = port.resources();
    assert_eq!((reads.as_str(), read.uses, read.busy_ns), ("flash.reads", 4, 2 * FLAT_READ_NS + 500 + 172));
    assert_eq!((writes.as_str(), written.uses, written.busy_ns), ("flash.writes", 1, FLAT_WRITE_NS));
}

/// The operations are on one block, which a die would carry out page by page.
#[test]
fn many_operations_reach_the_bandwidth_of_flat_flash_in_both_directions_at_once() {
    let sim = Sim::new();
    let port = &drive(&sim, FlashConfig { pages_per_block: 64, ..flat() });
    let program = |page_number| move || port.program(Ppa(page_number), page(1), spare(1), Purpose::Value);
    sim.block_on(|| join_all(&sim, (0..32).map(program)));
    assert_eq!(sim.now(), 32 * FLAT_WRITE_NS + 20_000);
    let since = sim.now();
    let read = |page_number| move || assert!(port.read(Ppa(page_number), Purpose::Value).is_ok());
    sim.block_on(|| join_all(&sim, (0..32).map(read)));
    assert_eq!(sim.now() - since, 32 * FLAT_READ_NS + 5_000);
    // Half reads and half writes: each direction takes as long as if it were alone.
    let since = sim.now();
    let mixed = |number: u32| {
        move || {
            match number % 2 {
                0 => program(32 + number / 2)(),
                _ => read(number / 2)(),
            }
            sim_now(port)
        }
    };
    let ends = sim.block_on(|| join_all(&sim, (0..32).map(mixed)));
    assert_eq!(ends[31] - since, 16 * FLAT_READ_NS + 5_000);
    assert_eq!(ends[30] - since, 16 * FLAT_WRITE_NS + 20_000);
}

fn sim_now(port: &FlashPort) -> u64 {
    port.sim().now()
}

/// Operations on one block are requested at the same time: they take effect in that order, however long each
/// of them takes and whichever order events of one time have.
#[test]
fn operations_of_a_unit_take_effect_in_the_order_of_their_calls_under_every_timing() {
    for row in TIMINGS {
        for (seed, uncharged) in (0..24).zip(["", "program:map", "read:value"].into_iter().cycle()) {
            let sim = Sim::permuted(seed);
            let uncharged = uncharged.parse().into_iter().collect();
            let timing = TimingConfig { name: row.name.to_owned(), ..flat().timing };
            let port = &drive(&sim, FlashConfig { uncharged, timing, ..config() });
            let program = |number, seed, purpose| port.program(Ppa(number), page(seed), spare(seed), purpose);
            let read = |number| port.read(Ppa(number), Purpose::Value).map(|(_, spare)| spare);
            let steps: [Box<dyn FnOnce() + '_>; 9] = [
                Box::new(|| assert_eq!(read(0), Err(ReadError::Erased))),
                Box::new(|| program(0, 1, Purpose::Value)),
                Box::new(|| program(1, 2, Purpose::Map)),
                Box::new(|| assert_eq!(read(1), Ok(spare(2)))),
                Box::new(|| program(2, 3, Purpose::Map)),
                Box::new(|| assert_eq!(read(0), Ok(spare(1)))),
                Box::new(|| port.erase(BlockId(0), Purpose::FtlGc)),
                Box::new(|| assert_eq!(read(1), Err(ReadError::Erased))),
                Box::new(|| program(0, 4, Purpose::Value)),
            ];
            sim.block_on(|| join_all(&sim, steps));
            assert_eq!(sim.block_on(|| read(0)), Ok(spare(4)), "{}", row.name);
        }
    }
}

/// The pages of a block after a cut: after a page that is not whole there is none, whole or torn.
#[test]
fn programs_in_flight_on_one_block_are_cut_in_their_order() {
    let sim = Sim::new();
    sim.step_every_event();
    let port = drive(&sim, flat());
    let geometry = *port.geometry();
    for number in 0..4 {
        let port = port.clone();
        sim.spawn(move || port.program(Ppa(number), page(7), spare(number.into()), Purpose::Value));
    }
    let mut rng = Rng::stream(1, "cuts");
    let mut found = std::collections::BTreeSet::new();
    while sim.step() {
        for _ in 0..40 {
            let media = media::from_image("tags", &geometry, &port.media_image(&mut rng)).unwrap();
            let pages: String = (0..4)
                .map(|number| match media.read(Ppa(number)) {
                    MediaPage::Programmed(_) => 'w',
                    MediaPage::Damaged => 't',
                    MediaPage::Erased => '-',
                })
                .collect();
            found.insert(pages);
        }
    }
    let all = ["----", "t---", "w---", "wt--", "ww--", "wwt-", "www-", "wwwt", "wwww"];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn without_flash_nothing_happens() {
    let sim = Sim::new();
    let port = drive(&sim, FlashConfig { enabled: false, ..config() });
    sim.block_on(|| port.program(Ppa(3), page(1), spare(1), Purpose::Value));
    sim.block_on(|| port.erase(BlockId(0), Purpose::FtlGc));
    assert_eq!(sim.block_on(|| port.read(Ppa(3), Purpose::Value)).unwrap_err(), ReadError::Erased);
    assert_eq!((sim.now(), port.programs(Purpose::Value), port.erases()), (0, 0, 0));
}

#[test]
#[should_panic(expected = "in order and once")]
fn pages_out_of_order_are_refused() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    sim.block_on(|| port.program(Ppa(1), page(1), spare(1), Purpose::Value));
}

#[test]
#[should_panic(expected = "in order and once")]
fn a_page_is_programmed_once() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    for _ in 0..2 {
        sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Value));
    }
}

#[test]
#[should_panic(expected = "after it was discarded")]
fn a_discarded_page_must_not_be_read() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Value));
    port.discard(Ppa(0));
    assert_eq!(sim.block_on(|| port.read_spare(Ppa(0), Purpose::Value)), Ok(spare(1)));
    let _ = sim.block_on(|| port.read(Ppa(0), Purpose::Value));
}

#[test]
fn a_power_cut_leaves_what_was_in_flight_old_torn_or_done() {
    let sim = Sim::new();
    let config = config();
    let port = drive(&sim, config.clone());
    for number in 0..3 {
        sim.block_on(|| port.program(Ppa(number), page(number.into()), spare(number.into()), Purpose::Value));
    }
    sim.step_every_event();
    let running = port.clone();
    sim.spawn(move || running.program(Ppa(16), page(5), spare(5), Purpose::Value));
    let running = port.clone();
    sim.spawn(move || running.erase(BlockId(0), Purpose::FtlGc));
    let mut outcomes = std::collections::BTreeSet::new();
    let mut half_erased = 0;
    let since = sim.now();
    while sim.step() && sim.now() - since < 10_000 {
        for seed in 0..40 {
            let image = port.media_image(&mut Rng::stream(seed, "cut"));
            let media = media::from_image("tags", &config.geometry(), &image).unwrap();
            let program = match media.read_spare(Ppa(16)) {
                MediaPage::Erased => "old",
                MediaPage::Damaged => "torn",
                MediaPage::Programmed(found) if found == spare(5) => "done",
                MediaPage::Programmed(_) => panic!("something else was programmed"),
            };
            let pages: Vec<_> = (0..3).map(|ppa| media.read_spare(Ppa(ppa))).collect();
            let erased = pages.iter().filter(|page| **page == MediaPage::Erased).count();
            let whole = (0..3).filter(|ppa| pages[*ppa] == MediaPage::Programmed(spare(*ppa as u64))).count();
            let erase = if whole == 3 {
                "old"
            } else if erased == 3 {
                "done"
            } else {
                "torn"
            };
            half_erased += usize::from(erase == "torn" && erased > 0 && whole > 0);
            outcomes.insert((program, erase));
        }
    }
    assert_eq!(outcomes.len(), 9, "{outcomes:?}");
    assert!(half_erased > 0);
}

#[test]
fn wrong_configurations_name_the_key() {
    let timings: Vec<_> = TIMINGS.iter().map(|row| row.name).collect();
    let no_such_timing = format!("timing: is \"none\", must be one of {}", timings.join(", "));
    for (wrong, expected) in [
        (FlashConfig { channels: 0, ..config() }, "channels: is 0, must be 1 to 1024"),
        (
            FlashConfig { spare_bytes: 64, ..config() },
            "spare_bytes: is 64, must be at least 176 (page header, twice)",
        ),
        (FlashConfig { planes: 3, ..config() }, "blocks_per_die: must be a multiple of the 3 planes"),
        (
            FlashConfig { erase_ns: u64::MAX, ..config() },
            "erase_ns: is 18446744073709551615, must be at most 3600000000000",
        ),
        (
            FlashConfig {
                erase_ns: 1_000_000_000_000,
                timing: TimingConfig { erase_block_bytes: 1, ..TimingConfig::default() },
                ..config()
            },
            "erase_ns: is 4096000000000000, must be at most 3600000000000",
        ),
        (
            FlashConfig { timing: TimingConfig { name: "none".to_owned(), ..flat().timing }, ..config() },
            no_such_timing.as_str(),
        ),
        (
            FlashConfig { timing: TimingConfig { flat: FlatConfig::default(), ..flat().timing }, ..config() },
            "flat.read_mib_s: is 0, must be at least 1",
        ),
    ] {
        assert_eq!(wrong.check().unwrap_err().to_string(), expected);
    }
    assert_eq!(config().check(), Ok(()));
}

/// In a release build the stack of such a read was once unwound with another object in place of the
/// exception.
#[test]
fn a_read_that_is_ended_while_it_waits_for_its_unit_is_dropped_whole() {
    let sim = Sim::new();
    let port = drive(&sim, config());
    sim.block_on(|| port.program(Ppa(0), page(1), spare(1), Purpose::Data));
    let dropped = Rc::new(());
    let (erasing, reading, held) = (port.clone(), port.clone(), dropped.clone());
    let unit_of_page = port.geometry().block_of(Ppa(0));
    sim.spawn(move || erasing.erase(BlockId(unit_of_page.0 + 1), Purpose::DataGc));
    sim.spawn(move || {
        let _held = held;
        let _ = reading.read_part_reserved(Ppa(0), 512, Purpose::Lookup, None);
        unreachable!("the erase ahead of it does not end");
    });
    sim.step_every_event();
    while sim.step() && sim.now() < 20_000 {}
    sim.clear();
    assert_eq!(Rc::strong_count(&dropped), 1);
}
