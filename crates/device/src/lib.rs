//! placeholder
pub mod flash;
pub mod ftl;
pub mod packing;
pub mod value_log;
