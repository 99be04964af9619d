//! The last step of every store: the index learns of a value after its last byte has arrived, and not before.

use kvdrive_engines::Engine;
use kvdrive_nvme::{Key, StoreOptions};

use super::KvNamespace;
use crate::answers::Answer;

/// Commits a value that firmware copied into its place, after settling the place, which may move other bytes.
pub(super) fn settle_and_commit<E: Engine>(drive: &KvNamespace<E>, key: Key, place: E::Place) -> Answer {
    drive.engine.settle(&place);
    commit(drive, key, place, StoreOptions::default())
}

pub(super) fn commit<E: Engine>(
    drive: &KvNamespace<E>,
    key: Key,
    place: E::Place,
    options: StoreOptions,
) -> Answer {
    drive.engine.commit(key, place, options)?;
    Ok((0, 0))
}
