//! State that the connections and functions of one thread share: the subsystem that answers them, memory for data, and
//! the share of each host.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use kvdrive_link::shared::DriveLoop;
use kvdrive_sim::Buckets;

use crate::buffer::{Budget, Share, UNIT_BYTES};
use crate::log::Log;
use crate::sharing::{Reserves, has_reserve, site};
use crate::subsystem::Subsystem;

/// Most bytes that are read from one connection in one turn, and about as many from one host; the same for bytes sent.
pub(crate) const TURN_BYTES: usize = 256 << 10;
/// The part of the memory that is reserved for in-capsule data: one in this many.
const CAPSULE_PART: usize = 4;
/// Lower limit of that part, bytes: one capsule fits.
const CAPSULE_MIN_BYTES: usize = 64 << 10;

/// What memory is used for.
///
/// In-capsule data block everything that follows on their connection, including data for which R2T was sent
/// and which hold memory until they arrive. They must therefore never wait for memory that only a host can
/// free: they have a budget of their own, and its memory is free again when the namespace has carried out the
/// command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Data that came in a capsule.
    Capsule,
    /// Data of R2T transfers, and answers.
    Transfer,
}

impl Use {
    /// Every use.
    pub const ALL: [Use; 2] = [Use::Capsule, Use::Transfer];
}

/// The memory for one use, and the connections that wait for it.
pub struct Memory {
    /// The memory.
    pub budget: Budget,
    /// Waiting connections by key, first come first served among those of one host. A connection whose host
    /// gets none at present is passed over.
    pub line: VecDeque<usize>,
}

/// The shares of a host, one for each [`Use`] in order; all of its connections together use them.
pub type Shares = [Share; 2];

/// Smallest reserve for transfers: Identify fits.
const TRANSFER_RESERVE_MIN_BYTES: usize = UNIT_BYTES;
/// Largest reserve: the part in which a large value moves.
const RESERVE_MAX_BYTES: usize = 1 << 20;

/// What a named host has of the memory.
struct SharesOfHost {
    shares: Shares,
    /// The address as which it counts; `None`: it proves who it is, or is on this machine.
    site: Option<IpAddr>,
}

/// Bytes of a host in its last turn.
#[derive(Default)]
pub struct TurnBytes {
    turn: Cell<u64>,
    bytes: Cell<usize>,
}

impl TurnBytes {
    /// Counts bytes of the host that moved in this turn.
    pub(crate) fn note(&self, turn: u64, bytes: usize) {
        let before = if self.turn.replace(turn) == turn { self.bytes.get() } else { 0 };
        self.bytes.set(before + bytes);
    }

    /// How many of a turn's `most` bytes are left in this turn.
    pub(crate) fn left(&self, turn: u64, most: usize) -> usize {
        if self.turn.get() == turn { most.saturating_sub(self.bytes.get()) } else { most }
    }
}

/// Bytes that were read from a host in its last turn of reading, and sent to it in its last turn of sending.
#[derive(Default)]
pub struct HostTurn {
    pub(crate) read: TurnBytes,
    pub(crate) sent: TurnBytes,
}

/// Shared by all connections of a host.
pub type SharedTurn = Rc<HostTurn>;

/// Connections that are queues, by host. A further queue of a host is admitted only if that leaves as many for other
/// hosts as this host then has, and hosts of one address that do not prove who they are have at most one half.
#[derive(Default)]
pub struct Queues {
    by_host: BTreeMap<String, Rc<QueuesOfHost>>,
    all: usize,
    /// The turn of connections that have not named their host.
    pub(crate) unnamed: SharedTurn,
}

/// The queues of one host.
pub struct QueuesOfHost {
    nqn: String,
    /// The address as which its first queue counts, if it does not prove who it is.
    site: Option<IpAddr>,
    queues: Cell<usize>,
    pub(crate) turn: SharedTurn,
}

impl Queues {
    /// May this host have one more queue, if there may be at most `most` in all? `unproved` is its address if it does not
    /// prove who it is.
    pub(crate) fn admits(&self, host_nqn: &str, unproved: Option<IpAddr>, most: usize) -> bool {
        let own = self.by_host.get(host_nqn).map_or(0, |host| host.queues.get());
        let is_within = own == 0 || own + 1 < most.saturating_sub(self.all);
        let of_site = |from| {
            let hosts = self.by_host.values().filter(|host| host.site == Some(site(from)));
            hosts.map(|host| host.queues.get()).sum::<usize>()
        };
        is_within && unproved.is_none_or(|from| of_site(from) < most.div_ceil(2))
    }

    /// Counts a further queue of a host.
    pub(crate) fn join(&mut self, host_nqn: &str, unproved: Option<IpAddr>) -> Rc<QueuesOfHost> {
        self.all += 1;
        let new = || {
            let (nqn, queues) = (host_nqn.to_owned(), Cell::new(0));
            Rc::new(QueuesOfHost { nqn, site: unproved.map(site), queues, turn: SharedTurn::default() })
        };
        let host = self.by_host.entry(host_nqn.to_owned()).or_insert_with(new);
        host.queues.set(host.queues.get() + 1);
        host.clone()
    }

    /// Counts a queue of a host as gone.
    pub(crate) fn leave(&mut self, host: &QueuesOfHost) {
        self.all -= 1;
        host.queues.set(host.queues.get() - 1);
        if host.queues.get() == 0 {
            self.by_host.remove(&host.nqn);
        }
    }
}

/// State that the connections of one thread share.
pub struct Core {
    /// The subsystem that answers them.
    pub subsystem: Subsystem,
    memory: [Memory; 2],
    /// Shares of all connections that have not named their host.
    unnamed: Shares,
    /// Shares by name of the host.
    shares: BTreeMap<String, SharesOfHost>,
    /// Time, ms; from any clock that does not go back.
    pub now_ms: u64,
    /// The same clock at the last reading of this turn, ns.
    pub now_ns: u64,
    /// Duration of I/O commands by the place of their opcode ([`crate::subsystem::OPCODES`]), measured from the turn that read the last byte to the turn that
    /// sends the answer.
    pub latencies: BTreeMap<u16, Buckets>,
    /// A drive that was powered on and waits to run in this thread's loop.
    pub drive: Option<DriveLoop>,
    /// Open connections.
    pub connections: usize,
    /// Those of them that are queues.
    pub queues: Queues,
    /// The log of failed connections.
    pub log: Log,
}

impl Core {
    /// A core with `memory_bytes` for data, or more if one command would not fit.
    pub fn new(subsystem: Subsystem, memory_bytes: usize) -> Core {
        let capsules = (memory_bytes / CAPSULE_PART).max(CAPSULE_MIN_BYTES);
        // Room for two hosts that each move the most that one command moves at once.
        let whole_max_bytes = subsystem.options().whole_max_bytes() as usize;
        let transfers = memory_bytes.saturating_sub(capsules).max(2 * whole_max_bytes);
        let memory = |bytes, least| {
            let reserves = Reserves::of(bytes, least, RESERVE_MAX_BYTES);
            Memory { budget: Budget::new(bytes, reserves), line: VecDeque::new() }
        };
        let capsule_bytes = (subsystem.options().in_capsule_bytes as usize).max(UNIT_BYTES);
        let memory = [
            memory(capsules, capsule_bytes.next_power_of_two()),
            memory(transfers, TRANSFER_RESERVE_MIN_BYTES),
        ];
        Core {
            subsystem,
            unnamed: memory.each_ref().map(|memory| memory.budget.share(false)),
            shares: BTreeMap::new(),
            memory,
            now_ms: 0,
            now_ns: 0,
            latencies: BTreeMap::new(),
            drive: None,
            connections: 0,
            queues: Queues::default(),
            log: Log::default(),
        }
    }

    /// The shares of a connection that has not named its host.
    pub fn unnamed(&self) -> Shares {
        self.unnamed.clone()
    }

    /// The shares of the host with this name, with a reserve. `from` is its address if it does not prove who it is.
    /// `None`: no reserve is left for it.
    pub fn shares_of(&mut self, host_nqn: &str, from: Option<IpAddr>) -> Option<Shares> {
        if let Some(host) = self.shares.get(host_nqn) {
            return Some(host.shares.clone());
        }
        // A new host is the occasion to drop shares of hosts that have left.
        self.shares.retain(|_, host| host.shares.iter().any(Share::is_shared));
        let site = from.map(site);
        let of_site = site.map(|_| self.shares.values().filter(|host| host.site == site).count());
        let all = self.memory.iter().map(|memory| memory.budget.reserves()).min().unwrap_or(0);
        has_reserve(all, self.shares.len(), of_site).then(|| {
            let shares = self.memory.each_ref().map(|memory| memory.budget.share(true));
            self.shares.insert(host_nqn.to_owned(), SharesOfHost { shares: shares.clone(), site });
            shares
        })
    }

    /// The shares of a PCI function, which is on this machine: without a reserve if none is left.
    pub fn shares_of_function(&mut self, name: &str) -> Shares {
        let shares = self.shares_of(name, None);
        shares.unwrap_or_else(|| self.memory.each_ref().map(|memory| memory.budget.share(false)))
    }

    /// The budget of one use.
    pub fn memory(&mut self, of: Use) -> &mut Memory {
        &mut self.memory[of as usize]
    }

    /// Returns memory to the system that was not needed since the last call.
    pub fn trim(&mut self) {
        self.memory.iter().for_each(|memory| memory.budget.trim());
        self.subsystem.trim();
    }

    /// Bytes of memory that are lent.
    pub fn used_bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.budget.used_bytes()).sum()
    }

    /// Limit of the bytes that can be lent.
    pub fn limit_bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.budget.limit_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_its_bytes_and_the_next_one_has_them_again() {
        let bytes = TurnBytes::default();
        assert_eq!(bytes.left(1, 100), 100);
        bytes.note(1, 60);
        bytes.note(1, 30);
        assert_eq!(bytes.left(1, 100), 10);
        bytes.note(1, 30);
        assert_eq!((bytes.left(1, 100), bytes.left(2, 100)), (0, 100));
    }
}
