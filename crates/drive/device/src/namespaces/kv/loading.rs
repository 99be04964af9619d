//! Loading: pairs that are on a drive before the first command.
//!
//! A study often begins on a drive that has been written for hours. Measuring begins after them, so these pairs can be
//! handed to the engine directly, without link and decoder, while the clock stands still
//! ([`kvdrive_sim::Sim::hold_clock`]). Reserving, packing, indexing, programs, evictions and collection run as they
//! always do, and flash counts them; only time does not pass, so background work keeps up with the stores.

use kvdrive_content::Piece;
use kvdrive_engines::{Engine, KNOWN_AHEAD};
use kvdrive_link::transfer::Arrival;
use kvdrive_nvme::{Key, Status, StoreOptions};

use super::KvNamespace;
use crate::namespaces::Pairs;

impl<E: Engine> KvNamespace<E> {
    /// Stores `pairs`, one after the other.
    ///
    /// # Errors
    /// The first key whose store fails, and its status. Some pairs after it may have been taken from `pairs`.
    pub(crate) fn load_pairs(&self, mut pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        let sim = &self.sim;
        let _hold = sim.hold_clock();
        let mut next = Vec::with_capacity(KNOWN_AHEAD);
        loop {
            next.extend((&mut pairs).take(KNOWN_AHEAD));
            if next.is_empty() {
                return Ok(());
            }
            self.engine.expect(&mut next.iter().map(|(key, _)| *key));
            for (key, value) in next.drain(..) {
                self.load_one(key, value).map_err(|status| (key, status))?;
                if self.journal.wants_checkpoint() {
                    self.journal.checkpoint(&self.engine.protected_image());
                }
                sim.let_others_run();
            }
        }
    }

    fn load_one(&self, key: Key, value: Piece<'static>) -> Result<(), Status> {
        let bytes = value.bytes();
        self.check_value_bytes(bytes)?;
        let place = self.engine.reserve(&key, bytes, Arrival::Dma)?;
        let mut at = 0;
        loop {
            let part = match self.engine.admit(&place) {
                Ok(most) => most.min(bytes - at),
                Err(status) => {
                    self.engine.abandon(place);
                    return Err(status);
                }
            };
            self.engine.dma_in(&place, at, value.slice(at, part));
            at += part;
            if at == bytes {
                break;
            }
        }
        self.engine.settle(&place);
        self.engine.commit(key, place, StoreOptions::default())?;
        if self.journal.settle() { Ok(()) } else { Err(Status::NAMESPACE_WRITE_PROTECTED) }
    }
}
