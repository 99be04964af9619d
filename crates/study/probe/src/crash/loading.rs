//! Why a drive does not have the pairs that a workload begins with.

use std::error::Error;
use std::fmt;

use kvdrive_spec::{Key, Status};

/// A pair that a drive refused while pairs were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRefused {
    /// Of the pair.
    pub key: Key,
    /// The drive's answer.
    pub status: Status,
}

impl fmt::Display for LoadRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loading: store of {}: {}", self.key, self.status)
    }
}

impl Error for LoadRefused {}
