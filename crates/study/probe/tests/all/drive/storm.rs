//! Hosts at the limit and beyond: any 64 bytes from several queues, unfinished values on many queues, and the
//! largest values. No task waits for ever, and pairs of other hosts are kept.

use std::rc::Rc;

use kvdrive_config::faults::rules;
use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{HostMemory, LocalMemory, QueuePair};
use kvdrive_nvme::{Command, Key, SglDescriptor, Sqe, Status, Store, Write, inline, opcode};
use kvdrive_sim::{Rng, Sim};

use kvdrive_rigs::drive::{Bench, Oracle, Stored, check_all, check_one, document, usual_and_flat, value};

const NSID: u32 = 1;

/// Submits one command and waits for its completion.
pub fn submit(bench: &Bench, queue: &QueuePair, sqe: Sqe) -> Status {
    assert!(queue.try_submit(sqe), "one command at a time fits");
    bench.link.ring_submission(queue);
    loop {
        if let Some(cqe) = queue.any_completion() {
            bench.link.ring_completion(queue);
            assert_eq!(cqe.cid, sqe.cid, "a completion of another command");
            return cqe.status();
        }
        bench.sim.sleep(1000);
    }
}

fn oracle_key(number: u64) -> Key {
    let mut bytes = [9; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Key::new(&bytes).expect("16 bytes are a key")
}

/// Many more unfinished values than the buffer has pages: the host gets an answer to try again, and other
/// commands continue.
#[test]
fn unfinished_values_on_many_queues_block_no_other_queue() {
    let bench = Bench::new(&document(&["controller.contexts=2"]), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let begin = |number: u32| {
            let write = Write { key: Key::from_u32_be(number), value_bytes: 16_000 };
            let mut sqe = Command::Write(write).encode(0, NSID);
            inline::put_write(&mut sqe, &[7; inline::WRITE_INLINE_BYTES]);
            sqe
        };
        let queues: Vec<Rc<QueuePair>> = (0..40).map(|_| bench.link.create_queue(4)).collect();
        let mut taken = 0;
        for (number, queue) in (0..).zip(&queues) {
            match submit(&bench, queue, begin(number)) {
                Status::SUCCESS => taken += 1,
                Status::COMMAND_INTERRUPTED => {}
                status => panic!("write on queue {number}: {status}"),
            }
        }
        assert!((1..40).contains(&taken), "{taken} unfinished values were taken");
        let mut oracle = Oracle::default();
        for number in 0..60 {
            let key = oracle_key(number);
            let stored = Stored { version: number, bytes: 9000 };
            driver.store(key, Piece::Pattern(value(&key, stored))).expect("other commands go on");
            oracle.pairs.insert(key, stored);
        }
        check_all(&driver, &oracle);
        // A write inside an unfinished value is refused and discards it; the next one works.
        assert_eq!(submit(&bench, &queues[0], begin(0)), Status::COMMAND_SEQUENCE_ERROR);
        assert_eq!(submit(&bench, &queues[0], begin(0)), Status::SUCCESS);
        // A stray transfer is refused.
        let stray = bench.link.create_queue(4);
        let sqe = Sqe::new(opcode::TRANSFER, 0, NSID);
        assert_eq!(submit(&bench, &stray, sqe), Status::COMMAND_SEQUENCE_ERROR);
        check_all(&driver, &oracle);
    });
    bench.sim.clear();
}

/// Values of up to 2 MiB by every method; one byte beyond the 256 MiB that a drive takes is refused.
#[test]
fn values_of_mebibytes_by_every_transfer_method() {
    use kvdrive_config::Document;
    for row in kvdrive_link::transfer::METHODS {
        let mut document = Document::profile("cosmos-plus").expect("the profile exists");
        document.set(&format!("host.transfer={}", row.name)).expect("a method of the table");
        document.set("flash.blocks_per_die=64").expect("a number");
        let bench = Bench::new(&document, Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::default();
            for (number, bytes) in [(1, 2 << 20), (2, (1 << 20) + 77), (3, 0)] {
                let key = Key::from_u32_be(number);
                let stored = Stored { version: 0, bytes };
                let result = driver.store(key, Piece::Pattern(value(&key, stored)));
                assert_eq!(result, Ok(()), "{}: {bytes} B", row.name);
                oracle.pairs.insert(key, stored);
            }
            let key = Key::from_u32_be(4);
            let stored = Stored { version: 0, bytes: (256 << 20) + 1 };
            let result = driver.store(key, Piece::Pattern(value(&key, stored)));
            assert_eq!(result, Err(Status::INVALID_VALUE_SIZE), "{}", row.name);
            check_all(&driver, &oracle);
        });
        bench.sim.clear();
    }
}

/// A command reads and writes any memory of *its* host that it names, also the lists of pages of that host's
/// driver: the driver's next long values are then refused (13h), which is right. Memory of another host
/// cannot be named at all.
#[test]
fn a_host_that_names_its_drivers_memory_harms_only_itself() {
    for is_neighbour in [false, true] {
        let bench = Bench::new(&document(&["host.transfer=prp"]), Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let (key, stored) = (oracle_key(0), Stored { version: 0, bytes: 9000 });
            let store = || driver.store(key, Piece::Pattern(value(&key, stored)));
            store().expect("there is room");
            let end_of_drivers = bench.memory.map(PAGE as u32);
            let (memory, function) = if is_neighbour {
                let memory = Rc::new(LocalMemory::new());
                (memory.clone(), bench.link.create_function(memory))
            } else {
                (bench.memory.clone(), bench.link.first_function())
            };
            let queue = bench.link.create_queue_of(&function, 4);
            let own = memory.map(2 * PAGE as u32);
            let (mut named, mut refused) = (0, 0);
            // The beginning of every buffer that the driver has, or could have in this memory.
            let buffers = (1..end_of_drivers >> 32).map(|number| number << 32);
            for buffer in buffers.filter(|buffer| *buffer != own) {
                let list = [buffer.to_le_bytes(), own.to_le_bytes()].concat();
                memory.write(own + PAGE, Piece::Bytes(&list)).expect("it is mapped");
                let (buffer_bytes, options) = (3 * PAGE as u32, Default::default());
                let mut sqe = Command::Retrieve { key, buffer_bytes, options }.encode(0, NSID);
                sqe.set_prps(own, own + PAGE);
                match submit(&bench, &queue, sqe) {
                    Status::SUCCESS => {}
                    Status::DATA_TRANSFER_ERROR => refused += 1,
                    status => panic!("a retrieve to {buffer:#x}: {status}"),
                }
                named += 1;
            }
            assert!(named > 1, "a slot has a buffer and a list");
            if is_neighbour {
                assert_eq!(refused, named, "there is nothing in its own memory");
                let pairs = [(key, stored)].into();
                check_all(&driver, &Oracle { pairs, ..Oracle::default() });
                assert_eq!(store(), Ok(()));
            } else {
                assert_eq!(refused, 0, "all of it is mapped");
                let retrieved = driver.retrieve(key, &mut Region::new());
                assert_eq!(retrieved, Err(Status::PRP_OFFSET_INVALID), "its list has led astray");
                assert_eq!(store(), Err(Status::PRP_OFFSET_INVALID), "its list has led astray");
            }
        });
        bench.sim.clear();
    }
}

const PAGE: u64 = 4096;
/// Pages of host memory that stray commands may name.
const PAGES: u64 = 24;
/// The longest time that one command may take, ns: far more than collection ever adds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Bit of an entry's second byte that asks for no completion.
const QUIET: u8 = 1 << 2;

/// Memory whose last page is a list of the others, so that commands with long values can succeed.
fn stray_memory(memory: &LocalMemory, rng: &mut Rng) -> u64 {
    let base = memory.map((PAGES * PAGE) as u32);
    let mut bytes = vec![0; (PAGES * PAGE) as usize];
    rng.fill(&mut bytes);
    let list = ((PAGES - 1) * PAGE) as usize;
    for (index, entry) in (1..).zip(bytes[list..].chunks_exact_mut(8)) {
        entry.copy_from_slice(&(base + index % (PAGES - 2) * PAGE).to_le_bytes());
    }
    memory.write(base, Piece::Bytes(&bytes)).expect("it is mapped");
    base
}

/// Half of the entries are plausible commands, a third are such commands with some bytes changed, and the
/// others are noise. No key is one of the oracle's.
fn stray(rng: &mut Rng, base: u64, cid: u16) -> Sqe {
    const OPCODES: [u8; 13] = [
        opcode::STORE,
        opcode::STORE,
        opcode::RETRIEVE,
        opcode::DELETE,
        opcode::EXIST,
        opcode::LIST,
        opcode::WRITE,
        opcode::WRITE,
        opcode::TRANSFER,
        opcode::HYBRID,
        opcode::EXPRESS,
        opcode::CXL_STORE,
        opcode::SEEK,
    ];
    let opcode = OPCODES[rng.below(OPCODES.len() as u64) as usize];
    let key = Key::new(&[rng.below(3) as u8; 16][..1 + rng.below(3) as usize]).expect("1 to 3 bytes");
    let value_bytes =
        [rng.below(200), 4000 + rng.below(300), rng.below(70_000)][rng.below(3) as usize] as u32;
    let mut sqe = Command::Store(Store { key, value_bytes, options: Default::default() }).encode(cid, NSID);
    sqe.opcode = opcode;
    let mut address = || base + rng.below(PAGES) * PAGE;
    let (first, second) = (address(), address());
    match rng.below(4) {
        0 => sqe.set_sgl(SglDescriptor::data_block(first, value_bytes)),
        1 => sqe.set_prps(first, base + (PAGES - 1) * PAGE),
        _ => sqe.set_prps(first, second),
    }
    let mut bytes = *sqe.as_bytes();
    match rng.below(6) {
        0 => rng.fill(&mut bytes),
        1 | 2 => (0..1 + rng.below(3)).for_each(|_| bytes[rng.below(64) as usize] = rng.next_u64() as u8),
        _ => {}
    }
    bytes[1] &= !QUIET;
    let mut sqe = Sqe::from_bytes(bytes);
    sqe.cid.set(cid);
    if sqe.opcode == opcode::EXPRESS {
        // Otherwise the entries after it would be its value, and not be completed.
        sqe.cdw10.set(0);
    }
    sqe
}

/// Keeps up to six stray commands under way on a queue; each is completed once.
fn send_strays(bench: &Bench, queue: &QueuePair, base: u64, commands: u16, rng: &mut Rng) -> [u32; 2] {
    let mut under_way: Vec<(u16, u64)> = Vec::new();
    let mut outcomes = [0; 2];
    let mut next = 0;
    while next < commands || !under_way.is_empty() {
        while next < commands && under_way.len() < 6 && queue.try_submit(stray(rng, base, next)) {
            under_way.push((next, bench.sim.now()));
            next += 1;
        }
        bench.link.ring_submission(queue);
        while let Some(cqe) = queue.any_completion() {
            bench.link.ring_completion(queue);
            let at = under_way.iter().position(|(cid, _)| *cid == cqe.cid.get());
            under_way.swap_remove(at.expect("a command is completed once"));
            outcomes[usize::from(cqe.status().is_success())] += 1;
        }
        for (cid, since) in &under_way {
            assert!(bench.sim.now() - since < PATIENCE_NS, "command {cid} is never completed");
        }
        bench.sim.sleep(2000);
    }
    outcomes
}

/// Stores, overwrites and deletes beside the storm.
fn work_beside(driver: &Driver, oracle: &mut Oracle, rng: &mut Rng) {
    for _ in 0..250 {
        let key = oracle_key(rng.below(60));
        let stored = Stored { version: rng.next_u64(), bytes: rng.below(9000) as u32 };
        match rng.below(8) {
            0 => {
                driver.delete(key).expect("a delete never fails");
                oracle.pairs.remove(&key);
            }
            1..=3 => check_one(driver, oracle, key),
            _ => match driver.store(key, Piece::Pattern(value(&key, stored))) {
                Ok(()) => drop(oracle.pairs.insert(key, stored)),
                Err(Status::CAPACITY_EXCEEDED | Status::COMMAND_INTERRUPTED) => {}
                Err(status) => panic!("store of {stored:?}: {status}"),
            },
        }
    }
}

/// Flash that fails at the first program, so that some block is retired however little is programmed, and at
/// later ones now and then; there are enough spare blocks.
const FAILING: &str = "[[rule]]\nfault = \"program-error\"\nnth = 1\n\
                       [[rule]]\nfault = \"program-error\"\nprobability = 0.1\n\
                       [[rule]]\nfault = \"erase-error\"\nprobability = 0.1\n";

fn any_64_bytes(settings: &[String], seed: u64, faults: &str) {
    let bench = Rc::new(Bench::new(&document(settings), Sim::permuted(seed)));
    let sim = bench.sim.clone();
    sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let geometry = bench.config.drive().flash.geometry();
        drive.faults().set(&rules("faults.toml", faults, &geometry).expect("rules"), seed);
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(seed, "storm");
        // A host of their own: the memory that they name, and the memory that is named by a list of pages
        // into which an answer was written, is not the driver's. Effects on a driver are tested above.
        let memory = Rc::new(LocalMemory::new());
        let base = stray_memory(&memory, &mut rng);
        let function = bench.link.create_function(memory);
        let storms: Vec<_> = (0..3)
            .map(|number| {
                let queue = bench.link.create_queue_of(&function, 8);
                let (bench, mut rng) = (bench.clone(), Rng::stream(seed + number, "stray commands"));
                sim.spawn(move || send_strays(&bench, &queue, base, 700, &mut rng))
            })
            .collect();
        work_beside(&driver, &mut oracle, &mut rng);
        for storm in storms {
            let [refused, succeeded] = storm.join();
            assert!(refused > 100 && succeeded > 100, "{refused} refused, {succeeded} succeeded");
        }
        for number in 0..60 {
            check_one(&driver, &oracle, oracle_key(number));
        }
        let retired_blocks = drive.flash_health().retired_blocks;
        assert_eq!(retired_blocks > 0, !faults.is_empty(), "{settings:?}: {retired_blocks} retired");
    });
    sim.clear();
}

/// Further seeds, to search for bugs: `KVDRIVE_STORM_SEEDS=100..200`.
#[test]
#[ignore = "takes seconds for every seed"]
#[expect(clippy::disallowed_methods, reason = "a variable sets for how long it runs")]
fn any_64_bytes_by_as_many_seeds_as_asked_for() {
    let Ok(seeds) = std::env::var("KVDRIVE_STORM_SEEDS") else { return };
    let (first, end) = seeds.split_once("..").expect("first..end");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let seeds = number(first)..number(end);
    for (seed, row) in seeds.flat_map(|seed| ENGINES.iter().map(move |row| (seed, row))) {
        let engine = format!("engine.name={}", row.name);
        for (spare_blocks, faults) in [(None, ""), (Some("flash.spare_blocks=500"), FAILING)] {
            let settings = [engine.as_str(), "flash.blocks_per_die=96"].into_iter().chain(spare_blocks);
            for settings in usual_and_flat(&settings.collect::<Vec<_>>()) {
                println!("seed {seed}, {settings:?}");
                any_64_bytes(&settings, seed, faults);
            }
        }
    }
}

#[test]
fn any_64_bytes_from_several_queues_harm_no_pair() {
    for row in ENGINES {
        let engine = format!("engine.name={}", row.name);
        let [usual, flat] = usual_and_flat(&[&engine, "flash.blocks_per_die=96"]);
        (0..3).for_each(|seed| any_64_bytes(&usual, seed, ""));
        (3..5).for_each(|seed| any_64_bytes(&flat, seed, ""));
    }
}

#[test]
fn any_64_bytes_harm_no_pair_while_blocks_are_retired() {
    for row in ENGINES {
        let engine = format!("engine.name={}", row.name);
        let settings = [&engine, "flash.blocks_per_die=96", "flash.spare_blocks=500"];
        let [usual, flat] = usual_and_flat(&settings);
        any_64_bytes(&usual, 1, FAILING);
        any_64_bytes(&flat, 2, FAILING);
    }
}
