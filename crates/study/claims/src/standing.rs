//! The standing of a verdict: its value as evidence.

use serde::{Deserialize, Serialize};

use kvdrive_experiments::Kind;

/// The evidence that a reproduced claim gives for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A published claim for which no constant was chosen: it could have failed.
    Evidence,
    /// A published claim to which constants were fitted, or that follows from such a claim.
    Fit,
    /// A published claim from which a constant was solved, or that follows from such a claim.
    Set,
    /// A statement of ours, not published.
    Ours,
}

/// The place of an unpublished claim: in our findings, or in our goals.
const NOT_PUBLISHED: [&str; 2] = ["ours", "goal"];

impl Standing {
    /// The standing of a claim of this kind and source.
    pub(super) fn of(kind: Kind, source: &str) -> Standing {
        match kind {
            _ if NOT_PUBLISHED.contains(&source) => Standing::Ours,
            Kind::ModelledFit => Standing::Fit,
            Kind::ModelledSet => Standing::Set,
            Kind::Counted | Kind::Modelled | Kind::ModelledCheck | Kind::Measured => Standing::Evidence,
        }
    }
}
