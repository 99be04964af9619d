//! `power-cut`: the power is cut exactly at this command or flash operation.
//!
//! The drive cannot cut its own power: the rule says when, and the owner of the drive checks for it after
//! every event ([`super::Faults::take_power_cut`]), takes what survives and powers a drive on with it
//! (`kvdrive crash`); a drive in wall time halts at that point ([`super::Faults::halt_at_power_cut`]). A page
//! that is being programmed and a block that is being erased are then as before, as after the operation, or,
//! unless the rule says `torn = false`, torn.

use super::{Effect, FaultKind, Moment};

/// The row of `power-cut` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "power-cut",
    origin: "a power cut; pages under way may be torn, unless torn = false. For kvdrive crash and serve",
    moments: &[Moment::Program, Moment::Erase, Moment::Read, Moment::Command],
    keys: &["torn"],
    example: "",
    effect: |settings| Ok(Effect::CutPower { torn: settings.torn.unwrap_or(true) }),
};
