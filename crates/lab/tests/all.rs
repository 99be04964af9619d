//! The crate's one integration-test binary.

mod all {
    mod claims;
    mod config;
    mod experiments;
    mod drive;
    mod sweeps;
    mod workloads;
}
