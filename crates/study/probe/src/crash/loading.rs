//! The reason why a drive lacks pairs that a workload begins with.

use std::error::Error;
use std::fmt;

use kvdrive_nvme::{Key, Status};

/// A pair that a drive refused while pairs were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRefused {
    /// The key of the pair.
    pub key: Key,
    /// The status that the drive answered.
    pub status: Status,
}

impl fmt::Display for LoadRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loading: store of {}: {}", self.key, self.status)
    }
}

impl Error for LoadRefused {}
