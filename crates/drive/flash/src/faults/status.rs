//! `status`: a command is answered with a status and not executed.

use super::{Effect, FaultKind, Moment};

/// The row of `status` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "status",
    origin: "a command is answered with a status before it is executed",
    moments: &[Moment::Command],
    keys: &["status"],
    example: "status = \"88h\"",
    effect: |settings| match settings.status {
        Some(status) if !status.is_success() => Ok(Effect::Refuse(status)),
        Some(_) => Err("status: success is no fault".into()),
        None => Err("status: missing; expected a status as \"88h\"".into()),
    },
};
