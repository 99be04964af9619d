//! The one integration test binary of the crate.

mod all {
    mod serve;
}
