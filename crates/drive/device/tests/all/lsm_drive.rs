//! A whole drive with engine `lsm`: interactions of its parts.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_flash::{FlashPort, Ppa, Purpose};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Command, Status};
use kvdrive_sim::{Rng, Sim};

use super::rig;
use super::small_drives::{config, connect, key};

/// Pairs that stay, and pairs between them that are overwritten.
const COLD: u64 = 100;
const HOT: u64 = 30;

struct Bench {
    sim: Sim,
    drive: Drive,
    flash: FlashPort,
    driver: Driver,
    rng: RefCell<Rng>,
}

impl Bench {
    fn new(config: &DriveConfig) -> Bench {
        let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
        let link = Link::new(&sim, rig::link_config(4096), memory.clone());
        let seen = RefCell::new(None);
        let watch = |flash: &FlashPort| *seen.borrow_mut() = Some(flash.clone());
        let (drive, driver) = sim.block_on(|| {
            let drive = Drive::power_on_watched(&sim, &link, config, None, &watch).expect("it comes up");
            let driver = connect(&sim, &link, &memory);
            (drive, driver)
        });
        let flash = seen.take().expect("a drive has flash");
        Bench { sim, drive, flash, driver, rng: RefCell::new(Rng::stream(3, "churn")) }
    }

    fn detail(&self, name: &str) -> u64 {
        self.drive.counts().section("engine").of(name)
    }

    fn store(&self, number: u64, seed: u64) -> Result<(), Status> {
        let key = key(number);
        self.driver.store(key, Piece::Pattern(Pattern::of_value(&key, seed, 3_000)))
    }

    /// Overwrites pairs between those that stay.
    fn churn(&self, stores: u64) {
        for _ in 0..stores {
            let number = self.rng.borrow_mut().below(HOT);
            let seed = self.rng.borrow_mut().next_u64();
            self.store(COLD + number, seed).expect("there is room");
        }
    }

    /// Destroys the pages of values that are on flash; returns how many.
    fn damage_values(&self) -> u32 {
        let pages = self.drive_pages();
        let mut damaged = 0;
        for ppa in (0..pages).map(Ppa) {
            if self.flash.read_spare(ppa, Purpose::Recovery).is_ok_and(|spare| spare.kind == b'V') {
                self.flash.damage(ppa);
                damaged += 1;
            }
        }
        damaged
    }

    fn drive_pages(&self) -> u32 {
        self.flash.geometry().pages() as u32
    }
}

/// Unreadable values are not moved: their segment stays as it is until none of its values is live.
#[test]
fn a_segment_that_cannot_be_collected_is_counted_and_comes_back_when_its_values_are_gone() {
    let mut config = config("lsm", None);
    config.media.kind = "ram".into();
    // It collects long before it must.
    config.engines.lsm.gc.free_segments_low = 30;
    // Inside each store, one at a time.
    (config.engines.lsm.gc.victims, config.engines.lsm.gc.ahead_segments) = (1, 0);
    let bench = Bench::new(&config);
    bench.sim.block_on(|| {
        for number in 0..COLD {
            bench.store(number, 0).expect("there is room");
            bench.churn(1);
        }
        assert_eq!(bench.detail("lost_segments"), 0);
        assert!(bench.damage_values() > 30);
        bench.churn(600);
        let lost = bench.detail("lost_segments");
        assert!(lost > 5, "{lost} segments were met by collection");
        let mut into = Region::new();
        let mut unreadable = 0;
        for number in 0..COLD {
            unreadable += u32::from(bench.driver.retrieve(key(number), &mut into).is_err());
            bench.store(number, 1).expect("there is room");
            bench.churn(1);
        }
        assert!(unreadable > 30, "{unreadable} values were lost");
        // The same segments hold other values now, and are collected like any other.
        let moved = bench.detail("gc_moved_pairs");
        bench.churn(3_000);
        assert_eq!(bench.detail("lost_segments"), lost);
        let moved = bench.detail("gc_moved_pairs") - moved;
        assert!(moved > 50, "{moved} values were moved");
        for number in 0..COLD {
            bench.driver.retrieve(key(number), &mut into).expect("it is there");
        }
        assert_eq!(bench.detail("miscounted_bytes"), 0);
    });
}

/// A command names bytes of a window into which nothing was stored: its value is zeros, in the buffer and
/// after the page was on flash.
#[test]
fn a_value_in_a_window_that_the_host_stored_nothing_into_is_zeros() {
    let mut config = config("lsm", None);
    config.media.kind = "ram".into();
    let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    sim.block_on(|| {
        let _drive = Drive::power_on(&sim, &link, &config, None).expect("it comes up");
        let driver = connect(&sim, &link, &memory);
        let queue = link.create_queue(8);
        let mut generation = 0;
        for expected in [Status::STALE_WINDOW, Status::SUCCESS] {
            let store = Command::CxlStore {
                key: key(1),
                value_bytes: 700,
                window_offset: 0,
                generation,
                tail_bytes: 0,
            };
            assert!(queue.try_submit(store.encode(0, 1)));
            link.ring_submission(&queue);
            let cqe = loop {
                if let Some(cqe) = queue.any_completion() {
                    break cqe;
                }
                sim.sleep(1_000);
            };
            link.ring_completions(&queue, 1);
            assert_eq!(cqe.status(), expected);
            generation = cqe.dw1.get();
        }
        // The window is closed, and its page leaves the buffer.
        link.delete_queue(&queue);
        let mut into = Region::new();
        for number in 100..300 {
            assert_eq!(driver.retrieve(key(1), &mut into), Ok(700), "after {} stores", number - 100);
            assert_eq!(into.to_bytes(700), [0; 700]);
            let value = Pattern::of_value(&key(number), number, 3_000);
            driver.store(key(number % 60 + 100), Piece::Pattern(value)).expect("there is room");
        }
    });
}
