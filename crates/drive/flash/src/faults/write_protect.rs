//! `write-protect`: while it is active, no stored content can be changed; reads continue.
//!
//! The host sees a drive that has become read-only, although the drive has not: nothing is written to flash
//! for it, and when the rule is removed the drive accepts stores again.

use kvdrive_nvme::Status;

use super::{Effect, FaultKind, Moment};

/// The row of `write-protect` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "write-protect",
    origin: "commands that would change a pair are answered 20h (namespace is write protected); reads continue",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::RefuseChange(Status::NAMESPACE_WRITE_PROTECTED)),
};
