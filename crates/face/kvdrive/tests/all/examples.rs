//! Every example runs to its end.

#[path = "../../examples/crash.rs"]
mod crash;
#[path = "../../examples/first.rs"]
mod first;
#[path = "../../examples/futures.rs"]
mod futures;
#[path = "../../examples/own_packing.rs"]
mod own_packing;
#[path = "../../examples/own_transfer.rs"]
mod own_transfer;
#[path = "../../examples/own_workload.rs"]
mod own_workload;
#[path = "../../examples/pipeline.rs"]
mod pipeline;
#[path = "../../examples/saker.rs"]
mod saker;
#[path = "../../examples/stepped.rs"]
mod stepped;

#[test]
fn first_runs() {
    first::main().unwrap();
}

#[test]
fn pipeline_runs() {
    pipeline::main().unwrap();
}

#[test]
fn futures_runs() {
    futures::main().unwrap();
}

#[test]
fn crash_runs() {
    crash::main().unwrap();
}

#[test]
fn own_packing_runs() {
    own_packing::main().unwrap();
}

#[test]
fn own_transfer_runs() {
    own_transfer::main().unwrap();
}

#[test]
fn own_workload_runs() {
    own_workload::main().unwrap();
}

#[test]
fn saker_runs() {
    saker::main().unwrap();
}

#[test]
fn stepped_runs() {
    stepped::main().unwrap();
}
