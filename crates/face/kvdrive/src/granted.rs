//! [`Granted`]: a connection to a drive elsewhere, and the I/O queues that it grants a host, each used once.

use kvdrive_host::reach::{ReachError, Reached, Remote};

use crate::error::Error;

/// Commands of one queue at once, as for a drive in this program.
const DEPTH: u16 = 32;
/// Queues at once, if the drive grants a host that many.
const QUEUES: u16 = 64;

/// A controller whose namespace has Identify data `N`, and how many queues there may be and have been.
pub(crate) struct Granted<N> {
    /// Its address, as messages name it.
    pub at: String,
    pub reached: Reached<N>,
    queues: u16,
    used: u16,
}

impl<N> Granted<N> {
    /// Connects by `reach` and asks for queues.
    pub fn connect(
        remote: &Remote,
        reach: fn(&Remote) -> Result<Reached<N>, ReachError>,
    ) -> Result<Granted<N>, Error> {
        let at = remote.name();
        let reached = reach(remote).map_err(|error| Error::Network(format!("{at}: {}", error.line())));
        let mut reached = reached?;
        let queues = reached.ask_for_queues(QUEUES);
        let queues = queues.map_err(|error| Error::Network(format!("{at}: {error}")))?;
        Ok(Granted { at, reached, queues, used: 0 })
    }

    /// The driver on the next queue: `open` takes number, entries and depth.
    pub fn next<D>(
        &mut self,
        open: impl FnOnce(&mut Reached<N>, u16, u16, u32) -> Result<D, kvdrive_host::Error>,
    ) -> Result<D, Error> {
        if self.used == self.queues {
            return Err(Error::NoQueue(format!("{}: it gives a host {} queues", self.at, self.queues)));
        }
        // A ring keeps one entry empty.
        let number = self.used + 1;
        let driver = open(&mut self.reached, number, DEPTH + 1, DEPTH.into());
        let driver = driver.map_err(|error| Error::Network(format!("{}: {error}", self.at)))?;
        self.used = number;
        Ok(driver)
    }
}
