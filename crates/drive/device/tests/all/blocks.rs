//! A drive of blocks compared with an array of them: data, ranges, deallocation, power cuts, invalid
//! commands.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_flash::power::Survivors;
use kvdrive_flash::power::machine_file::faults::{Call, Fault, arm};
use kvdrive_host::blocks::{Block, BlockCall, BlockDriver, BlockHost};
use kvdrive_link::{HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::identify::{CSI_NVM, cns};
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmCommand, NvmNamespace};
use kvdrive_nvme::{Command, Cqe, Key, SglDescriptor, Sqe, Status, opcode};
use kvdrive_sim::{Resource, Rng, Sim, join_all};
use zerocopy::FromBytes;

use super::rig;
use super::small_drives::{config, in_memory};

const NSID: u32 = 1;
/// Blocks of the tests: few, so that commands overlap.
const SPAN: u64 = 96;
const BUFFER_BYTES: u32 = 64 * BLOCK_BYTES;

/// Pages of one block, and of four.
const PAGES: [u32; 2] = [BLOCK_BYTES, 4 * BLOCK_BYTES];

pub fn blocks_config(page_bytes: u32) -> DriveConfig {
    let mut config = config("block", None);
    config.flash.page_bytes = page_bytes;
    config.controller.dispatch = rig::on_contexts(4);
    config.media = in_memory();
    config
}

/// A host with a driver, and a queue pair of its own for commands that no driver would send.
struct Host {
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    driver: BlockDriver,
    queue: Rc<QueuePair>,
    cid: Cell<u16>,
}

impl Host {
    fn new(blocks: &Rc<BlockHost>, link: &Rc<Link>, memory: &Rc<LocalMemory>) -> Host {
        Host {
            driver: driver(blocks, 8),
            link: link.clone(),
            memory: memory.clone(),
            queue: link.create_queue(64),
            cid: Cell::new(0),
        }
    }

    fn submit(&self, mut sqe: Sqe) -> Cqe {
        let cid = self.cid.replace(self.cid.get().wrapping_add(1));
        sqe.cid.set(cid);
        assert!(self.queue.try_submit(sqe), "the queue has room");
        self.link.ring_submission(&self.queue);
        let cqe = self.queue.completion(cid);
        self.link.ring_completion(&self.queue);
        cqe
    }

    /// A buffer with its list page.
    fn buffer(&self) -> (u64, u64) {
        let (buffer, list) = (self.memory.map(BUFFER_BYTES), self.memory.map(4096));
        let pages = (1..u64::from(BUFFER_BYTES / 4096)).flat_map(|page| (buffer + page * 4096).to_le_bytes());
        let entries: Vec<u8> = pages.collect();
        self.memory.write(list, Piece::Bytes(&entries)).expect("it is mapped");
        (buffer, list)
    }

    fn read(&self, first: u64, count: u32) -> Result<Vec<u8>, Status> {
        let blocks = self.driver.call(BlockCall::Read(Blocks { first, count }))?;
        assert_eq!(blocks.len(), count as usize);
        Ok(blocks.iter().flat_map(|block| block.to_bytes(BLOCK_BYTES)).collect())
    }

    fn status_of(&self, call: BlockCall<'_>) -> Status {
        self.driver.call(call).map_or_else(|status| status, |_| Status::SUCCESS)
    }

    fn write(&self, first: u64, count: u32, version: u64) -> Status {
        self.status_of(BlockCall::Write { first, blocks: &blocks_of(first, count, version) })
    }

    fn deallocate(&self, ranges: &[Blocks]) -> Status {
        self.status_of(BlockCall::Deallocate(ranges))
    }

    fn write_zeroes(&self, blocks: Blocks) -> Status {
        self.status_of(BlockCall::WriteZeroes(blocks))
    }
}

fn driver(blocks: &Rc<BlockHost>, depth: u32) -> BlockDriver {
    let core = Rc::new(Resource::new(blocks.link().sim(), "host.core", 1));
    BlockDriver::connect(blocks, core, 64, depth).expect("a queue pair")
}

/// A version of these blocks: every other block is a pattern.
fn blocks_of(first: u64, count: u32, version: u64) -> Vec<Block> {
    let block = |block: u64| {
        let content = content(block, version);
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        content.expand(&mut bytes);
        let mut region = Region::new();
        region
            .write(0, if version.is_multiple_of(2) { Piece::Pattern(content) } else { Piece::Bytes(&bytes) });
        Rc::new(region)
    };
    (0..u64::from(count)).map(|at| block(first.wrapping_add(at))).collect()
}

fn content(block: u64, version: u64) -> Pattern {
    Pattern::of_value(&Key::from_u32_be(block as u32), version, BLOCK_BYTES)
}

/// The bytes of a block: of a version, or zeros (`None`).
fn bytes_of(block: u64, version: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    if let Some(version) = version {
        content(block, version).expand(&mut bytes);
    }
    bytes
}

/// The last acknowledged version of each block, and the commands under way.
#[derive(Clone, Default)]
struct Oracle {
    acknowledged: BTreeMap<u64, Option<u64>>,
    under_way: BTreeMap<u64, Option<u64>>,
}

impl Oracle {
    fn check(&self, host: &Host) {
        for block in 0..SPAN {
            let found = host.read(block, 1).expect("a block can be read");
            let known = self.acknowledged.get(&block).copied().flatten();
            let may_be = [Some(known), self.under_way.get(&block).copied()];
            let is_one = may_be.into_iter().flatten().any(|version| found == bytes_of(block, version));
            assert!(is_one, "block {block} is neither {known:?} nor what was under way");
        }
    }
}

/// One random command; the oracle is updated before and after it.
fn step(host: &Host, oracle: &RefCell<Oracle>, rng: &mut Rng, versions: &Cell<u64>, lane: (u64, u64)) {
    let (from, span) = lane;
    let first = from + rng.below(span);
    let count = 1 + rng.below((from + span - first).min(12)) as u32;
    let version = versions.replace(versions.get() + 1);
    let blocks = first..first + u64::from(count);
    let (is_read, content) = match rng.below(8) {
        0..=3 => (false, Some(version)),
        4 => (false, None),
        5 => (false, None),
        _ => (true, None),
    };
    if is_read {
        let found = host.read(first, count).expect("blocks can be read");
        let oracle = oracle.borrow();
        let expected: Vec<u8> = blocks
            .flat_map(|block| bytes_of(block, oracle.acknowledged.get(&block).copied().flatten()))
            .collect();
        assert!(found == expected, "blocks {first}+{count}");
        return;
    }
    oracle.borrow_mut().under_way.extend(blocks.clone().map(|block| (block, content)));
    let status = match content {
        Some(version) => host.write(first, count, version),
        None if rng.one_in(2) => {
            let half = count / 2;
            let ranges = [
                Blocks { first, count: half },
                Blocks { first: first + u64::from(half), count: count - half },
            ];
            host.deallocate(&ranges)
        }
        None => host.write_zeroes(Blocks { first, count }),
    };
    assert_eq!(status, Status::SUCCESS);
    let mut oracle = oracle.borrow_mut();
    for block in blocks {
        oracle.under_way.remove(&block);
        oracle.acknowledged.insert(block, content);
    }
}

pub struct Bench {
    pub sim: Sim,
    pub link: Rc<Link>,
    pub memory: Rc<LocalMemory>,
    blocks: OnceCell<Rc<BlockHost>>,
}

impl Bench {
    pub fn new(sim: Sim) -> Bench {
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, rig::link_config(4096), memory.clone());
        Bench { link, memory, sim, blocks: OnceCell::new() }
    }

    /// A drive that a host has identified.
    pub fn power_on(&self, config: &DriveConfig, survivors: Option<&Survivors>) -> Drive {
        let drive = Drive::power_on(&self.sim, &self.link, config, survivors);
        let host = BlockHost::connect(self.link.clone(), self.memory.clone(), rig::HOST_COSTS);
        self.blocks.set(host.expect("a drive of blocks says what it is")).ok().expect("one drive a link");
        drive.expect("a drive of blocks comes up")
    }

    pub fn blocks(&self) -> &Rc<BlockHost> {
        self.blocks.get().expect("a drive is on")
    }

    fn host(&self) -> Host {
        Host::new(self.blocks(), &self.link, &self.memory)
    }
}

/// Four hosts, each on blocks of its own that share pages with its neighbours'.
#[test]
fn blocks_read_what_was_written() {
    for page_bytes in PAGES {
        for seed in 0..4 {
            let bench = Bench::new(if seed == 0 { Sim::new() } else { Sim::permuted(seed) });
            bench.sim.block_on(|| {
                let drive = bench.power_on(&blocks_config(page_bytes), None);
                let oracle = RefCell::new(Oracle::default());
                let versions = Cell::new(1);
                let lanes = (0..4u64).map(|lane| {
                    let (bench, oracle, versions) = (&bench, &oracle, &versions);
                    move || {
                        let (host, mut rng) = (bench.host(), Rng::stream(seed * 4 + lane, "lane"));
                        for _ in 0..120 {
                            step(&host, oracle, &mut rng, versions, (lane * 23 + 1, 23));
                        }
                    }
                });
                join_all(&bench.sim, lanes);
                oracle.borrow().check(&bench.host());
                let mut rng = Rng::stream(seed, "survivors");
                let survivors = drive.survivors(&mut rng);
                let again = Bench::new(Sim::new());
                again.sim.block_on(|| {
                    let _drive = again.power_on(&blocks_config(page_bytes), Some(&survivors));
                    oracle.borrow().check(&again.host());
                });
                again.sim.clear();
            });
            bench.sim.clear();
        }
    }
}

#[test]
fn acknowledged_blocks_survive_a_power_cut_at_any_event() {
    for page_bytes in PAGES {
        let bench = Bench::new(Sim::permuted(7));
        bench.sim.step_every_event();
        let config = blocks_config(page_bytes);
        let drive = bench.sim.block_on(|| bench.power_on(&config, None));
        let (oracle, versions) = (Rc::new(RefCell::new(Oracle::default())), Rc::new(Cell::new(1)));
        for lane in 0..3u64 {
            let host = bench.sim.block_on(|| bench.host());
            let (oracle, versions) = (oracle.clone(), versions.clone());
            bench.sim.spawn(move || {
                let mut rng = Rng::stream(lane, "cut lane");
                loop {
                    step(&host, &oracle, &mut rng, &versions, (lane * 31 + 1, 31));
                }
            });
        }
        let mut rng = Rng::stream(1, "cut");
        for event in 0..6_000 {
            assert!(bench.sim.step(), "the hosts are stuck");
            if event % 29 == 0 {
                let (survivors, known) = (drive.survivors(&mut rng), oracle.borrow().clone());
                let again = Bench::new(Sim::new());
                again.sim.block_on(|| {
                    let _drive = again.power_on(&config, Some(&survivors));
                    known.check(&again.host());
                });
                again.sim.clear();
            }
        }
        bench.sim.clear();
    }
}

/// On a file every change of the deallocated blocks is a record: the drive recovers from copies of its files,
/// taken while it runs.
#[test]
fn what_was_deallocated_stays_away_when_the_process_is_killed() {
    let (folder, copies) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let on = |folder: &tempfile::TempDir| {
        let mut config = config("block", Some(&folder.path().join("blocks.img")));
        config.flash.page_bytes = 2 * BLOCK_BYTES;
        config
    };
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(&on(&folder), None);
        let host = bench.host();
        assert_eq!(host.write(0, 16, 1), Status::SUCCESS);
        assert_eq!(host.deallocate(&[Blocks { first: 2, count: 5 }]), Status::SUCCESS);
        assert_eq!(host.write(4, 1, 2), Status::SUCCESS);
        for file in std::fs::read_dir(folder.path()).expect("it is there") {
            let file = file.expect("it can be listed");
            std::fs::copy(file.path(), copies.path().join(file.file_name())).expect("it can be copied");
        }
    });
    bench.sim.clear();
    let again = Bench::new(Sim::new());
    again.sim.block_on(|| {
        let _drive = again.power_on(&on(&copies), None);
        let host = again.host();
        let versions = [1, 1, 0, 0, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        for (block, version) in (0..).zip(versions) {
            let expected = bytes_of(block, Some(version).filter(|version| *version > 0));
            assert!(host.read(block, 1).expect("it can be read") == expected, "block {block}");
        }
    });
    again.sim.clear();
}

#[test]
fn blocks_whose_file_takes_no_write_are_read_only_and_still_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config("block", Some(&folder.path().join("blocks.img")));
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(&config, None);
        let host = bench.host();
        assert_eq!(host.write(0, 8, 1), Status::SUCCESS);
        let full = Fault { call: Call::Write, which: 0..u64::MAX, error: std::io::ErrorKind::StorageFull };
        arm(Some(full));
        let blocks = Blocks { first: 2, count: 2 };
        for refused in
            [host.write(0, 1, 2), host.write(0, 1, 2), host.deallocate(&[blocks]), host.write_zeroes(blocks)]
        {
            assert_eq!(refused, Status::NAMESPACE_WRITE_PROTECTED);
        }
        arm(None);
        assert!(
            drive
                .write_failure()
                .is_some_and(|failure| failure.path.is_some_and(|path| path.ends_with("blocks.img")))
        );
        assert_eq!(host.status_of(BlockCall::Flush), Status::SUCCESS);
        assert!(host.read(2, 1) == Ok(bytes_of(2, Some(1))));
    });
    bench.sim.clear();
    let again = Bench::new(Sim::new());
    again.sim.block_on(|| {
        let _drive = again.power_on(&config, None);
        let host = again.host();
        for block in 0..8 {
            assert!(host.read(block, 1) == Ok(bytes_of(block, Some(1))), "block {block}");
        }
        assert_eq!(host.write(0, 1, 3), Status::SUCCESS);
    });
    again.sim.clear();
}

/// More tickets than the driver has slots do not block a client, whichever order it collects answers in, or
/// if it drops tickets.
#[test]
fn commands_are_under_way_at_once() {
    let spans = [1, 16].map(|depth| {
        let bench = Bench::new(Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(&blocks_config(BLOCK_BYTES), None);
            let (driver, other) = (driver(bench.blocks(), depth), driver(bench.blocks(), depth));
            let began = bench.sim.now();
            let write =
                |first| driver.submit(BlockCall::Write { first, blocks: &blocks_of(first, 1, first) });
            let mut tickets: Vec<_> = (0..SPAN).map(write).collect();
            // Every third ticket is dropped.
            let mut turn = 0..;
            tickets.retain(|_| turn.next().is_some_and(|turn| turn % 3 > 0));
            for (turn, ticket) in tickets.into_iter().rev().enumerate() {
                let waiter = if turn % 2 == 0 { &driver } else { &other };
                assert_eq!(waiter.wait(ticket), Ok(Vec::new()));
            }
            let span = bench.sim.now() - began;
            let reads: Vec<_> =
                (0..SPAN).map(|first| driver.submit(BlockCall::Read(Blocks { first, count: 1 }))).collect();
            for (block, ticket) in (0..).zip(reads) {
                let found = driver.wait(ticket).expect("it can be read");
                assert!(found[0].to_bytes(BLOCK_BYTES) == bytes_of(block, Some(block)), "block {block}");
            }
            span
        })
    });
    assert!(spans[1] * 3 < spans[0] * 2, "{spans:?} on flash of two units");
}

#[test]
fn pairs_are_no_blocks() {
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let mut config = config("lsm", None);
        config.media = in_memory();
        let _drive = Drive::power_on(&bench.sim, &bench.link, &config, None).expect("it comes up");
        let refused = BlockHost::connect(bench.link.clone(), bench.memory.clone(), rig::HOST_COSTS);
        assert_eq!(refused.err(), Some(Status::INVALID_FIELD));
    });
    bench.sim.clear();
}

#[test]
fn what_is_not_there_is_refused_and_changes_nothing() {
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(&blocks_config(4 * BLOCK_BYTES), None);
        let host = bench.host();
        assert_eq!(host.write(0, 8, 1), Status::SUCCESS);
        let size = drive.utilization().capacity_bytes / u64::from(BLOCK_BYTES);
        let written = drive.counts().of("nand.programs");
        assert_eq!(written, 2, "pages of four blocks");
        for (first, count) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (u64::MAX - 3, 8)] {
            assert_eq!(host.write(first, count, 2), Status::LBA_OUT_OF_RANGE, "{first}+{count}");
            assert_eq!(host.read(first, count), Err(Status::LBA_OUT_OF_RANGE), "{first}+{count}");
            // All ranges or none are deallocated.
            let ranges = [Blocks { first: 0, count: 8 }, Blocks { first, count }];
            assert_eq!(host.deallocate(&ranges), Status::LBA_OUT_OF_RANGE, "{first}+{count}");
        }
        let command = |opcode: u8| Sqe::new(opcode, 0, NSID);
        let mut checked = NvmCommand::Read(Blocks { first: 0, count: 1 }).encode(0, NSID);
        checked.cdw12.set(1 << 26);
        let mut large = NvmCommand::Write(Blocks { first: 0, count: 513 }).encode(0, NSID);
        large.set_sgl(SglDescriptor::data_block(host.buffer().0, 513 * BLOCK_BYTES));
        let mut unmapped = NvmCommand::Write(Blocks { first: 0, count: 1 }).encode(0, NSID);
        unmapped.set_prps(0x1000, 0);
        let key = Key::from_u32_be(1);
        let rows = [
            (command(opcode::DELETE), Status::INVALID_OPCODE),
            (Command::Exist { key }.encode(0, NSID), Status::INVALID_OPCODE),
            (command(0xA8), Status::INVALID_OPCODE),
            (NvmCommand::Flush.encode(0, 2), Status::INVALID_NAMESPACE),
            (checked, Status::INVALID_FIELD),
            (large, Status::INVALID_FIELD),
            (unmapped, Status::DATA_TRANSFER_ERROR),
            (NvmCommand::Flush.encode(0, NSID), Status::SUCCESS),
            (NvmCommand::Hint.encode(0, NSID), Status::SUCCESS),
        ];
        for (sqe, status) in rows {
            assert_eq!(host.submit(sqe).status(), status, "{:02X}h", sqe.opcode);
        }
        for block in 0..8 {
            assert!(host.read(block, 1).expect("it is there") == bytes_of(block, Some(1)), "block {block}");
        }
    });
    bench.sim.clear();
}

#[test]
fn a_host_can_tell_that_these_are_blocks() {
    let bench = Bench::new(Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(&blocks_config(4 * BLOCK_BYTES), None);
        let (queue, buffer) = (bench.link.admin_queue(), bench.memory.map(4096));
        let identify = |structure: u8, csi: u8| {
            let mut sqe = Sqe::new(opcode::admin::IDENTIFY, 0, NSID);
            sqe.cdw10.set(structure.into());
            sqe.cdw11.set(u32::from(csi) << 24);
            sqe.set_prps(buffer, 0);
            assert!(queue.try_submit(sqe));
            bench.link.ring_submission(&queue);
            let status = queue.completion(0).status();
            bench.link.ring_completion(&queue);
            let mut answer = Region::new();
            let mut at = 0;
            let mut take = |piece: Piece<'_>| {
                answer.write(at, piece);
                at += piece.bytes();
            };
            bench.memory.read(buffer, 4096, &mut take).expect("it is mapped");
            if status.is_success() { Ok(answer.to_bytes(4096)) } else { Err(status) }
        };
        let answer = identify(cns::NAMESPACE, 0).expect("a block namespace has it");
        let namespace = NvmNamespace::read_from_bytes(&answer).expect("4096 bytes");
        assert_eq!((namespace.formats_z, namespace.formats[0].block_bytes_log2), (0, 12));
        assert_eq!(namespace.size_blocks.get() % 4, 0);
        assert_eq!(namespace.deallocated & 0b111, 0b001, "they read zeros");
        let descriptors = identify(cns::NAMESPACE_DESCRIPTORS, 0).expect("every namespace has them");
        assert!(descriptors.windows(5).any(|bytes| bytes == [4, 1, 0, 0, CSI_NVM]), "its command set");
        let controller = identify(cns::CONTROLLER, 0).expect("a controller");
        assert_eq!((controller[77], controller[520]), (9, 0b1100), "MDTS and ONCS");
        assert_eq!(identify(cns::CSI_NAMESPACE, 1), Err(Status::INVALID_FIELD), "no pairs here");
    });
    bench.sim.clear();
}
