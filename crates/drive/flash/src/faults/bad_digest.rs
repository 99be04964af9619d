//! `bad-digest`: the command is executed, and a digest of its answer is wrong. A host that did not ask for
//! digests notices nothing.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// The row of `bad-digest` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "bad-digest",
    origin: "on a network: a digest of the answer is wrong: the data digest, or the header digest without data",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::AtDoor(TransportFault::BadDigest)),
};
