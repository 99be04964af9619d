//! The library as programs use it.

mod calls;
mod ends;
mod examples;
