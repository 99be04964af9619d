//! Features: values that a host sets in a controller and reads back.
//!
//! ```text
//!   Set Features ─► Features::wanted ─► FeatureChange ─► the caller carries it out ─► Features::keep ─► dword 0
//!   Get Features ─► Features::get ─► dword 0, or the host identifier as data
//!
//!   feature 20h: the namespace keeps its value ─► is_of_namespace, KeyValue::wanted, KeyValue::told
//! ```

use kvdrive_nvme::opcode::admin;
use kvdrive_nvme::{Sqe, Status, feature};

use crate::ControllerKind;

/// SEL of Get Features: the default value.
const SELECT_DEFAULT: u32 = 1;
/// SEL of Get Features: capabilities instead of the value.
const SELECT_CAPABILITIES: u32 = 3;
/// Capability: the feature belongs to a namespace.
const OF_NAMESPACE: u32 = 1 << 1;
/// Capability: the feature can be set.
const CHANGEABLE: u32 = 1 << 2;

/// Features that are only stored, with the bits that can be set. (The drive does not arbitrate between
/// queues, save power, get warm, or limit the time of retries.)
const KEPT: [(u8, u32); 4] = [
    (feature::ARBITRATION, 0xFFFF_FF07),
    (feature::POWER, 0),
    (feature::TEMPERATURE, 0x003F_FFFF),
    (feature::ERROR_RECOVERY, 0x0001_FFFF),
];

/// Limits of the queues and events that a controller can grant to a host.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Type of the controller.
    pub kind: ControllerKind,
    /// Most I/O queues.
    pub io_queues_max: u16,
    /// I/O queues exist, so their number can no longer change.
    pub has_io_queues: bool,
}

/// A change that a host requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureChange {
    /// Number of I/O queues, 0's based: 07h.
    Queues(u16),
    /// Enabled asynchronous events: 0Bh.
    Events(u32),
    /// Keep-alive timeout, ms: 0Fh.
    KeepAlive(u32),
    /// A value that is only stored.
    Kept {
        /// The feature.
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
    /// Enabled events.
    pub wanted_events: u32,
    /// Keep-alive timeout, ms; 0: none.
    pub keep_alive_ms: u32,
    kept: [u32; KEPT.len()],
}

impl Features {
    /// The features of a controller that grants `io_queues_max` I/O queues as long as no host has asked for a
    /// number.
    pub fn granting(io_queues_max: u16) -> Features {
        Features { queues_z: io_queues_max - 1, ..Features::default() }
    }

    /// Decodes a Set Features command.
    ///
    /// # Errors
    /// The value is invalid, or cannot be set now.
    pub fn wanted(&self, sqe: &Sqe, limits: Limits) -> Result<FeatureChange, Status> {
        let (id, value) = (sqe.cdw10.get() as u8, sqe.cdw11.get());
        if sqe.cdw10.get() & feature::SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        match id {
            feature::QUEUES if limits.kind == ControllerKind::Io => {
                let (submission_z, completion_z) = (value as u16, (value >> 16) as u16);
                // FFFFh is not a valid number of queues (0's based).
                if submission_z == u16::MAX || completion_z == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                if limits.has_io_queues {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                Ok(FeatureChange::Queues(submission_z.min(completion_z).min(limits.io_queues_max - 1)))
            }
            feature::ASYNC_EVENTS => Ok(FeatureChange::Events(value)),
            feature::KEEP_ALIVE => Ok(FeatureChange::KeepAlive(value)),
            _ => match KEPT.iter().find(|(of, _)| *of == id) {
                Some((_, settable)) if value & !settable == 0 => Ok(FeatureChange::Kept { id, value }),
                _ => Err(Status::INVALID_FIELD),
            },
        }
    }

    /// Stores an executed change; returns dword 0 of the answer.
    pub fn keep(&mut self, change: FeatureChange) -> u32 {
        match change {
            FeatureChange::Queues(granted_z) => {
                self.queues_z = granted_z;
                return queues(granted_z);
            }
            FeatureChange::Events(wanted) => self.wanted_events = wanted,
            FeatureChange::KeepAlive(timeout_ms) => self.keep_alive_ms = timeout_ms,
            FeatureChange::Kept { id, value } => {
                let at =
                    KEPT.iter().position(|(of, _)| *of == id).expect("a change names a feature that is kept");
                self.kept[at] = value;
            }
        }
        0
    }

    /// Dword 0 of the answer to a Get Features. The host identifier (81h) is data, which the port answers.
    ///
    /// # Errors
    /// The feature is not supported.
    pub fn get(&self, sqe: &Sqe, kind: ControllerKind) -> Result<u32, Status> {
        let (id, select) = (sqe.cdw10.get() as u8, selected(sqe));
        let value = match id {
            feature::QUEUES if kind == ControllerKind::Io => queues(self.queues_z),
            feature::ASYNC_EVENTS => self.wanted_events,
            feature::KEEP_ALIVE => self.keep_alive_ms,
            _ => {
                let at = KEPT.iter().position(|(of, _)| *of == id).ok_or(Status::INVALID_FIELD)?;
                self.kept[at]
            }
        };
        Ok(if select == SELECT_CAPABILITIES { CHANGEABLE } else { value })
    }

    /// Resets what Connect had set: timeout and queues.
    pub fn reset(&mut self) {
        self.wanted_events = 0;
        self.kept = [0; KEPT.len()];
    }
}

/// Does a Set or Get Features name a feature whose value a namespace keeps?
pub fn is_of_namespace(sqe: &Sqe) -> bool {
    matches!(sqe.opcode, admin::SET_FEATURES | admin::GET_FEATURES)
        && sqe.cdw10.get() as u8 == feature::KEY_VALUE
}

/// Feature 20h, Key Value Configuration: one value for each namespace, for all of its hosts. It is kept over resets and
/// power cycles whether or not a host asks for that (SV), so that bit is accepted.
#[derive(Clone, Copy, Debug)]
pub struct KeyValue;

impl KeyValue {
    /// The value that a Set Features asks for: bit 0, EDNEK.
    ///
    /// # Errors
    /// Reserved bits are set.
    pub fn wanted(sqe: &Sqe) -> Result<u32, Status> {
        let value = sqe.cdw11.get();
        if value & !feature::ERROR_ON_MISSING_KEY != 0 { Err(Status::INVALID_FIELD) } else { Ok(value) }
    }

    /// Dword 0 of the answer to a Get Features, of a namespace that has `value`.
    pub fn told(sqe: &Sqe, value: u32) -> u32 {
        match selected(sqe) {
            SELECT_DEFAULT => 0,
            SELECT_CAPABILITIES => CHANGEABLE | OF_NAMESPACE,
            _ => value,
        }
    }
}

/// SEL of a Get Features.
fn selected(sqe: &Sqe) -> u32 {
    sqe.cdw10.get() >> 8 & 0b111
}

/// Feature 07h: as many completion as submission queues.
fn queues(count_z: u16) -> u32 {
    u32::from(count_z) << 16 | u32::from(count_z)
}
