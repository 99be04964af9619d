//! How a drive sees a host: as requests that come in at a [`Port`], and nothing else.
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
//! A port owns the walk over what a command names, the time of every crossing and the meter: a drive cannot
//! move a byte past them, and does not know whether a page, a capsule or a guest's memory is at the other
//! end. Bytes for the host are with it when their time has passed, not before.
//!
//! Whoever takes a request answers it: one that is dropped without an answer panics. After a power cut nobody
//! answers anything.
//!
//! [`crate::pcie::PciePort`] is the port of the modelled link.

use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_sim::Sim;
use kvdrive_spec::{Cqe, Sqe, Status};

use crate::pcie::Exposed;
use crate::session::Session;

/// Hands out `bytes` bytes of an answer from its byte `at` on, in order, to the sink that it gets.
pub type Source<'a> = dyn FnMut(u32, u32, &mut dyn FnMut(Piece<'_>)) -> Result<(), Status> + 'a;

/// Where requests of hosts come in.
pub trait Port: 'static {
    /// What comes in.
    type Request: Request + 'static;

    /// Waits for the next request of any queue and fetches it.
    fn next(&self) -> Self::Request;

    /// The executor that its time passes on.
    fn sim(&self) -> &Sim;

    /// `ended` is told of every session that ends.
    fn on_end(&self, ended: Rc<dyn Fn(&Session)>);

    /// I/O commands that it cannot carry, because they need what no host of it has: entries behind a command in the
    /// same queue, or a way into the drive's memory. Hosts are told, and whoever sends one all the same is refused.
    fn refused(&self) -> &'static [u8] {
        &[]
    }

    /// Can a command go without an answer? If not, a *quiet* one is refused, aloud.
    fn carries_quiet(&self) -> bool {
        true
    }

    /// Where a host gets that stores into the drive's memory. The port does not keep it; one over which no
    /// host can do that ignores it.
    fn expose(&self, _exposed: Weak<dyn Exposed>) {}
}

/// A command that was fetched and is not answered yet, and the way to its data.
pub trait Request {
    /// The entry.
    fn sqe(&self) -> &Sqe;

    /// Identifier of the queue that it came by, among those of its function: 0 is an admin queue.
    fn queue_id(&self) -> u16;

    /// Did it come by an admin queue?
    fn is_admin(&self) -> bool {
        self.queue_id() == 0
    }

    /// May it go without an answer?
    fn is_quiet(&self) -> bool {
        self.sqe().is_quiet()
    }

    /// What the drive has of the queue that it came by.
    fn session(&self) -> &Session;

    /// Its turn among those commands of its queue whose order matters; `None` for all others.
    fn turn(&self) -> Option<u64>;

    /// The chunk entries behind an *express*; `None` if the host has not published them all, and for all
    /// other commands.
    fn chunks(&self) -> Option<&[Sqe]>;

    /// Finds the first `bytes` bytes of the `named_bytes` bytes of memory that the command names, ahead of
    /// [`Request::pull`] or [`Request::push`] of as many. Lists are fetched, so it takes time.
    ///
    /// # Errors
    /// What is wrong with the data pointer; [`Status::DATA_TRANSFER_ERROR`] for a list that cannot be
    /// fetched.
    fn locate(&self, named_bytes: u32, bytes: u32) -> Result<(), Status>;

    /// Brings the `bytes` bytes that the command names, in order.
    ///
    /// # Errors
    /// Those of [`Request::locate`], if that was not done before; [`Status::DATA_TRANSFER_ERROR`] for memory
    /// that is not there. Some of the bytes may have been handed out.
    fn pull(&self, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), Status>;

    /// Sends the first `bytes` bytes of an answer to the `named_bytes` bytes of memory that the command names.
    /// `source` is asked for each part right before the part crosses, and may take time itself.
    ///
    /// # Errors
    /// Those of `source`, and those of [`Request::pull`].
    fn push(&self, named_bytes: u32, bytes: u32, source: &mut Source<'_>) -> Result<(), Status>;

    /// Answers it. Waits while the host leaves no room for completions.
    fn complete(self, cqe: Cqe)
    where
        Self: Sized;

    /// Ends it without an answer, as a host asked that hears of it by a later command.
    fn omit(self)
    where
        Self: Sized;

    /// Keeps it until something happens, which may be never: nobody waits for its answer when its queue is
    /// deleted, and it may be dropped without one.
    fn hold(&mut self);

    /// The I/O queues of the function that it came by, if hosts of this port make and end them by commands.
    fn queues(&self) -> Option<&dyn Queues> {
        None
    }
}

/// I/O queues of one function, as commands of its admin queue make and end them. Whether that can be the drive
/// knows ([`kvdrive_spec::queue`]); what cannot be is a panic here.
pub trait Queues {
    /// Is there any?
    fn has_some(&self) -> bool;

    /// Is there a submission queue with this identifier?
    fn has_submission(&self, id: u16) -> bool;

    /// Is there a completion queue with this identifier? `Some(true)`: and commands complete to it.
    fn completion(&self, id: u16) -> Option<bool>;

    /// Makes a completion queue of `entries` slots.
    fn create_completion(&self, id: u16, entries: u32);

    /// Makes a submission queue of `entries` slots whose commands complete to `completion`.
    fn create_submission(&self, id: u16, entries: u32, completion: u16);

    /// Ends a submission queue; returns when nothing is left of it, which the last of its commands may keep it
    /// from for a while. `false`: there is none, or somebody else is ending it.
    fn delete_submission(&self, id: u16) -> bool;

    /// Ends a completion queue.
    fn delete_completion(&self, id: u16);
}
