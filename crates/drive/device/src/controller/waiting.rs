//! Admin commands whose answer waits for something other than firmware: an asynchronous event, or the last
//! command of a queue that is deleted. While they wait they occupy no context and no I/O thread.
//!
//! Flash causes the events: few spare blocks, and the end of writing, which also changes what Identify
//! reports of the namespace. A host gets an event if it has enabled it (feature 0Bh), and gets it again only
//! after it has read the log page with the details ([`kvdrive_admin::event`]). State from before its
//! connection is visible in log pages only.

use std::rc::Rc;

use kvdrive_admin::Notice;
use kvdrive_link::{Port, Request};
use kvdrive_nvme::log::Health;
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{DRIVE_NSID, Status, opcode};

use super::Controller;
use crate::requests::complete_admin;

/// Does the dispatcher itself carry out this command instead of an I/O thread? It does so for commands about queues,
/// and for Asynchronous Event Requests.
pub(crate) fn is_of_dispatcher(request: &impl Request) -> bool {
    let opcode = request.sqe().opcode;
    request.is_admin() && (QueueCommand::is_one(opcode) || opcode == opcode::admin::ASYNC_EVENT_REQUEST)
}

impl<P: Port> Controller<P> {
    /// Asynchronous Event Request: completes when an event occurs.
    pub(crate) fn hold(self: &Rc<Self>, mut request: P::Request) {
        let number = request.session().number();
        request.hold();
        let parked = self.admin_queues.borrow_mut().entry(number).or_default().events.park(request);
        match parked {
            Ok(()) => self.tell_events(),
            Err((request, status)) => complete_admin(self, request, Err(status)),
        }
    }

    /// Abort: completes a waiting Asynchronous Event Request. `false`: none has this identifier.
    pub(super) fn end_held(self: &Rc<Self>, session: u32, cid: u16) -> bool {
        let mut queues = self.admin_queues.borrow_mut();
        let of = queues.get_mut(&session);
        let held = of.and_then(|queue| queue.events.unpark(|request| request.sqe().cid.get() == cid));
        drop(queues);
        let Some(request) = held else { return false };
        self.answer_beside(request, Err(Status::ABORT_REQUESTED));
        true
    }

    /// Delete I/O Submission Queue: completes when no command of the queue is left.
    pub(crate) fn end_queue(self: &Rc<Self>, request: P::Request) {
        if let Err(status) = self.check_queue_command(&request) {
            return complete_admin(self, request, Err(status));
        }
        let controller = self.clone();
        self.port.sim().spawn(move || {
            let id = request.sqe().cdw10.get() as u16;
            let is_ended = request.queues().is_some_and(|queues| queues.delete_submission(id));
            let answer = if is_ended { Ok((0, 0)) } else { Err(Status::INVALID_QUEUE_ID) };
            complete_admin(&controller, request, answer);
        });
    }

    /// Generates events for new warnings, after a change of the flash or of the files of a medium.
    pub(super) fn note_health(self: &Rc<Self>) {
        let now = self.health().warnings;
        let new = now & !self.warned.replace(now);
        if new == 0 {
            return;
        }
        for queue in self.admin_queues.borrow_mut().values_mut() {
            let wanted = queue.features.wanted_events;
            if new & Health::FEW_SPARES != 0 {
                queue.events.note(Notice::FewSpares, wanted);
            }
            if new & Health::READ_ONLY != 0 {
                queue.events.note(Notice::ReadOnly, wanted);
                // The namespace's attributes change as well.
                queue.changes.changed_namespaces.insert(DRIVE_NSID);
                queue.events.note(Notice::Namespaces, wanted);
            }
        }
        self.tell_events();
    }

    /// Completes requests for which an event is pending.
    fn tell_events(self: &Rc<Self>) {
        let mut told = Vec::new();
        for queue in self.admin_queues.borrow_mut().values_mut() {
            told.extend(std::iter::from_fn(|| queue.events.next_to_tell()));
        }
        for (request, event) in told {
            self.answer_beside(request, Ok((event, 0)));
        }
    }

    /// Answers a request in a task of its own, because the caller may be in the middle of other work.
    fn answer_beside(self: &Rc<Self>, request: P::Request, answer: Result<(u32, u32), Status>) {
        let controller = self.clone();
        self.port.sim().spawn(move || complete_admin(&controller, request, answer));
    }
}
