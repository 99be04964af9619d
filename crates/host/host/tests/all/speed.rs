//! Speed of the crossing between threads, measured: `cargo test --release -p kvdrive-host --test all --
//! --ignored --nocapture speed`. The best of many short bursts is the speed of the two threads while no other program
//! takes a core from them.

use kvdrive_content::Piece;
use kvdrive_host::Calls;
use kvdrive_host::threaded::{Connector, Driver, Pipelined};
use kvdrive_sim::wall::Stopwatch;

use crate::threaded::{by, key, serve};

const BURSTS: u32 = 60;

/// Stores per second: median and best of the bursts.
fn measure(stores: u32, mut burst: impl FnMut()) -> String {
    let mut rates: Vec<f64> = (0..BURSTS)
        .map(|_| {
            let watch = Stopwatch::start();
            burst();
            f64::from(stores) / watch.seconds()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    format!("median {:9.0}, best {:9.0} stores/s", rates[rates.len() / 2], rates[rates.len() - 1])
}

fn with_driver(depth: u32, act: impl FnOnce(&mut Driver)) -> f64 {
    let (connector, serving): (Connector, _) = serve();
    let mut driver = connector.connect(by("piggyback"), 256, depth).unwrap();
    act(&mut driver);
    drop((driver, connector));
    let counters = serving.join();
    counters.events as f64 / counters.commands as f64
}

#[test]
#[ignore = "prints seconds of this machine"]
fn speed() {
    for depth in [1, 8, 16, 32, 64, 128] {
        let stores = 300 * depth;
        let events = with_driver(depth, |driver| {
            let mut pipeline = driver.pipeline().unwrap();
            let rates = measure(stores, || {
                for number in 0..stores {
                    while !pipeline.has_room() {
                        pipeline.next_completion().unwrap();
                    }
                    pipeline.store(key(number % 1000), [number as u8; 32]).unwrap();
                }
                while pipeline.next_completion().unwrap().is_some() {}
            });
            print!("pipeline, depth {depth:3}: {rates}");
        });
        println!(", {events:.1} events a command");
    }
    with_driver(32, |driver| {
        let rates = measure(300, || {
            for number in 0..300 {
                driver.blocking().store(key(number), Piece::Bytes(&[7; 32])).unwrap();
            }
        });
        println!("blocking           : {rates}");
    });
}
