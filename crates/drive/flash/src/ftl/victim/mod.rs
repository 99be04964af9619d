//! Victim policies: which block garbage collection empties next. A new policy is one file with its row in
//! [`VICTIMS`].
//!
//! A policy chooses; it moves nothing and keeps no state of the drive.

pub mod cost_benefit;
pub mod greedy;

use crate::BlockId;

/// A full block that garbage collection could empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The block.
    pub block: BlockId,
    /// Pages in it that are still valid; fewer than `pages`.
    pub live: u32,
    /// Pages of a block.
    pub pages: u32,
    /// Page writes of the host since the youngest data in the block was written.
    pub age: u64,
    /// Number of erases.
    pub erases: u32,
}

/// Chooses among blocks of one unit.
pub trait VictimPolicy {
    /// The block to empty; `None` only if there is no candidate.
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate>;
}

/// One victim policy.
pub struct VictimKind {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Builds the policy.
    pub build: fn() -> Box<dyn VictimPolicy>,
}

/// Every victim policy.
pub static VICTIMS: &[VictimKind] = &[greedy::KIND, cost_benefit::KIND];

/// The policy called `name`.
pub fn kind(name: &str) -> Option<&'static VictimKind> {
    VICTIMS.iter().find(|kind| kind.name == name)
}
