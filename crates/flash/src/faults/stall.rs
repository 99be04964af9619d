//! `stall`: the command is carried out, and the connection that it came by says nothing and takes nothing for
//! `delay_ns`, a second unless the rule says something else. Then it goes on with the answer. The drive is not
//! held up, nor are other connections. The time is the machine's, in ms: it passes on a network.

use kvdrive_spec::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// How long, unless a rule says so.
const STALL_NS: u64 = 1_000_000_000;

/// The row of `stall` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "stall",
    origin: "on a network: behind a command its connection is silent for delay_ns (1s), then goes on",
    moments: &[Moment::Command],
    keys: &["delay_ns"],
    example: "",
    effect: |settings| {
        let ms = settings.delay_ns.unwrap_or(STALL_NS).div_ceil(1_000_000);
        Ok(Effect::AtDoor(TransportFault::Stall { ms }))
    },
};
