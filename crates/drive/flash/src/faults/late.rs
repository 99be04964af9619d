//! `late`: the command is executed, and its answer reaches its host later by `delay_ns`. Other commands of the same
//! connection are answered meanwhile, and the drive is not delayed. The time is wall time, rounded to ms: it also passes
//! where the model's time does not (`--pace off`), as a `delay` does not.

use kvdrive_nvme::transport_fault::TransportFault;

use super::{Effect, FaultKind, Moment};

/// The row of `late` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "late",
    origin: "on a network: a command's answer comes later by delay_ns of wall time",
    moments: &[Moment::Command],
    keys: &["delay_ns"],
    example: "delay_ns = \"5ms\"",
    effect: |settings| match settings.delay_ns {
        Some(0) => Err("delay_ns: 0 is no delay".into()),
        Some(delay_ns) => Ok(Effect::AtDoor(TransportFault::Late { ms: delay_ns.div_ceil(1_000_000) })),
        None => Err("delay_ns: missing; expected a time as \"5ms\"".into()),
    },
};
