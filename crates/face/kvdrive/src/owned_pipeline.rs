//! [`OwnedPipeline`]: a pipeline together with its client.

use self_cell::{MutBorrow, self_cell};

use crate::client::Client;
use crate::error::Error;
use crate::pipeline::{Ended, Pipeline};

self_cell!(
    struct Inside {
        owner: MutBorrow<Client>,

        #[not_covariant]
        dependent: Pipeline,
    }
);

/// A [`Pipeline`] that has its client with it, and so may be kept in a struct, handed to another thread, or to another
/// language. [`Client::into_pipeline`] makes it; each call is that of [`Pipeline`].
pub struct OwnedPipeline(Inside);

impl OwnedPipeline {
    pub(crate) fn new(client: Client) -> Result<OwnedPipeline, Error> {
        Inside::try_new(MutBorrow::new(client), |client| client.borrow_mut().pipeline()).map(OwnedPipeline)
    }

    /// Makes calls on the pipeline.
    pub fn with<T>(&mut self, calls: impl FnOnce(&mut Pipeline<'_>) -> T) -> T {
        self.0.with_dependent_mut(|_, pipeline| calls(pipeline))
    }

    /// [`Pipeline::store`].
    ///
    /// # Errors
    /// Those of that call; this also holds for the calls below.
    pub fn store(&mut self, key: &[u8], value: impl Into<Vec<u8>>) -> Result<Option<Ended>, Error> {
        self.with(|pipeline| pipeline.store(key, value))
    }

    /// [`Pipeline::get`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Ended>, Error> {
        self.with(|pipeline| pipeline.get(key))
    }

    /// [`Pipeline::next_ended`].
    pub fn next_ended(&mut self) -> Result<Option<Ended>, Error> {
        self.with(|pipeline| pipeline.next_ended())
    }

    /// [`Pipeline::try_next_ended`].
    pub fn try_next_ended(&mut self) -> Result<Option<Ended>, Error> {
        self.with(|pipeline| pipeline.try_next_ended())
    }
}

impl Client {
    /// As [`Client::pipeline`], in a value that borrows nothing and may go from thread to thread.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn into_pipeline(self) -> Result<OwnedPipeline, Error> {
        OwnedPipeline::new(self)
    }
}
