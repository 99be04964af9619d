//! A controller around the mock engine, at the end of a link. Shared by the tests of commands and of random
//! streams.

use std::rc::Rc;

use kvdrive_device::controller::{Controller, ControllerConfig, Costs};
use kvdrive_device::faults::Faults;
use kvdrive_device::firmware::{Cores, Roles};
use kvdrive_device::power::Journal;
use kvdrive_host::modelled::HostCosts;
use kvdrive_link::{HostMemory, Link, LinkConfig};
use kvdrive_sim::Sim;

use super::mock_engine::MockEngine;

/// What a host's work costs in these tests.
pub const HOST_COSTS: HostCosts = HostCosts {
    submit_ns: 100,
    complete_ns: 100,
    dma_setup_ns: 100,
    pin_page_ns: 10,
    entry_ns: 10,
    cxl_setup_ns: 50,
};

/// Link with an interrupt, as on the published board, and page-unit DMA for SGLs too.
pub fn link_config(dma_granularity_bytes: u32) -> LinkConfig {
    LinkConfig {
        generation: 2,
        lanes: 8,
        max_payload_bytes: 256,
        dma_page_ns: 1_000,
        sqe_fetch_ns: 300,
        cqe_write_ns: 200,
        doorbell_ns: 100,
        interrupt: true,
        dma_granularity_bytes,
        free_to_host: false,
        cxl_store_ns: 1_000,
        cxl_line_ns: 100,
    }
}

/// Two cores, `contexts` contexts, four iterators.
pub fn controller_config(contexts: u32) -> ControllerConfig {
    ControllerConfig {
        contexts,
        roles: Roles::Any(2),
        max_value_bytes: 2 << 20,
        iterators: 4,
        costs: Costs {
            decode_store_ns: 500,
            decode_transfer_ns: 200,
            decode_other_ns: 300,
            memcpy_ns_per_kib: 100,
            memcpy_setup_ns: 10,
            complete_ns: 50,
        },
    }
}

/// Starts a controller around `engine` on a new link over `memory`.
pub fn start(
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
    link: LinkConfig,
    contexts: u32,
    engine: MockEngine,
) -> (Rc<Link>, Rc<Controller<MockEngine>>) {
    let link = Link::new(sim, link, memory);
    let config = controller_config(contexts);
    let cores = Cores::new(sim, config.roles);
    let controller =
        Controller::new(link.clone(), cores, &config, Journal::default(), Faults::new(sim), engine);
    controller.start(sim, contexts);
    (link, controller)
}
