//! Measures how fast each store is on this machine, on pages in memory that take no time.
//!
//! `cargo run --release -p kvdrive-store --example speed [PAIRS [STORE]]`: puts of 16-byte values (patterns)
//! under 8-byte keys, at random; then the same puts again; then gets.

use std::rc::Rc;

use kvdrive_content::Pattern;
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_store::memory::{CountingCpu, MemoryPages};
use kvdrive_store::{Ground, STORES, StoreOptions, Thread, do_background};

const MAIN: Thread = Thread(0);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pairs: u64 = arguments.next().map_or(1_000_000, |pairs| pairs.parse().expect("a number of pairs"));
    let only = arguments.next();
    for row in STORES.iter().filter(|row| only.as_ref().is_none_or(|only| only == row.name)) {
        // Room for three times the pairs, and for the other pages that every store needs.
        let memory = Rc::new(MemoryPages::new(4096, pairs * 32 * 3 / 4096 + (1 << 20)));
        let cpu = Rc::new(CountingCpu::default());
        let ground = Ground { pages: memory.clone(), cpu, threads: 1 };
        let store = (row.make)(&StoreOptions::default(), ground);
        store.recover(MAIN).expect("empty pages are an empty store");
        let mut rng = Rng::stream(1, "keys");
        for what in ["put", "overwrite", "get"] {
            let watch = Stopwatch::start();
            for number in 0..pairs {
                // An odd factor maps different numbers to different ones.
                let number = if what == "put" { number } else { rng.below(pairs) };
                let key = Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                match what {
                    "get" => assert!(store.get(MAIN, key).expect("pages are whole").is_some()),
                    _ => {
                        let value = Pattern { seed: number, offset: 0, bytes: 16 };
                        store.put(MAIN, key, value.into()).expect("there is room");
                        do_background(&*store, MAIN);
                    }
                }
            }
            let seconds = watch.seconds();
            let rate = pairs as f64 / seconds / 1e6;
            let (read, written) = memory.take_counts();
            println!(
                "{:8} {what:9} {rate:6.2} M/s measured   pages written {written:9}, read {read:9} counted",
                row.name
            );
        }
        println!("{:8} memory    {:?}", row.name, store.dram());
    }
}
