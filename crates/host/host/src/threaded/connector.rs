//! [`Connector`]: the queue pairs of one drive, and its admin queue.

use std::sync::{Arc, Mutex, OnceLock};

use kvdrive_content::Piece;
use kvdrive_link::HostMemory;
use kvdrive_link::shared::{SharedLink, SharedQueue};
use kvdrive_link::transfer::Choice;
use kvdrive_nvme::Sqe;
use kvdrive_nvme::identify::{IDENTIFY_BYTES, KvNamespace, cns};
use kvdrive_nvme::nvm::BLOCK_BYTES;
use kvdrive_sim::wall::lock;

use super::rings::{Rings, Sink};
use crate::answers::{self, RING};
use crate::blocks;
use crate::conversation::course::done;
use crate::conversation::slot::IteratorUse;
use crate::conversation::{CommandSlot, Submission};
use crate::driver::{BlockDriver, Board, ClaimedSlot, Driver, Limits, Port, SharedUnclaimed, block_on};
use crate::error::Error;

struct Shared {
    link: Arc<SharedLink>,
    /// The admin queue's one slot takes one command at a time.
    admin: Arc<Port>,
    max_value_bytes: OnceLock<u32>,
    unclaimed: Arc<SharedUnclaimed>,
    /// Queue pairs without a driver, for reuse.
    idle: Mutex<Vec<QueuePair>>,
}

/// A queue pair, and the port on it.
#[derive(Clone)]
pub(super) struct QueuePair {
    queue: Arc<SharedQueue>,
    port: Arc<Port>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// Makes drivers for one drive. The drive ends when all its connectors and drivers are dropped.
#[derive(Clone)]
pub struct Connector(Arc<Shared>);

impl Connector {
    pub(super) fn new() -> Connector {
        let unclaimed: Arc<SharedUnclaimed> = Arc::default();
        let board = Board::new(1, unclaimed.clone());
        let sink = Sink::new(board.clone());
        let (link, queue) = SharedLink::new(sink.clone());
        let rings = Rings::new(&link, queue, &sink, 1, IDENTIFY_BYTES as u32);
        let admin = Port::new(Box::new(rings), board);
        let (max_value_bytes, idle) = (OnceLock::new(), Mutex::default());
        Connector(Arc::new(Shared { link, admin, max_value_bytes, unclaimed, idle }))
    }

    pub(super) fn link(&self) -> &Arc<SharedLink> {
        &self.0.link
    }

    /// Size of the largest value that the drive takes, bytes.
    pub(super) fn max_value_bytes(&self) -> Result<u32, Error> {
        if let Some(bytes) = self.0.max_value_bytes.get() {
            return Ok(*bytes);
        }
        let namespace = block_on(self.identify())?;
        Ok(*self.0.max_value_bytes.get_or_init(|| namespace.format().value_max_bytes.get()))
    }

    /// May this thread call the drive?
    ///
    /// # Errors
    /// Only one thread's calls carry the drive out, and this is another one
    /// ([`serve_here`](super::serve_here)).
    pub fn check_thread(&self) -> Result<(), Error> {
        self.0.admin.transport().check_thread()
    }

    /// Identify data of the KV namespace as it is now.
    ///
    /// # Errors
    /// The status of a failed Identify, or the drive is off.
    pub async fn identify(&self) -> Result<KvNamespace, Error> {
        self.admin(answers::identify_namespace, answers::take_namespace).await
    }

    /// Why the drive is read-only, if it is: the reason for
    /// [`kvdrive_nvme::Status::NAMESPACE_WRITE_PROTECTED`].
    ///
    /// # Errors
    /// The status of a failed Get Log Page, or the drive is off.
    pub async fn write_failure(&self) -> Result<Option<String>, Error> {
        self.admin(answers::write_protection_log, answers::take_write_protection).await
    }

    /// Sends an admin command that brings data to the page at the slot's buffer, and reads them there.
    pub(super) async fn admin<T>(
        &self,
        command: fn(u16, u64) -> Sqe,
        take: fn(&dyn HostMemory, u64) -> T,
    ) -> Result<T, Error> {
        let mut slot = self.0.admin.slot().await?;
        slot.clear();
        let buffer = slot.offer().0.buffer;
        administer(&mut slot, |cid| command(cid, buffer)).await?;
        let (memory, address) = slot.port().transport().buffer(slot.cid()).expect("it names it");
        Ok(take(memory, address))
    }

    /// Has the drive create a queue pair of `entries` slots, with `depth` command slots that have buffers of
    /// `buffer_bytes` bytes.
    async fn create(&self, entries: u32, depth: u32, buffer_bytes: u32) -> Result<QueuePair, Error> {
        let board = Board::new(depth, self.0.unclaimed.clone());
        let sink = Sink::new(board.clone());
        let queue = self.link().open_rings(entries, sink.clone())?;
        let mut slot = self.0.admin.slot().await?;
        for command in answers::create_pair(queue.id(), entries) {
            let created = administer(&mut slot, |cid| command.encode(cid, RING)).await;
            if let Err(error) = created {
                self.link().close_rings(&queue);
                return Err(error);
            }
        }
        let rings = Rings::new(self.link(), queue.clone(), &sink, depth, buffer_bytes);
        Ok(QueuePair { queue, port: Port::new(Box::new(rings), board) })
    }

    /// Has the drive delete a queue pair without a driver, after its dropped commands have ended.
    async fn delete(&self, QueuePair { queue, port }: QueuePair) -> Result<(), Error> {
        port.take_all().await?;
        let mut slot = self.0.admin.slot().await?;
        for command in answers::delete_pair(queue.id()) {
            administer(&mut slot, |cid| command.encode(cid, RING)).await?;
        }
        self.link().close_rings(&queue);
        Ok(())
    }

    /// An unused queue pair of this shape, or else a new one, after unused ones of other shapes were deleted.
    /// All queue pairs of a drive have buffers of one size.
    fn pair(&self, entries: u32, depth: u32, buffer_bytes: u32) -> Result<QueuePair, Error> {
        assert!(
            depth > 0 && depth < entries && entries <= 1 << 16,
            "a queue of {entries} slots holds at most {} commands, not {depth}",
            entries.saturating_sub(1)
        );
        let mut idle = lock(&self.0.idle);
        let fitting =
            idle.iter().position(|pair| pair.port.depth() == depth && pair.queue.entries() == entries);
        let known = fitting.map(|index| idle.swap_remove(index));
        let unfit = if known.is_some() { Vec::new() } else { std::mem::take(&mut *idle) };
        drop(idle);
        for pair in unfit {
            block_on(self.delete(pair))?;
        }
        match known {
            Some(pair) => pair.port.check().map(|()| pair),
            None => block_on(self.create(entries, depth, buffer_bytes)),
        }
    }

    /// A queue pair of `entries` slots for up to `depth` commands at once to a drive of blocks; see
    /// [`Connector::connect`].
    ///
    /// # Errors
    /// As there; [`kvdrive_nvme::Status::INVALID_FIELD`] if the drive's namespace is of pairs.
    pub fn connect_blocks(&self, entries: u32, depth: u32) -> Result<BlockDriver, Error> {
        let namespace = |cid, buffer| blocks::identify(cid, cns::NAMESPACE, buffer);
        let controller = |cid, buffer| blocks::identify(cid, cns::CONTROLLER, buffer);
        let of_drive = blocks::blocks_of(&block_on(self.admin(namespace, blocks::take_identified))?)?;
        let most_blocks = blocks::most_blocks_of(&block_on(self.admin(controller, blocks::take_identified))?);
        let pair = self.pair(entries, depth, most_blocks * BLOCK_BYTES)?;
        let (connector, port) = (self.clone(), pair.port.clone());
        let home = Box::new(move || connector.give_back(pair));
        Ok(BlockDriver::new(port, of_drive, most_blocks, Some(home)))
    }

    /// Ends the drive after it has carried out all submitted commands. Other connectors and drivers then find
    /// it off.
    pub fn close(&self) {
        self.link().close();
    }

    fn give_back(&self, pair: QueuePair) {
        lock(&self.0.idle).push(pair);
    }

    /// A driver with a queue pair of `entries` slots for up to `depth` commands under way. The queue pair of
    /// a dropped driver is reused by the next driver of the same `entries` and `depth`; if there is none,
    /// this thread waits while the drive deletes unused queue pairs and creates one.
    ///
    /// # Errors
    /// The drive is off, has no free queue identifier, or answers another status.
    ///
    /// Panics when `depth` is 0 or not below `entries`, or `entries` is above 65 536 (NVMe base
    /// specification).
    pub fn connect(&self, choice: Box<dyn Choice>, entries: u32, depth: u32) -> Result<Driver, Error> {
        let max_value_bytes = self.max_value_bytes()?;
        let max_answer_bytes = answers::buffer_bytes(max_value_bytes);
        let pair = self.pair(entries, depth, max_answer_bytes)?;
        let at_once_bytes = answers::AT_ONCE_BYTES;
        let limits = Limits { choice: Some(choice), max_value_bytes, max_answer_bytes, at_once_bytes };
        let (connector, port) = (self.clone(), pair.port.clone());
        Ok(Driver::new(port, limits, Some(Box::new(move || connector.give_back(pair)))))
    }
}

/// Has the drive carry out a command of the admin queue.
async fn administer(slot: &mut ClaimedSlot<'_>, command: impl FnOnce(u16) -> Sqe) -> Result<(), Error> {
    let sqe = command(slot.cid());
    slot.outbox.push(sqe);
    slot.submit(Submission {
        completions: 1,
        iterator_use: IteratorUse::None,
        value: Piece::Bytes(&[]),
        room: 0,
    })?;
    Ok(done(slot.completed().await?.status())?)
}
