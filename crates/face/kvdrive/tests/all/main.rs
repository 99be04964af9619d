//! The library as programs use it.

mod blocks;
mod calls;
mod ends;
mod examples;
mod here;
mod large;
mod saker;
