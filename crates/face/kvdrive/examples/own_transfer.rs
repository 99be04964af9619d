//! A transfer choice that is in no table: values that fit one command travel in it, those that fit the free entries of the
//! queue as entries, and all others by DMA.
//!
//! `cargo run --release -p kvdrive --example own_transfer`

use kvdrive::Error;
use kvdrive::transfer::{ByteExpress, Choice, Method, MethodRow, Piggyback, Prp};
use kvdrive_workload::WORKLOADS;

/// Bytes of a value that a command has room for.
const IN_COMMAND: u32 = 35;
/// Bytes of a queue entry.
const ENTRY: u32 = 64;

struct Fitting;

impl Choice for Fitting {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if value_bytes <= IN_COMMAND {
            &Piggyback
        } else if value_bytes.div_ceil(ENTRY) < slots.min(9) {
            &ByteExpress
        } else {
            &Prp
        }
    }
}

static FITTING: MethodRow = MethodRow {
    name: "fitting",
    origin: "in the command, in the queue or by DMA, by what there is room for",
    build: |_| Box::new(Fitting),
    thresholds: &[],
    by_window: false,
    overlaps: false,
};

pub(crate) fn main() -> Result<(), Error> {
    let described = kvdrive::build().set("workload.ops", "5k");
    let workload = WORKLOADS.iter().find(|row| row.name == "w-m").expect("BandSlim's workload M");
    let bytes = |builder: kvdrive::Builder| {
        let report = builder.run(workload)?;
        assert_eq!((report.ops.store, report.ops.errors), (5_000, 0));
        Ok::<_, Error>(report.counts.of("traffic.payload_bytes"))
    };
    let own = bytes(described.clone().transfer_choice(&FITTING))?;
    let adaptive = bytes(described.clone().transfer("adaptive"))?;
    let prp = bytes(described.transfer("prp"))?;
    println!(
        "5 000 stores of W(M) cross the link as {own} B by fitting, {adaptive} B by adaptive, {prp} B by prp"
    );
    assert!(own < adaptive && adaptive < prp);
    Ok(())
}
