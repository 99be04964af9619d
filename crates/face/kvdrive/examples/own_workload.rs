//! A workload that is in no table: a sensor's readings, one key per minute, and every tenth operation reads
//! the last hour of one of them. It runs in model time, with two packings: counted and modelled, the same on
//! every machine.
//!
//! `cargo run --release -p kvdrive --example own_workload`

use kvdrive::Error;
use kvdrive::workload::{KeyFormat, Op, Rng, Row, ValueSpec, Workload, WorkloadParams};

struct Readings {
    format: KeyFormat,
    minutes: u64,
    drawn: u64,
    ages: Rng,
}

fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let format = KeyFormat::new(params.key_size, params.ops)?;
    Ok(Box::new(Readings { format, minutes: 0, drawn: 0, ages: Rng::stream(seed, "ages") }))
}

impl Workload for Readings {
    fn next(&mut self) -> Op {
        self.drawn += 1;
        if self.drawn.is_multiple_of(10) {
            let age = 1 + self.ages.below(60.min(self.minutes));
            return Op::Retrieve { key: self.format.key(self.minutes - age) };
        }
        let version = self.minutes;
        self.minutes += 1;
        Op::Store { key: self.format.key(version), value: ValueSpec { bytes: 24, version } }
    }
}

static READINGS: Row = Row {
    name: "readings",
    origin: "stores of 24 B, keys ascending, and retrieves of the last sixty",
    own_sizes: true,
    build,
    ..Row::PLAIN
};

pub(crate) fn main() -> Result<(), Error> {
    let described = kvdrive::build().transfer("piggyback").set("workload.ops", "20k");
    let report = |policy: &str| described.clone().set("packing.policy", policy).run(&READINGS);
    let (block, all) = (report("block")?, report("all")?);
    assert_eq!((all.ops.store, all.ops.retrieve, all.ops.errors), (18_000, 2_000, 0));
    assert_eq!(all.throughput_ops_per_s, report("all")?.throughput_ops_per_s);
    let [block, all] = [block, all].map(|report| report.counts.of("nand.programs"));
    println!("20 000 operations program {block} pages with policy block, {all} with all");
    assert!(all < block);
    Ok(())
}
