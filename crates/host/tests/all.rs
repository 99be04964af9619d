//! Tests of the drivers, on a drive small enough to read: see `all/firmware.rs`.

#[path = "all/alike.rs"]
mod alike;
#[path = "all/clients.rs"]
mod clients;
#[path = "all/firmware.rs"]
mod firmware;
#[path = "all/recording.rs"]
mod recording;
#[path = "all/speed.rs"]
mod speed;
#[path = "all/threaded.rs"]
mod threaded;
