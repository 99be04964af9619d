//! Tests of the drivers, on a drive small enough to read: see `all/firmware.rs`.

mod alike;
mod controllers;
mod firmware;
mod groups;
mod recording;
mod speed;
mod threaded;
mod threaded_ends;
