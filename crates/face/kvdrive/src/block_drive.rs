//! [`BlockDrive`]: a drive of blocks on its own thread, for a store that runs in the program.

use std::sync::Arc;

use kvdrive_flash::power::Survivors;
use kvdrive_host::threaded::{BlockDriver, Connector, Serving, serve_thread};
use kvdrive_link::shared::ServerConfig;
use kvdrive_run::wall::{Change, Running, ServedDrive, served};

use crate::drive::Description;
use crate::error::Error;

/// A powered drive of blocks: a single namespace of 4 KiB blocks, in memory. Dropping it ends it.
///
/// Pairs are kept by a store in the program, which takes [`BlockDrive::blocks`] as its pages.
pub struct BlockDrive {
    described: Arc<Description>,
    connector: Connector,
    /// `None` after the drive has ended.
    serving: Option<Serving<Running, ServedDrive>>,
}

impl BlockDrive {
    pub(crate) fn power_on(
        described: Arc<Description>,
        survivors: Option<Survivors>,
    ) -> Result<BlockDrive, Error> {
        let server = ServerConfig { pace: described.pace, recorder: None };
        let (connector, serving) = serve_thread(server, served(described.config.clone(), survivors))
            .map_err(|error| Error::PowerOn(error.to_string()))?;
        Ok(BlockDrive { described, connector, serving: Some(serving) })
    }

    /// A queue pair to its blocks, which threads may share, of `host.queue_entries` entries for `host.depth`
    /// concurrent commands.
    ///
    /// # Errors
    /// The drive is off, or all queue identifiers are used.
    pub fn blocks(&self) -> Result<BlockDriver, Error> {
        let host = &self.described.config.host;
        let driver = self.connector.connect_blocks(host.queue_entries, host.depth);
        driver.map_err(|error| Error::of("connect", None, error))
    }

    /// Cuts the power between two events of the drive. Acknowledged writes survive; each block of another write has its
    /// old or its new content. Later calls fail because the drive is off.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn cut_power(mut self, torn: bool) -> Result<BlocksOff, Error> {
        let serving = self.serving.take().ok_or(Error::Off)?;
        // The drive may be gone before it has answered.
        if let Ok(Err(what)) = serving.control().change(Change::CutPower { torn }) {
            return Err(Error::Refused(what));
        }
        let survivors = serving.join().take_survivors();
        Ok(BlocksOff { described: self.described.clone(), survivors })
    }
}

impl Drop for BlockDrive {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take()
            && !std::thread::panicking()
        {
            self.connector.close();
            serving.join();
        }
    }
}

/// A drive of blocks without power, from which a new one can be powered on. Clones are of the same moment.
#[derive(Clone)]
pub struct BlocksOff {
    described: Arc<Description>,
    survivors: Option<Survivors>,
}

impl BlocksOff {
    /// Powers it on again.
    ///
    /// # Errors
    /// [`Error::PowerOn`].
    pub fn power_on(self) -> Result<BlockDrive, Error> {
        BlockDrive::power_on(self.described, self.survivors)
    }
}
