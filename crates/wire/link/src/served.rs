//! The interface of a drive to the loop that serves it in wall time, and to a replay of such a run: building the drive,
//! changes and questions during the run, and the result at its end.

use std::rc::Rc;

use kvdrive_nvme::Cqe;
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_sim::{Histogram, Ns};

use crate::pcie::Link;

/// Result of a change: an answer, or the reason why nothing has changed.
pub type Outcome = Result<String, String>;

/// The calls of the thread that serves a drive, besides those to the link; also the target of a control channel.
pub trait Controlled: 'static {
    /// Executes `change`, which must not wait, and returns its outcome. The same text at the same event must have the
    /// same effect, since a replay calls this, too.
    ///
    /// # Errors
    /// What is wrong with the change, in one line; nothing has changed.
    fn change(&self, change: &str) -> Outcome;

    /// Are completions gathered, so that the changes that they acknowledge are made durable together?
    fn shares_settling(&self) -> bool {
        false
    }

    /// Does anything in the drive need model time to pass, for example a fault rule? If not, an unpaced drive holds its
    /// clock.
    fn needs_time(&self) -> bool {
        false
    }

    /// Makes everything durable that is acknowledged by the completions about to be handed to hosts. `false`:
    /// not all of it is.
    fn settle(&self) -> bool {
        true
    }

    /// The fault for the answer to a command of a queue, known by the number of its session, on its way to a
    /// host on a network. Called once, when the command completes.
    fn at_door(&self, session: u32, cid: u16) -> Option<TransportFault> {
        _ = (session, cid);
        None
    }

    /// Notes that a command of an I/O queue has completed, `span` ns of model time after it took effect.
    fn note_latency(&self, opcode: u8, span: Ns) {
        _ = (opcode, span);
    }

    /// Notes that an event ran `late_ns` after its model time: measured, and only if the drive is paced.
    fn note_lateness(&self, late_ns: Ns) {
        _ = late_ns;
    }

    /// Called after a settling failed: changes the status of a completion whose acknowledged change is lost.
    fn revoke(&self, session: u32, cqe: &mut Cqe) {
        _ = (session, cqe);
    }
}

/// A drive that can be inspected but has no state to show.
impl Controlled for () {
    fn change(&self, _: &str) -> Outcome {
        Err("this drive takes no changes".to_owned())
    }
}

/// Why a drive could not be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// How a run ended.
pub struct RunEnd {
    /// How late events ran, wall minus model, ns; empty when unpaced or replayed.
    pub lateness: Histogram,
    /// Number of times the drive's thread slept.
    pub sleeps: u64,
    /// Was the power cut? Then no task runs any more.
    pub power_cut: bool,
    /// The error of the recording, if there was one; the drive was served all the same. For a replay: whether
    /// the recording is complete.
    pub recording: Result<(), std::io::Error>,
    /// For a replay: bytes after the end of the recording, which were ignored.
    pub ignored_bytes: u64,
}

/// A drive, as its builder returns it.
pub struct Built<D, F> {
    /// The link that it serves.
    pub link: Rc<Link>,
    /// The target of its control channel.
    pub drive: D,
    /// Called at the end, when no command is outstanding: to collect counters.
    pub finish: F,
}
