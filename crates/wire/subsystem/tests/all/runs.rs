//! Runs against a served drive: the application of `kvdrive run --connect`.

use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::run_at::run_at;
use kvdrive_rigs::served::{Backend, serve};

const SAKER: [&str; 4] = ["saker.enabled=true", "saker.batch=16", "saker.in_flight=4", "workload.ops=6000"];

/// SAKER in front of a drive on a network: fewer commands arrive there than the application has writes.
#[test]
fn a_run_over_a_network_has_saker_in_front() {
    for threads in ["host.threads=1", "host.threads=3"] {
        let server = serve(Backend::Drive(Vec::new()), Options::default(), 8 << 20);
        let address = server.at.to_string();
        let settings = [&SAKER[..], &[threads, "saker.cache_bytes=5000", "workload.sync_every=200"]].concat();
        let (targets, report) = run_at(&address, "saker-mid", &settings).unwrap();
        let saker = report.counts.section("saker");
        let (requests, batches) = (saker.of("requests"), saker.of("batches"));
        assert!(requests > 3000 && batches > 100 && batches * 8 < requests, "{requests} in {batches}");
        assert!(saker.of("cache_hits") > 0 && saker.of("pending_hits") > 0 && saker.of("unsynced") == 0);
        assert_eq!(targets.len(), 1);
        let end = server.end();
        assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
        let commands: u64 = end.served.io_commands.iter().sum();
        assert!(commands < report.ops.total(), "{commands} commands");
    }
}

/// A drive that is lost is named with the reason, though it is SAKER's queues that lose it.
#[test]
fn a_run_with_saker_says_why_it_lost_its_drive() {
    let server = serve(Backend::Drive(Vec::new()), Options::default(), 8 << 20);
    let address = server.at.to_string();
    let running = std::thread::spawn({
        let address = address.clone();
        move || {
            let settings = [&SAKER[..], &["host.threads=2", "workload.ops=1000000000"]].concat();
            run_at(&address, "saker-mid", &settings).unwrap_err()
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.end();
    let error = format!("{:#}", running.join().unwrap());
    assert!(error.contains(&format!("tcp://{address}")), "{error}");
    assert!(!error.contains("the drive is off"), "{error}");
}
