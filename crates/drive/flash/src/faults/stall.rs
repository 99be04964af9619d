//! `stall`: the command is executed, and its connection neither sends nor receives for `delay_ns` (default:
//! one second). Then it continues with the answer. The drive and other connections are not delayed. The time
//! is wall time, rounded to ms, because it passes on a network.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// Default duration, ns.
const STALL_NS: u64 = 1_000_000_000;

/// The row of `stall` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "stall",
    origin: "on a network: after a command, its connection is silent for delay_ns (1s), then continues",
    moments: &[Moment::Command],
    keys: &["delay_ns"],
    example: "",
    effect: |settings| {
        let ms = settings.delay_ns.unwrap_or(STALL_NS).div_ceil(1_000_000);
        Ok(Effect::AtDoor(TransportFault::Stall { ms }))
    },
};
