//! The transport to a drive of this program, which runs on a thread of its own, in wall time or as fast as it can.
//!
//! ```no_run
//! # use kvdrive_host::threaded::{Connector, Error, Serving, serve_thread};
//! # use kvdrive_content::Piece;
//! # use kvdrive_host::Calls;
//! # use kvdrive_link::transfer::prp::Prp;
//! # fn open() -> (Connector, Serving<(), ()>) { unimplemented!() }
//! let (connector, serving) = open(); // serve_thread(...) with a closure that builds the drive
//! let driver = connector.connect(Box::new(Prp), 64, 32)?;
//! let key = kvdrive_nvme::Key::new(b"key").unwrap();
//! driver.blocking().store(key, Piece::Bytes(b"value"))?; // or driver.store(...).await on any executor
//! drop((driver, connector)); // no command can come any more: the drive ends
//! let counters = serving.join();
//! # Ok::<(), Error>(())
//! ```
//!
//! | item | for |
//! |---|---|
//! | [`Connector`] | drivers for one drive, its Identify data and log pages |
//! | [`Driver`] | one command at a time, or many futures |
//! | [`Pipeline`] | many commands at once from one thread, with few doorbells and locks |
//! | [`BlockDriver`] | the blocks of a drive that has no pairs, also as pages of a store |
//! | [`serve_thread`] | the drive's thread |
//! | [`serve_here`] | an unpaced drive that the calls of one thread carry out: no other thread, no wake-ups |
//! | [`Control`](kvdrive_link::shared::Control) | reads the drive and changes it while it is served: [`Serving::control`] |

mod connector;
mod rings;
mod thread;

pub use crate::answers::{IteratorId, Pair};
pub use crate::client::Content;
pub use crate::driver::{BlockDriver, Blocking, Driver, Pipeline, Ticket, block_on};
pub use crate::error::Error;
pub use crate::pipelined::{Completion, Pipelined};
pub use connector::Connector;
pub use kvdrive_link::shared::Serving;
pub use thread::{serve_here, serve_thread};
