//! NVMe/TCP: connections as state machines over bytes, and the sockets they use.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | one connection: protocol data units in, protocol data units out |
//! | `digest` | CRC-32C of headers and data, and the two ways hosts have of it |
//! | `output` | what is to be sent, without copies of data |
//! | `channel` | what is between a socket and a connection: nothing, or TLS |
//! | `handshake` | handshakes of TLS, on another thread |
//! | [`listener`] | sockets: epoll, one thread |

mod channel;
pub mod connection;
mod digest;
mod handshake;
pub mod listener;
pub mod output;

use std::collections::{BTreeMap, VecDeque};

use kvdrive_link::shared::DriveLoop;
use kvdrive_sim::Buckets;

use crate::buffer::Budget;
use crate::log::Log;
use crate::subsystem::Subsystem;

/// The part of the memory, one of so many, that is for data in capsules alone.
const CAPSULE_PART: usize = 4;
/// But at least this, so that one capsule fits.
const CAPSULE_MIN_BYTES: usize = 64 << 10;

/// What memory is for.
///
/// Data in a capsule are in the way of everything behind them on their connection, also of data that the host
/// was asked for and that hold memory until they are here. So they never wait for memory that only a host can
/// give back: they have some of their own, which comes back when the namespace has done what they belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Data that came in a capsule.
    Capsule,
    /// Data that the host was asked for, and answers.
    Transfer,
}

impl Use {
    /// Both of them.
    pub const ALL: [Use; 2] = [Use::Capsule, Use::Transfer];
}

/// Memory of one use, and who waits for it.
pub struct Memory {
    /// The memory.
    pub budget: Budget,
    /// Connections, by key, first come first served. Whoever asks while others wait waits behind them.
    pub line: VecDeque<usize>,
}

/// What the connections of one thread share.
pub struct Core {
    /// The subsystem behind them.
    pub subsystem: Subsystem,
    memory: [Memory; 2],
    /// What time it is, ms; from any clock that does not go back.
    pub now_ms: u64,
    /// The same, ns, as of the turn's last look at the clock.
    pub now_ns: u64,
    /// How long I/O commands took by opcode, from the turn in which their last byte was read to that in which
    /// their answer goes out: measured.
    pub latencies: BTreeMap<u8, Buckets>,
    /// A drive that has been powered on and waits to run in this thread's loop, between whose events sockets are
    /// looked at from then on.
    pub drive: Option<DriveLoop>,
    /// Why connections came to nothing.
    pub log: Log,
}

impl Core {
    /// A core with `memory_bytes` for data, and more if one command would not fit.
    pub fn new(subsystem: Subsystem, memory_bytes: usize) -> Core {
        let capsules = (memory_bytes / CAPSULE_PART).max(CAPSULE_MIN_BYTES);
        let transfers =
            memory_bytes.saturating_sub(capsules).max(subsystem.options().transfer_max_bytes as usize);
        let memory = |bytes| Memory { budget: Budget::new(bytes), line: VecDeque::new() };
        Core {
            subsystem,
            memory: [memory(capsules), memory(transfers)],
            now_ms: 0,
            now_ns: 0,
            latencies: BTreeMap::new(),
            drive: None,
            log: Log::default(),
        }
    }

    /// The memory of one use.
    pub fn memory(&mut self, of: Use) -> &mut Memory {
        &mut self.memory[of as usize]
    }

    /// Bytes of memory that are given out.
    pub fn used_bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.budget.used_bytes()).sum()
    }

    /// Most bytes that can be given out.
    pub fn limit_bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.budget.limit_bytes()).sum()
    }
}
