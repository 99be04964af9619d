//! [`Neighbour`]: how calls that go past SAKER tell it what they wrote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kvdrive_saker::Saker;
use kvdrive_sim::wall::lock;
use kvdrive_spec::Key;

use crate::error::Error;

/// The SAKER of a drive, if there is one, as calls that go past it know it.
#[derive(Clone, Default)]
pub(crate) struct Neighbour(Arc<NeighbourState>);

#[derive(Default)]
struct NeighbourState {
    /// There has been one: calls look for it.
    is_there: AtomicBool,
    core: Mutex<Weak<Saker>>,
}

impl Neighbour {
    /// Makes this the SAKER that calls look for.
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

    /// A write of `key` that goes past SAKER: when the guard is dropped, SAKER forgets what it has cached of the key.
    pub(crate) fn writing(&self, key: Key) -> Writing<'_> {
        Writing { neighbour: self, key }
    }

    /// A write of `key` has gone past SAKER.
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
