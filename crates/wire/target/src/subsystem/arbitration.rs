//! Arbitration between hosts: which I/O commands namespaces have at a time, by work and not by number of commands.
//!
//! ```text
//!   a command ─► its host's line ─► namespace
//!                                └─ short: its host has room in its window
//!                                   long:  and no other host at work is behind its host
//! ```
//!
//! A command's work is counted in bytes: what it moves, and [`COMMAND_BYTES`]. A host's position is the sum of the work
//! that it has given to namespaces; a host that comes to work again begins no further behind than where the last command
//! of any host began. So a host that reads small values one by one is answered some thirty times for each MiB that
//! another one moves, however many commands and queues that one has.
//!
//! A host at work is one whose command is held or under way, or was answered just now: between two commands of a host
//! that has one at a time, a long command of another host would begin at once, and most drives end what they have begun.
//! That costs throughput where a drive could do both at once.
//!
//! While one host alone has I/O queues, its commands go straight through. Hosts are told apart by name, so several
//! connections of one host are one.
//!
//! Not here: queues and their answers ([`super`]), memory for data ([`crate::buffer`]).

use std::collections::{BTreeMap, VecDeque};

use kvdrive_spec::{Sqe, opcode};

use crate::buffer::Buffer;
use crate::namespace::{QueueId, Session, Tag};

/// What a command counts for besides its bytes: about what a drive and a network could move in the time of a small one.
const COMMAND_BYTES: u64 = 32 << 10;
/// A List looks at an index entry for each key of its answer: a byte of it takes as long as so many of a value.
const LIST_FACTOR: u64 = 16;
/// A command with more work than this is long.
const LONG_BYTES: u64 = 128 << 10;
/// Most that namespaces have of one host while other hosts have queues, unless it is one command: bytes of data, and
/// [`COMMAND_BYTES`] for each command.
const WINDOW_BYTES: u64 = 8 << 20;
/// A host that was answered is at work for so long: it may send its next command.
const BETWEEN_COMMANDS_NS: u64 = 1_000_000;
/// A host whose command takes longer than this does not keep others waiting for it.
const STUCK_NS: u64 = 100_000_000;

/// A host, as a place in [`Arbiter::hosts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HostIndex(usize);

/// A command on its way to a namespace.
pub(super) struct Held {
    pub nsid: u32,
    pub session: Session,
    pub tag: Tag,
    pub sqe: Sqe,
    pub data: Buffer,
}

#[derive(Default)]
struct Line {
    nqn: String,
    /// I/O queues that it has, and queues that are gone and still have commands under way.
    queues: usize,
    held: VecDeque<Held>,
    /// What namespaces have of it, as its window counts it.
    under_way_bytes: u64,
    /// All work that it has given to namespaces, and what it was lifted by.
    position_bytes: u64,
    /// When its last command came or was answered.
    seen_ns: u64,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.under_way_bytes == 0
    }

    /// Is a command of it under way, or to be expected?
    fn is_at_work(&self, now_ns: u64) -> bool {
        let for_ns = if self.is_idle() { BETWEEN_COMMANDS_NS } else { STUCK_NS };
        self.queues > 0 && now_ns.saturating_sub(self.seen_ns) < for_ns
    }
}

/// The lines of all hosts.
#[derive(Default)]
pub(super) struct Arbiter {
    hosts: Vec<Line>,
    by_nqn: BTreeMap<String, usize>,
    free: Vec<usize>,
    /// Commands that are held, of all hosts.
    held: usize,
    /// Where the last command of any host began.
    began_bytes: u64,
    now_ns: u64,
}

impl Held {
    fn work_bytes(&self) -> u64 {
        let factor = if self.sqe.opcode == opcode::LIST { LIST_FACTOR } else { 1 };
        COMMAND_BYTES + self.data.len() as u64 * factor
    }
}

/// What a command fills of its host's window.
fn window_bytes(data: usize) -> u64 {
    COMMAND_BYTES + data as u64
}

impl Arbiter {
    /// What time it is, from any clock that does not go back.
    pub(super) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A host has one more I/O queue.
    pub(super) fn join(&mut self, nqn: &str) -> HostIndex {
        if let Some(index) = self.by_nqn.get(nqn) {
            self.hosts[*index].queues += 1;
            return HostIndex(*index);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.hosts.push(Line::default());
            self.hosts.len() - 1
        });
        self.hosts[index] = Line { nqn: nqn.to_owned(), queues: 1, ..Line::default() };
        self.by_nqn.insert(nqn.to_owned(), index);
        HostIndex(index)
    }

    /// A queue of the host is gone, and all of its commands have come back.
    pub(super) fn leave(&mut self, HostIndex(index): HostIndex) {
        let line = &mut self.hosts[index];
        line.queues -= 1;
        if line.queues == 0 {
            let line = std::mem::take(line);
            self.by_nqn.remove(&line.nqn);
            self.free.push(index);
        }
    }

    /// Does a command wait here?
    pub(super) fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Takes a command of a host; returns it if it goes to its namespace at once.
    pub(super) fn take(&mut self, HostIndex(index): HostIndex, command: Held) -> Option<Held> {
        let is_alone = self.by_nqn.len() == 1;
        let line = &mut self.hosts[index];
        line.seen_ns = self.now_ns;
        if line.is_idle() {
            line.position_bytes = line.position_bytes.max(self.began_bytes);
        }
        if line.held.is_empty() && (is_alone || self.may_go(index, &command)) {
            self.go(index, &command);
            return Some(command);
        }
        self.hosts[index].held.push_back(command);
        self.held += 1;
        None
    }

    /// A command of a host has come back.
    pub(super) fn note_done(&mut self, HostIndex(index): HostIndex, data_bytes: usize) {
        let line = &mut self.hosts[index];
        line.under_way_bytes -= window_bytes(data_bytes);
        line.seen_ns = self.now_ns;
    }

    /// The next command that may go to its namespace now.
    pub(super) fn next(&mut self) -> Option<Held> {
        if self.held == 0 {
            return None;
        }
        let is_alone = self.by_nqn.len() == 1;
        let index = (0..self.hosts.len()).find(|index| {
            let first = self.hosts[*index].held.front();
            first.is_some_and(|command| is_alone || self.may_go(*index, command))
        })?;
        let command = self.hosts[index].held.pop_front()?;
        self.held -= 1;
        self.go(index, &command);
        Some(command)
    }

    fn may_go(&self, index: usize, command: &Held) -> bool {
        let line = &self.hosts[index];
        let under_way_bytes = line.under_way_bytes + window_bytes(command.data.len());
        let has_room = line.under_way_bytes == 0 || under_way_bytes <= WINDOW_BYTES;
        let is_behind =
            |other: &Line| other.position_bytes < line.position_bytes && other.is_at_work(self.now_ns);
        has_room && (command.work_bytes() <= LONG_BYTES || !self.hosts.iter().any(is_behind))
    }

    fn go(&mut self, index: usize, command: &Held) {
        let line = &mut self.hosts[index];
        self.began_bytes = self.began_bytes.max(line.position_bytes);
        line.position_bytes += command.work_bytes();
        line.under_way_bytes += window_bytes(command.data.len());
    }

    /// Forgets what is held of a queue that is gone.
    pub(super) fn forget(&mut self, HostIndex(index): HostIndex, queue: QueueId) {
        let held = &mut self.hosts[index].held;
        let before = held.len();
        held.retain(|command| command.tag.queue != queue);
        self.held -= before - held.len();
    }

    /// Takes a command away that is held.
    pub(super) fn abort(&mut self, HostIndex(index): HostIndex, queue: QueueId, cid: u16) -> Option<Held> {
        let held = &mut self.hosts[index].held;
        let is_meant = |command: &Held| command.tag.queue == queue && command.sqe.cid.get() == cid;
        let command = held.iter().position(is_meant).and_then(|at| held.remove(at))?;
        self.held -= 1;
        Some(command)
    }
}
