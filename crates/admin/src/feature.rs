//! Features: what a host sets of a controller, and reads back.
//!
//! ```text
//!   Set Features ─► Features::wanted ─► Change ─► the caller carries it out ─► Features::keep ─► dword 0
//!   Get Features ─► Features::get ─► dword 0, or the host identifier as data
//! ```

use kvdrive_spec::{Sqe, Status, feature};

use crate::Kind;

/// SEL of Get Features: what it can do, instead of its value.
const SELECT_CAPABILITIES: u32 = 3;
/// Of those: it can be set.
const CHANGEABLE: u32 = 1 << 2;

/// Features that are only kept: with the bits that can be set. (Nothing here arbitrates between queues, saves
/// power, gets warm or retries for a limited time.)
const KEPT: [(u8, u32); 4] = [
    (feature::ARBITRATION, 0xFFFF_FF07),
    (feature::POWER, 0),
    (feature::TEMPERATURE, 0x003F_FFFF),
    (feature::ERROR_RECOVERY, 0x0001_FFFF),
];

/// What a controller can grant.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What the controller is for.
    pub kind: Kind,
    /// Most I/O queues.
    pub io_queues_max: u16,
    /// I/O queues are there: their number is settled.
    pub has_io_queues: bool,
}

/// What a host wants changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// So many I/O queues, 0's based: 07h.
    Queues(u16),
    /// Which asynchronous events it wants: 0Bh.
    Events(u32),
    /// Its keep-alive timeout, ms: 0Fh.
    KeepAlive(u32),
    /// Deleting what is not there is an error in this namespace, FFFFFFFFh: in all, or ceases to be one: 20h.
    ErrorOnMissingKey {
        /// Which namespace.
        nsid: u32,
        /// Is it one from now on?
        on: bool,
    },
    /// A value that is only kept.
    Kept {
        /// Which feature.
        id: u8,
        /// Its value.
        value: u32,
    },
}

/// The features of one controller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// I/O queues, 0's based.
    pub queues_z: u16,
    /// Events that the host wants.
    pub wanted_events: u32,
    /// Keep-alive timeout, ms; 0: none.
    pub keep_alive_ms: u32,
    /// Is deleting what is not there an error?
    pub error_on_missing_key: bool,
    kept: [u32; KEPT.len()],
}

impl Features {
    /// The features of a controller that grants `io_queues_max` I/O queues before a host has said how many it
    /// wants.
    pub fn granting(io_queues_max: u16) -> Features {
        Features { queues_z: io_queues_max - 1, ..Features::default() }
    }

    /// What a Set Features asks for.
    ///
    /// # Errors
    /// It cannot be, or not now.
    pub fn wanted(&self, sqe: &Sqe, limits: Limits) -> Result<Change, Status> {
        let (id, value) = (sqe.cdw10.get() as u8, sqe.cdw11.get());
        if sqe.cdw10.get() & feature::SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        match id {
            feature::QUEUES if limits.kind == Kind::Io => {
                let (submission_z, completion_z) = (value as u16, (value >> 16) as u16);
                // FFFFh is no number of queues (0's based).
                if submission_z == u16::MAX || completion_z == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                if limits.has_io_queues {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                Ok(Change::Queues(submission_z.min(completion_z).min(limits.io_queues_max - 1)))
            }
            feature::ASYNC_EVENTS => Ok(Change::Events(value)),
            feature::KEEP_ALIVE => Ok(Change::KeepAlive(value)),
            feature::KEY_VALUE if limits.kind == Kind::Io => {
                if value & !feature::ERROR_ON_MISSING_KEY != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                let on = value & feature::ERROR_ON_MISSING_KEY != 0;
                Ok(Change::ErrorOnMissingKey { nsid: sqe.nsid.get(), on })
            }
            _ => match KEPT.iter().find(|(of, _)| *of == id) {
                Some((_, settable)) if value & !settable == 0 => Ok(Change::Kept { id, value }),
                _ => Err(Status::INVALID_FIELD),
            },
        }
    }

    /// Keeps what was carried out; returns dword 0 of the answer.
    pub fn keep(&mut self, change: Change) -> u32 {
        match change {
            Change::Queues(granted_z) => {
                self.queues_z = granted_z;
                return queues(granted_z);
            }
            Change::Events(wanted) => self.wanted_events = wanted,
            Change::KeepAlive(timeout_ms) => self.keep_alive_ms = timeout_ms,
            Change::ErrorOnMissingKey { on, .. } => self.error_on_missing_key = on,
            Change::Kept { id, value } => {
                let at =
                    KEPT.iter().position(|(of, _)| *of == id).expect("a change names a feature that is kept");
                self.kept[at] = value;
            }
        }
        0
    }

    /// Dword 0 of the answer to a Get Features. The host identifier (81h) is data, and whose port brought it
    /// answers that.
    ///
    /// # Errors
    /// There is no such feature here.
    pub fn get(&self, sqe: &Sqe, kind: Kind) -> Result<u32, Status> {
        let (id, select) = (sqe.cdw10.get() as u8, sqe.cdw10.get() >> 8 & 0b111);
        let value = match id {
            feature::QUEUES if kind == Kind::Io => queues(self.queues_z),
            feature::ASYNC_EVENTS => self.wanted_events,
            feature::KEEP_ALIVE => self.keep_alive_ms,
            feature::KEY_VALUE if kind == Kind::Io => u32::from(self.error_on_missing_key),
            _ => {
                let at = KEPT.iter().position(|(of, _)| *of == id).ok_or(Status::INVALID_FIELD)?;
                self.kept[at]
            }
        };
        Ok(if select == SELECT_CAPABILITIES { CHANGEABLE } else { value })
    }

    /// What a reset of the controller leaves: timeout and queues, which Connect had set.
    pub fn reset(&mut self) {
        self.wanted_events = 0;
        self.kept = [0; KEPT.len()];
    }
}

/// Feature 07h: as many completion as submission queues.
fn queues(count_z: u16) -> u32 {
    u32::from(count_z) << 16 | u32::from(count_z)
}
