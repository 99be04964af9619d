//! Whole drives: every engine, transfer method, packing policy and medium of the tables, through the driver,
//! against an oracle. A new row is tested here automatically.

mod atomic_batches;
mod batches;
mod collection;
mod corruption;
mod defaults;
mod divided;
mod fault_files;
mod faults;
mod flat;
mod journal;
mod kill;
mod loading;
mod mutants;
mod oracle;
mod parts;
mod power_cut;
mod storm;
mod versions;
