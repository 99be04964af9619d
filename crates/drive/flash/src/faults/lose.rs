//! `lose`: the drive accepts a command and never executes it.
//!
//! To NVMe this is a command without a completion. A host has a timer for each command; when it expires, the
//! host sends Abort (base specification, section 5.1), and the drive, which finds the command still
//! outstanding, ends it with 07h, *command abort requested*. The modelled host has no timer, so the drive
//! models both sides: it posts the completion with 07h `timeout_ns` after it took the command, 30 s by
//! default (Linux: `nvme_core.io_timeout`). Until then only the command's slot is in use.

use super::{Effect, FaultKind, Moment};

/// The time after which Linux aborts a command, ns.
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
