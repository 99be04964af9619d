//! From a configuration to the parts of a run: the settings of each crate.

use std::rc::Rc;

use kvdrive_host::blocks::BlockHost;
use kvdrive_host::hostkv::{HostKv, HostKvConfig, OpenError};
use kvdrive_host::modelled::saker::ModelledSaker;
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::transfer;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::nvm::BLOCK_BYTES;
use kvdrive_sim::{Resource, Sim};
use kvdrive_store::{StoreRow, store_row};

use crate::Config;

/// The host's cores: one for each of its threads, or the shared ones of its drivers.
pub fn cores(config: &Config, sim: &Sim) -> Vec<Rc<Resource>> {
    let core = |name: String, servers| Rc::new(Resource::new(sim, name, servers));
    match config.threads() {
        Some(threads) => (0..threads).map(|thread| core(format!("host.core.{thread}"), 1)).collect(),
        None => vec![core("host.core".into(), config.host.cores)],
    }
}

/// One driver for each queue pair, with its share of the operations under way, on its core of `cores`.
///
/// # Errors
/// There is no transfer method of that name, or the drive refuses Identify or a queue pair.
pub fn drivers(
    config: &Config,
    link: &Rc<Link>,
    memory: &Rc<LocalMemory>,
    cores: &[Rc<Resource>],
) -> anyhow::Result<Vec<Driver>> {
    let connect =
        |core: &Rc<Resource>| Host::connect(link.clone(), memory.clone(), core.clone(), config.host.costs);
    let hosts = cores.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    let per_queue = match config.saker.enabled {
        // Slots for the batches of SAKER in flight, and for one bypass.
        true => config.saker.in_flight + 1,
        false => config.host.depth.div_ceil(config.queue_pairs()),
    };
    (0..config.queue_pairs() as usize)
        .map(|queue| {
            let method = transfer::method(&config.host.transfer).ok_or_else(|| {
                anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer.method)
            })?;
            Ok(Driver::connect(&hosts[queue % hosts.len()], method, config.host.queue_entries, per_queue)?)
        })
        .collect()
}

/// SAKER, if it is on.
pub fn saker(config: &Config, sim: &Sim) -> anyhow::Result<Option<Rc<ModelledSaker>>> {
    let saker = &config.saker;
    let make = || ModelledSaker::new(sim, saker.settings(), saker.costs);
    Ok(saker.enabled.then(make).transpose()?)
}

/// The row of the store on the host.
///
/// # Errors
/// There is none of that name: a line that begins with the key.
pub fn store_row_of(config: &Config) -> anyhow::Result<&'static StoreRow> {
    let name = &config.host.store;
    store_row(name).ok_or_else(|| anyhow::anyhow!("host.store: no store {name:?}"))
}

/// The store that runs on the host, over the blocks of the drive at the other end of `link`, with a thread on
/// each core.
///
/// # Errors
/// There is no store of that name, or it does not fit the drive: a line that begins with the key.
pub fn store_on_host(
    config: &Config,
    link: &Rc<Link>,
    memory: &Rc<LocalMemory>,
    cores: &[Rc<Resource>],
) -> anyhow::Result<Rc<HostKv>> {
    let (name, row) = (&config.host.store, store_row_of(config)?);
    let blocks = BlockHost::connect(link.clone(), memory.clone(), config.host.costs)?;
    let threads = cores.len() as u32;
    let stored = &config.engines.stored;
    let mut options = stored.options.clone();
    (row.fit)(&mut options, BLOCK_BYTES, blocks.blocks(), threads);
    let setup = HostKvConfig {
        row,
        options: &options,
        costs_ps: stored.costs.0,
        entries: config.host.queue_entries,
        depth: config.host.depth.div_ceil(threads),
    };
    // The medium of such a drive always starts empty.
    HostKv::create(&blocks, cores, &setup).map_err(|error| match error {
        OpenError::Options(line) => anyhow::anyhow!("{name}.{line}"),
        error => anyhow::anyhow!("host.store: {name:?} on this drive: {error}"),
    })
}

/// For each task that runs at once, the index of its driver.
pub fn driver_of_each_task(config: &Config) -> impl Iterator<Item = usize> + use<> {
    let queues = config.queue_pairs() as usize;
    (0..config.host.depth as usize).map(move |task| task % queues)
}
