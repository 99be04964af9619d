//! [`Socket`]: the transport of one connection. A value goes by one Store command, in the capsule or after an R2T.
//!
//! Commands gather until all bytes that have come are read, and go in one send. A thread that waits reads for
//! all callers; no lock is held while it sleeps, so others submit meanwhile.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvdrive_content::Piece;
use kvdrive_link::{BadAddress, HostMemory};
use kvdrive_nvme::opcode::{Direction, direction};
use kvdrive_nvme::{Cqe, Sqe};
use kvdrive_sim::wall::{Patience, Stopwatch, lock};

use super::queue::{Completed, Data, Queue};
use crate::Error;
use crate::answers::AnswerData;
use crate::conversation::{SlotOffer, Submission};
use crate::driver::{Board, Brought, Driver, Limits, Port, Remainder, sleep_for_any};
use crate::transport::Transport;

/// A connection whose commands have the numbers of slots.
struct Socket {
    /// The same socket, for threads that sleep.
    socket: TcpStream,
    silence: Option<Duration>,
    wire: Mutex<Wire>,
    /// The data of each slot's last completion.
    answers: Mutex<Vec<Vec<u8>>>,
    bringing: Mutex<Bringing>,
    sleeps: AtomicU64,
}

struct Wire {
    queue: Queue,
    /// Memory to expand a pattern in.
    expanded: Vec<u8>,
}

/// What the thread that brings completions uses.
#[derive(Default)]
struct Bringing {
    patience: Patience,
    cqes: Vec<Cqe>,
}

/// The data that came for one command, as memory that begins at address 0 and continues with zeros.
struct Received<'a>(&'a [u8]);

impl HostMemory for Received<'_> {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let from = self.0.len().min(address as usize);
        let came = (self.0.len() - from).min(bytes as usize);
        sink(Piece::Bytes(&self.0[from..from + came]));
        kvdrive_content::zeros(bytes - came as u32, sink);
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        Err(BadAddress { address, bytes: piece.bytes() })
    }
}

impl AnswerData for Received<'_> {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        (self, 0)
    }

    fn bytes(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Queue {
    /// A driver with up to `depth` commands under way on this queue, which has none, and whose namespace takes
    /// values of up to `max_value_bytes` bytes ([`super::Initiator::identify_namespace`]). No command asks for
    /// more than `max_transfer_bytes` bytes (MDTS, [`super::Initiator::identify_controller`]): a longer answer is
    /// cut there, also that of a pair whose value fits but whose key then does not.
    ///
    /// # Errors
    /// The operating system has no descriptor left.
    pub fn into_driver(
        self,
        depth: u32,
        max_value_bytes: u32,
        max_transfer_bytes: u32,
    ) -> Result<Driver, Error> {
        // No page is named, and a value comes as a whole.
        let (max_answer_bytes, at_once_bytes) = (max_transfer_bytes, u32::MAX);
        let limits = Limits { choice: None, max_value_bytes, max_answer_bytes, at_once_bytes };
        Ok(Driver::new(self.into_port(depth)?, limits, None))
    }

    /// A port with up to `depth` commands under way on this queue, which has none.
    pub(super) fn into_port(self, depth: u32) -> Result<Arc<Port>, Error> {
        let transport = Socket {
            socket: self.socket().try_clone()?,
            silence: self.silence(),
            wire: Mutex::new(Wire { queue: self, expanded: Vec::new() }),
            answers: Mutex::new(vec![Vec::new(); depth as usize]),
            bringing: Mutex::default(),
            sleeps: AtomicU64::new(0),
        };
        Ok(Port::new(Box::new(transport), Board::new(depth, Default::default())))
    }
}

impl Wire {
    /// Queues the entry of a command of the queue's namespace.
    fn gather(&mut self, cid: u16, mut sqe: Sqe, data: Data<'_>) -> Result<(), Error> {
        sqe.nsid.set(self.queue.nsid);
        self.queue.gather_as(cid, false, sqe, data)
    }
}

impl Socket {
    /// Takes the units that have arrived, without waiting; `false`: none has.
    fn take_arrived(&self, cqes: &mut Vec<Cqe>) -> Result<bool, Error> {
        let queue = &mut lock(&self.wire).queue;
        let mut has_arrived = false;
        loop {
            let Some(taken) = queue.take_arrived()? else { return Ok(has_arrived) };
            has_arrived = true;
            if let Some(Completed { cqe, data }) = taken {
                let before = std::mem::replace(&mut lock(&self.answers)[usize::from(cqe.cid.get())], data);
                queue.give_back(before);
                cqes.push(cqe);
            }
            if !queue.is_unit_buffered() {
                return Ok(true);
            }
        }
    }

    /// Sleeps until there are bytes to read, or room for bytes to be sent.
    fn sleep(&self, left: Option<Duration>) -> Result<(), Error> {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let has_unsent = lock(&self.wire).queue.unsent_bytes() > 0;
        let socket = (self.socket.as_fd(), has_unsent);
        if sleep_for_any(&[socket], left.or(self.silence))? || left.is_some() {
            return Ok(());
        }
        let what = format!("no answer for {} s", self.silence.unwrap_or_default().as_secs_f64());
        Err(Error::Io { kind: std::io::ErrorKind::TimedOut, what })
    }
}

impl Remainder for Socket {
    fn put(&self, sqe: Sqe) {
        // If the socket has failed, the next thread that reads it finds that.
        _ = lock(&self.wire).gather(sqe.cid.get(), sqe, Data::None);
    }

    fn ring(&self) {
        _ = self.flush();
    }

    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData)) {
        let data = std::mem::take(&mut lock(&self.answers)[usize::from(cid)]);
        read(&Received(&data));
        lock(&self.wire).queue.give_back(data);
    }
}

impl Transport for Socket {
    /// No memory that the controller could address.
    fn offer(&self, cid: u16) -> SlotOffer<'static> {
        SlotOffer { cid, buffer: 0, list: 0, key: 0, entries: 1, window: None, is_together: false }
    }

    fn gather(
        &self,
        cid: u16,
        outbox: &mut Vec<Sqe>,
        _: usize,
        submission: &Submission<'_>,
    ) -> Result<(), Error> {
        let sqe = outbox.pop().expect("there is an entry to submit");
        let mut wire = lock(&self.wire);
        let data = match (direction(sqe.opcode), submission.value) {
            (Direction::ToDrive, Piece::Bytes(bytes)) => Data::Out(bytes),
            (Direction::ToDrive, piece) => {
                let mut expanded = std::mem::take(&mut wire.expanded);
                expanded.resize(piece.bytes() as usize, 0);
                piece.expand(&mut expanded);
                let gathered = wire.gather(cid, sqe, Data::Out(&expanded));
                wire.expanded = expanded;
                return gathered;
            }
            _ if submission.room > 0 => Data::In(submission.room),
            _ => Data::None,
        };
        wire.gather(cid, sqe, data)
    }

    fn flush(&self) -> Result<(), Error> {
        lock(&self.wire).queue.push()
    }

    fn bring(
        &self,
        board: &Board,
        is_woken: &dyn Fn() -> bool,
        limit: Option<Duration>,
    ) -> Result<Brought, Error> {
        let began = Stopwatch::start();
        let Bringing { patience, cqes } = &mut *lock(&self.bringing);
        loop {
            let has_arrived = self.take_arrived(cqes)?;
            if !cqes.is_empty() {
                patience.end();
                board.complete(self, cqes);
                cqes.clear();
                return Ok(Brought::Here);
            }
            let left = limit.map(|limit| limit.saturating_sub(Duration::from_nanos(began.ns())));
            if is_woken() || left == Some(Duration::ZERO) {
                patience.end();
                return Ok(if is_woken() { Brought::Here } else { Brought::No });
            }
            if has_arrived {
                continue;
            }
            if patience.look_again() {
                std::hint::spin_loop();
            } else {
                self.sleep(left)?;
                patience.end();
            }
        }
    }

    fn descriptor(&self) -> Option<(BorrowedFd<'_>, bool)> {
        Some((self.socket.as_fd(), lock(&self.wire).queue.unsent_bytes() > 0))
    }

    fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed) + lock(&self.wire).queue.sleeps()
    }
}
