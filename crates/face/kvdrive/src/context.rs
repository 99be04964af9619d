//! [`ClientContext`]: state that all clients of a drive share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_content::Region;
use kvdrive_host::Call;
use kvdrive_sim::ForkCount;

use crate::error::Error;
use crate::neighbour::Neighbour;

/// A call without a value.
pub(crate) type NoValue = Call<&'static [u8]>;

/// Calls that were submitted and whose answers were not returned: their futures or pipelines were dropped, or the
/// drive went away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered(Arc<AtomicU64>);

impl Unanswered {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, calls: u64) {
        self.0.fetch_add(calls, Ordering::Relaxed);
    }

    /// Counts a call until it is answered.
    pub(crate) fn begin(&self) -> Counted<'_> {
        Counted { unanswered: self, is_answered: false }
    }
}

/// A call that is waited for.
pub(crate) struct Counted<'a> {
    unanswered: &'a Unanswered,
    pub(crate) is_answered: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.unanswered.add(1);
        }
    }
}

/// State that all clients of a drive share.
#[derive(Clone)]
pub(crate) struct ClientContext {
    pub(crate) unanswered: Unanswered,
    pub(crate) neighbour: Neighbour,
    pub(crate) forks: ForkCount,
    /// Are Lists and iterators in order of keys?
    pub(crate) is_ordered: bool,
    /// Can a Delete say whether there was a pair?
    pub(crate) delete_says: bool,
}

impl ClientContext {
    pub(crate) fn new(is_ordered: bool, delete_says: bool) -> ClientContext {
        let (unanswered, neighbour) = (Unanswered::default(), Neighbour::default());
        ClientContext { unanswered, neighbour, forks: ForkCount::now(), is_ordered, delete_says }
    }

    /// May this process ask the drive?
    pub(crate) fn check_process(&self, call: &'static str) -> Result<(), Error> {
        if self.forks.is_forked() { Err(Error::ForkedChild { call }) } else { Ok(()) }
    }
}

/// Memory of values of a client's pipelines that have ended, for further ones: memory that is new to the process costs a
/// fault a page.
#[derive(Default)]
pub(crate) struct Spare {
    pub(crate) regions: Vec<Region>,
    pub(crate) buffers: Vec<Vec<u8>>,
}
