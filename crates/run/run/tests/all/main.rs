//! The crate's one integration-test binary.

mod blend;
mod cache_traces;
mod compared;
mod contract;
mod counted;
mod counters;
mod extremes;
mod hash_runs;
mod hostkv_runs;
mod key_sizes;
mod kvcache;
mod language;
mod limits;
mod load;
mod numbers;
mod pink_runs;
mod read_back;
mod reopened;
mod saker_runs;
mod scans;
mod steady_state;
mod trace_files;
mod traces;
mod transactions;
mod wall_files;
mod wall_runs;
