//! A controller around the mock engine, at the end of a link. Shared by the tests of commands and of random
//! streams.

use std::rc::Rc;

use kvdrive_device::config::Dispatch;
use kvdrive_device::config::{ControllerConfig, Costs};
use kvdrive_device::controller::Controller;
use kvdrive_device::dispatch;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_engines::firmware::CopyCosts;
use kvdrive_engines::firmware::{Cores, Roles};
use kvdrive_flash::Identity;
use kvdrive_flash::faults::Faults;
use kvdrive_flash::power::{Journal, NamespaceFeatures};
use kvdrive_host::modelled::HostCosts;
use kvdrive_link::{HostMemory, Interrupt, Link, LinkConfig, PciePort, Port};
use kvdrive_sim::Sim;
use proptest::prelude::*;

use super::mock_engine::MockEngine;

/// Times of a host's work in these tests.
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
        interrupt: Interrupt::Msix,
        dma_granularity_bytes,
        sgl_block_ns: 0,
        sgl_page_saves_ns: 0,
        free_to_host: false,
        cxl_store_ns: 1_000,
        cxl_line_ns: 100,
    }
}

/// `contexts` contexts on two cores.
pub fn on_contexts(contexts: u32) -> Dispatch {
    Dispatch::Context { contexts, roles: Roles::Any(2) }
}

/// Any dispatch: contexts, or a dispatcher and I/O threads.
pub fn any_dispatch() -> impl Strategy<Value = Dispatch> {
    let threads = |io_threads| Dispatch::RoundRobin { io_threads, deal_ns: 70 };
    prop_oneof![(1u32..5).prop_map(on_contexts), (1u32..5).prop_map(threads)]
}

/// Four iterators, and the given dispatch.
pub fn controller_config(dispatch: Dispatch) -> ControllerConfig {
    ControllerConfig {
        dispatch,
        max_value_bytes: 2 << 20,
        iterators: 4,
        costs: Costs {
            decode_store_ns: 500,
            decode_transfer_ns: 200,
            decode_other_ns: 300,
            copy: CopyCosts { setup_ns: 10, ns_per_kib: 100 },
            unpack_ns: 20,
            complete_ns: 50,
        },
    }
}

/// Starts a controller with `contexts` contexts on two cores in front of `engine`, on a new link over
/// `memory`: the link, and the namespace.
pub fn start(
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
    link: LinkConfig,
    contexts: u32,
    engine: MockEngine,
) -> (Rc<Link>, Rc<KvNamespace<MockEngine>>) {
    start_with(sim, memory, link, on_contexts(contexts), engine)
}

/// As [`start`], with a given dispatch.
pub fn start_with(
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
    link: LinkConfig,
    dispatch: Dispatch,
    engine: MockEngine,
) -> (Rc<Link>, Rc<KvNamespace<MockEngine>>) {
    let link = Link::new(sim, link, memory);
    let namespace = start_behind(PciePort::new(&link), dispatch, engine);
    (link, namespace)
}

/// As [`start_with`], on a given port.
pub fn start_behind<P: Port>(port: P, dispatch: Dispatch, engine: MockEngine) -> Rc<KvNamespace<MockEngine>> {
    let sim = &port.sim().clone();
    let config = controller_config(dispatch);
    let cores = Cores::new(sim, dispatch.roles());
    let (journal, identity, faults) = (Journal::default(), Identity::default(), Faults::new(sim));
    let namespace =
        KvNamespace::new(sim, &config, &cores, (journal.clone(), NamespaceFeatures::default()), engine);
    let controller = Controller::new(port, cores, config.costs, journal, identity, faults, namespace.clone());
    dispatch::start(&controller, dispatch);
    namespace
}
