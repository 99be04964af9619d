//! `drop-connection`: the command is executed, and its connection is closed instead of carrying the answer.
//! The host cannot know whether the command was executed. A host on the modelled link, or in the same process
//! as the drive, has no connection and notices nothing.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// The row of `drop-connection` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "drop-connection",
    origin: "on a network: a command is carried out, and its connection ends instead of an answer",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::AtDoor(TransportFault::Disconnect)),
};
