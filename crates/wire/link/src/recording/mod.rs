//! A wall-time run on file: all arrivals at the drive from outside, with model times, so that a virtual-time run
//! repeats every counter and every time.
//!
//! ```text
//!   file    "KVRECORD" | version u32 | configuration bytes u32 | configuration | checksum u64 | frame ...
//!   frame   payload bytes u32 | kind u8 | payload | checksum u64
//!
//!   kind         payload
//!   1 queue      time u64 | entries u32                      the next queue pair; the first is the admin queue
//!   2 commands   time u64 | queue u16 | submission doorbells u32 | completion doorbells u32 | entries, 64 each
//!   3 read       refused u8 | piece ...                      what the next DMA read brought
//!                  piece = 0u8 | bytes u32 | bytes    or    1u8 | seed u64 | offset u32 | bytes u32
//!   4 refused    nth u64                                     the drive's nth write to host memory was refused
//!   5 end        power cut u8 | events u64 | time u64 | completion doorbells u32
//!   6 reset      time u64 | queue u16                        the host gave up the value it had begun on a queue
//!   7 change     time u64 | text                             a request of the drive's control channel
//! ```
//!
//! Numbers are little endian. A checksum is XXH3 over everything from the start of its frame, seeded with the
//! frame's offset, so a frame that was moved, dropped or duplicated is detected like one that was changed.
//! Frames are in the order of events: bytes that DMA read between two arrivals are between their frames. Queues that a
//! host creates by commands have no frame of their own: the commands create them again.
//!
//! A file that ends inside a frame, or without the last one, belongs to a run that was interrupted (its
//! program was killed, or the disk was full): its replay ends at the last complete arrival.
//!
//! The configuration is text for the caller; this module does not interpret it.

mod format;
mod reader;
mod recorder;
mod replay;

pub(crate) use format::End;
pub use reader::{Recording, RecordingError};
pub use recorder::Recorder;
pub(crate) use recorder::RecordingMemory;
pub use replay::{ReplayError, replay};
