//! The drive's end of the link: commands as requests whose data crosses on demand.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::thread;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Cqe, PAGE_BYTES, Psdt, SglDescriptor, Sqe, Status};
use kvdrive_sim::Sim;

use super::function::Function;
use super::{Link, Moved};
use crate::memory::{HostMemory, write_region};
use crate::port::{Exposed, Port, Queues, Request, Source};
use crate::prp::{self, Segment, Segments};
use crate::queue::{QueuePair, Taken};
use crate::session::Session;
use crate::sgl;

/// Largest staging buffer of an answer that is kept for the next one.
const KEPT_STAGING_BYTES: u32 = 64 << 10;

/// The drive's port of a [`Link`].
#[derive(Clone)]
pub struct PciePort(Rc<Link>);

impl PciePort {
    /// The drive's end of `link`.
    pub fn new(link: &Rc<Link>) -> PciePort {
        PciePort(link.clone())
    }
}

impl Port for PciePort {
    type Request = PcieRequest;

    #[inline]
    fn next(&self) -> PcieRequest {
        self.0.wait_for_command();
        let (queue, Taken { sqe, turn, chunks, head }) = self.0.take_command();
        let (link, listed) = (self.0.clone(), Cell::new(None));
        // Constructed in place: moving it directly after it was written would stall.
        let request = PcieRequest { link, queue, sqe, turn, chunks, listed, head, end: End::Due };
        request.link.fetch(request.chunks());
        request
    }

    fn sim(&self) -> &Sim {
        self.0.sim()
    }

    fn on_end(&self, ended: Rc<dyn Fn(&Session)>) {
        *self.0.on_end.borrow_mut() = Some(ended);
    }

    fn expose(&self, exposed: Weak<dyn Exposed>) {
        *self.0.exposed.borrow_mut() = Some(exposed);
    }
}

/// A command of a queue pair.
pub struct PcieRequest {
    link: Rc<Link>,
    queue: Rc<QueuePair>,
    sqe: Sqe,
    turn: Option<u64>,
    chunks: Option<Box<[Sqe]>>,
    /// Segments that were read from lists. Segments without a list are found again at no cost.
    listed: Cell<Option<Box<Segments>>>,
    head: u16,
    end: End,
}

/// State of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It must be answered.
    Due,
    /// It may be answered, and its queue may end before that.
    Held,
    /// It was answered, or needs no answer.
    Come,
}

// It is moved for every command; a larger type would be moved by a call of memcpy.
const _: () = assert!(size_of::<PcieRequest>() <= 128);

impl PcieRequest {
    /// The memory of the host whose queue it came by.
    fn memory(&self) -> &dyn HostMemory {
        self.queue.memory()
    }

    fn is_by_sgl(&self) -> Result<bool, Status> {
        Ok(self.sqe.psdt()? != Psdt::Prp)
    }

    /// Finds the first `bytes` bytes of the `named_bytes` that the command names.
    fn find(&self, named_bytes: u32, bytes: u32) -> Result<Segments, Status> {
        let sqe = &self.sqe;
        let fetch_list = &mut |address, out: &mut [u8]| self.link.fetch_list(self.memory(), address, out);
        if !self.is_by_sgl()? {
            return prp::walk(sqe, named_bytes, bytes, fetch_list);
        }
        if !self.is_in_capsule() {
            return sgl::walk(sqe, bytes, fetch_list);
        }
        let descriptor = sqe.sgl();
        if descriptor.length.get() < bytes {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        let mut segments = Segments::none();
        if bytes > 0 {
            segments.push(Segment { address: descriptor.address.get(), bytes });
        }
        Ok(segments)
    }

    fn located(&self, named_bytes: u32, bytes: u32) -> Result<Segments, Status> {
        match self.listed.take() {
            Some(segments) => {
                assert_eq!(segments.bytes(), u64::from(bytes), "what is moved is what was located");
                Ok(*segments)
            }
            None => self.find(named_bytes, bytes),
        }
    }

    /// What crosses for a segment. PRPs move whole pages, however little of a page is data: the read path
    /// of the published board (BandSlim's firmware) moves whole pages, and so does a Retrieve by PRP here.
    fn moved(&self, segment: Segment) -> Result<Moved, Status> {
        Ok(if !self.is_by_sgl()? {
            Moved::ByPage(PAGE_BYTES)
        } else if self.memory().holds_capsules() {
            Moved::ByPage(self.link.sgl_moved_bytes(segment.bytes))
        } else {
            Moved::ByBlock(segment.bytes)
        })
    }

    fn push_by(
        &self,
        staging: &mut Region,
        segments: &Segments,
        source: &mut Source<'_>,
    ) -> Result<(), Status> {
        let (mut at, mut arrived) = (0, Ok(()));
        for segment in segments.iter() {
            staging.clear();
            let mut staged_bytes = 0;
            source(at, segment.bytes, &mut |piece| {
                staging.write(staged_bytes, piece);
                staged_bytes += piece.bytes();
            })?;
            self.link.dma_to_host(self.moved(segment)?);
            let (memory, Segment { address, bytes }) = (self.memory(), segment);
            // An answer in one piece is handed over without a copy. Parts of an answer are written to their places.
            let here = match segments.len() {
                1 => memory.put(address, staging, bytes),
                _ => write_region(memory, address, staging, bytes),
            };
            arrived = arrived.and(here);
            at += segment.bytes;
        }
        arrived.map_err(|_| Status::DATA_TRANSFER_ERROR)
    }
}

impl Request for PcieRequest {
    #[inline]
    fn sqe(&self) -> &Sqe {
        &self.sqe
    }

    #[inline]
    fn queue_id(&self) -> u16 {
        self.queue.id()
    }

    #[inline]
    fn session(&self) -> &Session {
        self.queue.session()
    }

    #[inline]
    fn turn(&self) -> Option<u64> {
        self.turn
    }

    fn chunks(&self) -> Option<&[Sqe]> {
        self.chunks.as_deref()
    }

    fn is_in_capsule(&self) -> bool {
        self.sqe.sgl().kind == SglDescriptor::DATA_BLOCK_OFFSET
            && matches!(self.is_by_sgl(), Ok(true))
            && self.memory().holds_capsules()
    }

    fn pull_key(&self, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), Status> {
        let fetched = self.link.fetch_key(self.memory(), self.sqe.key_address(), bytes, sink);
        fetched.map_err(|_| Status::INVALID_FIELD)
    }

    fn locate(&self, named_bytes: u32, bytes: u32) -> Result<(), Status> {
        let segments = self.find(named_bytes, bytes)?;
        if segments.len() > 2 || named_bytes > bytes {
            self.listed.set(Some(Box::new(segments)));
        }
        Ok(())
    }

    fn pull_part(
        &self,
        named_bytes: u32,
        at: u32,
        bytes: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        let mut segments = match (at, self.listed.take()) {
            (0, None) => self.find(named_bytes, named_bytes)?,
            (_, Some(segments)) => *segments,
            (_, None) => panic!("a part at {at} follows one that left something"),
        };
        assert_eq!(segments.bytes(), u64::from(named_bytes - at), "what is moved is what was located");
        let mut left_bytes = bytes;
        while let Some(segment) = segments.take(left_bytes) {
            left_bytes -= segment.bytes;
            let moved = self.moved(segment)?;
            let came = self.link.dma_to_drive(self.memory(), segment.address, segment.bytes, moved, sink);
            came.map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        }
        if at + bytes < named_bytes {
            self.listed.set(Some(Box::new(segments)));
        }
        Ok(())
    }

    fn push(&self, named_bytes: u32, bytes: u32, source: &mut Source<'_>) -> Result<(), Status> {
        let segments = self.located(named_bytes, bytes)?;
        let mut staging = self.link.staging.borrow_mut().pop().unwrap_or_default();
        let pushed = self.push_by(&mut staging, &segments, source);
        if staging.written_end() <= KEPT_STAGING_BYTES {
            self.link.staging.borrow_mut().push(staging);
        }
        pushed
    }

    #[inline]
    fn complete(mut self, cqe: Cqe) {
        let cqe = cqe.with_queue(self.queue.id(), self.head);
        self.link.complete(&self.queue, cqe);
        self.come_to_end();
    }

    fn omit(mut self) {
        self.come_to_end();
    }

    fn hold(&mut self) {
        assert!(self.end == End::Due, "it is under way");
        self.end = End::Held;
        self.queue.session().end_command();
    }

    fn queues(&self) -> Option<&dyn Queues> {
        Some(self)
    }
}

impl PcieRequest {
    #[inline]
    fn come_to_end(&mut self) {
        if self.end == End::Due {
            self.end = End::Come;
            self.queue.session().end_command();
        }
    }
}

impl PcieRequest {
    /// The function of the host whose queue it came by.
    fn function(&self) -> Rc<Function> {
        self.link.function_of(&self.queue)
    }
}

/// The queues of the host whose queue it came by.
impl Queues for PcieRequest {
    fn has_some(&self) -> bool {
        self.function().has_io_queues()
    }

    fn has_submission(&self, id: u16) -> bool {
        self.function().queue(id).is_some()
    }

    fn completion(&self, id: u16) -> Option<bool> {
        self.function().completion_queue(id)
    }

    fn create_completion(&self, id: u16, entries: u32) {
        self.link.create_completion_queue(&self.function(), id, entries);
    }

    fn create_submission(&self, id: u16, entries: u32, completion: u16) {
        self.link.create_submission_queue(&self.function(), id, entries, completion);
    }

    fn abort(&self, id: u16, cid: u16) -> bool {
        self.function().queue(id).is_some_and(|queue| self.link.abort(&queue, cid))
    }

    fn delete_submission(&self, id: u16) -> bool {
        let queue = self.function().queue(id);
        queue.is_some_and(|queue| self.link.delete_submission_queue(&queue))
    }

    fn delete_completion(&self, id: u16) {
        self.link.delete_completion_queue(&self.function(), id);
    }
}

impl Drop for PcieRequest {
    #[inline]
    fn drop(&mut self) {
        if self.end != End::Due {
            return;
        }
        // A task that is unwound has panicked, or waits at the end of the drive's life.
        let may_be_lost = self.link.sim().halted() || thread::panicking();
        assert!(may_be_lost, "a command of queue {} was dropped without an answer", self.queue.id());
    }
}
