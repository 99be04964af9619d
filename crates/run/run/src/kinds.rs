//! The kinds of operation, by which everything that was seen is counted.

/// Kinds of operation, in the order of reports.
pub(crate) const KINDS: [&str; 7] = ["store", "retrieve", "delete", "exist", "list", "seek", "next"];
pub(crate) const STORE: usize = 0;
pub(crate) const RETRIEVE: usize = 1;
pub(crate) const DELETE: usize = 2;
pub(crate) const EXIST: usize = 3;
pub(crate) const LIST: usize = 4;
pub(crate) const SEEK: usize = 5;
pub(crate) const NEXT: usize = 6;
