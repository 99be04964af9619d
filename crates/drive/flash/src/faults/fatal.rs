//! `fatal`: the command is executed and answered; after that its controller has failed (CSTS.CFS) and answers
//! nothing until its host resets it.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// The row of `fatal` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "fatal",
    origin: "on a network: after a command, its controller reports a fatal status until its host resets it",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::AtDoor(TransportFault::Fatal)),
};
