//! `lose`: the drive takes a command and forgets it. It is never executed.
//!
//! To NVMe that is a command without a completion. A host has a timer for each; when it runs out the host
//! sends Abort (base specification, section 5.1), and the drive, which finds the command still open, ends it
//! with 07h, *command abort requested*. The modelled host has no timer of its own, so the drive's side stands
//! for both: the completion with 07h is written `timeout_ns` after the command was taken, 30 s unless the
//! rule says something else (Linux: `nvme_core.io_timeout`). Only the command's slot is in use until then.

use super::{Effect, FaultKind, Moment};

/// After how long Linux gives up a command.
const TIMEOUT_NS: u64 = 30_000_000_000;

/// The row of `lose` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "lose",
    origin: "a command is never executed; its host aborts it after timeout_ns (30s): 07h",
    moments: &[Moment::Command],
    keys: &["timeout_ns"],
    example: "",
    effect: |settings| Ok(Effect::Lose(settings.timeout_ns.unwrap_or(TIMEOUT_NS))),
};
