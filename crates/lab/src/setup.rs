//! From a configuration to the parts of a run: what each room wants to know of it.

use std::rc::Rc;

use kvdrive_device::{DriveConfig, controller, engines::lsm, flash, ftl};
use kvdrive_host::modelled::{Driver, Host, HostCosts};
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::{self, TransferConfig};

use crate::config::Config;

/// The link.
pub fn link(config: &Config) -> LinkConfig {
    LinkConfig {
        generation: config.link.generation,
        lanes: config.link.lanes,
        max_payload_bytes: config.link.max_payload_bytes,
        dma_page_ns: config.link.dma_page_ns,
        sqe_fetch_ns: config.link.sqe_fetch_ns,
        cqe_write_ns: config.link.cqe_write_ns,
        doorbell_ns: config.link.doorbell_ns,
        interrupt: config.link.interrupt == "msix",
        dma_granularity_bytes: config.controller.dma_granularity_bytes,
    }
}

/// What host work costs.
pub fn host_costs(config: &Config) -> HostCosts {
    HostCosts {
        submit_ns: config.host.submit_ns,
        complete_ns: config.host.complete_ns,
        dma_setup_ns: config.host.dma_setup_ns,
        pin_page_ns: config.host.pin_page_ns,
    }
}

/// The transfer method and its thresholds.
pub fn transfer(config: &Config) -> TransferConfig {
    TransferConfig {
        method: config.host.transfer.clone(),
        threshold1_bytes: config.host.threshold1_bytes,
        threshold2_bytes: config.host.threshold2_bytes,
        alpha: config.host.alpha,
        beta: config.host.beta,
    }
}

/// One driver a queue pair, each for its share of the operations under way at once.
pub fn drivers(config: &Config, host: &Rc<Host>) -> anyhow::Result<Vec<Driver>> {
    let per_queue = config.host.depth.div_ceil(config.host.queues);
    (0..config.host.queues)
        .map(|_| {
            let method = transfer::method(&transfer(config))
                .ok_or_else(|| anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer))?;
            Ok(Driver::new(host, method, config.host.queue_entries, per_queue))
        })
        .collect()
}

/// For each task that runs at once, the number of its driver.
pub fn driver_of_each_task(config: &Config) -> impl Iterator<Item = usize> + use<> {
    let queues = config.host.queues as usize;
    (0..config.host.depth as usize).map(move |task| task % queues)
}
