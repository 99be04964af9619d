//! Clients of every kind behave alike.

use std::rc::Rc;

use kvdrive_host::modelled::{Driver, Host, HostCosts};
use kvdrive_link::LocalMemory;
use kvdrive_link::transfer::METHODS;
use kvdrive_sim::{Resource, Sim};

use crate::firmware::{self, MAX_VALUE_BYTES};
use crate::threaded::{by, serve};
use kvdrive_rigs::clients::{check, check_pipeline};

const COSTS: HostCosts = HostCosts {
    submit_ns: 500,
    complete_ns: 400,
    dma_setup_ns: 300,
    pin_page_ns: 100,
    entry_ns: 50,
    cxl_setup_ns: 0,
};

#[test]
fn a_modelled_client() {
    for row in METHODS {
        let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
        let link = firmware::build(&sim, memory.clone()).unwrap().link;
        let core = Rc::new(Resource::new(&sim, "host.core", 1));
        sim.block_on(|| {
            let host = Host::connect(link.clone(), memory, core, COSTS).unwrap();
            check(&mut &Driver::connect(&host, by(row.name), 32, 4).unwrap(), MAX_VALUE_BYTES);
        });
        sim.clear();
    }
}

#[test]
fn a_client_on_a_thread() {
    let (connector, serving) = serve();
    let driver = connector.connect(by("adaptive"), 32, 4).unwrap();
    check(&mut driver.blocking(), MAX_VALUE_BYTES);
    drop((driver, connector));
    let counters = serving.join();
    assert_eq!((counters.open_iterators, counters.unfinished), (0, 0));
}

#[test]
fn a_pipeline_on_a_thread() {
    for row in METHODS {
        let (connector, serving) = serve();
        let mut driver = connector.connect(by(row.name), 32, 4).unwrap();
        check_pipeline(&mut driver.pipeline().unwrap(), MAX_VALUE_BYTES);
        drop((driver, connector));
        let counters = serving.join();
        assert_eq!((counters.open_iterators, counters.unfinished), (0, 0), "{}", row.name);
    }
}
