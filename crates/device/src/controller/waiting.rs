//! Admin commands whose answer waits for something else than firmware: an asynchronous event, or the last command
//! of a queue that is deleted. They hold no context and no I/O thread meanwhile.
//!
//! Events come from flash: spare blocks that become few, and the end of writing, which changes what Identify says
//! of the namespace, too. A host hears of them if it has asked to (feature 0Bh), once until it has read the log
//! page that says more ([`kvdrive_admin::event`]). What there was before it connected it finds by looking.

use std::rc::Rc;

use kvdrive_admin::Notice;
use kvdrive_link::{Port, Request};
use kvdrive_spec::log::Health;
use kvdrive_spec::queue::QueueCommand;
use kvdrive_spec::{Status, opcode};

use super::Controller;
use crate::namespaces::NSID;
use crate::requests::complete_admin;

/// Has whoever takes commands from the queues to carry this one out, and no I/O thread? It is about queues, or it
/// is to wait.
pub(crate) fn is_of_dispatcher(request: &impl Request) -> bool {
    let opcode = request.sqe().opcode;
    request.is_admin() && (QueueCommand::is_one(opcode) || opcode == opcode::admin::ASYNC_EVENT_REQUEST)
}

impl<P: Port> Controller<P> {
    /// Asynchronous Event Request: it is answered when something happens.
    pub(crate) fn hold(self: &Rc<Self>, mut request: P::Request) {
        let number = request.session().number();
        request.hold();
        let parked = self.admin_queues.borrow_mut().entry(number).or_default().events.park(request);
        match parked {
            Ok(()) => self.tell_events(),
            Err((request, status)) => complete_admin(self, request, Err(status)),
        }
    }

    /// Abort: an Asynchronous Event Request that waits is ended. `false`: there is none of this identifier.
    pub(super) fn end_held(self: &Rc<Self>, session: u32, cid: u16) -> bool {
        let mut queues = self.admin_queues.borrow_mut();
        let of = queues.get_mut(&session);
        let held = of.and_then(|queue| queue.events.unpark(|request| request.sqe().cid.get() == cid));
        drop(queues);
        let Some(request) = held else { return false };
        self.answer_beside(request, Err(Status::ABORT_REQUESTED));
        true
    }

    /// Delete I/O Submission Queue: it is answered when nothing is left of the queue.
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

    /// Something has happened to the flash, or to the files of a medium.
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
                // Its attributes say so, too.
                queue.changes.changed_namespaces.insert(NSID);
                queue.events.note(Notice::Namespaces, wanted);
            }
        }
        self.tell_events();
    }

    /// Answers requests by which hosts wait for what has happened.
    fn tell_events(self: &Rc<Self>) {
        let mut told = Vec::new();
        for queue in self.admin_queues.borrow_mut().values_mut() {
            told.extend(std::iter::from_fn(|| queue.events.next_to_tell()));
        }
        for (request, event) in told {
            self.answer_beside(request, Ok((event, 0)));
        }
    }

    /// Answers a request in a task of its own: whoever came to do so may be in the middle of anything.
    fn answer_beside(self: &Rc<Self>, request: P::Request, answer: Result<(u32, u32), Status>) {
        let controller = self.clone();
        self.port.sim().spawn(move || complete_admin(&controller, request, answer));
    }
}
