//! Units: several operations that one client does in order, of which later ones depend on what earlier ones
//! brought. A transaction of a database is one.
//!
//! A workload of single operations has none and knows nothing of this. One that has units draws their numbers
//! ([`super::Op::Unit`]), and whoever runs it calls [`Units::run`] on the task or thread of the client: plain
//! code from beginning to end, whose reads and writes take the client's time.

use kvdrive_spec::{Key, Status};

/// What a unit reaches pairs through: each call is one operation of its client, and may take long.
pub trait Pairs {
    /// Reads the value of a key into `into`, whose content goes; `false`: there is none.
    ///
    /// # Errors
    /// The drive refused. The unit ends there.
    fn read(&mut self, key: Key, into: &mut Vec<u8>) -> Result<bool, Failed>;

    /// Stores a pair.
    ///
    /// # Errors
    /// As [`Pairs::read`].
    fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Failed>;

    /// Waits until nobody else has any of these rows, and then has all of them, until [`Pairs::unlock`]. A unit
    /// locks once, so that nobody waits in a circle.
    fn lock(&mut self, rows: &[Key]);

    /// Gives back what was locked.
    fn unlock(&mut self);
}

/// Why a unit did not get to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The drive answered this.
    #[error("{0}")]
    Refused(Status),
    /// What was read is not what was written: a line that names it.
    #[error("{0}")]
    Wrong(String),
}

impl Failed {
    /// There is no way to the drive any more.
    pub(crate) fn lost(error: impl std::fmt::Display) -> Failed {
        Failed::Wrong(error.to_string())
    }
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which of [`Units::kinds`] it was.
    pub kind: usize,
    /// Has it done what it was for? If not, it was to be rolled back, and has written nothing.
    pub is_committed: bool,
}

/// The units of a workload.
pub trait Units: Send + Sync {
    /// The names of their kinds in reports.
    fn kinds(&self) -> &'static [&'static str];

    /// Does unit `number` from its beginning to its end. The same number asks for the same.
    ///
    /// # Errors
    /// The drive refused, or brought what is wrong.
    fn run(&self, number: u64, pairs: &mut dyn Pairs) -> Result<Ended, Failed>;

    /// Reads what the units with numbers below `units` left, all of which have ended well, and holds it against
    /// what must hold: what was checked, in a line.
    ///
    /// # Errors
    /// The first thing that does not hold, as [`Failed::Wrong`]; or the drive refused.
    fn check(&self, units: u64, pairs: &mut dyn Pairs) -> Result<String, Failed>;
}
