//! The crate's one integration-test binary.

mod all {
    mod functions;
    mod methods;
    mod prp;
    mod queues;
    mod scattered;
    mod shared;
    mod windows;
    mod wire;
}
