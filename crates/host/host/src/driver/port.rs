//! [`Port`]: a board and its transport, and the slots that callers claim of them.
//!
//! A port whose completions come by themselves (rings, whose other end is a thread of the drive) only wakes its
//! callers. Otherwise some thread has to bring them: a thread that waits in [`block_on`](super::block_on) does
//! so while it waits, one at a time; as soon as another executor polls a future of the port, a thread of the
//! port's own does it instead, and no poll blocks.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use kvdrive_content::Piece;
use kvdrive_nvme::{Cqe, Sqe};
use kvdrive_sim::wall::lock;

use super::board::{Board, Claim, Wanted};
use super::wait::{self, Bringer, Brought, sleep_for_any};
use crate::Error;
use crate::conversation::slot::Slot;
use crate::conversation::{CommandSlot, SlotOffer, Submission};
use crate::transport::Transport;

/// One queue with its slots.
pub(crate) struct Port {
    board: Arc<Board>,
    transport: Box<dyn Transport>,
    /// Memory for the entries of each slot, so that a command allocates nothing.
    outboxes: Vec<Mutex<Vec<Sqe>>>,
    /// Held by the thread that brings completions.
    bringing: Mutex<()>,
    is_brought_by_callers: bool,
    /// Wakes the thread that reads for all callers, if there is one: a byte for it, on a pair of sockets, which every system
    /// has.
    reader: OnceLock<UnixStream>,
}

impl Port {
    /// The port of a transport that delivers to `board`.
    pub(crate) fn new(transport: Box<dyn Transport>, board: Arc<Board>) -> Arc<Port> {
        let outboxes = (0..board.depth()).map(|_| Mutex::default()).collect();
        let is_brought_by_callers = transport.is_brought_by_callers();
        let (bringing, reader) = (Mutex::default(), OnceLock::new());
        Arc::new(Port { board, transport, outboxes, bringing, is_brought_by_callers, reader })
    }

    pub(crate) fn depth(&self) -> u32 {
        self.outboxes.len() as u32
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Fails if no completion will come any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.board.check()
    }

    /// Ends everything with this error, which a call returns.
    pub(super) fn fail(&self, error: Error) -> Error {
        self.board.fail(error.clone());
        error
    }

    /// Sends what was gathered. What the wire does not take at once is sent by the thread that waits.
    pub(super) fn flush(&self) -> Result<(), Error> {
        self.transport.flush()?;
        if self.reader.get().is_some()
            && self.transport.descriptor().is_some_and(|(_, has_unsent)| has_unsent)
        {
            self.wake_reader();
        }
        Ok(())
    }

    fn wake_reader(&self) {
        if let Some(mut reader) = self.reader.get() {
            // It fails only if the reader has been woken very often and has not run since.
            _ = reader.write(&[1]);
        }
    }

    /// A caller waits: somebody has to bring completions.
    pub(super) fn waits(self: &Arc<Self>) {
        if !self.is_brought_by_callers || self.reader.get().is_some() {
            return;
        }
        let own: Arc<dyn Bringer> = self.clone();
        if !wait::bring_while_blocked(&own) {
            own.start_reader();
        }
    }

    /// Notes that a caller waits, if it does.
    pub(super) fn noted<T>(self: &Arc<Self>, polled: Poll<T>) -> Poll<T> {
        if polled.is_pending() {
            self.waits();
        }
        polled
    }

    async fn claim(self: &Arc<Self>, wanted: Wanted) -> Result<u16, Error> {
        self.transport.check_thread()?;
        let mut claim = Claim::begin(&self.board, wanted);
        poll_fn(|context| self.noted(claim.poll(context))).await
    }

    /// Waits for a free slot.
    pub(crate) async fn slot(self: &Arc<Self>) -> Result<ClaimedSlot<'_>, Error> {
        let cid = self.claim(Wanted::Slot).await?;
        let outbox = std::mem::take(&mut *lock(&self.outboxes[usize::from(cid)]));
        Ok(ClaimedSlot { port: self, cid, outbox, holds_sequence: false, awaiting: None })
    }

    /// Takes every slot, waiting for abandoned commands to end.
    pub(crate) async fn take_all(self: &Arc<Self>) -> Result<(), Error> {
        for _ in 0..self.depth() {
            self.claim(Wanted::Slot).await?;
        }
        self.claim(Wanted::Sequence).await.map(drop)
    }

    /// As [`Board::give_all`].
    pub(super) fn give_all(&self, slot: impl FnMut(u16) -> Slot, batch: impl Iterator<Item = Cqe>) {
        self.board.give_all(&*self.transport, slot, batch);
    }

    /// Delivers all that has come.
    fn deliver(&self) -> Result<(), Error> {
        let _bringing = lock(&self.bringing);
        loop {
            match self.transport.bring(&self.board, &|| false, Some(Duration::ZERO))? {
                Brought::Here => {}
                Brought::Elsewhere | Brought::No => return Ok(()),
            }
        }
    }
}

impl Bringer for Port {
    fn bring(&self, is_woken: &dyn Fn() -> bool, limit: Option<Duration>) -> Brought {
        let Ok(bringing) = self.bringing.try_lock() else { return Brought::Elsewhere };
        if self.reader.get().is_some() {
            return Brought::Elsewhere;
        }
        if is_woken() {
            return Brought::Here;
        }
        let brought = self.transport.bring(&self.board, is_woken, limit);
        drop(bringing);
        match brought {
            Ok(brought) => {
                self.board.hand_over();
                brought
            }
            Err(error) => {
                self.board.fail(error);
                Brought::Here
            }
        }
    }

    fn start_reader(self: Arc<Self>) {
        if let Err(error) = self.try_start_reader() {
            self.board.fail(error.into());
        }
    }
}

impl Port {
    fn try_start_reader(self: &Arc<Self>) -> io::Result<()> {
        let Some((descriptor, _)) = self.transport.descriptor() else { return Ok(()) };
        let descriptor = descriptor.try_clone_to_owned()?;
        let (bell, own_bell) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        own_bell.set_nonblocking(true)?;
        if self.reader.set(bell).is_err() {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        let read = move || {
            while let Some(port) = weak.upgrade() {
                if let Err(error) = port.deliver() {
                    return port.board.fail(error);
                }
                let has_unsent = port.transport.descriptor().is_some_and(|(_, has_unsent)| has_unsent);
                drop(port);
                // A broken descriptor is found by the next delivery.
                _ = sleep_for_any(&[(descriptor.as_fd(), has_unsent), (own_bell.as_fd(), false)], None);
                // Of more bytes than these, the next wait ends at once.
                _ = (&own_bell).read(&mut [0; 64]);
            }
        };
        thread::Builder::new().name("kvdrive reader".into()).spawn(read).map(drop)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.wake_reader();
    }
}

/// A claimed slot. Dropping it returns the slot, at once or when its command completes.
pub(crate) struct ClaimedSlot<'a> {
    port: &'a Arc<Port>,
    cid: u16,
    /// Entries to submit next.
    pub(crate) outbox: Vec<Sqe>,
    holds_sequence: bool,
    /// Its claim while it waits for the sequence.
    awaiting: Option<Claim<'a>>,
}

impl ClaimedSlot<'_> {
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    pub(crate) fn port(&self) -> &Port {
        self.port
    }

    /// Waits until the submitted commands have completed, and acknowledges them with one doorbell. The
    /// iterator or pair of the answer then belongs to the caller.
    pub(crate) async fn completed(&mut self) -> Result<Cqe, Error> {
        poll_fn(|context| self.completion(context)).await
    }
}

impl CommandSlot for ClaimedSlot<'_> {
    type Error = Error;

    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        (self.port.transport.offer(self.cid), &mut self.outbox)
    }

    fn take_sequence(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let port = self.port;
        let claim = match &mut self.awaiting {
            Some(claim) => claim,
            none => {
                port.transport.check_thread()?;
                none.insert(Claim::begin(&port.board, Wanted::Sequence))
            }
        };
        let taken = port.noted(claim.poll(context))?;
        if taken.is_ready() {
            self.awaiting = None;
            self.holds_sequence = true;
        }
        taken.map(|_| Ok(()))
    }

    fn leave_sequence(&mut self) {
        if std::mem::take(&mut self.holds_sequence) {
            self.port.board.leave_sequence(self.cid);
        }
    }

    fn put_key(&mut self, key: &[u8]) {
        self.port.transport.put_key(self.cid, key);
    }

    fn stage(&mut self, value: Piece<'_>) {
        self.port.transport.stage(self.cid, value);
    }

    fn clear(&mut self) {
        self.port.transport.clear(self.cid);
    }

    fn list(&mut self, bytes: u32) {
        self.port.transport.list(self.cid, bytes);
    }

    /// Submits the outbox with one doorbell.
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Error> {
        let Port { board, transport, .. } = &**self.port;
        board.submitted(self.cid, submission.completions, submission.iterator_use, self.holds_sequence)?;
        let quiet = self.outbox.len() as u32 - submission.completions;
        let gathered = transport.gather(self.cid, &mut self.outbox, 0, &submission);
        transport.publish(&mut self.outbox, quiet);
        gathered.and_then(|()| self.port.flush()).map_err(|error| self.port.fail(error))
    }

    fn completion(&mut self, context: &mut Context<'_>) -> Poll<Result<Cqe, Error>> {
        let completed = self.port.noted(self.port.board.poll_completion(self.cid, context));
        if let Poll::Ready(Ok(_)) = completed {
            self.port.transport.acknowledge();
        }
        completed
    }
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        let port = self.port;
        self.awaiting = None;
        self.outbox.clear();
        *lock(&port.outboxes[usize::from(self.cid)]) = std::mem::take(&mut self.outbox);
        port.board.give(&*port.transport, self.cid, self.holds_sequence);
    }
}
