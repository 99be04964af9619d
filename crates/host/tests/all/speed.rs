//! Speed of the crossing, measured: `cargo test --release -p kvdrive-host --test all -- --ignored --nocapture speed`.

use kvdrive_link::Piece;
use kvdrive_sim::wall::Stopwatch;

use crate::threaded::{by, key, serve};

#[test]
#[ignore = "prints seconds of this machine"]
fn speed() {
    const STORES: u32 = 2_000_000;
    for depth in [1, 4, 8, 16, 32, 64, 128] {
        let (connector, serving) = serve();
        let mut driver = connector.connect(by("piggyback"), 256, depth).unwrap();
        let mut pipeline = driver.pipeline().unwrap();
        let stores = STORES.min(depth * 200_000);
        let watch = Stopwatch::start();
        for number in 0..stores {
            while !pipeline.has_room() {
                pipeline.next().unwrap();
            }
            pipeline.store(key(number % 1000), [number as u8; 32]).unwrap();
        }
        while pipeline.next().unwrap().is_some() {}
        let seconds = watch.seconds();
        drop(pipeline);
        drop((driver, connector));
        let counters = serving.join();
        println!(
            "depth {depth:3}: {:9.0} stores/s, {:.1} events a command",
            f64::from(stores) / seconds,
            counters.events as f64 / counters.commands as f64
        );
    }
    let (connector, serving) = serve();
    let driver = connector.connect(by("piggyback"), 64, 32).unwrap();
    let watch = Stopwatch::start();
    for number in 0..STORES / 10 {
        driver.blocking().store(key(number % 1000), Piece::Bytes(&[7; 32])).unwrap();
    }
    println!("blocking : {:9.0} stores/s", f64::from(STORES / 10) / watch.seconds());
    drop((driver, connector));
    serving.join();
}
