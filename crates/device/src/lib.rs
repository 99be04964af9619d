//! placeholder
pub mod packing;
pub mod value_log;
