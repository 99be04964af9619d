//! The one integration test binary of the crate.

mod all {
    mod images;
    mod run;
    mod serve;
    mod shell;
}
