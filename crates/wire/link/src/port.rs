//! How a drive sees a host: only as requests that arrive at a [`Port`].
//!
//! ```text
//!   port.next() ─► request.sqe()              what is asked
//!                  request.locate(bytes)      where its data are: descriptors are checked, lists fetched
//!                  request.pull(bytes, sink)  data to the drive ─┐ counted, and
//!                  request.push(bytes, source) data to the host ─┘ their time taken, in here
//!                  request.complete(cqe)      the answer; or request.omit(), where the host wants none
//!                  request.hold()             it waits for something that may never happen, and is answered then
//! ```
//!
//! A port owns the walk over the memory that a command names, the time of every crossing, and the meter: a
//! drive cannot move a byte past them, and does not know whether a page, a capsule or a guest's memory is at
//! the other end. Data for the host is visible there only when its transfer time has passed.
//!
//! Every request must be answered: dropping one without an answer panics. After a power cut no request is
//! answered.
//!
//! [`crate::pcie::PciePort`] is the port of the modelled link.

use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_nvme::{Cqe, Sqe, Status};
use kvdrive_sim::Sim;

use crate::session::Session;

/// Passes `bytes` bytes of an answer from byte `at` on, in order, to the given sink.
pub type Source<'a> = dyn FnMut(u32, u32, &mut dyn FnMut(Piece<'_>)) -> Result<(), Status> + 'a;

/// Receives the requests of hosts.
pub trait Port: 'static {
    /// The type of its requests.
    type Request: Request + 'static;

    /// Waits for the next request of any queue and fetches it.
    fn next(&self) -> Self::Request;

    /// The executor whose clock it uses.
    fn sim(&self) -> &Sim;

    /// Registers `ended`, which is called for every session that ends.
    fn on_end(&self, ended: Rc<dyn Fn(&Session)>);

    /// I/O commands that it cannot carry, because they need something that its hosts lack: entries after a
    /// command in the same queue, or access to the drive's memory. Hosts are told, and such a command is
    /// refused.
    fn refused(&self) -> &'static [u8] {
        &[]
    }

    /// Can a command go without an answer? If not, a *quiet* command is refused, with an answer.
    fn carries_quiet(&self) -> bool {
        true
    }

    /// Connects the object that receives stores into the drive's memory. The port does not keep it alive; a
    /// port whose hosts cannot store into the drive's memory ignores it.
    fn expose(&self, _exposed: Weak<dyn Exposed>) {}
}

/// The target of the drive's CXL.mem port.
pub trait Exposed {
    /// Bytes of a window; see [`kvdrive_nvme::window`].
    fn window_bytes(&self) -> u32;
    /// Handles the host's store of `piece` at `address` of the port. Outside of every open window it is
    /// dropped.
    fn store(&self, address: u64, piece: Piece<'_>);
}

/// A command that was fetched and is not answered yet, and the way to its data.
pub trait Request {
    /// The entry.
    fn sqe(&self) -> &Sqe;

    /// Identifier of its queue within the queue's function: 0 is an admin queue.
    fn queue_id(&self) -> u16;

    /// Does it come from an admin queue?
    fn is_admin(&self) -> bool {
        self.queue_id() == 0
    }

    /// May it go without an answer?
    fn is_quiet(&self) -> bool {
        self.sqe().is_quiet()
    }

    /// The drive's state of its queue.
    fn session(&self) -> &Session;

    /// Its turn among those commands of its queue whose order matters; `None` for all other commands.
    fn turn(&self) -> Option<u64>;

    /// The chunk entries after an *express*; `None` if the host has not published them all, and for all other
    /// commands.
    fn chunks(&self) -> Option<&[Sqe]>;

    /// Did its data arrive with it, in a capsule of a network? Then firmware has copied the data once
    /// already, and copies it to its place, as it does with inline values.
    fn is_in_capsule(&self) -> bool {
        false
    }

    /// Transfers the `bytes` bytes of the key that the entry names by address to the drive.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`]: the address is not mapped, or this port reaches no memory but that of the data.
    fn pull_key(&self, _bytes: u32, _sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), Status> {
        Err(Status::INVALID_FIELD)
    }

    /// Resolves the first `bytes` bytes of the `named_bytes` bytes of memory that the command names, ahead of
    /// [`Request::pull`] or [`Request::push`] of as many bytes. Fetches lists, so it takes time.
    ///
    /// # Errors
    /// What is wrong with the data pointer; [`Status::DATA_TRANSFER_ERROR`] for a list that cannot be
    /// fetched.
    fn locate(&self, named_bytes: u32, bytes: u32) -> Result<(), Status>;

    /// Transfers the `bytes` bytes that the command names to the drive, in order.
    ///
    /// # Errors
    /// Those of [`Request::locate`], if that was not called before; [`Status::DATA_TRANSFER_ERROR`] for
    /// memory that is not mapped. Some of the bytes may have been passed to `sink`.
    fn pull(&self, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), Status> {
        self.pull_part(bytes, 0, bytes, sink)
    }

    /// As [`Request::pull`], `bytes` bytes from byte `at` on of `named_bytes`. Parts follow each other from the front
    /// on; a page of the host in which one ends and the next begins crosses with both.
    ///
    /// # Errors
    /// As [`Request::pull`].
    fn pull_part(
        &self,
        named_bytes: u32,
        at: u32,
        bytes: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status>;

    /// Transfers the first `bytes` bytes of an answer to the `named_bytes` bytes of memory that the command
    /// names. `source` is asked for each part directly before the part crosses, and may take time itself.
    ///
    /// # Errors
    /// Those of `source`, and those of [`Request::pull`].
    fn push(&self, named_bytes: u32, bytes: u32, source: &mut Source<'_>) -> Result<(), Status>;

    /// Answers the request. Waits while the host leaves no room for completions.
    fn complete(self, cqe: Cqe)
    where
        Self: Sized;

    /// Ends the request without an answer, as its host asked; a later command reports its result.
    fn omit(self)
    where
        Self: Sized;

    /// Keeps the request until an event that may never happen: deleting its queue does not wait for its
    /// answer, and it may be dropped without one.
    fn hold(&mut self);

    /// The I/O queues of its function, if hosts of this port create and delete them by commands.
    fn queues(&self) -> Option<&dyn Queues> {
        None
    }
}

/// I/O queues of one function, as commands of its admin queue create and delete them. The drive checks
/// whether a command is possible ([`kvdrive_nvme::queue`]); an impossible call panics here.
pub trait Queues {
    /// Is there any I/O queue?
    fn has_some(&self) -> bool;

    /// Is there a submission queue with this identifier?
    fn has_submission(&self, id: u16) -> bool;

    /// Is there a completion queue with this identifier? `Some(true)`: there is, and submission queues
    /// complete to it.
    fn completion(&self, id: u16) -> Option<bool>;

    /// Makes a completion queue of `entries` slots.
    fn create_completion(&self, id: u16, entries: u32);

    /// Makes a submission queue of `entries` slots whose commands complete to `completion`.
    fn create_submission(&self, id: u16, entries: u32, completion: u16);

    /// Answers command `cid` of submission queue `id` as aborted if the drive has not fetched it; `false` if it has, or
    /// there is none.
    fn abort(&self, id: u16, cid: u16) -> bool;

    /// Deletes a submission queue; returns when nothing is left of it, for which it may have to wait for the
    /// queue's last command. `false`: it does not exist, or is being deleted already.
    fn delete_submission(&self, id: u16) -> bool;

    /// Deletes a completion queue.
    fn delete_completion(&self, id: u16);
}
