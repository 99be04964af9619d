//! Arbitration between hosts: which I/O commands are given to namespaces at a time. Hosts take turns by work, not by
//! number of commands.
//!
//! ```text
//!   a command ─► its host's line ─► namespace
//!                                └─ if its host has room: WINDOW of work under way, but only AHEAD while another
//!                                   host at work has a lower position
//! ```
//!
//! A command's work is counted in bytes: those that it moves, and [`COMMAND_BYTES`]. The length of an answer is known
//! only when it has come, since most hosts leave room for the longest value. Until then it is expected to be as long as
//! recent answers of its host and kind. A host's *position* is the sum of the work that it has given to namespaces. The
//! position of a host that starts to work again is raised to that at which the last command of any host began. So a
//! host that reads small values one by one is answered some hundred times for each MiB that another host moves, however
//! many commands and queues that host has.
//!
//! A namespace executes its commands in an order of its own, mostly queue by queue, so a host with many commands on
//! many queues would get most of its time. Therefore a host whose position is ahead of another host at work has no more
//! commands in the namespace than keep it busy, and a longer command of it waits until no host at work has a lower
//! position. Waiting commands are released in the order of their hosts' positions. This is start-time fair queueing
//! with a bounded depth.
//!
//! A host is *at work* if a command of it is held or under way, or was answered just now. The last case covers hosts
//! that have one command at a time: otherwise a long command of another host would begin between two of its commands,
//! and most drives finish a command once it has begun. This costs throughput where a drive could do both at once.
//!
//! While one host alone has I/O queues, its commands go straight through. Hosts are told apart by name, so several
//! connections of one host are one.
//!
//! Not here: queues and their answers ([`super`]), memory for data ([`crate::buffer`]).

use std::collections::{BTreeMap, VecDeque};

use kvdrive_nvme::Sqe;
use kvdrive_nvme::opcode::{self, Direction};

use super::Subsystem;
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Session, Tag};

/// Work of a command besides its bytes: about as many bytes as drive and network move in the time that a command itself
/// takes (1 MiB in the time of 128 commands of 4 KiB).
const COMMAND_BYTES: u64 = 4 << 10;
/// A byte of a List's answer takes as long as this many bytes of a value, because a List visits an index entry for each
/// key.
const LIST_FACTOR: u64 = 16;
/// Work of a command of 4 KiB.
const SMALL_BYTES: u64 = COMMAND_BYTES + (4 << 10);
/// Small commands of a host that is ahead, for each command that namespaces execute at the same time: one can begin
/// while the answer of another is on its way.
const AHEAD: u64 = 2;
/// The least such number in all: a drive in the server's loop executes several between two polls.
const AHEAD_MIN: u64 = 4;
/// Small commands of one host in namespaces while other hosts have queues, for each command that they execute at the
/// same time. A host that was idle waits for at most that many.
const WINDOW: u64 = 64;
/// Limit of that window, bytes.
const WINDOW_MAX_BYTES: u64 = 8 << 20;
/// A host counts as at work for so long after an answer, since it may send its next command.
const BETWEEN_COMMANDS_NS: u64 = 1_000_000;
/// A host whose command takes longer than this does not count as at work, so that others do not wait for it.
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
    /// Its I/O queues, and deleted queues with commands under way.
    queues: usize,
    held: VecDeque<Held>,
    /// Work of its commands in namespaces.
    under_way_bytes: u64,
    /// How long its answers are expected to be, by [`Answer`].
    usual_bytes: [u64; Answer::COUNT],
    /// Its position: all work that it has given to namespaces, and amounts by which it was raised.
    position_bytes: u64,
    /// When its last command came or was answered.
    seen_ns: u64,
    /// Is it in [`Arbiter::busy`]?
    is_busy: bool,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.under_way_bytes == 0
    }

    /// Is a command of it waiting or under way, or to be expected soon?
    fn is_at_work(&self, now_ns: u64) -> bool {
        let for_ns = if self.is_idle() { BETWEEN_COMMANDS_NS } else { STUCK_NS };
        self.queues > 0 && now_ns.saturating_sub(self.seen_ns) < for_ns
    }
}

/// The lines of all hosts.
#[derive(Default)]
pub(super) struct Arbiter {
    hosts: Vec<Line>,
    /// Hosts that were at work at the last check. Kept because most of thousands of hosts are idle.
    busy: Vec<usize>,
    /// Commands that namespaces execute at the same time.
    side_by_side: u64,
    by_nqn: BTreeMap<String, usize>,
    free: Vec<usize>,
    /// Commands that are held, of all hosts.
    held: usize,
    /// The position at which the last command of any host began.
    began_bytes: u64,
    now_ns: u64,
}

/// Kinds of answers, whose expected lengths are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Keys,
    Values,
}

impl Answer {
    const COUNT: usize = 2;

    /// The kind of answer of a command; `None`: its data come from the host.
    fn of(opcode: u8) -> Option<Answer> {
        match opcode {
            opcode::LIST => Some(Answer::Keys),
            _ => (opcode::direction(opcode) == Direction::ToHost).then_some(Answer::Values),
        }
    }

    /// The work of an answer of `bytes` bytes.
    fn work_bytes(self, bytes: u64) -> u64 {
        bytes * if self == Answer::Keys { LIST_FACTOR } else { 1 }
    }
}

/// A command in a namespace, and its expected work.
#[derive(Clone, Copy, Default)]
pub(super) struct UnderWay {
    work_bytes: u64,
    answer: Option<Answer>,
}

impl Line {
    /// The work to expect of a command.
    fn work_of(&self, command: &Held) -> UnderWay {
        let (bytes, answer) = (command.data.len() as u64, Answer::of(command.sqe.opcode));
        let data_bytes =
            answer.map_or(bytes, |kind| kind.work_bytes(bytes.min(self.usual_bytes[kind as usize])));
        UnderWay { work_bytes: COMMAND_BYTES + data_bytes, answer }
    }

    /// Notes that a command with room for `asked_bytes` bytes was answered with `answered_bytes` bytes.
    fn note_done(&mut self, done: UnderWay, asked_bytes: u64, answered_bytes: u64) {
        self.under_way_bytes -= done.work_bytes;
        let Some(kind) = done.answer else { return };
        let usual_bytes = &mut self.usual_bytes[kind as usize];
        // After one long answer a long one is expected again; after several short ones, a short one.
        *usual_bytes = answered_bytes.max((*usual_bytes).min(asked_bytes) / 2);
        let work_bytes = COMMAND_BYTES + kind.work_bytes(answered_bytes);
        self.position_bytes = (self.position_bytes + work_bytes).saturating_sub(done.work_bytes);
    }
}

impl Arbiter {
    /// Sets the time, from any monotonic clock.
    pub(super) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets how many commands all namespaces execute at the same time.
    pub(super) fn note_namespaces(&mut self, side_by_side: u32) {
        self.side_by_side = side_by_side.into();
    }

    /// Counts a further I/O queue of a host.
    pub(super) fn join(&mut self, nqn: &str) -> HostIndex {
        if let Some(index) = self.by_nqn.get(nqn) {
            self.hosts[*index].queues += 1;
            return HostIndex(*index);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.hosts.push(Line::default());
            self.hosts.len() - 1
        });
        // Before the first answer, an answer is expected to fill its room.
        let usual_bytes = [u64::MAX; Answer::COUNT];
        self.hosts[index] = Line { nqn: nqn.to_owned(), queues: 1, usual_bytes, ..Line::default() };
        self.by_nqn.insert(nqn.to_owned(), index);
        HostIndex(index)
    }

    /// Counts a queue of the host as ended, after all of its commands have completed.
    pub(super) fn leave(&mut self, HostIndex(index): HostIndex) {
        let line = &mut self.hosts[index];
        line.queues -= 1;
        if line.queues == 0 {
            let line = std::mem::take(line);
            self.by_nqn.remove(&line.nqn);
            self.busy.retain(|busy| *busy != index);
            self.free.push(index);
        }
    }

    /// Does more than one host have I/O queues?
    pub(super) fn has_several_hosts(&self) -> bool {
        self.by_nqn.len() > 1
    }

    /// Does a command wait here?
    pub(super) fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Takes a command of a host. Returns it if it may go to its namespace at once.
    pub(super) fn take(&mut self, HostIndex(index): HostIndex, command: Held) -> Option<(Held, UnderWay)> {
        let is_alone = !self.has_several_hosts();
        let line = &mut self.hosts[index];
        line.seen_ns = self.now_ns;
        if line.is_idle() {
            line.position_bytes = line.position_bytes.max(self.began_bytes);
        }
        if !std::mem::replace(&mut line.is_busy, true) {
            self.busy.push(index);
        }
        let is_first = line.held.is_empty();
        let least_bytes = if is_first && !is_alone { self.least_at_work() } else { 0 };
        if is_first && (is_alone || self.may_go(index, &command, least_bytes)) {
            let under_way = self.go(index, &command);
            return Some((command, under_way));
        }
        self.hosts[index].held.push_back(command);
        self.held += 1;
        None
    }

    /// Notes that a command of a host was completed.
    pub(super) fn note_done(&mut self, HostIndex(index): HostIndex, done: UnderWay, completion: &Completion) {
        let line = &mut self.hosts[index];
        line.note_done(done, completion.data.len() as u64, completion.data_bytes as u64);
        line.seen_ns = self.now_ns;
    }

    /// The next command that may go to its namespace now: that of the host with the lowest position.
    pub(super) fn next(&mut self) -> Option<(Held, UnderWay)> {
        if self.held == 0 {
            return None;
        }
        let is_alone = !self.has_several_hosts();
        let least_bytes = self.least_at_work();
        let may_go = |index: &usize| {
            let first = self.hosts[*index].held.front();
            first.is_some_and(|command| is_alone || self.may_go(*index, command, least_bytes))
        };
        let ready = self.busy.iter().copied().filter(may_go);
        let index = ready.min_by_key(|index| self.hosts[*index].position_bytes)?;
        let command = self.hosts[index].held.pop_front()?;
        self.held -= 1;
        let under_way = self.go(index, &command);
        Some((command, under_way))
    }

    /// The lowest position of a host at work.
    fn least_at_work(&mut self) -> u64 {
        let (hosts, now_ns) = (&mut self.hosts, self.now_ns);
        let mut least_bytes = u64::MAX;
        self.busy.retain(|index| {
            let line = &mut hosts[*index];
            let is_at_work = line.is_at_work(now_ns);
            if is_at_work {
                least_bytes = least_bytes.min(line.position_bytes);
            }
            line.is_busy = is_at_work || !line.is_idle();
            line.is_busy
        });
        least_bytes
    }

    /// May the host's command begin, if the lowest position of hosts at work is `least_bytes`?
    fn may_go(&self, index: usize, command: &Held, least_bytes: u64) -> bool {
        let line = &self.hosts[index];
        let work_bytes = line.work_of(command).work_bytes;
        let under_way_bytes = line.under_way_bytes + work_bytes;
        if line.position_bytes > least_bytes {
            return under_way_bytes <= (AHEAD * self.side_by_side).max(AHEAD_MIN) * SMALL_BYTES;
        }
        let window_bytes = (WINDOW * self.side_by_side * SMALL_BYTES).min(WINDOW_MAX_BYTES);
        line.under_way_bytes == 0 || under_way_bytes <= window_bytes
    }

    fn go(&mut self, index: usize, command: &Held) -> UnderWay {
        let line = &mut self.hosts[index];
        let under_way = line.work_of(command);
        self.began_bytes = self.began_bytes.max(line.position_bytes);
        line.position_bytes += under_way.work_bytes;
        line.under_way_bytes += under_way.work_bytes;
        under_way
    }

    /// Forgets the held commands of a deleted queue.
    pub(super) fn forget(&mut self, HostIndex(index): HostIndex, queue: QueueId) {
        let held = &mut self.hosts[index].held;
        let before = held.len();
        held.retain(|command| command.tag.queue != queue);
        self.held -= before - held.len();
    }

    /// Removes a held command.
    pub(super) fn abort(&mut self, HostIndex(index): HostIndex, queue: QueueId, cid: u16) -> Option<Held> {
        let held = &mut self.hosts[index].held;
        let is_meant = |command: &Held| command.tag.queue == queue && command.sqe.cid.get() == cid;
        let command = held.iter().position(is_meant).and_then(|at| held.remove(at))?;
        self.held -= 1;
        Some(command)
    }
}

impl Subsystem {
    /// A command goes to its namespace, or waits for its host's turn.
    pub(super) fn wait_turn(&mut self, command: Held) {
        let slot = &self.queues[command.tag.queue.index as usize];
        let host = slot.host.expect("an I/O queue has a host");
        if let Some((command, under_way)) = self.arbiter.take(host, command) {
            self.submit(command, under_way);
        }
    }

    /// Gives namespaces the commands whose turn it is; `true` if there were any.
    pub(super) fn give_turns(&mut self) -> bool {
        let mut any = false;
        while let Some((command, under_way)) = self.arbiter.next() {
            self.submit(command, under_way);
            any = true;
        }
        any
    }

    fn submit(&mut self, Held { nsid, session, tag, sqe, data }: Held, under_way: UnderWay) {
        if let Some(namespace) = self.namespaces.get_mut(&nsid) {
            let (queue, slot) = (&mut self.queues[tag.queue.index as usize], usize::from(tag.slot));
            queue.under_way += 1;
            if queue.works.len() <= slot {
                queue.works.resize(slot + 1, UnderWay::default());
            }
            queue.works[slot] = under_way;
            namespace.submit(session, tag, &sqe, data);
        }
    }

    /// Updates the number of parallel commands after namespaces were added or replaced.
    pub(super) fn note_namespaces(&mut self) {
        let side_by_side = self.namespaces.values().map(|namespace| namespace.side_by_side()).sum();
        self.arbiter.note_namespaces(side_by_side);
    }

    /// Notes that a namespace has completed a command.
    pub(super) fn note_done(&mut self, completion: &Completion) {
        let QueueId { index, generation } = completion.tag.queue;
        let slot = &mut self.queues[index as usize];
        let is_its_own = slot.queue.is_none() || slot.generation == generation;
        if let (Some(host), true) = (slot.host, is_its_own && slot.under_way > 0) {
            slot.under_way -= 1;
            let done = slot.works[usize::from(completion.tag.slot)];
            self.arbiter.note_done(host, done, completion);
            self.free_place(index);
        }
    }

    /// Frees the place of a queue if the queue is deleted and has no command under way.
    pub(super) fn free_place(&mut self, index: u32) {
        let slot = &mut self.queues[index as usize];
        if slot.queue.is_none() && slot.under_way == 0 {
            if let Some(host) = slot.host.take() {
                self.arbiter.leave(host);
            }
            self.free_queues.push(index);
        }
    }

    /// Does more than one host have I/O queues?
    pub fn has_several_hosts(&self) -> bool {
        self.arbiter.has_several_hosts()
    }

    /// Does a command wait for its host's turn? It may come only because time passes, so the loop has to check again.
    pub fn holds_commands(&self) -> bool {
        self.arbiter.holds_any() || !self.late.is_empty()
    }

    /// Sets the time, from any monotonic clock; it decides which hosts are at work.
    pub fn note_time(&mut self, now_ns: u64) {
        self.arbiter.note_time(now_ns);
        self.now_ms = self.now_ms.max(now_ns / 1_000_000);
    }
}
