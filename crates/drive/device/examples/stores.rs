//! How fast a drive without an engine is: simulated stores per second of this machine, through the modelled
//! driver, the link and the controller, on the tests' mock engine.
//!
//! `cargo run --release -p kvdrive-device --example stores [COUNT [CASE]]`

use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_host::Calls;
use kvdrive_host::modelled::{Driver, Host, HostCosts};
use kvdrive_link::LocalMemory;
use kvdrive_link::transfer::{TransferConfig, method};
use kvdrive_nvme::Key;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Resource, Sim};

#[allow(dead_code)] // made for the tests
#[path = "../tests/all/mock_engine.rs"]
mod mock_engine;
#[allow(dead_code)]
#[path = "../tests/all/rig.rs"]
mod rig;

use mock_engine::MockEngine;

fn measure(name: &str, value_bytes: usize, depth: u32, count: u32) {
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let engine = MockEngine::new(1 << 20);
    let (link, _controller) = rig::start(&sim, memory.clone(), rig::link_config(4096), depth, engine);
    let core = Rc::new(Resource::new(&sim, "host", 1));
    let costs = HostCosts {
        submit_ns: 500,
        complete_ns: 500,
        dma_setup_ns: 100,
        pin_page_ns: 10,
        entry_ns: 10,
        cxl_setup_ns: 50,
    };
    let host = sim.block_on(|| Host::connect(link, memory, core, costs)).expect("Identify works");
    let config = TransferConfig {
        method: name.into(),
        threshold1_bytes: 128,
        threshold2_bytes: 64,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    };
    let choice = method(&config).expect("a row");
    let driver = sim.block_on(|| Driver::connect(&host, choice, 64, depth)).expect("a queue pair");
    let driver = Rc::new(driver);
    let watch = Stopwatch::start();
    let events = sim.events();
    for lane in 0..depth {
        let driver = driver.clone();
        sim.spawn(move || {
            let value = vec![7; value_bytes];
            for number in (lane..count).step_by(depth as usize) {
                let key = Key::from_u32_be(number % 16);
                driver.store(key, Piece::Bytes(&value)).expect("stored");
            }
        });
    }
    sim.run();
    let seconds = watch.seconds();
    println!(
        "{name:9} {value_bytes:5} B  depth {depth:2}  {:5.2} M stores/s  {:4.0} ns/store  {:4.1} events/store",
        f64::from(count) / seconds / 1e6,
        seconds * 1e9 / f64::from(count),
        (sim.events() - events) as f64 / f64::from(count),
    );
}

/// Method, bytes of a value, depth.
const CASES: [(&str, usize, u32); 4] =
    [("piggyback", 35, 1), ("adaptive", 100, 1), ("prp", 35, 1), ("piggyback", 35, 8)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let only: Option<usize> = arguments.next().and_then(|case| case.parse().ok());
    for (index, (name, value_bytes, depth)) in CASES.into_iter().enumerate() {
        if only.is_none_or(|only| only == index) {
            measure(name, value_bytes, depth, count);
        }
    }
}
