//! Rings that threads share, with nothing of a drive but its looks: for an interpreter (`scripts/miri`), which tries other orders
//! of threads and lets a thread see older values where no ordering forbids it. An entry that is lost or seen twice, a wake-up
//! that is lost (the interpreter names the deadlock), and a race for memory are found here.
//!
//! A part of what [`WallSource`](super::source::WallSource) does is done by [`Looks`]: tasks switch stacks, which no interpreter
//! follows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Cqe, Sqe, Status};
use kvdrive_sim::TaskCell;
use kvdrive_sim::wall::lock;

use super::memory::DriveView;
use super::source;
use super::{CompletionSink, SharedLink, SharedQueue};
use crate::arrivals::HostAction;
use crate::memory::HostMemory;

/// Commands of each thread.
const COMMANDS: u32 = if cfg!(miri) { 6 } else { 2000 };
/// Slots of a ring. One stays empty, so that of two threads one finds the ring full.
const ENTRIES: u32 = 2;
/// Bytes that go with each command, by way of memory.
const BYTES: u32 = 8;

/// Completions of one queue, on their way back to the threads that use it.
#[derive(Default)]
struct Answered {
    cids: Mutex<Vec<u16>>,
    waiting: Mutex<Vec<thread::Thread>>,
    off: AtomicU32,
}

impl CompletionSink for Answered {
    fn complete(&self, _: &SharedQueue, cqes: &[Cqe]) {
        lock(&self.cids).extend(cqes.iter().map(|cqe| cqe.cid.get()));
        lock(&self.waiting).drain(..).for_each(|thread| thread.unpark());
    }

    fn power_off(&self) {
        self.off.fetch_add(1, Ordering::Relaxed);
    }
}

impl Answered {
    /// Is `what` so? If not, this thread is woken by the next completion.
    fn or_is_told(&self, what: impl FnOnce() -> bool) -> bool {
        lock(&self.waiting).push(thread::current());
        what()
    }

    /// Waits until the command is answered.
    fn wait(&self, cid: u16) {
        let is_answered = || {
            let mut cids = lock(&self.cids);
            let at = cids.iter().position(|answered| *answered == cid);
            at.map(|at| cids.swap_remove(at)).is_some()
        };
        while !self.or_is_told(is_answered) {
            thread::park();
        }
    }
}

/// A thread of an application: a queue for all threads or one of its own, a command after the other, each with other bytes.
fn ask(link: &SharedLink, queue: &SharedQueue, answered: &Answered, thread: u32) {
    let buffer = link.memory().map(BYTES);
    for number in 0..COMMANDS {
        let cid = (thread * COMMANDS + number) as u16;
        buffer.fill(Piece::Bytes(&content(cid)));
        let mut sqe = Sqe::new(0, cid, 1);
        sqe.prp1.set(buffer.address());
        let mut sqes = vec![sqe];
        // A thread that finds the ring full sleeps: what is lost ends in a deadlock, and not in a loop without end.
        while !answered.or_is_told(|| queue.submit(&mut sqes, 0)) {
            thread::park();
        }
        assert!(sqes.is_empty(), "what was submitted is taken");
        answered.wait(cid);
        queue.ring_completion();
        let mut answer = Region::new();
        buffer.swap(&mut answer);
        assert_eq!(
            answer.to_bytes(BYTES),
            content(!cid),
            "command {cid}: what the drive wrote before it answered"
        );
    }
}

fn content(cid: u16) -> [u8; BYTES as usize] {
    u64::from(cid).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

/// The drive's side.
struct Looks {
    link: Arc<SharedLink>,
    memory: DriveView,
    spare: TaskCell<Vec<Vec<Sqe>>>,
    /// Entries and doorbells so far: of submission, of completion.
    sqes: u32,
    rung: [u32; 2],
}

impl Looks {
    fn look(&mut self) {
        let (link, mut arrivals) = (self.link.clone(), Vec::new());
        let registry = lock(&link.registry);
        // While the registry is locked, no queue begins that is not in it.
        for number in link.filled.take(registry.queues.len()) {
            let queue = registry.queues[usize::from(number)].as_ref().expect("none is closed");
            source::take(queue, number, &self.spare, |arrived| arrivals.push((queue.clone(), arrived)));
        }
        drop(registry);
        for (queue, arrived) in arrivals {
            let HostAction::Commands { sqes, submission_doorbells, completion_doorbells, .. } = arrived
            else {
                panic!("{arrived:?}: only commands were sent");
            };
            self.rung[0] += submission_doorbells;
            self.rung[1] += completion_doorbells;
            assert!(sqes.len() < ENTRIES as usize, "queue {}: one slot always stays empty", queue.id());
            self.answer(&queue, &sqes);
        }
    }

    fn answer(&mut self, queue: &SharedQueue, sqes: &[Sqe]) {
        self.sqes += sqes.len() as u32;
        for sqe in sqes {
            let (cid, address) = (sqe.cid.get(), sqe.prp1.get());
            let mut sent = Vec::new();
            let read = self.memory.read(address, BYTES, &mut |piece| match piece {
                Piece::Bytes(bytes) => sent.extend_from_slice(bytes),
                other => panic!("{} bytes that nobody sent", other.bytes()),
            });
            read.expect("the buffer was mapped before");
            assert_eq!(sent, content(cid), "command {cid}: what was written before its doorbell");
            self.memory.write(address, Piece::Bytes(&content(!cid))).expect("it is mapped");
            queue.complete(&[Cqe::new(cid, Status::SUCCESS)]);
        }
    }

    /// Looks whenever the bell has rung, and sleeps otherwise, until the link is closed.
    fn run(&mut self) {
        let mut seen = 0;
        loop {
            let news = self.link.bell.news();
            if news != seen {
                seen = news;
                let is_closed = self.link.closed.load(Ordering::Acquire);
                self.look();
                if is_closed {
                    return;
                }
            } else if !self.link.bell.sleeps(seen) {
                thread::park();
                self.link.bell.is_awake();
            } else {
                self.link.bell.is_awake();
            }
        }
    }
}

/// Two threads share a queue, and one opens its own while the drive looks.
#[test]
fn every_entry_arrives_once_and_every_sleeper_is_woken() {
    let (shared, own) = (Arc::new(Answered::default()), Arc::new(Answered::default()));
    let (link, queue) = SharedLink::new(shared.clone());
    drop(queue);
    let queue = link.create_queue(ENTRIES, shared.clone()).unwrap();
    let drive_link = link.clone();
    let drive = thread::spawn(move || {
        let this = thread::current();
        drive_link.bell.set_wake(move || this.unpark());
        let memory = DriveView::new(drive_link.memory.clone());
        let mut looks =
            Looks { link: drive_link.clone(), memory, spare: TaskCell::default(), sqes: 0, rung: [0; 2] };
        looks.run();
        drive_link.mark_gone();
        (looks.sqes, looks.rung)
    });
    thread::scope(|threads| {
        for thread in 0..2 {
            let (link, queue, shared) = (&link, &queue, &shared);
            threads.spawn(move || ask(link, queue, shared, thread));
        }
        let (link, own) = (&link, &own);
        threads.spawn(move || {
            let queue = link.create_queue(ENTRIES, own.clone()).unwrap();
            ask(link, &queue, own, 2);
            let last = queue.completion_doorbells.0.load(Ordering::Relaxed);
            assert!(last > 0, "the last doorbell comes after the last command");
        });
    });
    link.close();
    let (sqes, [submissions, completions]) = drive.join().unwrap();
    assert_eq!((sqes, submissions), (3 * COMMANDS, 3 * COMMANDS));
    // Those after the last command of a queue are still there.
    assert!(
        (3 * COMMANDS - 6..3 * COMMANDS).contains(&completions),
        "{completions} doorbells of completions"
    );
    assert_eq!((shared.off.load(Ordering::Relaxed), own.off.load(Ordering::Relaxed)), (2, 1));
    assert!(link.create_queue(ENTRIES, own).is_err(), "the drive is gone");
}
