//! The driver: one queue of a drive, over any `Transport`, for futures, for threads that
//! wait, and as a pipeline. It owns the command slots, the sequence of inline commands, the pairs that no call
//! has asked for, and what is left to do after an answer.
//!
//! ```text
//!   future | thread | pipeline           Driver                              Transport
//!     ── submit ──► slot ─► course ─► entries ──────────────────────────────► gather, publish, flush
//!     ◄─ answer ─── conclude, settle ◄── board: completions, dropped commands ◄── bring
//! ```
//!
//! | file | what |
//! |---|---|
//! | `calls` | calls as futures, and [`Blocking`] for threads that wait |
//! | `pipeline` | many calls of one thread |
//! | `blocks` | commands to a namespace of blocks |
//! | `port` | a queue with its slots; who brings completions |
//! | `board` | the slots under a lock; what remains of dropped commands |
//! | `wait` | a thread that waits |

mod blocks;
mod board;
mod calls;
mod pipeline;
mod port;
mod remainder;
mod tokens;
mod unclaimed;
mod wait;

pub use blocks::BlockDriver;
pub(crate) use board::Board;
pub(crate) use calls::Limits;
pub use calls::{Blocking, Driver, Ticket};
pub use pipeline::Pipeline;
pub(crate) use port::{ClaimedSlot, Port};
pub(crate) use remainder::Remainder;
pub(crate) use unclaimed::SharedUnclaimed;
pub use wait::block_on;
pub(crate) use wait::{Brought, block_on_within, sleep_for_any};
