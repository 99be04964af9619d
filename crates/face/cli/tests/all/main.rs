//! The one integration test binary of the crate.

mod cache;
mod capacity;
mod conform;
mod contract;
mod images;
mod run;
mod serve;
mod serve_as_kvssd;
mod serve_at_once;
mod serve_blocks;
mod serve_page;
mod serve_poll;
mod serve_secrets;
mod serve_several;
mod serve_told;
mod serve_values;
mod shell;
mod shrinking_guests;
mod statuses;
mod stopped;
