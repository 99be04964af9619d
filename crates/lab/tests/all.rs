//! The crate's one integration-test binary.

mod all {
    mod config;
    mod drive;
    mod workloads;
}
