//! Bugs of the hash engines that were found by reading them: each is repeated by its steps.

use kvdrive_content::Piece;
use kvdrive_engines::Engine;
use kvdrive_engines::firmware::{Cores, Role, Roles};
use kvdrive_engines::hash::{HashConfig, HashEngine, SCHEMES, SchemeRow, scheme};
use kvdrive_flash::media::{self, MediaOptions, MediaPage};
use kvdrive_flash::{FlashConfig, FlashPort, Ppa, Purpose};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Rng, Sim};

use super::hash::{key, on_cores, store, value};
use super::small_hash::{flash_config, hash_config};

/// Values that fill most of the write buffer: the room of the first must be freed before its last page is
/// full, since no other value can fill that page.
#[test]
fn large_values_do_not_wait_for_room_that_only_they_could_free() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        let (_flash, engine) = on_cores(scheme, &sim, "tags", &cores, |c| c.write_buffer_bytes = 40 << 10);
        assert!(engine.max_value_bytes() >= 13_000, "{}", scheme.name);
        sim.block_on(|| {
            for number in 0..20 {
                let key = key(number);
                let answer = store(&engine, key, value(&key, 0, 13_000), StoreOptions::default());
                assert_eq!(answer, Ok(()), "{}", scheme.name);
            }
        });
        sim.clear();
    }
}

/// Values whose last bytes the host has not sent yet: if they took all of the write buffer, the firmware
/// could not take those bytes.
#[test]
fn unfinished_values_leave_room_for_one_that_is_there() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        let (_flash, engine) = on_cores(scheme, &sim, "tags", &cores, |c| c.write_buffer_bytes = 40 << 10);
        let largest = engine.max_value_bytes();
        sim.block_on(|| {
            // An open page keeps its own bytes.
            store(&engine, key(0), value(&key(0), 0, 5000), StoreOptions::default()).unwrap();
            let reserve =
                |number, bytes| engine.reserve(&key(number), bytes, Arrival::Inline).expect("there is room");
            let mut unfinished = Vec::new();
            let refused = loop {
                let place = reserve(1, 3000);
                match engine.begin_unfinished(&place) {
                    Ok(()) => unfinished.push(place),
                    Err(status) => break (status, place),
                }
            };
            assert_eq!(refused.0, Status::COMMAND_INTERRUPTED, "{}", scheme.name);
            engine.abandon(refused.1);
            assert!(unfinished.len() > 1, "{}", scheme.name);
            let whole = store(&engine, key(2), value(&key(2), 0, largest), StoreOptions::default());
            assert_eq!(whole, Ok(()), "{}", scheme.name);
            // One value is abandoned, and another one is complete.
            engine.abandon(unfinished.pop().expect("more than one"));
            for number in [3, 4] {
                let place = reserve(number, 3000);
                assert_eq!(engine.begin_unfinished(&place), Ok(()), "{}", scheme.name);
                engine.settle(&place);
                unfinished.push(place);
            }
            unfinished.into_iter().for_each(|place| engine.abandon(place));
            let alone = reserve(1, largest);
            assert_eq!(engine.begin_unfinished(&alone), Ok(()), "{}", scheme.name);
            engine.abandon(alone);
        });
        sim.clear();
    }
}

/// A retrieve has found a pair and waits for the core that compares keys; meanwhile a store replaces the
/// pair, the only one in its page, and the medium discards that page.
#[test]
fn a_retrieve_does_not_read_what_was_replaced_while_it_waited_for_a_core() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Own);
        let (_flash, engine) = on_cores(scheme, &sim, "tags", &cores, |_| {});
        sim.block_on(|| {
            let key = key(1);
            let put = move |engine: &HashEngine, version| {
                store(engine, key, value(&key, version, 900), StoreOptions::default())
            };
            put(&engine, 0).unwrap();
            engine.drain();
            let storing = {
                let engine = engine.clone();
                sim.spawn(move || put(&engine, 1))
            };
            sim.sleep(20_000);
            let busy = cores.of(Role::Dispatch).acquire();
            sim.sleep(200_000);
            let finding = {
                let engine = engine.clone();
                sim.spawn(move || engine.find(key).map(|found| found.is_some()))
            };
            sim.sleep(1000);
            drop(busy);
            assert_eq!(storing.join(), Ok(()));
            assert_eq!(finding.join(), Ok(true), "{}", scheme.name);
        });
        sim.clear();
    }
}

/// Powers a drive on with this medium and protected image; returns the survivors of a cut `steps` events
/// after its recovery.
fn come_up(
    scheme: &'static SchemeRow,
    media: &[u8],
    image: &[u8],
    steps: u64,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let sim = Sim::new();
    sim.step_every_event();
    let config = flash_config();
    let medium = media::from_image("tags", &config.geometry(), media).map_err(|error| error.to_string())?;
    let flash = FlashPort::new(&sim, config, medium);
    let cores = Cores::new(&sim, Roles::Any(4));
    let config = hash_config(scheme);
    let engine = sim
        .block_on(|| HashEngine::recover(scheme, &config, &flash, cores, image))
        .map_err(|error| error.to_string())?;
    for _ in 0..steps {
        sim.step();
    }
    let survived = (flash.media_image(&mut Rng::stream(1, "second cut")), engine.protected_image());
    sim.clear();
    Ok(survived)
}

/// The power is cut between the erases of a victim's blocks, and again right after recovery, when the drive
/// does not know the victim any more.
#[test]
fn a_drive_starts_after_a_second_cut_after_an_interrupted_erase() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        // Dead pages can still be read: only the erase makes a page unreadable.
        let (flash, engine) = on_cores(scheme, &sim, "tags", &cores, |c| c.discard_invalid = false);
        sim.step_every_event();
        let storing = {
            let engine = engine.clone();
            sim.spawn(move || {
                let mut rng = Rng::stream(3, "pairs");
                for version in 0..6000 {
                    let key = key(rng.below(300));
                    let bytes = if rng.one_in(6) { rng.below(9000) } else { rng.below(300) } as u32;
                    let answer = store(&engine, key, value(&key, version, bytes), StoreOptions::default());
                    assert!(answer.is_ok() || answer == Err(Status::CAPACITY_EXCEEDED));
                }
            })
        };
        let (mut rng, mut erases, mut cuts) = (Rng::stream(1, "cuts"), flash.erases(), 0);
        while storing.try_take().is_none() && sim.step() {
            let before = std::mem::replace(&mut erases, flash.erases());
            if erases == before || erases.is_multiple_of(flash.geometry().units().into()) {
                continue;
            }
            cuts += 1;
            let (media, image) = (flash.media_image(&mut rng), engine.protected_image());
            let first = come_up(scheme, &media, &image, 0);
            let (media, image) = first.unwrap_or_else(|error| panic!("{} cut {cuts}: {error}", scheme.name));
            let second = come_up(scheme, &media, &image, 20);
            second.unwrap_or_else(|error| panic!("{} cut {cuts}, the second: {error}", scheme.name));
        }
        assert!(cuts > 20, "{}: {cuts} cuts", scheme.name);
        sim.clear();
    }
}

#[test]
fn a_page_whose_first_item_lies_outside_it_is_refused() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        let (flash, engine) = on_cores(scheme, &sim, "tags", &cores, |_| {});
        sim.block_on(|| {
            for number in 0..200 {
                let key = key(number);
                store(&engine, key, value(&key, 0, 100), StoreOptions::default()).expect("they fit");
            }
            engine.drain();
        });
        let (media, image) = (flash.media_image(&mut Rng::stream(1, "image")), engine.protected_image());
        let mut medium = media::from_image("tags", flash.geometry(), &media).expect("its own image");
        let pages = (0..flash.geometry().pages() as u32).map(Ppa);
        let of_pairs =
            |ppa: &Ppa| matches!(medium.read_spare(*ppa), MediaPage::Programmed(it) if it.kind == 1);
        let page = pages.clone().find(of_pairs).expect("200 pairs fill a page");
        let (MediaPage::Programmed(mut spare), MediaPage::Programmed(data)) =
            (medium.read_spare(page), medium.read(page))
        else {
            panic!("it was found programmed")
        };
        for first_item in [200, u32::MAX] {
            spare.tag[..4].copy_from_slice(&first_item.to_le_bytes());
            medium.program(page, &data, &spare);
            let refused = come_up(scheme, &medium.image(), &image, 0).unwrap_err();
            assert!(refused.contains("first item of a page lies outside it"), "{}: {refused}", scheme.name);
        }
        sim.clear();
    }
}

/// Stores keys of 8 bytes until the drive is full; returns their number.
fn fill(engine: &HashEngine, bytes: u32) -> u64 {
    let mut count = 0;
    while put(engine, count, 0, bytes).is_ok() {
        count += 1;
    }
    assert_eq!(put(engine, count, 0, bytes), Err(Status::CAPACITY_EXCEEDED));
    count
}

fn put(engine: &HashEngine, number: u64, version: u64, bytes: u32) -> Result<(), Status> {
    let key = Key::from_u64_be(number);
    store(engine, key, value(&key, version, bytes), StoreOptions::default())
}

/// 81h means "do not retry", but closing an iterator frees the room that it holds.
#[test]
fn a_full_drive_with_an_open_iterator_answers_21h_where_its_closing_would_make_room() {
    for scheme in SCHEMES {
        for (bytes, over_provisioning) in [(40, 0.1), (900, 0.1), (6000, 0.1), (40, 0.0), (900, 0.0)] {
            let sim = Sim::new();
            let cores = Cores::new(&sim, Roles::Any(4));
            let change = |config: &mut HashConfig| config.over_provisioning = over_provisioning;
            let (_flash, engine) = on_cores(scheme, &sim, "tags", &cores, change);
            let what = format!("{}, {bytes} B, {over_provisioning}", scheme.name);
            sim.block_on(|| {
                let count = fill(&engine, bytes);
                let mut cursor = engine.open_cursor(None).expect("it opens");
                // The iterator holds no room yet: another pair does not fit with it or without.
                assert_eq!(put(&engine, count, 1, bytes), Err(Status::CAPACITY_EXCEEDED), "{what}");
                // The iterator would have to keep overwritten and deleted pairs.
                let mut refused = 0;
                for number in 0..count {
                    match put(&engine, number, 1, bytes) {
                        Ok(()) => {}
                        Err(status) => {
                            assert_eq!(status, Status::COMMAND_INTERRUPTED, "{what}: overwrite {number}");
                            refused += 1;
                        }
                    }
                }
                assert!(refused > 0, "{what}");
                for number in 0..count / 4 {
                    engine.delete(Key::from_u64_be(number)).expect("a delete needs no room");
                }
                match put(&engine, count, 1, bytes) {
                    // Collection has freed as much meanwhile, and none of it was the iterator's.
                    Ok(()) => {
                        let next = || engine.next(&mut cursor).expect("it is not lost");
                        assert_eq!(std::iter::from_fn(next).count() as u64, count, "{what}");
                    }
                    Err(status) => assert_eq!(status, Status::COMMAND_INTERRUPTED, "{what}"),
                }
                drop(cursor);
                for number in count / 4..=count {
                    assert_eq!(put(&engine, number, 2, bytes), Ok(()), "{what}: {number} after it");
                }
            });
            sim.clear();
        }
    }
}

#[test]
fn inline_copies_are_counted() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        let (_flash, engine) = on_cores(scheme, &sim, "tags", &cores, |_| {});
        let key = key(1);
        let place = sim.block_on(|| engine.reserve(&key, 2048, Arrival::Inline)).expect("there is room");
        let before = sim.now();
        sim.block_on(|| engine.copy_in(&place, 0, &[7; 1024]));
        sim.block_on(|| engine.copy_in(&place, 1024, &[7; 1024]));
        let (counts, took) = (engine.counts(), sim.now() - before);
        assert_eq!((counts.of("memcpy_bytes"), counts.of("memcpy_ns")), (2048, took), "{}", scheme.name);
        assert_eq!(took, 2 * (250 + 50));
        engine.abandon(place);
        sim.clear();
    }
}

/// So many changes that the cursor's snapshot is given up: it stays lost, and another cursor can be opened.
#[test]
fn a_cursor_that_lost_its_snapshot_says_so_for_good() {
    let scheme = scheme("plus").expect("a row");
    let sim = Sim::new();
    let cores = Cores::new(&sim, Roles::Any(4));
    let config = FlashConfig { blocks_per_die: 128, ..flash_config() };
    let medium = (media::kind("tags").expect("a row").open)(&config.geometry(), &MediaOptions::default());
    let flash = FlashPort::new(&sim, config, medium.expect("it opens"));
    let mut config = hash_config(scheme);
    config.dram_bytes = 8 << 20;
    let engine = HashEngine::new(scheme, &config, &flash, cores);
    sim.block_on(|| {
        put(&engine, 0, 0, 20).expect("there is room");
        let mut cursor = engine.open_cursor(None).expect("it opens");
        for number in 1..100_000 {
            put(&engine, number, 0, 20).expect("there is room");
        }
        for _ in 0..2 {
            let lost = engine.next(&mut cursor).map(|_| ());
            assert_eq!(lost, Err(Status::ITERATOR_LOST));
        }
        let mut cursor = engine.open_cursor(None).expect("it opens");
        assert!(engine.next(&mut cursor).expect("nothing has changed").is_some());
    });
    sim.clear();
}

#[test]
fn of_a_long_pair_no_more_is_read_than_was_asked_for() {
    for scheme in SCHEMES {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Any(4));
        let (flash, engine) = on_cores(scheme, &sim, "tags", &cores, |_| {});
        sim.block_on(|| {
            put(&engine, 1, 0, 10_000).expect("there is room");
            engine.drain();
            let mut reads = Vec::new();
            for until in [100, 4_000, 10_000] {
                let before = flash.reads(Purpose::Lookup) + flash.reads(Purpose::Data);
                let found = engine.find(Key::from_u64_be(1)).expect("sound").expect("stored");
                let mut bytes = 0;
                for (at, part) in [(0, until / 2), (until / 2, until - until / 2)] {
                    let mut sink = |piece: Piece<'_>| bytes += piece.bytes();
                    engine.load(&found, at, part, until, &mut sink).expect("sound");
                }
                assert_eq!(bytes, until);
                reads.push(flash.reads(Purpose::Lookup) + flash.reads(Purpose::Data) - before);
            }
            assert!(reads[0] < reads[1] && reads[1] < reads[2], "{}: {reads:?}", scheme.name);
        });
        sim.clear();
    }
}
