//! The blocks of a drive as a host uses them (NVM command set), on modelled cores in model time.
//!
//! ```text
//!   BlockHost: what Identify says          BlockDriver: a core, a queue pair, slots
//!   submit ─► core: submit_ns ─► slot ─► entry in the queue ─┬─► returns a BlockTicket
//!                                                            └─► a task: doorbell, completion, slot is free
//!   wait(ticket) ─► the task has ended ─► core: complete_ns ─► the blocks that were read, or a status
//! ```
//!
//! Each command has a task that waits for the completion. The submitter continues at once. A slot is free
//! when the drive has answered, whether or not the answer is collected; dropping a ticket leaks nothing.
//!
//! A command names the buffer of its slot by PRPs. Blocks to be written are in that buffer already, as in a
//! host that uses pinned memory: setting up the transfer takes `dma_setup_ns`, and no page is pinned.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::prp;
use kvdrive_link::{HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::identify::{Controller, IDENTIFY_BYTES, cns};
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmCommand, NvmNamespace, RANGES_MAX, Range};
use kvdrive_nvme::{Cqe, DRIVE_NSID, PAGE_BYTES, Sqe, Status, opcode};
use kvdrive_sim::{Core, JoinHandle, TaskCell, WaitQueue};
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::answers;
use crate::modelled::{self, HostCosts};

/// Most blocks of a command, if the drive does not take less: 256 KiB. A longer transfer is several commands,
/// which a drive works on side by side.
const COMMAND_BLOCKS_MAX: u32 = 64;

/// The content of a block. Shared, not copied, between its readers and its cache.
pub type Block = Rc<Region>;

/// A command to a drive of blocks.
#[derive(Clone, Copy, Debug)]
pub enum BlockCall<'a> {
    /// Read blocks, [`BlockHost::most_blocks`] at most.
    Read(Blocks),
    /// Write blocks, [`BlockHost::most_blocks`] at most.
    Write {
        /// Number of the first block.
        first: u64,
        /// Their new content, a [`Region`] of up to [`BLOCK_BYTES`] bytes each.
        blocks: &'a [Block],
    },
    /// Make blocks zeros (Write Zeroes), 65 536 at most.
    WriteZeroes(Blocks),
    /// Free blocks, which read as zeros afterwards. 1 to 256 ranges.
    Deallocate(&'a [Blocks]),
    /// Make every answered write durable.
    Flush,
}

impl BlockCall<'_> {
    /// Whether one command of at most `most_blocks` blocks can carry the call out.
    ///
    /// # Errors
    /// [`Error::Count`]: the call names no block or range, or too many.
    pub(crate) fn check(&self, most_blocks: u32) -> Result<(), Error> {
        let (of, found, most) = match self {
            BlockCall::Read(range) => ("blocks", u64::from(range.count), most_blocks),
            BlockCall::Write { blocks, .. } => ("blocks", blocks.len() as u64, most_blocks),
            BlockCall::WriteZeroes(range) => ("blocks", u64::from(range.count), 1 << 16),
            BlockCall::Deallocate(ranges) => ("ranges", ranges.len() as u64, RANGES_MAX),
            BlockCall::Flush => return Ok(()),
        };
        match (1..=u64::from(most)).contains(&found) {
            true => Ok(()),
            false => Err(Error::Count { of, found, most }),
        }
    }
}

/// A [`BlockCall`] that owns what it names.
pub(crate) enum OwnedCall {
    Read(Blocks),
    Write { first: u64, blocks: Vec<Block> },
    WriteZeroes(Blocks),
    Deallocate(Vec<Blocks>),
    Flush,
}

impl BlockCall<'_> {
    pub(crate) fn into_owned(self) -> OwnedCall {
        match self {
            BlockCall::Read(range) => OwnedCall::Read(range),
            BlockCall::Write { first, blocks } => OwnedCall::Write { first, blocks: blocks.to_vec() },
            BlockCall::WriteZeroes(range) => OwnedCall::WriteZeroes(range),
            BlockCall::Deallocate(ranges) => OwnedCall::Deallocate(ranges.to_vec()),
            BlockCall::Flush => OwnedCall::Flush,
        }
    }
}

impl OwnedCall {
    pub(crate) fn borrowed(&self) -> BlockCall<'_> {
        match self {
            OwnedCall::Read(range) => BlockCall::Read(*range),
            OwnedCall::Write { first, blocks } => BlockCall::Write { first: *first, blocks },
            OwnedCall::WriteZeroes(range) => BlockCall::WriteZeroes(*range),
            OwnedCall::Deallocate(ranges) => BlockCall::Deallocate(ranges),
            OwnedCall::Flush => BlockCall::Flush,
        }
    }
}

/// A namespace of blocks, as Identify reports it.
pub struct BlockHost {
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    costs: HostCosts,
    blocks: u64,
    most_blocks: u32,
}

impl BlockHost {
    /// Asks the drive how many blocks there are, and how much a command may move.
    ///
    /// # Errors
    /// The status that the drive answered; [`Status::INVALID_FIELD`] if its namespace is of pairs, or its
    /// blocks are not of [`BLOCK_BYTES`].
    pub fn connect(
        link: Rc<Link>,
        memory: Rc<LocalMemory>,
        costs: HostCosts,
    ) -> Result<Rc<BlockHost>, Status> {
        let mut host = BlockHost { link, memory, costs, blocks: 0, most_blocks: COMMAND_BLOCKS_MAX };
        host.blocks = blocks_of(&host.identify(cns::NAMESPACE)?)?;
        host.most_blocks = most_blocks_of(&host.identify(cns::CONTROLLER)?);
        Ok(Rc::new(host))
    }

    fn identify(&self, structure: u8) -> Result<Vec<u8>, Status> {
        let ask = |cid, buffer| identify(cid, structure, buffer);
        modelled::identify(&self.link, &self.memory, ask, |memory, buffer| take_identified(memory, buffer))
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Most blocks of one command that reads or writes.
    pub fn most_blocks(&self) -> u32 {
        self.most_blocks
    }

    /// The link to the drive.
    pub fn link(&self) -> &Rc<Link> {
        &self.link
    }
}

/// The memory that a command uses until it is answered; set up once.
struct BlockSlot {
    cid: u16,
    buffer: u64,
    list: u64,
}

/// A queue pair and its slots. A command's task keeps them after its driver was dropped.
struct SlottedQueue {
    host: Rc<BlockHost>,
    queue: Rc<QueuePair>,
    free: TaskCell<Vec<BlockSlot>>,
    freed: WaitQueue,
}

impl SlottedQueue {
    fn take_slot(&self) -> BlockSlot {
        loop {
            let free = self.free.borrow_mut().pop();
            match free {
                Some(slot) => return slot,
                None => self.freed.wait(),
            }
        }
    }

    /// Rings for the queued command in `slot`, waits for its answer and returns the blocks that it read.
    fn carry_out(&self, slot: BlockSlot, read_blocks: u32) -> Result<Vec<Block>, Status> {
        let SlottedQueue { host, queue, .. } = self;
        host.link.ring_submission(queue);
        let cqe: Cqe = queue.completion(slot.cid);
        host.link.ring_completion(queue);
        let answer = match cqe.status() {
            Status::SUCCESS => Ok(take_blocks(&*host.memory, slot.buffer, read_blocks)),
            status => Err(status),
        };
        self.free.borrow_mut().push(slot);
        self.freed.wake_one();
        answer
    }
}

/// Identify of `structure`, answered to the page at `buffer`.
pub(crate) fn identify(cid: u16, structure: u8, buffer: u64) -> Sqe {
    let mut sqe = Sqe::new(opcode::admin::IDENTIFY, cid, DRIVE_NSID);
    sqe.cdw10.set(u32::from(structure));
    sqe.set_prps(buffer, 0);
    sqe
}

/// The answer to [`identify`].
pub(crate) fn take_identified(memory: &dyn HostMemory, buffer: u64) -> Vec<u8> {
    let mut data = Region::new();
    answers::copy_in(memory, buffer, IDENTIFY_BYTES as u32, &mut data);
    data.to_bytes(IDENTIFY_BYTES as u32)
}

/// Number of blocks of a namespace, by its Identify data.
pub(crate) fn blocks_of(bytes: &[u8]) -> Result<u64, Status> {
    let namespace = NvmNamespace::read_from_bytes(bytes).expect("Identify data has its size");
    let format = usize::from(namespace.format_current & 0xF);
    if 1u32.checked_shl(namespace.formats[format].block_bytes_log2.into()) != Some(BLOCK_BYTES) {
        return Err(Status::INVALID_FIELD);
    }
    Ok(namespace.size_blocks.get())
}

/// Most blocks that a command moves, by a controller's Identify data.
pub(crate) fn most_blocks_of(bytes: &[u8]) -> u32 {
    let controller = Controller::read_from_bytes(bytes).expect("Identify data has its size");
    // MDTS counts units of 4096 bytes, the size of a block here; 0 means no limit.
    match 1u32.checked_shl(controller.transfer_max_log2.into()) {
        Some(most @ 1..) if controller.transfer_max_log2 > 0 => most.min(COMMAND_BLOCKS_MAX),
        _ => COMMAND_BLOCKS_MAX,
    }
}

/// The `count` blocks that a command brought to the buffer at `buffer`.
pub(crate) fn take_blocks(memory: &dyn HostMemory, buffer: u64, count: u32) -> Vec<Block> {
    let block = |number: u32| {
        let mut content = Region::new();
        answers::copy_in(memory, buffer + u64::from(number * BLOCK_BYTES), BLOCK_BYTES, &mut content);
        Rc::new(content)
    };
    (0..count).map(block).collect()
}

/// The command of a call, and how many bytes it moves.
pub(crate) fn command_of(call: &BlockCall<'_>) -> (NvmCommand, u32) {
    match *call {
        BlockCall::Read(range) => (NvmCommand::Read(range), range.count * BLOCK_BYTES),
        BlockCall::Write { first, blocks } => {
            let count = blocks.len() as u32;
            (NvmCommand::Write(Blocks { first, count }), count * BLOCK_BYTES)
        }
        BlockCall::WriteZeroes(range) => (NvmCommand::WriteZeroes(range), 0),
        BlockCall::Deallocate(ranges) => {
            let count = ranges.len() as u32;
            (NvmCommand::Deallocate { ranges: count }, count * size_of::<Range>() as u32)
        }
        BlockCall::Flush => (NvmCommand::Flush, 0),
    }
}

/// Passes the data of a call to `put`, each piece with its place.
pub(crate) fn put_data(call: &BlockCall<'_>, put: &mut dyn FnMut(u32, Piece<'_>)) {
    match call {
        BlockCall::Write { blocks, .. } => {
            for (block, content) in (0..).zip(*blocks) {
                let mut at = block * BLOCK_BYTES;
                content.read(0, BLOCK_BYTES, &mut |piece| {
                    put(at, piece);
                    at += piece.bytes();
                });
            }
        }
        BlockCall::Deallocate(ranges) => {
            let named: Vec<Range> = ranges.iter().map(range_of).collect();
            put(0, Piece::Bytes(named.as_bytes()));
        }
        BlockCall::Read(_) | BlockCall::WriteZeroes(_) | BlockCall::Flush => {}
    }
}

/// Puts the data of a call into the empty buffer at `buffer`.
pub(crate) fn stage(memory: &dyn HostMemory, buffer: u64, call: &BlockCall<'_>) {
    put_data(call, &mut |at, piece| {
        memory.write(buffer + u64::from(at), piece).expect("a slot's buffer is mapped");
    });
}

fn range_of(blocks: &Blocks) -> Range {
    Range { attributes: 0.into(), blocks: blocks.count.into(), first: blocks.first.into() }
}

/// Commands over one queue pair, from one core.
pub struct BlockDriver {
    slotted: Rc<SlottedQueue>,
    core: Rc<dyn Core>,
}

/// A command under way.
#[must_use = "a dropped ticket loses the answer"]
pub struct BlockTicket(JoinHandle<Result<Vec<Block>, Status>>);

impl BlockTicket {
    /// The command that this task carries out.
    pub(crate) fn of(task: JoinHandle<Result<Vec<Block>, Status>>) -> BlockTicket {
        BlockTicket(task)
    }

    /// Waits for the task.
    pub(crate) fn joined(self) -> Result<Vec<Block>, Status> {
        self.0.join()
    }
}

/// The commands of one thread of a store.
pub(crate) trait BlockQueue {
    /// Begins a command, which has at most as many blocks as the drive takes.
    fn submit(&self, call: BlockCall<'_>) -> BlockTicket;

    /// Waits for a command, which another queue of the store may have begun; returns the blocks that it read.
    ///
    /// # Errors
    /// The status that the drive answered.
    fn wait(&self, ticket: BlockTicket) -> Result<Vec<Block>, Status>;
}

impl BlockQueue for BlockDriver {
    fn submit(&self, call: BlockCall<'_>) -> BlockTicket {
        BlockDriver::submit(self, call)
    }

    fn wait(&self, ticket: BlockTicket) -> Result<Vec<Block>, Status> {
        BlockDriver::wait(self, ticket)
    }
}

impl BlockDriver {
    /// A driver on `core` with a new queue pair of `entries` slots and up to `depth` commands under way.
    ///
    /// # Errors
    /// The status that the drive answered; [`Status::INVALID_QUEUE_ID`] if it has no free queue identifier.
    pub fn connect(
        host: &Rc<BlockHost>,
        core: Rc<dyn Core>,
        entries: u32,
        depth: u32,
    ) -> Result<BlockDriver, Status> {
        assert!((1..entries).contains(&depth), "{depth} commands in a queue of {entries} slots");
        let bytes = host.most_blocks * BLOCK_BYTES;
        let slot = |cid| {
            let (buffer, list) = (host.memory.map(bytes), host.memory.map(PAGE_BYTES));
            let entries = answers::list_page(buffer, bytes);
            host.memory.write(list, Piece::Bytes(&entries)).expect("a slot's list is mapped");
            BlockSlot { cid, buffer, list }
        };
        let slotted = SlottedQueue {
            queue: modelled::create_queue(&host.link, entries)?,
            free: TaskCell::new((0..depth as u16).map(slot).collect()),
            freed: WaitQueue::new(host.link.sim()),
            host: host.clone(),
        };
        Ok(BlockDriver { slotted: Rc::new(slotted), core })
    }

    /// Submits a command. Waits while `depth` commands are under way.
    pub fn submit(&self, call: BlockCall<'_>) -> BlockTicket {
        let slotted = &self.slotted;
        let HostCosts { submit_ns, dma_setup_ns, .. } = slotted.host.costs;
        let moves = matches!(call, BlockCall::Write { .. } | BlockCall::Deallocate(_));
        self.core.run_noted(submit_ns + if moves { dma_setup_ns } else { 0 }, "host", "submit");
        let slot = slotted.take_slot();
        slotted.host.memory.clear(slot.buffer);
        let checked = call.check(slotted.host.most_blocks);
        checked.unwrap_or_else(|error| panic!("a store divides its runs: {error}"));
        stage(&*slotted.host.memory, slot.buffer, &call);
        let (command, bytes) = command_of(&call);
        let mut sqe = command.encode(slot.cid, DRIVE_NSID);
        prp::point_at(&mut sqe, slot.buffer, slot.list, bytes);
        assert!(slotted.queue.try_submit(sqe), "a driver never has more commands than its queue has slots");
        let read_blocks = if let NvmCommand::Read(range) = command { range.count } else { 0 };
        let slotted = slotted.clone();
        BlockTicket(self.slotted.host.link.sim().spawn(move || slotted.carry_out(slot, read_blocks)))
    }

    /// Waits for a command, which another driver of this host may have submitted; returns the blocks that it
    /// read.
    ///
    /// # Errors
    /// The status that the drive answered.
    pub fn wait(&self, ticket: BlockTicket) -> Result<Vec<Block>, Status> {
        let answer = ticket.joined();
        self.core.run_noted(self.slotted.host.costs.complete_ns, "host", "complete");
        answer
    }

    /// Submits and waits.
    ///
    /// # Errors
    /// As [`BlockDriver::wait`].
    pub fn call(&self, call: BlockCall<'_>) -> Result<Vec<Block>, Status> {
        self.wait(self.submit(call))
    }
}
