//! Programs and erases that fail: spare blocks take over, and without one the drive is read-only.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::faults::{Effect, Matches, Rule, When, kind};
use kvdrive_flash::media::{self, MEDIA, MediaKind, MediaOptions};
use kvdrive_flash::timing::flat::FlatConfig;
use kvdrive_flash::{
    BlockId, FlashConfig, FlashPort, Media, PageData, Ppa, Purpose, ReadError, Spare, TimingConfig,
};
use kvdrive_sim::{Rng, Sim};

const PAGES: u32 = 4;

/// Two dies of one plane each; 1 KiB takes 100 ns on a channel.
fn config(spare_blocks: u32) -> FlashConfig {
    FlashConfig {
        dies_per_channel: 2,
        blocks_per_die: 3,
        pages_per_block: PAGES,
        page_bytes: 1024,
        spare_bytes: 1024,
        spare_blocks,
        sense_ns: 1_000,
        program_ns: 10_000,
        erase_ns: 50_000,
        transfer_ns_per_kib: 100,
        ..FlashConfig::default()
    }
}

fn flat(spare_blocks: u32) -> FlashConfig {
    let flat =
        FlatConfig { read_latency_ns: 1_000, read_mib_s: 1000, write_latency_ns: 9_000, write_mib_s: 100 };
    FlashConfig {
        timing: TimingConfig { name: "flat".to_owned(), flat, ..TimingConfig::default() },
        ..config(spare_blocks)
    }
}

fn page(seed: u64) -> PageData {
    let mut region = Region::new();
    region.write(0, Piece::Bytes(&[seed as u8 | 1; 1024]));
    Rc::new(region).into()
}

fn spare(number: u64) -> Spare {
    Spare::new(1, number, number, [0; 48])
}

fn blank(config: &FlashConfig, medium: &str, folder: &tempfile::TempDir) -> Box<dyn Media> {
    let path = Some(folder.path().join("image"));
    let options = MediaOptions { path, ..MediaOptions::default() };
    (media::kind(medium).unwrap().open)(&config.geometry(), &options).unwrap()
}

fn rule(fault: &str, matches: Matches, when: When) -> Rule {
    let kind = kind(fault).expect("it is in the table");
    let effect = (kind.effect)(&Default::default()).expect("it needs no settings");
    Rule { name: fault.to_owned(), kind, moment: kind.moments[0], effect, matches, when }
}

fn nth(nth: u64) -> When {
    When { after: nth - 1, times: Some(1), ..When::default() }
}

fn of_purpose(purpose: Purpose) -> Matches {
    Matches { purposes: vec![purpose], ..Matches::default() }
}

fn program(port: &FlashPort, ppa: u32) {
    port.program(Ppa(ppa), page(ppa.into()), spare(ppa.into()), Purpose::Value);
}

/// Page `ppa` holds the content that [`program`] put there.
fn holds(port: &FlashPort, ppa: u32) -> bool {
    port.read(Ppa(ppa), Purpose::Lookup) == Ok((page(ppa.into()), spare(ppa.into())))
}

#[test]
fn a_page_that_cannot_be_programmed_goes_to_a_spare_block_with_those_before_it() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config(2), blank(&config(2), medium.name, &folder));
        sim.block_on(|| {
            program(&port, 0);
            program(&port, 1);
            port.damage(Ppa(1));
            port.faults().set(&[rule("program-error", Matches::default(), nth(1))], 1);
            let since = sim.now();
            program(&port, 2);
            // The failed attempt; two pages read and programmed; the page; the table.
            assert_eq!(sim.now() - since, 10_200 + 2 * (1_200 + 10_200) + 10_200 + 10_200);
            program(&port, 3);
            assert!(holds(&port, 0) && holds(&port, 2) && holds(&port, 3), "{}", medium.name);
            assert_eq!(port.read(Ppa(1), Purpose::Lookup), Err(ReadError::Damaged), "as it was");
            assert_eq!((port.reads(Purpose::Retire), port.programs(Purpose::Retire)), (2, 4));
            let health = port.health();
            assert_eq!((health.retired_blocks, (health.spare_blocks, health.spare_blocks_left)), (1, (4, 3)));
            assert_eq!((health.program_errors, health.read_errors, health.is_read_only), (1, 1, false));
        });
        // The block stays bad for the drive's life, and so does a second one.
        let image = port.media_image(&mut Rng::stream(1, "cut"));
        drop(port);
        let again = media::from_image(medium.name, &config(2).geometry(), &image).unwrap();
        let port = FlashPort::new(&sim, config(2), again);
        sim.block_on(|| {
            assert!(holds(&port, 0) && holds(&port, 2) && holds(&port, 3), "{}", medium.name);
            port.faults().set(&[rule("erase-error", Matches::default(), nth(1))], 1);
            port.erase(BlockId(0), Purpose::FtlGc);
            assert_eq!(port.read(Ppa(0), Purpose::Lookup), Err(ReadError::Erased));
            (0..PAGES).for_each(|ppa| program(&port, ppa));
            assert!((0..PAGES).all(|ppa| holds(&port, ppa)));
            let health = port.health();
            assert_eq!(
                (health.retired_blocks, (health.spare_blocks, health.spare_blocks_left), health.erase_errors),
                (2, (4, 2), 1)
            );
        });
    }
}

/// Depending on the rule's seed, the pages of a block that cannot be erased are unchanged or unreadable.
#[test]
fn a_block_that_cannot_be_erased_is_as_it_was_or_unreadable() {
    let mut seen = BTreeSet::new();
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config(0), blank(&config(0), "ram", &folder));
        sim.block_on(|| {
            program(&port, 0);
            port.faults().set(&[rule("erase-error", Matches::default(), nth(1))], seed);
            port.erase(BlockId(0), Purpose::FtlGc);
        });
        // There is no spare block: the medium keeps the pages that the failed erase has left.
        let image = port.media_image(&mut Rng::stream(1, "cut"));
        let media = media::from_image("ram", &config(0).geometry(), &image).unwrap();
        seen.insert(format!("{:?}", media.read_spare(Ppa(0))));
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn spare_blocks_that_fail_are_given_up_for_the_next() {
    for config in [config(3), flat(3)] {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config.clone(), blank(&config, "tags", &folder));
        sim.block_on(|| {
            (0..3).for_each(|ppa| program(&port, ppa));
            let first = rule("program-error", of_purpose(Purpose::Value), nth(1));
            let copies = When { after: 1, every: 2, times: Some(2), ..When::default() };
            let copies =
                Rule { name: "copies".into(), ..rule("program-error", of_purpose(Purpose::Retire), copies) };
            port.faults().set(&[first, copies], 1);
            program(&port, 3);
            assert!((0..PAGES).all(|ppa| holds(&port, ppa)));
            let health = port.health();
            assert_eq!(
                (
                    health.retired_blocks,
                    (health.spare_blocks, health.spare_blocks_left),
                    health.program_errors
                ),
                (3, (6, 3), 3)
            );
            // The other die has spare blocks of its own.
            port.faults().set(&[rule("program-error", of_purpose(Purpose::Value), nth(1))], 1);
            program(&port, 12);
            assert!(holds(&port, 12) && !port.protection().is_on());
        });
    }
}

#[test]
fn without_a_spare_block_the_drive_is_read_only_and_keeps_what_it_held() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config(1), blank(&config(1), medium.name, &folder));
        let told = Rc::new(Cell::new(0));
        let teller = told.clone();
        port.before_protection(move || teller.set(teller.get() + 1));
        sim.block_on(|| {
            program(&port, 0);
            port.faults().set(&[rule("program-error", of_purpose(Purpose::Value), When::default())], 1);
            program(&port, 1);
            assert!(!port.protection().is_on(), "there was one");
            program(&port, 2);
            assert!(port.protection().is_on() && port.health().is_read_only);
            // Later writes are readable as long as the drive has power.
            program(&port, 3);
            port.erase(BlockId(1), Purpose::FtlGc);
            program(&port, 4);
            assert!((0..5).all(|ppa| holds(&port, ppa)), "{}", medium.name);
        });
        assert_eq!(told.get(), 1);
        let reason = port.protection().reason().expect("it says why").to_string();
        assert_eq!(reason, "flash has failed where it has no spare block left; the drive is read-only");
        let image = port.media_image(&mut Rng::stream(1, "cut"));
        drop(port);
        let again = || match medium.has_file {
            true => blank(&config(1), medium.name, &folder),
            false => media::from_image(medium.name, &config(1).geometry(), &image).unwrap(),
        };
        for _ in 0..2 {
            let port = FlashPort::new(&sim, config(1), again());
            sim.block_on(|| {
                assert!(port.protection().is_on() && holds(&port, 0) && holds(&port, 1), "{}", medium.name);
                assert_eq!(port.read(Ppa(2), Purpose::Lookup), Err(ReadError::Damaged));
                assert_eq!(port.read(Ppa(4), Purpose::Lookup), Err(ReadError::Erased));
                program(&port, 4);
                assert!(holds(&port, 4), "for this life only");
            });
            assert_eq!(port.media_image(&mut Rng::stream(1, "cut")), image, "{}", medium.name);
        }
    }
}

#[test]
fn a_die_that_answers_no_more_gives_no_page_and_takes_none() {
    for medium in MEDIA {
        loses_a_die(medium, false);
        loses_a_die(medium, true);
    }
}

/// A die is lost before the drive becomes read-only, or after that. It stays lost for every later reader
/// of the medium.
fn loses_a_die(medium: &MediaKind, is_frozen: bool) {
    let folder = tempfile::tempdir().unwrap();
    let sim = Sim::new();
    let port = FlashPort::new(&sim, config(2), blank(&config(2), medium.name, &folder));
    sim.block_on(|| {
        program(&port, 0);
        program(&port, 12);
        program(&port, 1);
        if is_frozen {
            let first = Matches { dies: vec![0], ..Matches::default() };
            port.faults().set(&[rule("program-error", first, When::default())], 1);
            program(&port, 2);
            assert!(port.protection().is_on());
        }
        let second = Matches { dies: vec![1], ..Matches::default() };
        let mut rule = rule("die-offline", second, nth(1));
        rule.moment = kvdrive_flash::faults::Moment::Read;
        assert_eq!(rule.effect, Effect::DieOffline);
        port.faults().set(&[rule], 1);
        assert!(holds(&port, 0) && !holds(&port, 12) && !holds(&port, 12));
        if !is_frozen {
            program(&port, 2);
            assert!(!port.protection().is_on() && holds(&port, 2), "the other die works");
        }
    });
    let mut image = port.media_image(&mut Rng::stream(1, "cut"));
    drop(port);
    for life in 0..3 {
        let again = match medium.has_file {
            true => blank(&config(2), medium.name, &folder),
            false => media::from_image(medium.name, &config(2).geometry(), &image).unwrap(),
        };
        let port = FlashPort::new(&sim, config(2), again);
        sim.block_on(|| {
            assert!(holds(&port, 0) && holds(&port, 1), "{}, life {life}", medium.name);
            assert_eq!(port.read(Ppa(12), Purpose::Lookup), Err(ReadError::Damaged), "it is lost for good");
            assert_eq!(port.protection().is_on(), is_frozen || life > 1, "{}, life {life}", medium.name);
            if life == 1 {
                program(&port, 13);
                assert!(port.protection().is_on(), "a die that answers no more takes no page");
            }
        });
        image = port.media_image(&mut Rng::stream(1, "cut"));
    }
}

/// A unit is exchanging a block while another unit finds no spare block left: later writes of the first one, the table
/// of bad blocks included, do not survive this life.
#[test]
fn a_retirement_that_ends_after_the_freezing_does_not_count() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config(1), blank(&config(1), medium.name, &folder));
        sim.block_on(|| {
            (0..3).for_each(|ppa| program(&port, ppa));
            port.faults().set(&[rule("program-error", Matches::default(), nth(1))], 1);
            program(&port, 12);
            let values = of_purpose(Purpose::Value);
            port.faults().set(&[rule("program-error", values, When::default())], 1);
        });
        for ppa in [3, 13] {
            let port = port.clone();
            sim.spawn(move || program(&port, ppa));
        }
        while !port.protection().is_on() {
            assert!(sim.step(), "the second unit has no spare block");
        }
        let (image, retired) = (port.media_image(&mut Rng::stream(1, "cut")), port.health().retired_blocks);
        sim.run();
        assert!(port.health().retired_blocks > retired, "the first one was under way");
        assert!(port.media_image(&mut Rng::stream(1, "cut")) == image, "{}", medium.name);
    }
}

/// The power is cut at every event of a retirement, and the next life has to retire the block again.
#[test]
fn a_cut_in_the_middle_of_a_retirement_leaves_the_old_block_or_the_new_one() {
    for config in [config(2), flat(2)] {
        for fault in ["program-error", "erase-error"] {
            let folder = tempfile::tempdir().unwrap();
            let sim = Sim::new();
            let port = FlashPort::new(&sim, config.clone(), blank(&config, "ram", &folder));
            sim.block_on(|| (0..3).for_each(|ppa| program(&port, ppa)));
            port.faults().set(&[rule(fault, Matches::default(), nth(1))], 1);
            sim.step_every_event();
            let running = port.clone();
            let is_done = Rc::new(Cell::new(false));
            let done = is_done.clone();
            sim.spawn(move || {
                match fault {
                    "program-error" => program(&running, 3),
                    _ => running.erase(BlockId(0), Purpose::FtlGc),
                }
                done.set(true);
            });
            let mut lives = [0, 0];
            while !is_done.get() {
                let is_old = port.health().retired_blocks == 0;
                lives[usize::from(!is_old)] += 1;
                let image = port.media_image(&mut Rng::stream(lives[0], "cut"));
                let case = format!("{fault}, {}, cut {lives:?}", config.timing.name);
                next_life(&config, fault, &image, is_old, &case);
                assert!(sim.step(), "{case}");
            }
            let image = port.media_image(&mut Rng::stream(0, "cut"));
            next_life(&config, fault, &image, false, "at the end");
            assert!(lives[0] > 2, "{lives:?}");
        }
    }
}

fn next_life(config: &FlashConfig, fault: &str, image: &[u8], is_old: bool, case: &str) {
    let sim = Sim::new();
    let port =
        FlashPort::new(&sim, config.clone(), media::from_image("ram", &config.geometry(), image).unwrap());
    sim.block_on(|| {
        if fault == "program-error" {
            assert!((0..3).all(|ppa| holds(&port, ppa)), "{case}");
            assert_eq!(holds(&port, 3), !is_old, "{case}");
        }
        // The spare block may hold a part of a copy.
        port.erase(BlockId(0), Purpose::FtlGc);
        (0..3).for_each(|ppa| program(&port, ppa));
        port.faults().set(&[rule("program-error", of_purpose(Purpose::Value), nth(1))], 1);
        program(&port, 3);
        assert!((0..PAGES).all(|ppa| holds(&port, ppa)), "{case}: in the next life");
        assert_eq!(port.health().retired_blocks, if is_old { 1 } else { 2 }, "{case}");
    });
}

/// Whichever copy of the table in a file is damaged, the other copy is used.
#[test]
fn a_file_has_the_table_twice() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(2);
    let sim = Sim::new();
    let port = FlashPort::new(&sim, config.clone(), blank(&config, "file", &folder));
    sim.block_on(|| {
        port.faults().set(&[rule("program-error", Matches::default(), nth(1))], 1);
        program(&port, 0);
    });
    drop(port);
    let path = folder.path().join("image");
    let whole = std::fs::read(&path).unwrap();
    let with_damage = |at: &[usize]| {
        let mut bytes = whole.clone();
        at.iter().for_each(|at| bytes[*at + 20] ^= 1);
        std::fs::write(&path, bytes).unwrap();
        let options = MediaOptions { path: Some(path.clone()), ..MediaOptions::default() };
        (media::kind("file").unwrap().open)(&config.geometry(), &options)
    };
    for at in [&[] as &[usize], &[4096], &[8192]] {
        let port = FlashPort::new(&sim, config.clone(), with_damage(at).unwrap());
        assert!(sim.block_on(|| holds(&port, 0)), "{at:?}");
    }
    let refused = with_damage(&[4096, 8192]).err().expect("it is no drive's").to_string();
    assert!(refused.ends_with("the table of bad blocks is damaged, and its copy too"), "{refused}");
}

#[test]
fn a_read_that_fails_is_tried_again_as_often_as_configured() {
    let config = FlashConfig { read_retries: 2, read_retry_ns: 700, ..config(0) };
    let folder = tempfile::tempdir().unwrap();
    let sim = Sim::new();
    let port = FlashPort::new(&sim, config.clone(), blank(&config, "ram", &folder));
    sim.block_on(|| {
        program(&port, 0);
        // For each number of failing attempts: the time that they take, and whether the page is read.
        for (failing, span_ns, is_read) in
            [(0, 1_200, true), (1, 1_900, true), (2, 2_600, true), (3, 2_600, false)]
        {
            let when = When { times: Some(failing), ..When::default() };
            port.faults().set(&[rule("read-error", Matches::default(), when)], 1);
            let since = sim.now();
            assert_eq!(holds(&port, 0), is_read, "{failing} fail");
            assert_eq!(sim.now() - since, span_ns, "{failing} fail");
        }
        assert_eq!((port.health().read_retries, port.health().read_errors), (5, 1));
        assert_eq!(port.reads(Purpose::Lookup), 4, "attempts are one read");
    });
}

/// Blocks that are bad from the factory are a property of the drive, and are looked for once.
#[test]
fn blocks_that_are_bad_from_the_factory_are_found_at_the_first_power_on() {
    let config = FlashConfig { factory_bad_blocks: 2, ..config(2) };
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new();
        let port = FlashPort::new(&sim, config.clone(), blank(&config, medium.name, &folder));
        sim.block_on(|| port.find_factory_bad_blocks());
        // Five headers of 1 018 ns in each unit; the transfers of the two dies meet on their channel.
        assert!((5 * 1_018..5 * 1_040).contains(&sim.now()), "{}", sim.now());
        assert_eq!(port.reads(Purpose::Recovery), 10);
        assert_eq!(
            (port.health().retired_blocks, (port.health().spare_blocks, port.health().spare_blocks_left)),
            (4, (4, 0))
        );
        sim.block_on(|| {
            (0..24).for_each(|ppa| program(&port, ppa));
            assert!((0..24).all(|ppa| holds(&port, ppa)), "{}", medium.name);
        });
        let image = port.media_image(&mut Rng::stream(1, "cut"));
        drop(port);
        let again = media::from_image(medium.name, &config.geometry(), &image).unwrap();
        let port = FlashPort::new(&sim, config.clone(), again);
        let since = sim.now();
        sim.block_on(|| port.find_factory_bad_blocks());
        assert_eq!((sim.now() - since, port.health().retired_blocks), (0, 4));
        sim.block_on(|| assert!((0..24).all(|ppa| holds(&port, ppa)), "{}", medium.name));
    }
    let wrong = FlashConfig { factory_bad_blocks: 3, ..config }.check().unwrap_err().to_string();
    assert_eq!(wrong, "factory_bad_blocks: is 3, must be at most 2 (spare_blocks): each takes one");
}
