//! How fast a served drive is on this machine: `cargo test --release -p kvdrive-subsystem -- --ignored
//! --nocapture speed`.

use kvdrive_host::tcp::{Data, Initiator, Options as HostOptions, Queue};
use kvdrive_nvme::{Command, Key, RetrieveOptions, Sqe, Store, StoreOptions};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, serve};

const VALUE_BYTES: u32 = 4096;
const KEYS: u32 = 1000;

fn store(number: u32) -> Sqe {
    let key = Key::from_u32_be(number % KEYS);
    let store = Store { key, value_bytes: VALUE_BYTES, options: StoreOptions::default() };
    Command::Store(store).encode(0, 1)
}

fn retrieve(number: u32) -> Sqe {
    let key = Key::from_u32_be(number % KEYS);
    let options = RetrieveOptions::default();
    Command::Retrieve { key, buffer_bytes: VALUE_BYTES, options }.encode(0, 1)
}

/// Keeps `depth` commands under way; returns how many completed in a second.
fn rate(queue: &mut Queue, depth: usize, count: u32, command: fn(u32) -> Sqe, data: Data<'_>) -> f64 {
    let clock = Stopwatch::start();
    let mut sent = 0;
    while sent < count || queue.under_way() > 0 {
        while sent < count && queue.under_way() < depth {
            queue.submit(command(sent), data).unwrap();
            sent += 1;
        }
        queue.next_completion().unwrap().ok().unwrap();
    }
    f64::from(count) / clock.seconds()
}

#[test]
#[ignore = "a measurement"]
fn stores_and_retrieves_of_4_kib_over_loopback() {
    let value = vec![7; VALUE_BYTES as usize];
    for (name, behind) in [
        ("memory", Backend::Memory),
        ("drive", Backend::Drive(Vec::new())),
        ("drive in the loop", Backend::Beside(Vec::new())),
    ] {
        let server = serve(behind, Options::default(), 64 << 20);
        let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
        let mut queue = host.io_queue(1, 128).unwrap();
        for (depth, count) in [(1, 10_000), (32, 100_000)] {
            let stores = rate(&mut queue, depth, count, store, Data::Out(&value));
            let retrieves = rate(&mut queue, depth, count, retrieve, Data::In(VALUE_BYTES));
            println!("{name}, depth {depth}: {stores:.0} stores/s, {retrieves:.0} retrieves/s");
        }
        drop((host, queue));
        server.end();
    }
}
