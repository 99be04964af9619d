//! The library as programs use it.

mod blocks;
mod calls;
mod ends;
mod examples;
mod forks;
mod here;
mod large;
mod more_calls;
mod names;
mod saker;
mod stepped;
