//! A host with many long commands, and another one with one short command at a time: turns are by work, not
//! by command.

use kvdrive_nvme::Key;
use kvdrive_subsystem::namespace::{Completion, QueueId};
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Event, Options};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::memory::Memory;
use kvdrive_rigs::wire::{
    abort, address, connect_as, core, data, hex, ic_req, response, retrieve, set_cc, store, units,
};

const LARGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 4 << 10;
/// Commands that the hog has under way.
const DEPTH: u8 = 12;
/// Least number of answers to the other host between two long commands of the hog. (A long command is the
/// work of 128 small ones, a List of many more.)
const BETWEEN: usize = 120;

/// Hosts with an admin and an I/O queue each, and the namespace's time, which the test advances.
struct Hosts {
    core: Core,
    memory: Memory,
    /// Connections: admin and I/O queue of one host after the other.
    queues: Vec<Connection>,
    now_ns: u64,
}

const HOG: usize = 1;
const OTHER: usize = 3;

impl Hosts {
    fn new() -> Hosts {
        let (core, memory) = core(Options::default(), 128 << 20);
        let mut door = Hosts { core, memory, queues: Vec::new(), now_ns: 0 };
        for (letter, controller) in [(b'b', 1), (b'c', 2)] {
            for (number, id) in [(0, [0xFF, 0xFF]), (1, [controller, 0])] {
                let key = door.queues.len();
                let queue = Connection::new(key, Limits::default(), address(), &door.core);
                door.queues.push(queue);
                door.send(key, &ic_req());
                door.send(key, &connect_as(letter, 1, number, 63, id));
                if number == 0 {
                    door.send(key, &set_cc(2, "61004600"));
                }
                door.settle();
                door.output(key);
            }
        }
        door
    }

    fn send(&mut self, key: usize, bytes: &[u8]) {
        assert_eq!(self.queues[key].receive(&mut self.core, bytes), bytes.len());
    }

    /// Lets `commands` complete, and answers go out.
    fn complete(&mut self, commands: Option<usize>) {
        self.memory.state.borrow_mut().allowed = commands;
        self.settle();
    }

    fn settle(&mut self) {
        self.core.subsystem.note_time(self.now_ns);
        self.core.subsystem.poll();
        while let Some(event) = self.core.subsystem.next_event() {
            let event = match event {
                Event::Abort { by, queue, cid } => self.abort(by, queue, cid),
                event => Some(event),
            };
            if let Some(Event::Completed(completion)) = event {
                let queue = Some(completion.tag.queue);
                let of = self.queues.iter_mut().find(|of| of.queue() == queue);
                of.expect("its queue is open").complete(&mut self.core, completion);
            }
        }
    }

    /// Aborts as a server does.
    fn abort(&mut self, by: Completion, queue: QueueId, cid: u16) -> Option<Event> {
        let of = self.queues.iter_mut().find(|of| of.queue() == Some(queue));
        let reach = of.expect("its queue is open").abort(&mut self.core, cid);
        self.core.subsystem.go_on_aborting(by, reach).map(Event::Completed)
    }

    /// What a queue has sent: units by their type, with their bytes.
    fn output(&mut self, key: usize) -> Vec<Vec<u8>> {
        let sent = self.queues[key].output().take_all();
        units(&sent).into_iter().map(<[u8]>::to_vec).collect()
    }

    fn answers(&mut self, key: usize) -> usize {
        self.output(key).iter().filter(|unit| unit[0] == 5).count()
    }

    /// The hog stores a value, and sends its data as they are requested.
    fn store_large(&mut self, cid: u8) {
        self.send(HOG, &store(cid, &[cid], &vec![cid; LARGE_BYTES], false));
        self.settle();
        let asked = self.output(HOG).into_iter().find(|unit| unit[0] == 9).expect("R2T");
        let tag = u16::from_le_bytes([asked[10], asked[11]]);
        const PIECE: usize = 256 << 10;
        for at in (0..LARGE_BYTES).step_by(PIECE) {
            let last = at + PIECE == LARGE_BYTES;
            self.send(HOG, &data(cid, tag, at as u32, &vec![cid; PIECE], last));
        }
    }

    /// Keys for Lists of [`LARGE_BYTES`]: 8 B of a List each.
    fn fill_lists(&mut self) {
        let keys = (0..=LARGE_BYTES as u32 / 8).map(|number| Key::new(&number.to_be_bytes()).unwrap());
        self.memory.state.borrow_mut().pairs.extend(keys.map(|key| (key, Vec::new())));
    }

    /// Number of small reads of the other host that were answered between two long commands of the hog, which
    /// has [`DEPTH`] of them under way by `send`. The other host asks for `asked_bytes` each time.
    fn answers_between(&mut self, asked_bytes: usize, send: impl Fn(&mut Hosts, u8)) -> Vec<usize> {
        self.memory.state.borrow_mut().allowed = None;
        self.send(OTHER, &store(1, b"small", &vec![1; SMALL_BYTES], true));
        self.settle();
        assert_eq!(self.answers(OTHER), 1);
        self.memory.state.borrow_mut().allowed = Some(0);
        (0..DEPTH).for_each(|cid| send(self, cid));
        self.output(HOG);
        let (mut between, mut reads) = (Vec::new(), 0);
        while between.len() < usize::from(DEPTH) / 2 {
            self.send(OTHER, &retrieve(1, b"small", asked_bytes as u32));
            while self.answers(OTHER) == 0 {
                self.complete(Some(1));
                for _ in 0..self.answers(HOG) {
                    between.push(std::mem::take(&mut reads));
                }
                self.now_ns += 10_000;
            }
            reads += 1;
            assert!(reads < 10_000, "the hog is never served");
        }
        between
    }
}

/// When the hog is alone, its commands continue at once, also those that were held.
fn ends_alone(door: &mut Hosts, commands: u8) {
    door.now_ns += 1_000_000_000;
    for _ in 0..commands {
        door.complete(None);
    }
    assert!(!door.core.subsystem.holds_commands());
    assert_eq!(door.memory.state.borrow().under_way, 0);
    for queue in &mut door.queues {
        queue.abandon(&mut door.core);
    }
    assert_eq!(door.core.used_bytes(), 0);
}

/// The first long command finds the other host idle.
fn check(between: &[usize]) {
    assert!(between[1..].iter().all(|reads| *reads >= BETWEEN), "{between:?} reads between long commands");
}

#[test]
fn a_host_that_retrieves_large_values_leaves_turns_to_another_one() {
    let mut door = Hosts::new();
    door.store_large(0);
    door.complete(None);
    let between = door.answers_between(SMALL_BYTES, |door, cid| {
        door.send(HOG, &retrieve(cid, &[0], LARGE_BYTES as u32));
    });
    check(&between);
    assert!(between[1..].iter().all(|reads| *reads < 200), "{between:?}: the hog has its part");
    ends_alone(&mut door, DEPTH);
}

/// Most hosts do not know the length of a value, and request the longest possible one. A read counts as the work of its
/// answer.
#[test]
fn a_host_that_asks_for_more_than_there_is_has_its_turns() {
    let mut door = Hosts::new();
    door.store_large(0);
    door.complete(None);
    let between = door.answers_between(LARGE_BYTES, |door, cid| {
        door.send(HOG, &retrieve(cid, &[0], LARGE_BYTES as u32));
    });
    check(&between);
    ends_alone(&mut door, DEPTH);
}

#[test]
fn a_host_that_stores_large_values_leaves_turns_to_another_one() {
    let mut door = Hosts::new();
    let between = door.answers_between(SMALL_BYTES, Hosts::store_large);
    check(&between);
    ends_alone(&mut door, DEPTH);
}

#[test]
fn a_host_that_lists_much_leaves_turns_to_another_one() {
    let mut door = Hosts::new();
    door.fill_lists();
    let between = door.answers_between(SMALL_BYTES, |door, cid| {
        let mut list = retrieve(cid, &[0], LARGE_BYTES as u32);
        list[8] = 6;
        door.send(HOG, &list);
    });
    check(&between);
    ends_alone(&mut door, DEPTH);
}

/// Most commands that the namespace completes before a read of host `OTHER`, of 40 such reads. Meanwhile host `HOG`
/// keeps its queue full of reads of `bytes` bytes.
fn commands_before_a_read(bytes: usize) -> usize {
    let mut door = Hosts::new();
    for (host, key, bytes) in [(HOG, b"large", bytes), (OTHER, b"small", SMALL_BYTES)] {
        door.memory.state.borrow_mut().pairs.insert(Key::new(key).unwrap(), vec![1; bytes]);
        // One read each: then the length of answers is known.
        door.send(host, &retrieve(1, key, LARGE_BYTES as u32));
        door.settle();
        assert_eq!(door.answers(host), 1);
    }
    door.memory.state.borrow_mut().allowed = Some(0);
    (0..60).for_each(|cid| door.send(HOG, &retrieve(cid, b"large", LARGE_BYTES as u32)));
    let mut longest = 0;
    for _ in 0..40 {
        door.send(OTHER, &retrieve(1, b"small", SMALL_BYTES as u32));
        let mut completed = 0;
        while door.answers(OTHER) == 0 {
            door.complete(Some(1));
            for unit in door.output(HOG).into_iter().filter(|unit| unit[0] == 5) {
                door.send(HOG, &retrieve(unit[20], b"large", LARGE_BYTES as u32));
            }
            door.now_ns += 10_000;
            completed += 1;
        }
        longest = longest.max(completed);
    }
    ends_alone(&mut door, 60);
    longest
}

/// However short they are, many commands do not go ahead of another host's command.
#[test]
fn a_host_with_many_short_commands_leaves_turns_to_another_one() {
    assert!(commands_before_a_read(SMALL_BYTES) <= 5, "{}", commands_before_a_read(SMALL_BYTES));
    // One of these is more work than the other host waits for, so `HOG` waits for its next turn.
    assert!(commands_before_a_read(100 << 10) <= 2, "{}", commands_before_a_read(100 << 10));
}

/// While the other host is idle, Lists continue one at a time: its next command waits for one of them at
/// most.
#[test]
fn a_namespace_has_one_list_of_a_host_at_a_time() {
    let mut door = Hosts::new();
    door.fill_lists();
    door.memory.state.borrow_mut().allowed = Some(0);
    door.now_ns += 10_000_000;
    door.settle();
    for cid in 0..DEPTH {
        let mut list = retrieve(cid, &[0], LARGE_BYTES as u32);
        list[8] = 6;
        door.send(HOG, &list);
    }
    for _ in 0..DEPTH {
        assert_eq!(door.memory.state.borrow().under_way, 1);
        door.complete(Some(1));
        door.now_ns += 10_000;
    }
    assert_eq!(door.answers(HOG), usize::from(DEPTH));
    ends_alone(&mut door, DEPTH);
}

#[test]
fn a_command_that_waits_for_its_turn_is_aborted_and_forgotten_with_its_queue() {
    let mut door = Hosts::new();
    door.memory.state.borrow_mut().allowed = Some(0);
    door.send(OTHER, &retrieve(1, b"small", SMALL_BYTES as u32));
    for cid in 0..DEPTH {
        door.send(HOG, &retrieve(cid, &[0], LARGE_BYTES as u32));
    }
    assert!(door.core.subsystem.holds_commands());
    let taken = door.memory.state.borrow().taken;
    door.send(HOG - 1, &abort(9, 1, DEPTH - 1));
    door.settle();
    assert_eq!(door.output(HOG - 1), [response("00000000", 3, 9, "0000")]);
    let [answer] = &door.output(HOG)[..] else { panic!("one answer") };
    assert_eq!((answer[20], &answer[22..24]), (DEPTH - 1, &[0x0E, 0][..]), "07h: aborted as asked");
    // Commands under way complete although their queue has ended, and waiting ones have ended with it.
    for key in [HOG, HOG - 1] {
        door.queues[key].end(&mut door.core);
    }
    assert!(!door.core.subsystem.holds_commands());
    door.complete(None);
    assert_eq!(door.memory.state.borrow().taken, taken);
    assert_eq!(door.answers(OTHER), 1);
}

/// The namespace has two commands and has begun neither: one is aborted, and the other one is answered.
#[test]
fn a_command_that_a_namespace_has_not_begun_is_aborted() {
    let mut door = Hosts::new();
    door.memory.state.borrow_mut().allowed = Some(0);
    for cid in [1, 2] {
        door.send(OTHER, &retrieve(cid, b"small", SMALL_BYTES as u32));
    }
    door.settle();
    assert_eq!(door.memory.state.borrow().under_way, 2);
    for (cid, expected) in [(2, "00000000"), (2, "01000000"), (9, "01000000")] {
        door.send(OTHER - 1, &abort(cid, 1, cid));
        // The namespace's completions come with the next look.
        (0..2).for_each(|_| door.settle());
        let [answer] = &door.output(OTHER - 1)[..] else { panic!("command {cid}: one answer") };
        assert_eq!((answer[8..12].to_vec(), answer[20]), (hex(expected), cid));
    }
    let [answer] = &door.output(OTHER)[..] else { panic!("one answer") };
    assert_eq!((answer[20], &answer[22..24]), (2, &[0x0E, 0][..]), "07h: aborted as asked");
    door.complete(None);
    let [answer] = &door.output(OTHER)[..] else { panic!("one answer") };
    assert_eq!((answer[20], &answer[22..24]), (1, &[0x0E, 0x81][..]), "87h, and not to be repeated");
}
