//! The results of a run's power cuts.

use kvdrive_sim::Ns;

/// The results, and the first wrong pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Operations of the run that were answered.
    pub operations: u64,
    /// Events of the run.
    pub events: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Recoveries that were cut themselves.
    pub cut_recoveries: u64,
    /// Power cuts of drives that had been recovered and continued.
    pub further_cuts: u64,
    /// Keys read in recovered drives.
    pub keys_checked: u64,
    /// Cuts at which a mutant changed the survivors.
    pub spoilt: u64,
    /// The number of those keys that were answered 88h; only with fault rules that damage flash.
    pub unreadable: u64,
    /// Recoveries that were not cut: one for each recovered drive.
    pub recoveries: u64,
    /// Model time of the longest of them, and of all of them together, ns.
    pub longest_recovery_ns: Ns,
    /// See `longest_recovery_ns`.
    pub recovery_ns: Ns,
    /// The first pair that was wrong; the run ended there.
    pub lost: Option<Lost>,
}

/// The fault of a recovered drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Power was cut after this event.
    pub event: u64,
    /// The state found, and those expected.
    pub what: String,
}
