//! [`Remainder`]: what a wire does for commands that were dropped.

use kvdrive_nvme::Sqe;

use crate::answers::AnswerData;

/// What remains of a dropped command is done on whichever thread takes its last completion. The calls are made
/// under the board's lock, so they must not deliver completions.
pub(crate) trait Remainder {
    /// Puts an entry into the queue, in the slot of the completed command that it follows.
    fn put(&self, sqe: Sqe);

    /// Has the drive discard its part of a value that will not be sent whole.
    fn put_discard(&self) {
        unreachable!("values of this transport travel with their commands, and none is left as a part")
    }

    /// Tells the drive what was put. Called after the lock.
    fn ring(&self) {}

    /// Calls `read` with the data of the slot's last completion.
    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData));
}
