//! A host that polls, on a PCI function of a drive on another thread: stores and retrieves of 512 B a second,
//! at depth 1 and 32.
//!
//! ```text
//! cargo bench -p kvdrive-subsystem --bench polling_host                # a drive of its own, unpaced
//! cargo bench -p kvdrive-subsystem --bench polling_host -- /tmp/cntrl  # of `kvdrive serve --pace off --vfio-user /tmp/cntrl`
//! ```

use std::path::PathBuf;

use kvdrive_nvme::{Status, opcode};
use kvdrive_sim::Histogram;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::guest::{DATA_AT, Doorbell, Guest, PAGE, Rings, keyed};
use kvdrive_rigs::served;

const VALUE_BYTES: u32 = 512;
const KEYS: u32 = 20_000;
const DEPTHS: [u16; 2] = [1, 32];
/// Duration of a measurement, s.
const SECONDS: f64 = 3.0;

/// Runs one kind of command at one depth; prints commands a second and latencies.
fn measure(guest: &mut Guest, rings: &mut Rings, name: &str, code: u8, depth: u16) {
    let (mut next, mut done, mut latencies) = (0_u32, 0_u64, Histogram::default());
    let clock = Stopwatch::start();
    let mut began_ns = vec![0; usize::from(depth)];
    let mut entry = |cid: u16| {
        next = (next + 1) % KEYS;
        keyed(code, cid, &next.to_le_bytes(), DATA_AT + u64::from(cid) * PAGE, VALUE_BYTES)
    };
    for cid in 0..depth {
        began_ns[usize::from(cid)] = clock.ns();
        let sqe = entry(cid);
        guest.submit(rings, &sqe);
    }
    while clock.seconds() < SECONDS {
        let Some(cqe) = guest.poll(rings) else {
            std::hint::spin_loop();
            continue;
        };
        assert_eq!(cqe.status(), Status::SUCCESS);
        done += 1;
        let (cid, now_ns) = (cqe.cid.get(), clock.ns());
        latencies.record(now_ns - began_ns[usize::from(cid)]);
        began_ns[usize::from(cid)] = now_ns;
        let sqe = entry(cid);
        guest.submit(rings, &sqe);
    }
    let seconds = clock.seconds();
    for _ in 0..depth {
        guest.wait(rings);
    }
    let [p50, p99] = [0.5, 0.99].map(|part| latencies.values().value_at_quantile(part) as f64 / 1e3);
    let thousands = done as f64 / seconds / 1e3;
    println!("{name:<9} depth {depth:>2}: {thousands:7.1} k/s, p50 {p50:.1} us, p99 {p99:.1} us");
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let folder = tempfile::tempdir().expect("a folder");
    let (path, server) = match arguments.next() {
        Some(path) => (PathBuf::from(path), None),
        None => {
            let path = folder.path().join("cntrl");
            let drive = served::Backend::Beside(Vec::new());
            let server = served::serve_at(drive, Options::default(), 16 << 20, None, vec![path.clone()]);
            (path, Some(server))
        }
    };
    let mut guest = Guest::boot(&path, Doorbell::InMemory, true);
    let mut rings = guest.create(1, 64, None);
    // Bytes that are not zero: media find zeros, and store less.
    for cid in 0..u64::from(DEPTHS[1]) {
        let value: Vec<u8> = (0..u64::from(VALUE_BYTES)).map(|at| (cid + at * 31) as u8 | 1).collect();
        guest.put(DATA_AT + cid * PAGE, &value);
    }
    for depth in DEPTHS {
        measure(&mut guest, &mut rings, "stores", opcode::STORE, depth);
    }
    // Every key exists, however few commands a slow machine stored.
    for key in 0..KEYS {
        let sqe = keyed(opcode::STORE, 0, &key.to_le_bytes(), DATA_AT, VALUE_BYTES);
        guest.run(&mut rings, &sqe);
    }
    for depth in DEPTHS {
        measure(&mut guest, &mut rings, "retrieves", opcode::RETRIEVE, depth);
    }
    drop(guest);
    server.map(served::Running::end);
}
