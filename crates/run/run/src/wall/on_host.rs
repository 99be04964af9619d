//! A store on the host by the machine's clock: on a thread of its own, over the blocks of the drive.

use kvdrive_config::Config;
use kvdrive_config::setup::store_row_of;
use kvdrive_host::hostkv::{OpenError, StoreThread, StoreThreadConfig};
use kvdrive_host::threaded::{BlockDriver, Connector};
use kvdrive_nvme::nvm::BLOCK_BYTES;

use super::lanes::Sent;

/// The store of `config`, if it has one on the host.
///
/// # Errors
/// It does not fit the drive: a line that begins with the key; or the drive has no queue pair for a thread.
pub(super) fn store(config: &Config, connector: &Connector) -> anyhow::Result<Option<StoreThread<Sent>>> {
    if !config.has_store_on_host() {
        return Ok(None);
    }
    let (row, threads) = (store_row_of(config)?, config.queue_pairs());
    let depth = config.host.depth.div_ceil(threads);
    let connect = || connector.connect_blocks(config.host.queue_entries, depth);
    let first = connect()?;
    let mut options = config.engines.stored.options.clone();
    (row.fit)(&mut options, BLOCK_BYTES, first.blocks(), threads);
    let of_thread = StoreThreadConfig { row, options, threads };
    let others = (1..of_thread.queues()).map(|_| connect());
    let drivers: Vec<BlockDriver> = std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>()?;
    // The medium of such a drive always starts empty.
    let store = StoreThread::create(of_thread, drivers).map_err(|error| match error {
        OpenError::Options(line) => anyhow::anyhow!("{}.{line}", row.name),
        error => anyhow::anyhow!("host.store: {:?} on this drive: {error}", row.name),
    });
    store.map(Some)
}
