//! Bytes on the wire: the formats that a host and a key-value SSD agree on, and nothing else.
//!
//! | module | what it lays out |
//! |---|---|
//! | [`key`] | a key of 1 to 16 bytes that compares in byte order |
//! | [`sqe`], [`cqe`] | the 64-byte submission and the 16-byte completion queue entry |
//! | [`status`] | status code type and status code, with one table of names |
//! | [`opcode`] | opcodes of the KV command set, of the vendor range, of the admin queue |
//! | [`command`] | what an I/O command means, decoded from and encoded to an entry |
//! | [`inline`] | value bytes carried inside entries (*write*, *transfer*, chunks) |
//! | [`door`] | parts into which a door divides the command of a host |
//! | [`window`] | windows into the drive's page buffer (CXL.mem) |
//! | [`list`], [`iter`] | the data a List, a SEEK or a NEXT returns |
//! | [`batch`] | the structured value of a batch: many stores and deletes in one value |
//! | [`nvm`] | commands and Identify data of a namespace of blocks |
//! | [`identify`] | Identify data structures, 4096 bytes each |
//! | [`log`], [`feature`], [`discovery`] | log pages, features and events, the discovery log |
//! | [`fabrics`], [`property`] | commands that reach a controller over a network, and its properties |
//! | [`auth`] | messages of DH-HMAC-CHAP |
//! | [`tcp`] | NVMe/TCP protocol data units |
//!
//! Multi-byte fields are little endian, as everywhere in NVMe. A field whose name ends in `_z` is
//! 0's based (0 means one). Layouts are drawn in the module that owns them and asserted at compile
//! time there.
//!
//! This crate has no queues, no I/O, no time, no policy, and no limits of a particular drive. It accepts any
//! bytes; malformed ones give a [`Status`] or an error, never a panic.

pub mod auth;
pub mod batch;
pub mod command;
pub mod cqe;
pub mod discovery;
pub mod door;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod inline;
pub mod iter;
pub mod key;
pub mod list;
pub mod log;
pub mod nvm;
pub mod opcode;
pub mod property;
pub mod queue;
pub mod sqe;
pub mod status;
pub mod tcp;
pub mod transport_fault;
pub mod window;
pub mod write_protection;

pub use command::{
    ALL_STREAMS, Batch, Command, RetrieveOptions, RetrievePart, Store, StoreOptions, StorePart, ValueSource,
    Write,
};
pub use cqe::Cqe;
pub use key::Key;
pub use sqe::{DRIVE_NSID, Psdt, SglDescriptor, Sqe};
pub use status::Status;

/// Bytes of a memory page as PRP entries describe it. The controller advertises MPSMIN = 0, so a
/// host always uses pages of this size (NVMe base specification, CC.MPS).
pub const PAGE_BYTES: u32 = 4096;
