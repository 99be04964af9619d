//! A store on the host by the machine's clock: on a thread of its own, over the blocks of a drive, of this program or
//! of another.

use kvdrive_config::Config;
use kvdrive_config::setup::store_row_of;
use kvdrive_host::hostkv::{OpenError, StoreThread, StoreThreadConfig};
use kvdrive_host::threaded::{BlockDriver, Connector};
use kvdrive_nvme::nvm::BLOCK_BYTES;

use super::lanes::Sent;

/// What a report says of such a run.
pub(super) const NOTE: &str = "the store ran on one thread of this machine, and its threads took turns there";

/// The store of `config`, if it has one on the host, over the drive of this program.
///
/// # Errors
/// It does not fit the drive: a line that begins with the key; or the drive has no queue pair for a thread.
pub(super) fn store(config: &Config, connector: &Connector) -> anyhow::Result<Option<StoreThread<Sent>>> {
    if !config.has_store_on_host() {
        return Ok(None);
    }
    let connect = || connector.connect_blocks(config.host.queue_entries, block_depth(config));
    let first = connect()?;
    let store = described(config, first.blocks())?;
    let others = (1..store.queues()).map(|_| connect());
    let drivers: Vec<BlockDriver> = std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>()?;
    // The medium of such a drive always starts empty.
    open(store, drivers, true).map(Some)
}

/// Commands that a thread of the store has under way at once.
pub(super) fn block_depth(config: &Config) -> u32 {
    config.host.depth.div_ceil(config.queue_pairs())
}

/// The store of `config` for a drive of this many blocks.
///
/// # Errors
/// There is no such store.
pub(super) fn described(config: &Config, blocks: u64) -> anyhow::Result<StoreThreadConfig> {
    let (row, threads) = (store_row_of(config)?, config.queue_pairs());
    let mut options = config.engines.stored.options.clone();
    (row.fit)(&mut options, BLOCK_BYTES, blocks, threads);
    Ok(StoreThreadConfig { row, options, threads })
}

/// Starts it; `is_blank`: the blocks are known to be zero.
///
/// # Errors
/// It does not fit the drive: a line that begins with the key; or the blocks hold something else.
pub(super) fn open(
    store: StoreThreadConfig,
    drivers: Vec<BlockDriver>,
    is_blank: bool,
) -> anyhow::Result<StoreThread<Sent>> {
    let name = store.row.name;
    StoreThread::open(store, drivers, is_blank).map_err(|error| match error {
        OpenError::Options(line) => anyhow::anyhow!("{name}.{line}"),
        OpenError::Store(error) => {
            anyhow::anyhow!("host.store: the blocks hold something, and no {name}: {error}")
        }
        error => anyhow::anyhow!("host.store: {name:?} on this drive: {error}"),
    })
}
