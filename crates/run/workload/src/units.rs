//! Units: several operations that one client executes in order, of which later ones depend on the results of
//! earlier ones. A transaction of a database is one.
//!
//! A workload of single operations has no units. A workload with units draws their numbers
//! ([`super::Op::Unit`]), and the runner calls [`Units::run`] on the task or thread of the client: plain code
//! from beginning to end, whose reads and writes take the client's time.

use kvdrive_nvme::{Key, Status};

/// Access of a unit to pairs: each call is one operation of its client, and may take long.
pub trait Pairs {
    /// Reads the value of a key into `into`, whose content is replaced; `false`: there is none.
    ///
    /// # Errors
    /// The drive refused. The unit ends there.
    fn read(&mut self, key: Key, into: &mut Vec<u8>) -> Result<bool, Failed>;

    /// Stores a pair.
    ///
    /// # Errors
    /// As [`Pairs::read`].
    fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Failed>;

    /// Ends the writes of a unit, before its rows are unlocked: writes that were held back
    /// ([`WorkloadParams::atomic`]) are carried out now, all or none.
    ///
    /// [`WorkloadParams::atomic`]: super::WorkloadParams::atomic
    ///
    /// # Errors
    /// As [`Pairs::read`]; no write was carried out.
    fn commit(&mut self) -> Result<(), Failed>;

    /// Locks all of these rows until [`Pairs::unlock`], after waiting until no other unit holds any of them.
    /// A unit locks once, so deadlock is impossible.
    fn lock(&mut self, rows: &[Key]);

    /// Releases the locked rows.
    fn unlock(&mut self);
}

/// Why a unit has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The drive answered with this status.
    #[error("{0}")]
    Refused(Status),
    /// The data read differs from the data written: one line that names it.
    #[error("{0}")]
    Wrong(String),
}

impl Failed {
    /// The connection to the drive is lost.
    pub fn lost(error: impl std::fmt::Display) -> Failed {
        Failed::Wrong(error.to_string())
    }
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitEnd {
    /// Index into [`Units::kinds`].
    pub kind: usize,
    /// Was it committed? If not, it was rolled back on purpose and has written nothing.
    pub is_committed: bool,
}

/// The units of a workload.
pub trait Units: Send + Sync {
    /// The names of their kinds in reports.
    fn kinds(&self) -> &'static [&'static str];

    /// Executes unit `number`. The same number has the same inputs.
    ///
    /// # Errors
    /// The drive refused, or returned wrong data.
    fn run(&self, number: u64, pairs: &mut dyn Pairs) -> Result<UnitEnd, Failed>;

    /// Reads the pairs after the units below `units` have all succeeded, and checks the invariants; returns a
    /// line that lists the checks.
    ///
    /// # Errors
    /// The first violated invariant, as [`Failed::Wrong`]; or the drive refused.
    fn check(&self, units: u64, pairs: &mut dyn Pairs) -> Result<String, Failed>;
}
