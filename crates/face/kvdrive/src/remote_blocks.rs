//! [`RemoteBlocks`]: the blocks of a drive that is not in this program, for a store that runs in the program.

use std::sync::Mutex;

use kvdrive_host::reach::{Reached, Remote, reach_blocks};
use kvdrive_host::threaded::BlockDriver;
use kvdrive_nvme::nvm::NvmNamespace;
use kvdrive_sim::wall::lock;

use crate::error::Error;

/// Commands of one driver at once.
const DEPTH: u16 = 32;
/// Drivers at once, if the drive grants a host that many queues.
const DRIVERS: u16 = 64;

/// A connection to a drive with a namespace of 4 KiB blocks. Pairs are kept by a store in the program, which takes
/// [`RemoteBlocks::blocks`] as its pages; nothing here looks at what is in them.
pub struct RemoteBlocks {
    at: String,
    host: Mutex<Host>,
}

struct Host {
    reached: Reached<NvmNamespace>,
    /// How many queues there may be, and how many there have been.
    granted: u16,
    connected: u16,
}

impl RemoteBlocks {
    pub(crate) fn connect(remote: &Remote) -> Result<RemoteBlocks, Error> {
        let at = remote.name();
        let reached = reach_blocks(remote).map_err(|error| Error::Network(format!("{at}: {}", error.line())));
        let mut reached = reached?;
        let granted = reached.ask_for_queues(DRIVERS);
        let granted = granted.map_err(|error| Error::Network(format!("{at}: {error}")))?;
        Ok(RemoteBlocks { at, host: Mutex::new(Host { reached, granted, connected: 0 }) })
    }

    /// Are all blocks known to be zero, since none is in use? As of the connection.
    pub fn is_blank(&self) -> bool {
        lock(&self.host).reached.is_blank()
    }

    /// Another queue to the blocks, which threads may share, for 32 concurrent commands.
    ///
    /// # Errors
    /// [`Error::NoQueue`]: the drive gives a host no more; [`Error::Network`].
    pub fn blocks(&self) -> Result<BlockDriver, Error> {
        let mut host = lock(&self.host);
        if host.connected == host.granted {
            return Err(Error::NoQueue(format!("{}: it gives a host {} queues", self.at, host.granted)));
        }
        // A ring keeps one entry empty.
        let number = host.connected + 1;
        let driver = host.reached.driver(number, DEPTH + 1, DEPTH.into());
        let driver = driver.map_err(|error| Error::Network(format!("{}: {error}", self.at)))?;
        host.connected = number;
        Ok(driver)
    }
}
