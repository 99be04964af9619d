//! Values that cross in several commands, and hosts that never send the next one: the effect on other hosts.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_host::Calls;
use kvdrive_link::transfer::prp;
use kvdrive_link::{HostMemory, QueuePair};
use kvdrive_nvme::{Command, Key, RetrieveOptions, RetrievePart, Status, Store, StoreOptions, StorePart};
use kvdrive_sim::Sim;

use super::storm::submit;
use kvdrive_rigs::drive::{Bench, LARGE, Stored, document, key, value};

const PART_BYTES: u32 = 4096;

/// A queue of its own, and memory for a part.
struct Slow<'b> {
    bench: &'b Bench,
    queue: Rc<QueuePair>,
    buffer: u64,
}

impl Slow<'_> {
    fn of(bench: &Bench) -> Slow<'_> {
        Slow { bench, queue: bench.link.create_queue(4), buffer: bench.memory.map(PART_BYTES) }
    }

    fn send(&self, command: &Command) -> Status {
        let mut sqe = command.encode(0, 1);
        prp::point_at(&mut sqe, self.buffer, 0, PART_BYTES);
        submit(self.bench, &self.queue, sqe)
    }

    /// A part of a value, or the status.
    fn retrieve(&self, key: Key, stream: u16, at: u32) -> Result<Vec<u8>, Status> {
        let (bytes, room, options) = (PART_BYTES, u32::MAX, RetrieveOptions::default());
        let part = RetrievePart { key, at, bytes, stream, room, options };
        match self.send(&Command::RetrievePart(part)) {
            Status::SUCCESS => {
                let mut part = Vec::new();
                let mut sink = |piece: Piece<'_>| {
                    let from = part.len();
                    part.resize(from + piece.bytes() as usize, 0);
                    piece.expand(&mut part[from..]);
                };
                self.bench.memory.read(self.buffer, PART_BYTES, &mut sink).expect("mapped");
                Ok(part)
            }
            status => Err(status),
        }
    }
}

fn bytes_of(key: &Key, stored: Stored) -> Vec<u8> {
    let mut bytes = vec![0; stored.bytes as usize];
    value(key, stored).expand(&mut bytes);
    bytes
}

/// Streams of retrieved parts that no host continues do not delay collection: the drive is overwritten
/// several times. A stream that is continued later returns the value from which its first part came.
#[test]
fn a_value_that_is_half_retrieved_holds_up_no_other_command() {
    for row in ENGINES {
        let own = format!("engine.name={}", row.name);
        for large in [&[][..], LARGE] {
            let settings = [&[own.as_str()], large].concat();
            let bench = Bench::new(&document(&settings), Sim::new());
            bench.sim.block_on(|| {
                let _drive = bench.power_on(None).expect("an empty drive comes up");
                let (driver, slow) = (bench.connect(), Slow::of(&bench));
                let key_of = |number| key(number, true);
                let fits = |bytes: &u32| {
                    let (key, stored) = (key_of(0), Stored { version: 0, bytes: *bytes });
                    driver.store(key, Piece::Pattern(value(&key, stored))) != Err(Status::INVALID_VALUE_SIZE)
                };
                let sizes = if large.is_empty() { [40_000, 10_000] } else { [120_000, 10_000] };
                let bytes = sizes.into_iter().find(fits).expect("every engine takes the short one");
                let old = Stored { version: 0, bytes };
                for number in 0..8 {
                    let key = key_of(number);
                    driver.store(key, Piece::Pattern(value(&key, old))).expect("there is room");
                }
                let expected = |number| bytes_of(&key_of(number), old);
                for number in 0..8 {
                    let front = slow.retrieve(key_of(number), number as u16 + 1, 0).expect("it is there");
                    assert!(expected(number).starts_with(&front), "{}", row.name);
                }
                let flash = bench.config.drive().flash.geometry();
                let writes = 3 * flash.pages() * u64::from(flash.page_bytes) / u64::from(bytes);
                for version in 1..=writes {
                    let key = key_of(version % 8);
                    let stored = Piece::Pattern(value(&key, Stored { version, bytes }));
                    assert_eq!(
                        driver.store(key, stored),
                        Ok(()),
                        "{settings:?}: write {version} of {writes}"
                    );
                }
                for number in 0..8 {
                    let mut at = PART_BYTES;
                    while at < bytes {
                        let part = slow.retrieve(key_of(number), number as u16 + 1, at).expect("it goes on");
                        let stop = bytes.min(at + PART_BYTES);
                        let rest = &expected(number)[at as usize..stop as usize];
                        assert!(part.starts_with(rest), "{settings:?}: value {number} at {at}");
                        at = stop;
                    }
                }
                let mut region = Region::new();
                let newest = Stored { version: writes, bytes };
                let newest_key = key_of(writes % 8);
                assert_eq!(driver.retrieve(newest_key, &mut region), Ok(bytes));
                assert!(region.to_bytes(bytes) == bytes_of(&newest_key, newest), "{settings:?}");
            });
            bench.sim.clear();
        }
    }
}

/// A host that begins many large values and completes none of them has a share of the drive, and the others
/// have the rest.
#[test]
fn values_that_are_half_stored_leave_room_for_others() {
    for row in ENGINES {
        half_stored(&[&[&*format!("engine.name={}", row.name)], LARGE].concat());
    }
}

fn half_stored(settings: &[&str]) {
    let bench = Bench::new(&document(settings), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let (driver, slow) = (bench.connect(), Slow::of(&bench));
        const VALUE_BYTES: u32 = 200_000;
        let send = |queue: &Slow<'_>, stream: u16, at: u32| {
            let store = Store {
                key: key(stream.into(), false),
                value_bytes: VALUE_BYTES,
                options: StoreOptions::default(),
            };
            let bytes = PART_BYTES.min(VALUE_BYTES - at);
            queue.send(&Command::StorePart(StorePart { store, at, bytes, stream }))
        };
        let begin = |stream: u16| send(&slow, stream, 0);
        let began = (1..200).take_while(|stream| begin(*stream) == Status::SUCCESS).count() as u16;
        assert!((2..100).contains(&began), "{began} of 199");
        assert_eq!(begin(began + 1), Status::COMMAND_INTERRUPTED);
        let stored = Stored { version: 1, bytes: 60_000 };
        for number in 1000..1040 {
            let key = key(number, false);
            assert_eq!(driver.store(key, Piece::Pattern(value(&key, stored))), Ok(()), "store {number}");
        }
        // A queue that holds none gets its first, for the value that was not continued for longest. It cannot take a
        // second one from others.
        let other = Slow::of(&bench);
        for at in (0..VALUE_BYTES).step_by(PART_BYTES as usize) {
            assert_eq!(send(&other, 2000, at), Status::SUCCESS, "{settings:?}: from {at} on");
        }
        assert_eq!(send(&slow, 1, PART_BYTES), Status::COMMAND_INTERRUPTED, "{settings:?}: try again");
        assert_eq!(send(&slow, began, PART_BYTES), Status::SUCCESS, "{settings:?}: it is left alone");
        assert_eq!(begin(1), Status::SUCCESS, "what is given up can be begun again");
        assert_eq!(begin(began + 1), Status::COMMAND_INTERRUPTED);
        assert_eq!(slow.send(&Command::Discard { stream: 1 }), Status::SUCCESS);
        assert_eq!(begin(1), Status::SUCCESS, "what is given up can be begun again");
    });
    bench.sim.clear();
}

/// A part names a single stream, and the key of the value that the stream has begun.
#[test]
fn a_part_of_another_value_or_of_all_streams_is_refused() {
    let bench = Bench::new(&document::<&str>(&[]), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let (driver, slow) = (bench.connect(), Slow::of(&bench));
        let stored = Stored { version: 0, bytes: 20_000 };
        for number in 0..2 {
            let key = key(number, false);
            driver.store(key, Piece::Pattern(value(&key, stored))).expect("there is room");
        }
        let [one, other] = [0, 1].map(|number| key(number, false));
        assert!(slow.retrieve(one, 1, 0).is_ok());
        assert_eq!(slow.retrieve(other, u16::MAX, 0), Err(Status::INVALID_FIELD));
        assert_eq!(
            slow.retrieve(one, 1, PART_BYTES).map(|part| part.len()),
            Ok(PART_BYTES as usize),
            "it was left alone"
        );
        assert_eq!(slow.retrieve(other, 1, 2 * PART_BYTES), Err(Status::COMMAND_SEQUENCE_ERROR));
        assert_eq!(
            slow.retrieve(one, 1, 2 * PART_BYTES),
            Err(Status::COMMAND_SEQUENCE_ERROR),
            "that ended it"
        );
    });
    bench.sim.clear();
}
