//! The way of a command: from its ring to the subsystem, with its data, and its completion back to a ring.

use kvdrive_admin::queue::There;
use kvdrive_link::prp::Segments;
use kvdrive_nvme::door::names_door_stream;
use kvdrive_nvme::opcode::{self, Direction};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Cqe, Sqe, Status};

use super::{Client, Function};
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Tag};
use crate::shared::{Core, Use};
use crate::subsystem::Reach;
use crate::vfio::data::{bytes_of, copy_from, copy_to, locate};
use crate::vfio::interrupts::VECTORS;
use crate::vfio::rings::{Command, CompletionQueue, Fetched, SubmissionQueue, Waiting};

/// Most commands that are taken from one queue in one turn.
const TURN_COMMANDS: usize = 64;

const NO_CLIENT: &str = "a function with rings has a client";

impl Function {
    /// Takes commands from the rings; `true` if there were any.
    pub(super) fn take_commands(&mut self, core: &mut Core) -> bool {
        let status = self.admin.and_then(|admin| core.subsystem.status(admin));
        if !status.is_some_and(|status| status.ready() && !status.fatal()) {
            return false;
        }
        self.look_at_heads(core);
        let mut any = self.retry(core);
        for id in 0..self.submissions.len() {
            for _ in 0..TURN_COMMANDS {
                match self.fetch(id) {
                    Ok(Fetched::Command(_)) if self.has_lost_memory(core) => return true,
                    Ok(Fetched::Command(sqe)) => {
                        any = true;
                        self.begin(core, id, sqe);
                    }
                    Ok(Fetched::Nothing) => break,
                    Ok(Fetched::WrongDoorbell) => {
                        self.note_wrong_doorbell(core);
                        break;
                    }
                    Err(why) => {
                        self.fail(core, &why);
                        return true;
                    }
                }
            }
        }
        any
    }

    fn note_wrong_doorbell(&mut self, core: &mut Core) {
        if let Some(admin) = self.admin {
            core.subsystem.note_wrong_doorbell(admin);
        }
    }

    /// Reads how far the host has taken completions, and writes completions that were held back.
    fn look_at_heads(&mut self, core: &mut Core) {
        self.take_heads(core);
        for id in 0..self.completions.len() {
            if self.completions[id].as_ref().is_some_and(CompletionQueue::is_full) {
                self.write_completions(core, id);
            }
        }
    }

    /// Reads the positions up to which the host has taken completions. A doorbell that was rung before a message takes
    /// effect before that message, as a write on PCI arrives before a later read.
    pub(super) fn take_heads(&mut self, core: &mut Core) {
        let mut wrong = false;
        for ring in self.completions.iter_mut().flatten() {
            wrong |= !ring.look(&self.doorbells);
        }
        if wrong {
            self.note_wrong_doorbell(core);
        }
    }

    fn fetch(&mut self, id: usize) -> Result<Fetched, String> {
        let Some(queue) = &mut self.submissions[id] else { return Ok(Fetched::Nothing) };
        let ring = self.completions.get(usize::from(queue.completion)).and_then(Option::as_ref);
        if ring.is_none_or(CompletionQueue::is_full) {
            return Ok(Fetched::Nothing);
        }
        let memory = &self.client.as_ref().expect(NO_CLIENT).memory;
        queue.fetch(memory, &self.doorbells).map_err(|error| format!("submission queue {id}: {error}"))
    }

    /// Gives memory to commands that wait for it; `true` if one got some.
    fn retry(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        for id in 0..self.submissions.len() {
            let waiting = self.submissions[id].as_mut().and_then(|queue| queue.waiting.take());
            if let Some(waiting) = waiting {
                any |= self.go_on(core, id, waiting);
            }
        }
        any
    }

    /// Begins a command.
    fn begin(&mut self, core: &mut Core, id: usize, sqe: Sqe) {
        let is_admin = id == 0;
        let queue = self.submissions[id].as_mut().expect("it was fetched from there");
        let cid = sqe.cid.get();
        let counted_at = core.subsystem.counted_at(sqe.opcode, sqe.nsid.get());
        let slot = queue.keep(Command { cid, counted_at, began_ns: core.now_ns, answer: None });
        if is_admin && QueueCommand::is_one(sqe.opcode) {
            self.run_queue_command(core, slot, &sqe);
            return;
        }
        let limit_bytes = u64::from(core.subsystem.options().whole_max_bytes());
        let bytes = bytes_of(&sqe, is_admin);
        let located = if bytes > limit_bytes || !is_admin && names_door_stream(&sqe) {
            Err(Status::INVALID_FIELD)
        } else if bytes == 0 {
            Ok(None)
        } else {
            let memory = &self.client.as_ref().expect(NO_CLIENT).memory;
            locate(&sqe, bytes as u32, is_admin, memory).map(Some)
        };
        if self.has_lost_memory(core) {
            return;
        }
        let segments = match located {
            Ok(segments) => segments,
            Err(status) => return self.answer_at_once(core, id, slot, status),
        };
        let queue = self.submissions[id].as_mut().expect("it is still there");
        let mut data = None;
        if opcode::direction(sqe.opcode) == Direction::ToHost {
            queue.command(slot).expect("it is kept").answer = segments;
        } else {
            data = segments;
        }
        self.go_on(core, id, Waiting { slot, sqe, bytes: bytes as usize, data, _wait: None });
    }

    /// Gives a command memory and passes it on; `false` if it has to wait for memory.
    fn go_on(&mut self, core: &mut Core, id: usize, waiting: Waiting) -> bool {
        let queue = self.submissions[id].as_mut().expect("a command's queue is there");
        let shares = self.shares.as_ref().expect(NO_CLIENT);
        let share = &shares[Use::Transfer as usize];
        let Ok(mut buffer) = share.take(waiting.bytes) else {
            let _wait = Some(share.wait());
            queue.waiting = Some(Waiting { _wait, ..waiting });
            return false;
        };
        let Waiting { slot, sqe, data, .. } = waiting;
        let memory = &self.client.as_ref().expect(NO_CLIENT).memory;
        if let Some(data) = &data
            && copy_from(memory, data, &mut buffer).is_err()
        {
            self.answer_at_once(core, id, slot, Status::DATA_TRANSFER_ERROR);
            return true;
        }
        let tag = Tag { queue: queue.queue, slot };
        if self.has_lost_memory(core) {
            return true;
        }
        core.subsystem.execute(tag, &sqe, buffer, core.now_ms);
        true
    }

    /// Answers a command that was not passed to the subsystem.
    fn answer_at_once(&mut self, core: &mut Core, id: usize, slot: u16, status: Status) {
        let queue = self.submissions[id].as_mut().expect("it has a command");
        let (queue, cid) = (queue.queue, queue.command(slot).map_or(0, |command| command.cid));
        let refused = Completion::failed(Tag { queue, slot }, status, Buffer::empty());
        core.subsystem.note_refused(id as u16, cid, &refused);
        self.complete(core, refused);
    }

    /// The index of a queue, by its identifier in the subsystem.
    fn place(&self, queue: QueueId) -> Option<usize> {
        self.submissions.iter().position(|of| of.as_ref().is_some_and(|of| of.queue == queue))
    }

    /// Posts the completion of a command, from the subsystem or of a refusal.
    pub fn complete(&mut self, core: &mut Core, completion: Completion) {
        let Some(id) = self.place(completion.tag.queue) else { return };
        let Some(client) = &self.client else { return };
        let queue = self.submissions[id].as_mut().expect("that is its place");
        let Some(command) = queue.take(completion.tag.slot) else { return };
        let status = answer(client, command.answer.as_ref(), &completion);
        if self.has_lost_memory(core) {
            return;
        }
        let queue = self.submissions[id].as_mut().expect("it is still there");
        let cqe = Cqe::new(command.cid, status)
            .with_result(completion.dw0, completion.dw1)
            .with_queue(queue.id, queue.head());
        let (ring, is_last) = (usize::from(queue.completion), queue.is_idle());
        if id != 0 {
            let spent_ns = core.now_ns.saturating_sub(command.began_ns);
            core.latencies.entry(command.counted_at).or_default().record(spent_ns);
        }
        match completion.fault {
            Some(TransportFault::Disconnect) => return self.complain("an injected fault ends it"),
            Some(TransportFault::Stall { ms }) => {
                self.silent_until_ms = Some(core.now_ms.saturating_add(ms));
            }
            _ => {}
        }
        if let Some(Some(ring)) = self.completions.get_mut(ring) {
            ring.add(cqe);
        }
        if self.silent_until_ms.is_none() {
            self.write_completions(core, ring);
        }
        self.worked_at_ns = core.now_ns;
        if is_last {
            self.finish_deletion(core, id);
        }
    }

    fn write_completions(&mut self, core: &mut Core, id: usize) {
        if self.has_lost_memory(core) {
            return;
        }
        let Some(Some(ring)) = self.completions.get_mut(id) else { return };
        let memory = &self.client.as_ref().expect(NO_CLIENT).memory;
        if let Err(error) = ring.write(memory) {
            self.fail(core, &format!("completion queue {id}: {error}"));
        }
        // The ring itself may be what was taken away.
        self.has_lost_memory(core);
    }

    /// Aborts a command that waits for memory.
    pub fn abort(&mut self, core: &mut Core, queue: QueueId, cid: u16) -> Reach {
        let Some(id) = self.place(queue) else { return Reach::Kept };
        let of = self.submissions[id].as_mut().expect("that is its place");
        if let Some(waiting) = of.waiting.take_if(|waiting| waiting.sqe.cid.get() == cid) {
            self.answer_at_once(core, id, waiting.slot, Status::ABORT_REQUESTED);
            return Reach::Aborted;
        }
        of.slot_of(cid).map_or(Reach::Kept, |slot| Reach::Submitted(Tag { queue, slot }))
    }

    /// Creates or deletes a queue.
    fn run_queue_command(&mut self, core: &mut Core, slot: u16, sqe: &Sqe) {
        let admin = self.admin.expect("its admin queue has a command");
        let tag = Tag { queue: admin, slot };
        let checked = core.subsystem.check_queue_command(tag, sqe, |command| self.there(command));
        let status = match checked {
            Ok(command) => self.carry_out_queue_command(core, admin, slot, sqe, command),
            Err(status) => Some(status),
        };
        if let Some(status) = status {
            self.complete(core, Completion::failed(tag, status, Buffer::empty()));
        }
    }

    /// Carries out a command about queues; `None`: it is answered later.
    fn carry_out_queue_command(
        &mut self,
        core: &mut Core,
        admin: QueueId,
        slot: u16,
        sqe: &Sqe,
        command: QueueCommand,
    ) -> Option<Status> {
        let ring = sqe.prp1.get();
        match command {
            QueueCommand::CreateCompletion { id, entries } => {
                let vector = QueueCommand::vector(sqe);
                if vector.is_some_and(|vector| vector >= VECTORS) {
                    return Some(Status::INVALID_INTERRUPT_VECTOR);
                }
                self.doorbells.clear_completion(id);
                *at(&mut self.completions, id) = Some(CompletionQueue::new(id, ring, entries, vector));
            }
            QueueCommand::CreateSubmission { id, entries, completion } => {
                let Some(queue) = core.subsystem.open_queue(admin, id, entries) else {
                    return Some(Status::INTERNAL);
                };
                self.doorbells.clear_submission(id);
                let queue = SubmissionQueue::new(id, completion, queue, ring, entries);
                *at(&mut self.submissions, id) = Some(queue);
            }
            QueueCommand::DeleteSubmission { id } => {
                let queue = at(&mut self.submissions, id).as_mut().expect("it was checked");
                queue.deleted_by = Some(slot);
                if queue.is_idle() {
                    self.finish_deletion(core, usize::from(id));
                }
                return None;
            }
            QueueCommand::DeleteCompletion { id } => *at(&mut self.completions, id) = None,
        }
        Some(Status::SUCCESS)
    }

    fn there(&self, command: QueueCommand) -> There {
        let has = |id: u16| self.completions.get(usize::from(id)).is_some_and(Option::is_some);
        let mut submissions = self.submissions.iter().flatten();
        match command {
            QueueCommand::CreateCompletion { id, .. } => {
                There { submission: false, completion: has(id), is_used: false }
            }
            QueueCommand::CreateSubmission { id, completion, .. } => There {
                submission: submissions.any(|queue| queue.id == id),
                completion: has(completion),
                is_used: false,
            },
            QueueCommand::DeleteSubmission { id } => There {
                // A queue that is being deleted counts as gone.
                submission: submissions.any(|queue| queue.id == id && queue.deleted_by.is_none()),
                ..There::default()
            },
            QueueCommand::DeleteCompletion { id } => There {
                submission: false,
                completion: has(id),
                is_used: submissions.any(|queue| queue.completion == id),
            },
        }
    }

    /// Called when every command of a queue is answered: completes its deletion, if it is being deleted.
    fn finish_deletion(&mut self, core: &mut Core, id: usize) {
        let Some(queue) = &self.submissions[id] else { return };
        let (Some(slot), queue) = (queue.deleted_by, queue.queue) else { return };
        self.submissions[id] = None;
        core.subsystem.disconnect(queue);
        if let Some(admin) = self.admin {
            let deleted = Completion::failed(Tag { queue: admin, slot }, Status::SUCCESS, Buffer::empty());
            self.complete(core, deleted);
        }
    }
}

/// The index of a queue with this identifier.
fn at<T>(queues: &mut Vec<Option<T>>, id: u16) -> &mut Option<T> {
    let index = usize::from(id);
    if queues.len() <= index {
        queues.resize_with(index + 1, || None);
    }
    &mut queues[index]
}

/// Copies the answer of a command to its client; returns the status of the command with that.
fn answer(client: &Client, to: Option<&Segments>, completion: &Completion) -> Status {
    let Some(to) = to.filter(|_| completion.status.is_success()) else { return completion.status };
    let bytes = &completion.data[..completion.data_bytes];
    match copy_to(&client.memory, to, bytes) {
        Ok(()) => completion.status,
        Err(_) => Status::DATA_TRANSFER_ERROR,
    }
}
