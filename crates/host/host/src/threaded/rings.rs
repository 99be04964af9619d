//! [`Rings`]: the transport between threads of this program and the drive, by a queue pair and buffers that they
//! share. Completions are delivered on the drive's thread, or in the doorbell of a drive that has none.

use std::sync::{Arc, OnceLock};

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::shared::{CompletionSink, PowerOff, SharedBuffer, SharedLink, SharedQueue};
use kvdrive_nvme::{Cqe, PAGE_BYTES, Sqe};

use crate::Error;
use crate::answers::{self, AnswerData};
use crate::conversation::SlotOffer;
use crate::driver::{Board, Remainder};
use crate::transport::Transport;

/// What a slot's commands use; set up once, so that a command allocates nothing.
struct SlotMemory {
    buffer: Arc<SharedBuffer>,
    list: Arc<SharedBuffer>,
    /// Address of the memory of a long key, behind the lists.
    key: u64,
}

/// Where completions of a queue go.
pub(super) struct Sink {
    board: Arc<Board>,
    /// The buffer of each slot; the rings map them.
    memory: OnceLock<Arc<[SlotMemory]>>,
}

impl Sink {
    pub(super) fn new(board: Arc<Board>) -> Arc<Sink> {
        Arc::new(Sink { board, memory: OnceLock::new() })
    }
}

impl CompletionSink for Sink {
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]) {
        let memory = self.memory.get().expect("rings that submit have their buffers");
        self.board.complete(&DriveEnd { queue, memory }, cqes);
    }

    /// A pipeline sleeps until a group has come ([`crate::driver`]).
    fn gathers(&self) -> bool {
        true
    }

    fn power_off(&self) {
        self.board.fail(PowerOff.into());
    }
}

/// What is done for dropped commands, on any thread.
struct DriveEnd<'a> {
    queue: &'a SharedQueue,
    memory: &'a [SlotMemory],
}

impl Remainder for DriveEnd<'_> {
    fn put(&self, sqe: Sqe) {
        assert!(self.queue.put(&mut vec![sqe], 0), "the entry of the completed command is free");
    }

    fn put_discard(&self) {
        self.queue.put_reset();
    }

    fn ring(&self) {
        self.queue.ring();
    }

    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData)) {
        read(&*self.memory[usize::from(cid)].buffer);
    }
}

/// A queue pair, and the memory of its slots.
pub(super) struct Rings {
    queue: Arc<SharedQueue>,
    memory: Arc<[SlotMemory]>,
    /// Queue entries that each command may use at once: an equal share, so that there is always room.
    entries: u32,
}

impl Rings {
    /// The rings of `queue`, whose completions go to `sink`, with `depth` slots that have buffers of
    /// `buffer_bytes` bytes.
    pub(super) fn new(
        link: &SharedLink,
        queue: Arc<SharedQueue>,
        sink: &Sink,
        depth: u32,
        buffer_bytes: u32,
    ) -> Rings {
        let memory: Arc<[SlotMemory]> = (0..depth)
            .map(|_| {
                let buffer = link.memory().map(buffer_bytes);
                let list = link.memory().map(answers::list_bytes(buffer_bytes));
                list.fill(Piece::Bytes(&answers::list_page(buffer.address(), buffer_bytes)));
                let key = answers::key_at(list.address(), buffer_bytes);
                SlotMemory { buffer, list, key }
            })
            .collect();
        assert!(sink.memory.set(memory.clone()).is_ok(), "a sink is of one queue");
        let entries = (queue.entries() - 1) / depth;
        Rings { queue, memory, entries }
    }

    fn drive_end(&self) -> DriveEnd<'_> {
        DriveEnd { queue: &self.queue, memory: &self.memory }
    }

    fn slot(&self, cid: u16) -> &SlotMemory {
        &self.memory[usize::from(cid)]
    }
}

impl Remainder for Rings {
    fn put(&self, sqe: Sqe) {
        self.drive_end().put(sqe);
    }

    fn put_discard(&self) {
        self.drive_end().put_discard();
    }

    fn ring(&self) {
        self.drive_end().ring();
    }

    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData)) {
        self.drive_end().answer(cid, read);
    }
}

impl Transport for Rings {
    /// Without a window, which threads do not reach. Each crossing between threads costs more than a command,
    /// so inline commands of a value go together if several commands share doorbells anyway; a queue of depth 1
    /// sends them one by one, as published and as the modelled host does.
    fn offer(&self, cid: u16) -> SlotOffer<'static> {
        let &SlotMemory { ref buffer, ref list, key } = self.slot(cid);
        let (buffer, list, is_together) = (buffer.address(), list.address(), self.memory.len() > 1);
        SlotOffer { cid, buffer, list, key, entries: self.entries, window: None, is_together }
    }

    fn put_key(&self, cid: u16, key: &[u8]) {
        let slot = self.slot(cid);
        slot.list.write(slot.key, Piece::Bytes(key)).expect("a slot's key is mapped");
    }

    fn stage(&self, cid: u16, value: Piece<'_>) {
        self.slot(cid).buffer.fill(value);
    }

    fn clear(&self, cid: u16) {
        self.slot(cid).buffer.clear();
    }

    /// Also makes room for the bytes.
    fn list(&self, cid: u16, bytes: u32) {
        let SlotMemory { buffer, list, .. } = self.slot(cid);
        let chain = list.address() + u64::from(PAGE_BYTES);
        let pages = answers::chain(chain, buffer.address(), bytes);
        list.write(chain, Piece::Bytes(&pages)).expect("a slot's lists are mapped");
        buffer.reserve(bytes);
    }

    fn buffer(&self, cid: u16) -> Option<(&dyn HostMemory, u64)> {
        let buffer = &*self.slot(cid).buffer;
        Some((buffer, buffer.address()))
    }

    fn publish(&self, outbox: &mut Vec<Sqe>, quiet: u32) {
        assert!(self.queue.submit(outbox, quiet), "a port has fewer slots than its queue");
    }

    fn acknowledge(&self) {
        self.queue.ring_completion();
    }

    fn gathers(&self) -> bool {
        self.queue.gathers()
    }

    fn check_thread(&self) -> Result<(), Error> {
        Ok(self.queue.check_thread()?)
    }
}

/// Exchanges the buffer's value with the caller's region, so that nothing is copied.
impl AnswerData for SharedBuffer {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        (self, self.address())
    }

    fn take_value(&self, _: u32, into: &mut Region) {
        into.clear();
        self.swap(into);
    }
}
