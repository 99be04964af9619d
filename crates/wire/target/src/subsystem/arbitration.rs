//! Arbitration between hosts: which I/O commands namespaces have at a time, by work and not by number of commands.
//!
//! ```text
//!   a command ─► its host's line ─► namespace
//!                                └─ its host has room: WINDOW of work under way, or little while another host at work
//!                                   is behind it (AHEAD)
//! ```
//!
//! A command's work is counted in bytes: what it moves, and [`COMMAND_BYTES`]. How long an answer is, is known when it has
//! come: most hosts ask for the longest there can be. Until then it is expected to be as long as the last ones of its
//! host and kind. A host's position is the sum of the work that it has given to namespaces; a host that comes to work again begins no further behind than where the last command
//! of any host began. So a host that reads small values one by one is answered some hundred times for each MiB that
//! another one moves, however many commands and queues that one has.
//!
//! What a namespace has is carried out in whatever order it likes, mostly queue by queue: a host that has many commands
//! there, on many queues, would have most of its time. So a host that is ahead of another one at work has there what keeps
//! the namespace busy and no more, and a command that is longer than that waits until no such host is behind.
//! Commands that wait go in the order of their hosts' positions. This is start-time fair queueing with a bounded depth.
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

use kvdrive_spec::Sqe;
use kvdrive_spec::opcode::{self, Direction};

use super::Subsystem;
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Session, Tag};

/// What a command counts for besides its bytes: about what a drive and a network move in the time of its own work, 1 MiB
/// in the time of 128 commands of 4 KiB.
const COMMAND_BYTES: u64 = 4 << 10;
/// A List looks at an index entry for each key of its answer: a byte of it takes as long as so many of a value.
const LIST_FACTOR: u64 = 16;
/// Work of a command of 4 KiB.
const SMALL_BYTES: u64 = COMMAND_BYTES + (4 << 10);
/// Small commands of a host that is ahead, for each command that namespaces carry out side by side: one is begun
/// while the answer of another one is on its way.
const AHEAD: u64 = 2;
/// The same at least: a drive in the server's loop carries out some between two looks.
const AHEAD_MIN: u64 = 4;
/// Small commands that namespaces have of one host while other hosts have queues, for each that they carry out side by
/// side: the host that has been idle for a while waits for so many.
const WINDOW: u64 = 64;
/// Limit of that window, bytes.
const WINDOW_MAX_BYTES: u64 = 8 << 20;
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
    /// The work that namespaces have of it.
    under_way_bytes: u64,
    /// How long its answers are expected to be, by [`Answer`].
    usual_bytes: [u64; Answer::COUNT],
    /// All work that it has given to namespaces, and what it was lifted by.
    position_bytes: u64,
    /// When its last command came or was answered.
    seen_ns: u64,
    /// It is in [`Arbiter::busy`].
    is_busy: bool,
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
    /// Hosts that are at work, or were when it was last looked at: most of thousands are idle.
    busy: Vec<usize>,
    /// Commands that namespaces carry out side by side.
    side_by_side: u64,
    by_nqn: BTreeMap<String, usize>,
    free: Vec<usize>,
    /// Commands that are held, of all hosts.
    held: usize,
    /// Where the last command of any host began.
    began_bytes: u64,
    now_ns: u64,
}

/// Kinds of answers, whose lengths have nothing to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Keys,
    Values,
}

impl Answer {
    const COUNT: usize = 2;

    /// What a command answers; `None`: its data come from the host.
    fn of(opcode: u8) -> Option<Answer> {
        match opcode {
            opcode::LIST => Some(Answer::Keys),
            _ => (opcode::direction(opcode) == Direction::ToHost).then_some(Answer::Values),
        }
    }

    /// The work of an answer of so many bytes.
    fn work_bytes(self, bytes: u64) -> u64 {
        bytes * if self == Answer::Keys { LIST_FACTOR } else { 1 }
    }
}

/// A command that a namespace has, and the work that was expected of it.
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

    /// A command has come back, which had `asked_bytes` bytes of data and an answer of `answered_bytes`.
    fn note_done(&mut self, done: UnderWay, asked_bytes: u64, answered_bytes: u64) {
        self.under_way_bytes -= done.work_bytes;
        let Some(kind) = done.answer else { return };
        let usual_bytes = &mut self.usual_bytes[kind as usize];
        // A long answer is expected again at once, short ones after a few.
        *usual_bytes = answered_bytes.max((*usual_bytes).min(asked_bytes) / 2);
        let work_bytes = COMMAND_BYTES + kind.work_bytes(answered_bytes);
        self.position_bytes = (self.position_bytes + work_bytes).saturating_sub(done.work_bytes);
    }
}

impl Arbiter {
    /// What time it is, from any clock that does not go back.
    pub(super) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// So many commands are carried out side by side by all namespaces.
    pub(super) fn note_namespaces(&mut self, side_by_side: u32) {
        self.side_by_side = side_by_side.into();
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
        // Until one has come, an answer may be as long as what is asked for.
        let usual_bytes = [u64::MAX; Answer::COUNT];
        self.hosts[index] = Line { nqn: nqn.to_owned(), queues: 1, usual_bytes, ..Line::default() };
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

    /// Takes a command of a host; returns it if it goes to its namespace at once.
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

    /// A command of a host has come back.
    pub(super) fn note_done(&mut self, HostIndex(index): HostIndex, done: UnderWay, completion: &Completion) {
        let line = &mut self.hosts[index];
        line.note_done(done, completion.data.len() as u64, completion.data_bytes as u64);
        line.seen_ns = self.now_ns;
    }

    /// The next command that may go to its namespace now: of those, the one whose host is furthest behind.
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

    /// The position of the host at work that is furthest behind.
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

    /// May the host's command go, if hosts at work are at `least_bytes` and beyond?
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

impl Subsystem {
    /// A command goes to its namespace, or waits for its host's turn.
    pub(super) fn wait_turn(&mut self, command: Held) {
        let slot = &self.queues[command.tag.queue.index as usize];
        let host = slot.host.expect("an I/O queue has a host");
        if let Some((command, under_way)) = self.arbiter.take(host, command) {
            self.submit(command, under_way);
        }
    }

    /// Gives namespaces what has its turn; `true` if there was something.
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

    /// Namespaces have come or were replaced.
    pub(super) fn note_namespaces(&mut self) {
        let side_by_side = self.namespaces.values().map(|namespace| namespace.side_by_side()).sum();
        self.arbiter.note_namespaces(side_by_side);
    }

    /// A namespace has completed a command. If it counted as under way, it does no longer.
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

    /// Another queue may have this place, if its last queue is gone and has no command under way.
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

    /// Does a command wait for its host's turn? Then time alone may bring it.
    pub fn holds_commands(&self) -> bool {
        self.arbiter.holds_any()
    }

    /// What time it is, from any clock that does not go back: hosts at work are told from others by it.
    pub fn note_time(&mut self, now_ns: u64) {
        self.arbiter.note_time(now_ns);
    }
}
