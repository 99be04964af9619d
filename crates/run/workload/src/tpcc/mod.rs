//! `tpcc`: the two transactions that are 88 of 100 in TPC-C (revision 5.11), New Order and Payment, 45 to 43,
//! as SAKER's paper runs them: on tables whose rows are pairs under keys of 8 bytes.
//!
//! ```text
//!   number ─► draws.rs ─► transactions.rs ─► reads, computes, writes rows.rs under keys.rs ─► consistency.rs
//!             inputs      plain code         through `Pairs`: any client of any drive          at the end
//! ```
//!
//! A transaction is a unit ([`super::units`]): its client executes one operation after the other. Values are
//! bytes computed from values that were read, so data that a drive loses or returns in a wrong version is
//! detected at the end.
//!
//! With `stock_update = false` STOCK is read and not written, as the paper describes an order line. Then 61 %
//! of the operations are reads; the paper says 60 %. By the specification it is 50 %.
//!
//! A loaded row's [`ValueSpec::version`] is its number (`loaded.rs`).
//!
//! `shrink` divides the rows of every warehouse, for short runs; the distribution of popularity stays that of
//! a whole warehouse (`nurand.rs`). A transaction's warehouse and district are drawn uniformly; there are no
//! terminals, and no keying or think times.

mod consistency;
mod draws;
mod keys;
mod loaded;
mod nurand;
mod rows;
mod size;
mod transactions;

use std::sync::Arc;

use kvdrive_nvme::Key;
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, request_bytes};

use super::units::{Failed, Pairs, UnitEnd, Units};
use super::{Op, ValueSpec, Workload, WorkloadParams};
use draws::{Draws, Transaction};
use loaded::Loaded;
use size::Size;

const KINDS: &[&str] = &["new_order", "payment"];

/// The transactions.
struct Tpcc {
    size: Size,
    draws: Draws,
    stock_update: bool,
}

/// Bytes of the batch of the largest unit: a New Order of the most lines, each of another item.
pub(super) fn unit_bytes(params: &WorkloadParams) -> u64 {
    let row = |bytes: usize| request_bytes(size_of::<u64>(), bytes as u32);
    let line = row(size_of::<rows::OrderLine>())
        + if params.stock_update { row(size_of::<rows::Stock>()) } else { 0 };
    let heads = [size_of::<rows::District>(), size_of::<rows::Order>(), size_of::<rows::NewOrder>()];
    u64::from(BATCH_HEAD_BYTES) + heads.map(row).iter().sum::<u64>() + draws::LINES_MOST * line
}

impl Units for Tpcc {
    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn run(&self, number: u64, pairs: &mut dyn Pairs) -> Result<UnitEnd, Failed> {
        match self.draws.transaction(number) {
            Transaction::NewOrder(inputs) => {
                let is_committed = transactions::new_order(&inputs, self.stock_update, pairs)?;
                Ok(UnitEnd { kind: 0, is_committed })
            }
            Transaction::Payment(inputs) => {
                transactions::payment(&inputs, number, pairs)?;
                Ok(UnitEnd { kind: 1, is_committed: true })
            }
        }
    }

    fn check(&self, units: u64, pairs: &mut dyn Pairs) -> Result<String, Failed> {
        consistency::check(&self.size, &self.draws, self.stock_update, units, pairs)
    }
}

/// The workload: the pairs that are loaded, and then numbers of units.
struct Workloads {
    tpcc: Arc<Tpcc>,
    loaded: Loaded,
    next: u64,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let (warehouses, shrink) = (params.warehouses, params.shrink);
    if u64::from(warehouses) > keys::MOST_WAREHOUSES {
        return Err(format!("workload.warehouses: {warehouses}; a key numbers {}", keys::MOST_WAREHOUSES));
    }
    let size = Size { warehouses, shrink: shrink.into() };
    let draws = Draws::new(seed, size);
    let loaded = Loaded::new(seed, size, &draws);
    let tpcc = Arc::new(Tpcc { size, draws, stock_update: params.stock_update });
    Ok(Box::new(Workloads { tpcc, loaded, next: 0 }))
}

impl Workload for Workloads {
    fn next(&mut self) -> Op {
        let number = self.next;
        self.next += 1;
        Op::Unit { number }
    }

    fn preload(&self) -> u64 {
        self.loaded.rows()
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        let mut value = Vec::new();
        let key = self.loaded.row(index, &mut value);
        (key, ValueSpec { bytes: value.len() as u32, version: index })
    }

    fn bytes_of(&self, value: &ValueSpec, bytes: &mut Vec<u8>) -> bool {
        self.loaded.row(value.version, bytes);
        true
    }

    fn units(&self) -> Option<Arc<dyn Units>> {
        Some(self.tpcc.clone())
    }
}

#[cfg(test)]
mod tests;
