//! placeholder
pub mod flash;
pub mod ftl;
pub mod packing;
pub mod page_buffer;
pub mod value_log;
