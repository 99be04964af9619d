//! `write-protect`: while it is on, nothing that is stored can be altered, and reads go on.
//!
//! What a host sees of a drive that has turned read-only, without the drive having turned so: nothing is
//! written to flash for it, and without the rule the drive takes stores again.

use kvdrive_spec::Status;

use super::{Effect, FaultKind, Moment};

/// The row of `write-protect` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "write-protect",
    origin: "commands that would change a pair are answered 20h (namespace is write protected); reads go on",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::RefuseChange(Status::NAMESPACE_WRITE_PROTECTED)),
};
