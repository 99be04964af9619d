//! The driver on application threads: the drive runs on a thread of its own, in wall time or as fast as it
//! can.
//!
//! ```no_run
//! # use kvdrive_host::threaded::{Connector, Error, Serving, serve_thread};
//! # use kvdrive_content::Piece;
//! # use kvdrive_host::Calls;
//! # use kvdrive_link::transfer::prp::Prp;
//! # fn open() -> (Connector, Serving<(), ()>) { unimplemented!() }
//! let (connector, serving) = open(); // serve_thread(...) with a closure that builds the drive
//! let driver = connector.connect(Box::new(Prp), 64, 32)?;
//! let key = kvdrive_spec::Key::new(b"key").unwrap();
//! driver.blocking().store(key, Piece::Bytes(b"value"))?; // or driver.store(...).await on any executor
//! drop((driver, connector)); // no command can come any more: the drive ends
//! let counters = serving.join();
//! # Ok::<(), Error>(())
//! ```
//!
//! | item | for |
//! |---|---|
//! | [`Driver`] | one command at a time, or many futures |
//! | [`Pipeline`] | many commands at once from one thread, with few doorbells and locks |
//! | [`BlockDriver`] | the blocks of a drive that has no pairs, also as pages of a store |
//! | [`saker`] | SAKER in front: small writes that travel together |
//! | [`serve_thread`] | the drive's thread |
//! | [`serve_here`] | an unpaced drive that the calls of one thread carry out: no other thread, no wake-ups |
//! | [`Control`](kvdrive_link::shared::Control) | looking at the drive and changing it while it is served: [`Serving::control`] |

mod blocking;
mod blocks;
mod driver;
mod pipeline;
mod port;
pub mod saker;
mod thread;
mod tokens;
mod unclaimed;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kvdrive_link::HostMemory;
use kvdrive_link::shared::SharedLink;
use kvdrive_link::transfer::Choice;
use kvdrive_spec::Sqe;
use kvdrive_spec::identify::{IDENTIFY_BYTES, KvNamespace};

use crate::answers::{self, RING};
pub use crate::answers::{IteratorId, Pair};
pub use crate::client::Content;
use crate::conversation::course::done;
use crate::conversation::slot::IteratorUse;
pub use crate::error::Error;
pub use crate::pipelined::{Completion, Pipelined};
pub use blocking::block_on;
pub use blocks::BlockDriver;
pub use driver::{Blocking, Driver, Ticket};
pub use kvdrive_link::shared::Serving;
pub use pipeline::Pipeline;
use port::{Board, Claimed, Port};
pub use thread::{serve_here, serve_thread};
use unclaimed::SharedUnclaimed;

struct Shared {
    link: Arc<SharedLink>,
    /// The admin queue's one slot takes one command at a time.
    admin: Port,
    max_value_bytes: OnceLock<u32>,
    unclaimed: Arc<SharedUnclaimed>,
    /// Queue pairs whose drivers are gone, for the next ones.
    idle: Mutex<Vec<Arc<Port>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// Makes drivers for one drive. When all connectors and drivers are dropped the drive ends.
#[derive(Clone)]
pub struct Connector(Arc<Shared>);

impl Connector {
    fn new() -> Connector {
        let unclaimed: Arc<SharedUnclaimed> = Arc::default();
        let board = Board::new(1, unclaimed.clone());
        let (link, queue) = SharedLink::new(board.clone());
        let admin = Port::new(&link, queue, board, IDENTIFY_BYTES as u32);
        let (max_value_bytes, idle) = (OnceLock::new(), Mutex::default());
        Connector(Arc::new(Shared { link, admin, max_value_bytes, unclaimed, idle }))
    }

    fn link(&self) -> &Arc<SharedLink> {
        &self.0.link
    }

    fn unclaimed(&self) -> &SharedUnclaimed {
        &self.0.unclaimed
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Port>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May this thread ask the drive?
    ///
    /// # Errors
    /// The calls of another one carry it out ([`serve_here`]).
    pub fn check_thread(&self) -> Result<(), Error> {
        self.0.admin.check_thread()
    }

    /// Identify data of the KV namespace as it is now.
    pub async fn identify(&self) -> Result<KvNamespace, Error> {
        self.admin(answers::identify_namespace, answers::take_namespace).await
    }

    /// Why the drive is read-only, if it is: the reason for
    /// [`kvdrive_spec::Status::NAMESPACE_WRITE_PROTECTED`].
    pub async fn write_failure(&self) -> Result<Option<String>, Error> {
        self.admin(answers::write_protection_log, answers::take_write_protection).await
    }

    /// An admin command that brings data to the page at the slot's buffer, and what to make of it.
    async fn admin<T>(
        &self,
        command: fn(u16, u64) -> Sqe,
        take: fn(&dyn HostMemory, u64) -> T,
    ) -> Result<T, Error> {
        let mut slot = self.0.admin.slot().await?;
        slot.buffer().clear();
        let buffer = slot.slot_offer().buffer;
        administer(&mut slot, |cid| command(cid, buffer)).await?;
        Ok(take(slot.buffer(), slot.buffer().address()))
    }

    /// A queue pair of `entries` slots, which the drive is asked to create, with `depth` command slots that have
    /// buffers of `buffer_bytes` bytes.
    async fn create(&self, entries: u32, depth: u32, buffer_bytes: u32) -> Result<Arc<Port>, Error> {
        let board = Board::new(depth, self.0.unclaimed.clone());
        let rings = self.link().open_rings(entries, board.clone())?;
        let mut slot = self.0.admin.slot().await?;
        for command in answers::create_pair(rings.id(), entries) {
            let created = administer(&mut slot, |cid| command.encode(cid, RING)).await;
            if let Err(error) = created {
                self.link().close_rings(&rings);
                return Err(error);
            }
        }
        Ok(Arc::new(Port::new(self.link(), rings, board, buffer_bytes)))
    }

    /// Has the drive delete a queue pair that no driver has, when commands of it that were dropped have ended.
    async fn delete(&self, port: Arc<Port>) -> Result<(), Error> {
        port.take_all().await?;
        let mut slot = self.0.admin.slot().await?;
        for command in answers::delete_pair(port.queue().id()) {
            administer(&mut slot, |cid| command.encode(cid, RING)).await?;
        }
        self.link().close_rings(port.queue());
        Ok(())
    }

    /// A driver with a queue pair of `entries` slots for up to `depth` commands at once. The queue pair of a
    /// driver that was dropped is used again by the next one of the same `entries` and `depth`; where there
    /// is none, this thread waits while the drive deletes unused ones and creates one.
    ///
    /// # Errors
    /// The drive is off, has as many queue pairs as there are identifiers, or answers so.
    ///
    /// Panics when `depth` is 0 or not below `entries`, or `entries` is above 65536 (NVMe base
    /// specification).
    pub fn connect(&self, choice: Box<dyn Choice>, entries: u32, depth: u32) -> Result<Driver, Error> {
        let max_value_bytes = match self.0.max_value_bytes.get() {
            Some(bytes) => *bytes,
            None => {
                let namespace = block_on(self.identify())?;
                *self.0.max_value_bytes.get_or_init(|| namespace.format().value_max_bytes.get())
            }
        };
        let port = self.port(entries, depth, answers::buffer_bytes(max_value_bytes))?;
        Ok(Driver::new(self.clone(), port, choice, max_value_bytes))
    }

    /// An unused queue pair; all of a drive have buffers of one size.
    fn port(&self, entries: u32, depth: u32, buffer_bytes: u32) -> Result<Arc<Port>, Error> {
        assert!(
            depth > 0 && depth < entries && entries <= 1 << 16,
            "a queue of {entries} slots holds at most {} commands, not {depth}",
            entries.saturating_sub(1)
        );
        let mut idle = self.idle();
        let fitting = idle.iter().position(|port| port.depth() == depth && port.queue().entries() == entries);
        let known = fitting.map(|index| idle.swap_remove(index));
        let unfit = if known.is_some() { Vec::new() } else { std::mem::take(&mut *idle) };
        drop(idle);
        for port in unfit {
            block_on(self.delete(port))?;
        }
        match known {
            Some(port) => Ok(port),
            None => block_on(self.create(entries, depth, buffer_bytes)),
        }
    }

    /// Ends the drive when it has carried out what was submitted, even if other connectors or drivers exist: they
    /// find it off then.
    pub fn close(&self) {
        self.link().close();
    }

    fn give_back(&self, port: Arc<Port>) {
        self.idle().push(port);
    }
}

/// Has the drive carry out a command of the admin queue.
async fn administer(slot: &mut Claimed<'_>, command: impl FnOnce(u16) -> Sqe) -> Result<(), Error> {
    let cid = slot.slot_offer().cid;
    slot.outbox.push(command(cid));
    slot.submit(1, IteratorUse::None)?;
    Ok(done(slot.completion().await?.status())?)
}
