//! A client's unanswered and failed writes.

use kvdrive_nvme::batch::RequestKind;
use kvdrive_nvme::{Key, Status};

use crate::sync::{AtomicU64, Mutex};

/// A client's number, in the order in which clients were made, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// A request that the drive did not carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Store or delete.
    pub kind: RequestKind,
    /// The key.
    pub key: Key,
    /// The status of its batch.
    pub status: Status,
}

/// Writes of one client that are not known to be durable.
#[derive(Default)]
pub(crate) struct Writer {
    /// Requests in containers and batches that are not answered.
    pub(crate) unanswered: AtomicU64,
    /// Requests that failed and were not reported by a sync.
    pub(crate) failures: Mutex<Vec<Failure>>,
}
