//! `not-ready`: the command is executed and answered; after that its controller is not ready (CSTS.RDY) and
//! answers 0Ch until its host enables it again.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// The row of `not-ready` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "not-ready",
    origin: "on a network: after a command, its controller is not ready until its host enables it",
    moments: &[Moment::Command],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::AtDoor(TransportFault::NotReady)),
};
