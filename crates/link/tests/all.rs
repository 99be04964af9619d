//! The crate's one integration-test binary.

mod all {
    mod methods;
    mod prp;
    mod queues;
    mod scattered;
    mod windows;
    mod wire;
}
