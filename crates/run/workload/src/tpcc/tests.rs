//! The two transactions over a correct map, and over maps with faults.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Pairs in memory; counts calls and notes which rows were locked.
#[derive(Default)]
struct Map {
    pairs: BTreeMap<Key, Vec<u8>>,
    reads: u64,
    writes: u64,
    locked: BTreeSet<Key>,
    /// One write in this many is lost.
    loses_every: Option<u64>,
}

impl Pairs for Map {
    fn read(&mut self, key: Key, into: &mut Vec<u8>) -> Result<bool, Failed> {
        self.reads += 1;
        into.clear();
        let found = self.pairs.get(&key);
        into.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }

    fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Failed> {
        self.writes += 1;
        if self.loses_every.is_none_or(|every| !self.writes.is_multiple_of(every)) {
            self.pairs.insert(key, value.to_vec());
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failed> {
        assert!(!self.locked.is_empty(), "what was written is there before the rows are unlocked");
        Ok(())
    }

    fn lock(&mut self, rows: &[Key]) {
        assert!(self.locked.is_empty(), "a unit locks once");
        assert!(rows.is_sorted_by(|a, b| a < b), "in one order, each once");
        self.locked.extend(rows);
    }

    fn unlock(&mut self) {
        assert!(!self.locked.is_empty());
        self.locked.clear();
    }
}

fn params(shrink: u32, warehouses: u32, stock_update: bool) -> WorkloadParams {
    let defaults: serde_json::Value = toml_edit::de::from_str(crate::DEFAULTS).unwrap();
    let workload: WorkloadParams = kvdrive_declare::read(&kvdrive_declare::Values::new(&defaults)).unwrap();
    WorkloadParams { warehouses, shrink, stock_update, ..workload }
}

fn loaded(params: &WorkloadParams) -> (Box<dyn Workload>, Map) {
    let workload = build(params, 1).unwrap();
    let mut map = Map::default();
    for index in 0..workload.preload() {
        let mut value = Vec::new();
        let (key, spec) = workload.preload_pair(index);
        assert!(workload.bytes_of(&spec, &mut value));
        assert_eq!(spec.bytes as usize, value.len());
        assert_eq!(map.pairs.insert(key, value), None, "row {index} has a key of its own");
    }
    (workload, map)
}

fn run(units: &dyn Units, numbers: std::ops::Range<u64>, map: &mut Map) -> [u64; 3] {
    let mut counts = [0; 3];
    for number in numbers {
        let ended = units.run(number, map).unwrap();
        counts[ended.kind] += 1;
        counts[2] += u64::from(!ended.is_committed);
        assert!(map.locked.is_empty(), "transaction {number} gave its rows back");
    }
    counts
}

#[test]
fn a_run_leaves_a_consistent_database() {
    for stock_update in [true, false] {
        let (workload, mut map) = loaded(&params(64, 2, stock_update));
        let units = workload.units().unwrap();
        let [orders, payments, rolled_back] = run(&*units, 0..2000, &mut map);
        assert!(orders > 900 && payments > 850 && rolled_back > 0, "{orders} {payments} {rolled_back}");
        let line = units.check(2000, &mut map).unwrap();
        assert!(line.contains(&format!("{} payments", kvdrive_text::grouped(payments))), "{line}");
        assert!(line.contains(&kvdrive_text::grouped(orders - rolled_back)), "{line}");
    }
}

/// The share of reads is 60 %, as in the paper, and 50 % by the specification.
#[test]
fn reads_and_writes_have_the_published_shares() {
    for (stock_update, share) in [(true, 0.50), (false, 0.61)] {
        let (workload, mut map) = loaded(&params(16, 2, stock_update));
        let units = workload.units().unwrap();
        run(&*units, 0..4000, &mut map);
        let found = map.reads as f64 / (map.reads + map.writes) as f64;
        assert!((found - share).abs() < 0.01, "{found} of {share}");
    }
}

/// The number of rows is that of the specification: 499 000 for a warehouse (1000 names of each district are
/// ours), except for lines, of which an order has ten.
#[test]
fn a_warehouse_has_its_rows() {
    let (one, two) = (params(1, 1, true), params(1, 2, true));
    let rows = |params| build(params, 1).unwrap().preload();
    let lines = 10 * (0..3000u64).map(|order| 5 + order % 11).sum::<u64>();
    let of_warehouse = 1 + 100_000 + 10 + 30_000 + 10_000 + 30_000 + 30_000 + lines + 9_000;
    assert_eq!(rows(&two) - rows(&one), of_warehouse);
    assert_eq!(rows(&one), 100_000 + of_warehouse);
    assert!(lines.abs_diff(300_000) < 1000, "{lines}");
}

/// The checks notice every lost write, except writes on which no other row depends.
#[test]
fn a_lost_write_is_noticed() {
    for every in [7, 50, 333, 2500] {
        let (workload, mut map) = loaded(&params(64, 1, true));
        let units = workload.units().unwrap();
        map.loses_every = Some(every);
        let broken = (0..400).any(|number| units.run(number, &mut map).is_err());
        map.loses_every = None;
        assert!(broken || units.check(400, &mut map).is_err(), "one of {every} writes was lost");
    }
}

/// Two transactions that both read before either writes: locks prevent this.
#[test]
fn a_lost_update_is_noticed() {
    let (workload, mut map) = loaded(&params(64, 1, true));
    let units = workload.units().unwrap();
    run(&*units, 0..50, &mut map);
    // Payment n is done twice from the same rows: the second one overwrites what the first one added.
    let before = map.pairs.clone();
    run(&*units, 50..60, &mut map);
    let history = map.pairs.clone();
    map.pairs = before;
    run(&*units, 60..70, &mut map);
    for (key, value) in history {
        map.pairs.entry(key).or_insert(value);
    }
    let problem = units.check(70, &mut map).unwrap_err().to_string();
    assert!(problem.contains("D_YTD") || problem.contains("D_NEXT_O_ID"), "{problem}");
}
