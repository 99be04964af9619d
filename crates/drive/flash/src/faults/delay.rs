//! `delay`: a command or a flash operation takes longer. The firmware context, or the unit of flash, is busy
//! in the meantime, and operations queued there wait.

use super::{Effect, FaultKind, Moment};

/// The row of `delay` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "delay",
    origin: "a command, or a flash operation, takes longer by delay_ns",
    moments: &[Moment::Command, Moment::Read, Moment::Program, Moment::Erase],
    keys: &["delay_ns"],
    example: "delay_ns = \"5ms\"",
    effect: |settings| match settings.delay_ns {
        Some(0) => Err("delay_ns: 0 is no delay".into()),
        Some(delay_ns) => Ok(Effect::Delay(delay_ns)),
        None => Err("delay_ns: missing; expected a time as \"5ms\"".into()),
    },
};
