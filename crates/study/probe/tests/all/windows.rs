//! Windows of the engine `lsm` under pressure: bytes that the host has stored stay until their command arrives, while
//! the buffer evicts other pages, and belong to no value if the command never arrives.

use std::rc::Rc;

use kvdrive_config::setup;
use kvdrive_config::{Config, Document};
use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory, QueuePair};
use kvdrive_nvme::window::ASK;
use kvdrive_nvme::{Command, Cqe, Key, Status, StoreOptions};
use kvdrive_sim::{Rng, Sim};

struct Bench {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    config: Config,
}

impl Bench {
    fn new(sim: Sim) -> Bench {
        Bench::with(sim, &["host.transfer=prp"])
    }

    fn with(sim: Sim, settings: &[&str]) -> Bench {
        let mut document = Document::profile("gen5-cxl").expect("the profile exists");
        let small = ["buffer.entries=12", "flash.blocks_per_die=16", "packing.policy=block"];
        for setting in small.iter().chain(settings) {
            document.set(setting).expect("a valid setting");
        }
        let config = document.config().expect("valid");
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        Bench { sim, link, memory, config }
    }

    fn power_on(&self, survivors: Option<&kvdrive_flash::power::Survivors>) -> Drive {
        let config = self.config.drive();
        Drive::power_on(&self.sim, &self.link, &config, survivors).expect("it comes up")
    }

    fn driver(&self) -> Driver {
        self.drivers().remove(0)
    }

    fn drivers(&self) -> Vec<Driver> {
        let cores = setup::cores(&self.config, &self.sim);
        setup::drivers(&self.config, &self.link, &self.memory, &cores).expect("a drive and a method")
    }

    /// One CXL store; returns its completion.
    fn store(&self, queue: &Rc<QueuePair>, key: Key, bytes: u32, at: u32, generation: u32) -> Cqe {
        let (value_bytes, window_offset) = (bytes, at);
        let command = Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes: 0 };
        assert!(queue.try_submit(command.encode(0, 1)));
        self.link.ring_submission(queue);
        let cqe = queue.completion(0);
        self.link.ring_completion(queue);
        cqe
    }
}

/// Between the host's stores and their commands the buffer is drained, and four times its number of pages
/// goes through it.
#[test]
fn a_page_that_is_flushed_under_the_write_pointer_loses_nothing() {
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None);
        let driver = bench.driver();
        let queue = bench.link.create_queue(8);
        let keys = [1, 2].map(Key::from_u32_be);
        let asked = bench.store(&queue, keys[0], 100, ASK, 0);
        let generation = asked.dw1.get();
        assert_eq!((asked.status(), generation), (Status::STALE_WINDOW, 1));
        let base = u64::from(generation) * u64::from(bench.config.flash.page_bytes);
        for (half, key) in [(0u32, keys[0]), (1, keys[1])] {
            let at = half * 1_000;
            bench.link.cxl_store(base + u64::from(at), Piece::Bytes(&[half as u8 + 1; 500]));
            drive.drain();
            bench.link.cxl_store(base + u64::from(at) + 500, Piece::Bytes(&[half as u8 + 5; 500]));
            for number in 0..200u32 {
                let noise = Key::from_u32_be(1_000 + number % 50);
                driver.store(noise, Piece::Bytes(&[7; 3_000])).expect("stored");
            }
            let cqe = bench.store(&queue, key, 1_000, at, generation);
            assert_eq!(
                (cqe.status(), cqe.dw0.get(), cqe.dw1.get()),
                (Status::SUCCESS, at + 1_000, generation)
            );
        }
        for (half, key) in [(0u8, keys[0]), (1, keys[1])] {
            let mut region = Region::new();
            assert_eq!(driver.retrieve(key, &mut region), Ok(1_000));
            assert_eq!(region.to_bytes(1_000), [[half + 1; 500], [half + 5; 500]].concat());
        }
    });
    bench.sim.clear();
}

#[test]
fn bytes_in_a_window_are_no_value_after_a_power_cut_and_the_window_has_passed() {
    let bench = Bench::new(Sim::new());
    let key = Key::from_u32_be(9);
    let survivors = bench.sim.block_on(|| {
        let drive = bench.power_on(None);
        let queue = bench.link.create_queue(8);
        assert_eq!(bench.store(&queue, key, 64, ASK, 0).status(), Status::STALE_WINDOW);
        let base = u64::from(bench.config.flash.page_bytes);
        bench.link.cxl_store(base, Piece::Bytes(&[1; 128]));
        assert!(bench.store(&queue, Key::from_u32_be(8), 64, 0, 1).status().is_success());
        drive.survivors(&mut Rng::stream(1, "cut"))
    });
    bench.sim.clear();
    let after = Bench::new(Sim::new());
    after.sim.block_on(|| {
        let _drive = after.power_on(Some(&survivors));
        let driver = after.driver();
        assert_eq!(driver.exist(key), Ok(false));
        assert_eq!(driver.exist(Key::from_u32_be(8)), Ok(true));
        let queue = after.link.create_queue(8);
        let late = after.store(&queue, key, 64, 64, 1);
        assert_eq!((late.status(), driver.exist(key)), (Status::STALE_WINDOW, Ok(false)));
    });
    after.sim.clear();
}

/// The drive has taken room in the window for a value that it then refuses: if the drive or the host still
/// counted that room as used, they would disagree about the place of the next value.
#[test]
fn a_refused_store_with_a_grant_leaves_the_window_to_later_stores() {
    let bench = Bench::with(Sim::new(), &["host.transfer=adaptive-cxl", "host.threshold1_bytes=128"]);
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None);
        let driver = bench.driver();
        driver.store(Key::from_u32_be(1), Piece::Bytes(&[1; 100])).expect("stored");
        let add_only = StoreOptions { add_only: true, ..StoreOptions::default() };
        let again = driver.store_with(Key::from_u32_be(1), Piece::Bytes(&[2; 4_096]), add_only);
        assert_eq!(again, Err(Status::KEY_EXISTS));
        for number in 2..200 {
            let stored = driver.store(Key::from_u32_be(number), Piece::Bytes(&[3; 100]));
            assert_eq!(stored, Ok(()), "value {number}");
        }
    });
    bench.sim.clear();
}

/// Every queue has a window, and only one queue still stores, with values in its commands.
#[test]
fn windows_of_idle_queues_leave_room_for_values_in_commands() {
    for entries in ["8", "12", "64"] {
        let setting = format!("buffer.entries={entries}");
        let queues = ["host.queues=40", "host.depth=40", "host.queue_entries=8"];
        let settings = [&["host.transfer=piggyback-cxl", setting.as_str()], queues.as_slice()].concat();
        let bench = Bench::with(Sim::new(), &settings);
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None);
            let drivers = bench.drivers();
            for (number, driver) in (0..).zip(&drivers) {
                driver.store(Key::from_u32_be(number), Piece::Bytes(&[1; 100])).expect("stored");
            }
            for (driver, bytes) in drivers.iter().zip([1, 8, 35].iter().cycle()) {
                let stored = driver.store(Key::from_u32_be(99), Piece::Bytes(&[2; 35][..*bytes]));
                assert_eq!(stored, Ok(()), "{bytes} B, {entries} entries");
            }
        });
        bench.sim.clear();
    }
}

/// A long value needs the windows' half of the buffer as well. The windows are not used any more: the second
/// try gets their half.
#[test]
fn a_long_value_in_commands_is_taken_when_it_is_tried_again() {
    let bench = Bench::with(Sim::new(), &["host.transfer=hybrid"]);
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None);
        let driver = bench.driver();
        let queues = [bench.link.create_queue(8), bench.link.create_queue(8)];
        let keys = [1, 2].map(Key::from_u32_be);
        for (queue, generation) in queues.iter().zip(1..) {
            let asked = bench.store(queue, keys[0], 100, ASK, 0);
            assert_eq!((asked.status(), asked.dw1.get()), (Status::STALE_WINDOW, generation));
        }
        let value = [5; 40_000];
        let first = driver.store(keys[0], Piece::Bytes(&value));
        assert_eq!(first, Err(Status::COMMAND_INTERRUPTED));
        assert_eq!(driver.store(keys[0], Piece::Bytes(&value)), Ok(()));
        // The queues notice it, and get new windows.
        let late = bench.store(&queues[0], keys[1], 100, 0, 1);
        assert_eq!((late.status(), late.dw1.get()), (Status::STALE_WINDOW, 3));
        assert_eq!(bench.store(&queues[0], keys[1], 100, 0, 3).status(), Status::SUCCESS);
    });
    bench.sim.clear();
}
