//! [`Neighbour`]: lets calls that bypass SAKER notify it of their writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kvdrive_nvme::Key;
use kvdrive_saker::Saker;
use kvdrive_sim::wall::lock;

use crate::error::Error;

/// The SAKER of a drive, if there is one, for calls that bypass it.
#[derive(Clone, Default)]
pub(crate) struct Neighbour(Arc<NeighbourState>);

#[derive(Default)]
struct NeighbourState {
    /// A SAKER was created at some time, so calls have to look whether it still exists.
    is_there: AtomicBool,
    core: Mutex<Weak<Saker>>,
}

impl Neighbour {
    /// Registers the SAKER of the drive.
    ///
    /// # Errors
    /// There is one already.
    pub(crate) fn settle(&self, core: &Arc<Saker>) -> Result<(), Error> {
        let mut there = lock(&self.0.core);
        if there.strong_count() > 0 {
            let what = "saker: this drive has one already, and two do not see each other's pending writes; take \
                        handles of that one, or drop it and its handles first";
            return Err(Error::Refused(what.to_owned()));
        }
        *there = Arc::downgrade(core);
        self.0.is_there.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Announces a write of `key` that bypasses SAKER. When the guard is dropped, SAKER drops its cached value of the
    /// key.
    pub(crate) fn writing(&self, key: Key) -> Writing<'_> {
        Writing { neighbour: self, key }
    }

    /// Notifies SAKER that `key` was written without it.
    pub(crate) fn written(&self, key: &Key) {
        if self.0.is_there.load(Ordering::SeqCst) {
            let core = lock(&self.0.core).upgrade();
            core.iter().for_each(|core| core.written_elsewhere(key));
        }
    }
}

/// See [`Neighbour::writing`].
pub(crate) struct Writing<'n> {
    neighbour: &'n Neighbour,
    key: Key,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.neighbour.written(&self.key);
    }
}
