//! Notices to hosts that did not ask (asynchronous events), and entries of the server's log and of the error
//! log page.

use super::{Event, Subsystem, done};
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Tag};

impl Subsystem {
    /// Notifies the hosts that a namespace has changed.
    pub fn namespace_changed(&mut self, nsid: u32) {
        for index in 0..self.controllers.len() {
            if let Some(controller) = &mut self.controllers[index] {
                controller.note_namespace(nsid);
                self.deliver_events(index);
            }
        }
    }

    /// Completes Asynchronous Event Requests for which an event is pending.
    pub(super) fn deliver_events(&mut self, index: usize) {
        let Some(controller) = &mut self.controllers[index] else { return };
        while let Some(((slot, _), dw0)) = controller.events.next_to_tell() {
            let tag = Tag { queue: controller.admin, slot };
            self.events.push_back(Event::Completed(done(tag, dw0, 0, Buffer::empty())));
        }
    }

    /// Notifies hosts of namespaces that began to report critical warnings.
    pub(super) fn tell_warnings(&mut self) {
        let warned = self.namespaces.iter_mut().map(|(nsid, namespace)| (*nsid, namespace.take_warnings()));
        let warned: Vec<(u32, u8)> = warned.filter(|(_, warnings)| *warnings != 0).collect();
        for (nsid, warnings) in warned {
            for index in 0..self.controllers.len() {
                if let Some(controller) = &mut self.controllers[index] {
                    controller.note_warnings(nsid, warnings);
                    self.deliver_events(index);
                }
            }
        }
    }

    /// Drops a pending Asynchronous Event Request without an answer; `false` if there is no such request.
    pub fn forget_event_request(&mut self, tag: Tag) -> bool {
        let controller = self.controller_of(tag.queue).filter(|controller| controller.admin == tag.queue);
        controller.is_some_and(|controller| controller.events.unpark(|(slot, _)| *slot == tag.slot).is_some())
    }

    /// Notes that a queue ends because its host did not authenticate. `why` goes to the operator's log, not
    /// to the host.
    pub(super) fn note_unauthenticated(&mut self, id: QueueId, why: &str) {
        self.served.authentication_failures += 1;
        let Some(controller) = self.controller_of(id) else { return };
        let line = format!("host {:?} did not authenticate: {why}", controller.host_nqn);
        self.events.push_back(Event::Complaint(id, line));
    }

    /// Adds a failed command to the error log, unless hosts cause that status in normal use.
    pub(super) fn note_failure(&mut self, number: u16, cid: u16, failed: &Completion) {
        if number != 0 {
            self.served.note_end(failed.status);
        }
        if let Some(controller) = self.controller_of(failed.tag.queue) {
            controller.logs.note_error(number, cid, failed.status);
        }
    }
}
