//! The one integration test binary of the crate.

mod cache;
mod capacity;
mod images;
mod run;
mod serve;
mod serve_at_once;
mod serve_page;
mod serve_secrets;
mod serve_several;
mod serve_values;
mod shell;
mod stopped;
