//! [`Transport`]: what differs by wire between a driver and its drive. A transport carries the entries of
//! commands and their data; it brings completions to the driver's board. It knows nothing of calls, waits or
//! iterators.
//!
//! | transport | its wire |
//! |---|---|
//! | [`Rings`](crate::threaded) | rings and buffers that threads of one program share with the drive |
//! | [`Socket`](crate::tcp) | a connection of NVMe/TCP |
//! | [`Node`](crate::node) | a character device of Linux, by passthrough ioctls |
//!
//! One file implements a transport. No other file of this crate names rings, sockets or nodes, except those
//! that connect them.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use kvdrive_content::Piece;
use kvdrive_link::HostMemory;
use kvdrive_nvme::Sqe;

use crate::Error;
use crate::conversation::{SlotOffer, Submission};
use crate::driver::{Board, Brought, Remainder};

/// What differs by wire. Slots are numbered from 0 to below the driver's depth; a slot's number is the
/// identifier of its commands.
pub(crate) trait Transport: Remainder + Send + Sync {
    /// The memory and entries that a slot offers its command.
    fn offer(&self, cid: u16) -> SlotOffer<'static>;

    /// Puts a key of more than 16 bytes into the slot's memory for it.
    fn put_key(&self, _cid: u16, _key: &[u8]) {
        unreachable!("{NO_MEMORY}")
    }

    /// Puts a value's first bytes into the slot's buffer.
    fn stage(&self, _cid: u16, _value: Piece<'_>) {
        unreachable!("{NO_MEMORY}")
    }

    /// Empties the slot's buffer.
    fn clear(&self, _cid: u16) {}

    /// Names the first `_bytes` bytes of the slot's buffer in its chain of list pages.
    fn list(&self, _cid: u16, _bytes: u32) {}

    /// The slot's buffer, if it has one: memory, and its address there.
    fn buffer(&self, _cid: u16) -> Option<(&dyn HostMemory, u64)> {
        None
    }

    /// Takes the entries of a slot's command, which are those of `outbox` from `from` on, or leaves them there
    /// for [`Transport::publish`]. A transport whose data travel beside the entry takes them here.
    ///
    /// # Errors
    /// The wire is broken; so it is for all functions below.
    fn gather(
        &self,
        cid: u16,
        outbox: &mut Vec<Sqe>,
        from: usize,
        submission: &Submission<'_>,
    ) -> Result<(), Error> {
        _ = (cid, outbox, from, submission);
        Ok(())
    }

    /// Submits the entries that are left in `outbox`, with one doorbell; `_quiet` of them get no completion.
    fn publish(&self, _outbox: &mut Vec<Sqe>, _quiet: u32) {}

    /// Sends what was gathered, as far as that does not have to wait.
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Completions were taken by their callers.
    fn acknowledge(&self) {}

    /// May this thread call the drive?
    fn check_thread(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Brings completions to `board`, waiting for the first one on this thread for `limit` at most, unless
    /// `is_woken` says that there is nothing to wait for any more.
    fn bring(
        &self,
        board: &Board,
        is_woken: &dyn Fn() -> bool,
        limit: Option<Duration>,
    ) -> Result<Brought, Error> {
        _ = (board, is_woken, limit);
        Ok(Brought::Elsewhere)
    }

    /// Do completions of many commands under way come in groups, and late rather than one by one?
    fn gathers(&self) -> bool {
        false
    }

    /// A descriptor that becomes readable when completions can be brought, and whether bytes wait to be sent
    /// there; `None`: they come without this thread.
    fn descriptor(&self) -> Option<(BorrowedFd<'_>, bool)> {
        None
    }

    /// How often a thread slept to wait for completions.
    fn sleeps(&self) -> u64 {
        0
    }

    /// Does this thread have to bring completions, because no other one does?
    fn is_brought_by_callers(&self) -> bool {
        self.descriptor().is_some()
    }
}

const NO_MEMORY: &str = "values of this transport travel with their commands";
