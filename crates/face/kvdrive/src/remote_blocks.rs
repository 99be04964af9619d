//! [`RemoteBlocks`]: the blocks of a drive that is not in this program, for a store that runs in the program.

use std::sync::Mutex;

use kvdrive_host::reach::{Reached, Remote, reach_blocks};
use kvdrive_host::threaded::BlockDriver;
use kvdrive_nvme::nvm::NvmNamespace;
use kvdrive_sim::wall::lock;

use crate::error::Error;
use crate::granted::Granted;

/// A connection to a drive with a namespace of 4 KiB blocks. Pairs are kept by a store in the program, which takes
/// [`RemoteBlocks::blocks`] as its pages; nothing here looks at what is in them.
pub struct RemoteBlocks(Mutex<Granted<NvmNamespace>>);

impl RemoteBlocks {
    pub(crate) fn connect(remote: &Remote) -> Result<RemoteBlocks, Error> {
        Ok(RemoteBlocks(Mutex::new(Granted::connect(remote, reach_blocks)?)))
    }

    /// Are all blocks known to be zero, since none is in use? As of the connection.
    pub fn is_blank(&self) -> bool {
        lock(&self.0).reached.is_blank()
    }

    /// Another queue to the blocks, which threads may share, for 32 concurrent commands.
    ///
    /// # Errors
    /// [`Error::NoQueue`]: the drive gives a host no more; [`Error::Network`].
    pub fn blocks(&self) -> Result<BlockDriver, Error> {
        lock(&self.0).next(Reached::<NvmNamespace>::driver)
    }
}
