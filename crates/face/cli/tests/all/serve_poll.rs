//! `kvdrive serve --poll`: the thread that serves never sleeps, and answers and ends as any other.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use super::serve::{Served, serve, store_and_retrieve};
use super::serve_secrets::kvdrive;

/// How often the serving thread has given up its core by itself: to sleep, or to wait.
fn pauses(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("Linux counts them").trim().parse().unwrap()
}

#[test]
fn a_server_that_only_polls_never_sleeps_and_serves() {
    let rested = |served: &Served| {
        store_and_retrieve(served);
        let before = pauses(served);
        std::thread::sleep(Duration::from_millis(350));
        pauses(served) - before
    };
    for pace in ["off", "model"] {
        let mut polling = serve(&["--poll", "--pace", pace]);
        // A look at the control socket hands it an order; locks that it meets there are the only pauses.
        assert!(rested(&polling) <= 1, "--pace {pace}: it slept");
        store_and_retrieve(&polling);
        assert!(Command::new("kill").arg(polling.program.id().to_string()).status().unwrap().success());
        assert!(polling.program.wait().unwrap().success(), "it ends when it is asked to");
    }
    let sleeping = serve(&[]);
    assert!(rested(&sleeping) >= 2, "without --poll it sleeps, and wakes ten times a second");
}

#[test]
fn a_thread_for_sockets_is_not_the_one_that_polls() {
    let said = kvdrive(&["serve", "--poll", "--reactors", "1"]).unwrap_err();
    assert!(said.contains("--poll") && said.contains("--reactors"), "{said}");
}
