//! PCI Express as bytes and time, and the doorbells and entries that cross it.
//!
//! Time of a crossing = line time (wire bytes over generation and lanes, on a FIFO direction) + a constant of
//! the profile for everything else (round trip, DMA set-up). On the published board the line time is a small
//! part. A read by the drive uses both directions: its requests go up, then completions with the data come
//! down. Wire bytes are in [`config`], crossings in [`crossing`].
//!
//! The host's end is [`Link`], the drive's is [`PciePort`].
//!
//! What this module does not do: replay, credits, ordering between the two directions, bifurcation.

mod config;
mod creation;
mod crossing;
mod function;
mod numbered;
mod port;
mod ready;

use std::cell::Cell;
use std::rc::{Rc, Weak};

use kvdrive_nvme::{Cqe, PAGE_BYTES, Sqe, Status};
use kvdrive_sim::{Cause, Ns, Resource, Sim, TaskCell, WaitQueue};

use crate::memory::{BadAddress, HostMemory};
use crate::meter::{Class, Meter};
use crate::port::Exposed;
use crate::queue::{QueuePair, Taken};
use crate::session::Session;
use kvdrive_content::{Piece, Region};

pub use config::{Interrupt, LinkConfig};
use crossing::{Crossing, DOORBELL_BYTES, Fixed};
pub use function::Function;
use numbered::Numbered;
pub use port::{PciePort, PcieRequest};
use ready::Ready;

/// State shared by both ends: directions, DMA engine, meter, functions and their queues.
pub struct Link {
    sim: Sim,
    config: LinkConfig,
    fixed: Fixed,
    /// Host to drive.
    down: Resource,
    /// Drive to host.
    up: Resource,
    /// The drive's DMA engine.
    dma: Resource,
    meter: Meter,
    functions: TaskCell<Numbered<Rc<Function>>>,
    /// Queues of all functions, by session.
    queues: TaskCell<Numbered<Rc<QueuePair>>>,
    /// Which of them have entries that the drive may take.
    ready: TaskCell<Ready>,
    /// Firmware contexts that wait for doorbells.
    bell: WaitQueue,
    /// Queue at which the next round of arbitration begins.
    cursor: Cell<usize>,
    /// Number of entries that the drive may take, over all queues.
    visible: Cell<u64>,
    exposed: TaskCell<Option<Weak<dyn Exposed>>>,
    on_end: TaskCell<Option<OnEnd>>,
    /// Empty buffers, for answers on their way to the host.
    staging: TaskCell<Vec<Region>>,
}

/// Called when a session ends.
type OnEnd = Rc<dyn Fn(&Session)>;

/// What one DMA moves.
#[derive(Clone, Copy)]
enum Moved {
    /// These bytes, at the constant of a page for each page: what a PRP or a network host names.
    ByPage(u32),
    /// A data block of an SGL, which names these bytes of host memory.
    ByBlock(u32),
}

impl Link {
    /// A link with one function, whose host has `memory`, and no I/O queues.
    pub fn new(sim: &Sim, config: LinkConfig, memory: Rc<dyn HostMemory>) -> Rc<Link> {
        let link = Rc::new(Link {
            down: Resource::new(sim, "link.down", 1),
            up: Resource::new(sim, "link.up", 1),
            dma: Resource::new(sim, "link.dma", 1),
            meter: Meter::default(),
            functions: TaskCell::default(),
            queues: TaskCell::default(),
            ready: TaskCell::default(),
            bell: WaitQueue::new(sim),
            cursor: Cell::new(0),
            visible: Cell::new(0),
            exposed: TaskCell::new(None),
            on_end: TaskCell::new(None),
            staging: TaskCell::default(),
            sim: sim.clone(),
            fixed: Fixed::new(&config),
            config,
        });
        link.create_function(memory);
        link
    }

    /// The admin queue of the first function.
    pub fn admin_queue(&self) -> Rc<QueuePair> {
        self.first_function().admin_queue()
    }

    /// Its configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The executor both ends run on.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Its counters.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Its resources, for reports.
    pub fn resources(&self) -> [&Resource; 3] {
        [&self.down, &self.up, &self.dma]
    }

    /// Creates an I/O queue pair of `entries` slots for the first function: [`Link::create_queue_of`].
    pub fn create_queue(&self, entries: u32) -> Rc<QueuePair> {
        self.create_queue_of(&self.first_function(), entries)
    }

    /// Host: publishes everything written to `queue`. The write is posted; this returns when it has reached
    /// the drive.
    pub fn ring_submission(&self, queue: &QueuePair) {
        let tail = queue.tail();
        self.cross(&self.fixed.doorbell);
        self.publish(queue, tail);
    }

    /// Publishes submissions without a crossing: for transports that count their own (replay, wall time).
    pub fn note_arrival(&self, queue: &QueuePair) {
        self.publish(queue, queue.tail());
    }

    fn publish(&self, queue: &QueuePair, tail: u64) {
        let published = queue.publish(tail);
        if published > 0 {
            self.visible.set(self.visible.get() + published);
            self.ready.borrow_mut().set(queue.session().number() as usize, true);
        }
        self.bell.wake_one();
    }

    /// Counts `doorbells` writes of a host that rang them in its own time: their bytes crossed, but they took
    /// no model time.
    pub(crate) fn count_doorbells(&self, doorbells: u32) {
        let rung = u64::from(doorbells);
        self.meter.count(Class::Mmio, rung * DOORBELL_BYTES, rung * self.fixed.doorbell.wire_bytes);
    }

    /// Host: tells the drive how far it has read `queue`'s completions. Posted; no task waits for it.
    pub fn ring_completion(&self, queue: &QueuePair) {
        self.ring_completions(queue, 1);
    }

    /// As [`Link::ring_completion`] for `count` completions: one doorbell.
    pub fn ring_completions(&self, queue: &QueuePair, count: u32) {
        self.count_doorbells(1);
        self.note(self.sim.now(), &self.fixed.doorbell);
        queue.release_completions(count);
    }

    /// Waits until some queue has a command.
    #[inline]
    fn wait_for_command(&self) {
        while self.visible.get() == 0 {
            self.bell.wait();
        }
    }

    /// Takes the time of fetching a command that was taken, and of the chunks after it.
    #[inline]
    fn fetch(&self, chunks: Option<&[Sqe]>) {
        self.cross(&self.fixed.sqe);
        if let Some(chunks) = chunks {
            self.fetch_chunks(chunks.len() as u64);
        }
    }

    /// Fetches consecutive entries: one read each, of which only the first delays the drive by its latency.
    fn fetch_chunks(&self, count: u64) {
        if count > 0 {
            let Crossing { class, payload_bytes, rest_ns, .. } = self.fixed.sqe;
            self.cross(&Crossing::reads(&self.config, class, payload_bytes, count, rest_ns));
        }
    }

    /// Takes the next command of any queue, in round-robin order. There must be one.
    #[inline]
    fn take_command(&self) -> (Rc<QueuePair>, Taken) {
        let left = self.visible.get() - 1;
        let index =
            self.ready.borrow().next_from(self.cursor.get()).expect("a visible entry lies in some queue");
        let queues = self.queues.borrow();
        self.cursor.set(if index + 1 < queues.len() { index + 1 } else { 0 });
        let queue = queues.get(index).expect("it has an entry");
        let taken = queue.take_submission();
        self.ready.borrow_mut().set(index, queue.has_submission());
        let left = left - taken.chunks.as_ref().map_or(0, |chunks| chunks.len() as u64);
        self.visible.set(left);
        if left > 0 {
            self.bell.wake_one();
        }
        (queue.clone(), taken)
    }

    fn exposed(&self) -> Option<Rc<dyn Exposed>> {
        self.exposed.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Host: bytes of a window into the drive's page buffer; `None` if it exposes none.
    pub fn window_bytes(&self) -> Option<u32> {
        self.exposed().map(|exposed| exposed.window_bytes())
    }

    /// Host: stores `piece` at `address` of the CXL.mem port and flushes its cache lines; returns when the
    /// drive has them. One flit per line; reading a line for ownership is not counted.
    pub fn cxl_store(&self, address: u64, piece: Piece<'_>) {
        self.cross(&Crossing::lines(&self.config, address, piece.bytes()));
        if let Some(exposed) = self.exposed() {
            exposed.store(address, piece);
        }
    }

    /// Posts a completion to `queue`; waits while the host leaves no room.
    fn complete(&self, queue: &QueuePair, cqe: Cqe) {
        self.cross(&self.fixed.cqe);
        if self.config.interrupt == Interrupt::Msix {
            self.meter.count(Class::Interrupt, 0, self.fixed.interrupt_wire_bytes);
        }
        queue.post(cqe);
    }

    /// Drive: answers command `cid` of `queue` as aborted if it is not fetched yet; `false` if it is.
    fn abort(&self, queue: &QueuePair, cid: u16) -> bool {
        let Some(head) = queue.withdraw(cid) else { return false };
        self.visible.set(self.visible.get() - 1);
        self.ready.borrow_mut().set(queue.session().number() as usize, queue.has_submission());
        queue.session().begin_command();
        self.fetch(None);
        self.complete(queue, Cqe::new(cid, Status::ABORT_REQUESTED).with_queue(queue.id(), head));
        queue.session().end_command();
        true
    }

    /// Fetches a part of a PRP list.
    fn fetch_list(&self, memory: &dyn HostMemory, address: u64, out: &mut [u8]) -> Result<(), BadAddress> {
        let crossing = Crossing::read(&self.config, Class::List, out.len() as u64, self.config.sqe_fetch_ns);
        self.cross(&crossing);
        let mut done = 0;
        memory.read(address, out.len() as u32, &mut |piece| {
            let end = done + piece.bytes() as usize;
            piece.expand(&mut out[done..end]);
            done = end;
        })
    }

    /// Fetches a key of `bytes` bytes: one DMA of its bytes. The constant is that of a page, as for any part of one.
    fn fetch_key(
        &self,
        memory: &dyn HostMemory,
        address: u64,
        bytes: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), BadAddress> {
        self.dma(&Crossing::read(&self.config, Class::Key, bytes.into(), self.dma_ns(bytes)));
        memory.read(address, bytes, sink)
    }

    /// One DMA from host memory; its first `bytes` bytes are passed to `sink`.
    fn dma_to_drive(
        &self,
        memory: &dyn HostMemory,
        address: u64,
        bytes: u32,
        moved: Moved,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), BadAddress> {
        let crossing = match moved {
            Moved::ByPage(PAGE_BYTES) => self.fixed.page_to_drive,
            _ => {
                let (moved_bytes, rest_ns) = self.cost(moved);
                Crossing::read(&self.config, Class::ToDrive, moved_bytes, rest_ns)
            }
        };
        self.dma(&crossing);
        memory.read(address, bytes, sink)
    }

    /// The bytes and the time of one DMA to host memory, where the data are to be seen when that time has passed.
    fn dma_to_host(&self, moved: Moved) {
        let crossing = match moved {
            Moved::ByPage(PAGE_BYTES) => self.fixed.page_to_host,
            _ => {
                let (moved_bytes, rest_ns) = self.cost(moved);
                Crossing::write_up(&self.config, Class::ToHost, moved_bytes, rest_ns)
            }
        };
        if self.config.free_to_host {
            self.meter.count(crossing.class, crossing.payload_bytes, crossing.wire_bytes);
        } else {
            self.dma(&crossing);
        }
    }

    /// Bytes that cross the link when an SGL names `bytes`.
    fn sgl_moved_bytes(&self, bytes: u32) -> u32 {
        bytes.next_multiple_of(self.config.dma_granularity_bytes)
    }

    /// Bytes that cross for a DMA, and its time besides that on the line.
    fn cost(&self, moved: Moved) -> (u64, Ns) {
        match moved {
            Moved::ByPage(moved_bytes) => (moved_bytes.into(), self.dma_ns(moved_bytes)),
            Moved::ByBlock(bytes) => {
                let (config, moved_bytes) = (&self.config, self.sgl_moved_bytes(bytes));
                let saved_ns =
                    config.sgl_page_saves_ns.min(config.dma_page_ns) * u64::from(bytes / PAGE_BYTES);
                (moved_bytes.into(), config.sgl_block_ns + self.dma_ns(moved_bytes) - saved_ns)
            }
        }
    }

    /// The constant is per page: the last part of a transfer costs as much as a whole page, and so does a
    /// single byte.
    fn dma_ns(&self, moved_bytes: u32) -> Ns {
        self.config.dma_page_ns * u64::from(moved_bytes.div_ceil(PAGE_BYTES))
    }

    /// A crossing that the DMA engine makes.
    fn dma(&self, crossing: &Crossing) {
        if !self.crosses_in_place(Some(&self.dma), crossing) {
            let _spent = self.sim.spend(Cause::Link);
            let _engine = self.dma.acquire();
            self.wait_and_cross(crossing);
        }
    }

    /// Every crossing: counts the bytes, holds each direction for its line time, then takes the rest.
    #[inline]
    fn cross(&self, crossing: &Crossing) {
        if !self.crosses_in_place(None, crossing) {
            let _spent = self.sim.spend(Cause::Link);
            self.wait_and_cross(crossing);
        }
    }

    /// The whole crossing, if nothing else happens before its end and every part is free; `false`: nothing was done.
    #[inline]
    fn crosses_in_place(&self, engine: Option<&Resource>, crossing: &Crossing) -> bool {
        let Crossing { class, payload_bytes, wire_bytes, up_ns, down_ns, rest_ns } = *crossing;
        let (began, legs) = (self.sim.now(), [(&self.up, up_ns), (&self.down, down_ns)]);
        let crosses = Resource::pass_all(&self.sim, Cause::Link, engine, legs, rest_ns);
        if crosses {
            self.meter.count(class, payload_bytes, wire_bytes);
            self.note(began, crossing);
        }
        crosses
    }

    /// A crossing, one step after the other.
    fn wait_and_cross(&self, crossing: &Crossing) {
        let Crossing { class, payload_bytes, wire_bytes, up_ns, down_ns, rest_ns } = *crossing;
        self.meter.count(class, payload_bytes, wire_bytes);
        let began = self.sim.now();
        self.up.run(up_ns);
        self.down.run_then(down_ns, rest_ns);
        self.note(began, crossing);
    }

    #[inline]
    fn note(&self, began: Ns, crossing: &Crossing) {
        if self.sim.trace().is_on() {
            let (class, span_ns) = (crossing.class.name(), self.sim.now() - began);
            self.sim.trace().note(began, span_ns, "link", "crossing", crossing.payload_bytes, class);
        }
    }
}
