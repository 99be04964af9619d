//! Controllers that hosts reach as PCI functions: a host writes registers and describes its rings by commands, so
//! that there is no Connect, no name of a host, no keep-alive and no capsule. The transport has the rings.
//!
//! A function has a controller as long as it has a host. A reset gives it a new admin queue, so that answers to earlier
//! commands reach no ring.

use std::rc::Rc;

use kvdrive_admin::queue::{There, check};
use kvdrive_admin::{ControllerKind, Notice};
use kvdrive_nvme::property::{Configuration, ControllerStatus};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Sqe, Status, property};

use super::connect::ADMIN_ENTRIES_MAX;
use super::controller::{Controller, Transport};
use super::{Address, Queue, Subsystem};
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Tag};

impl Subsystem {
    /// Creates a controller for a host that reaches it as a PCI function at `reached_at`; returns its admin queue.
    /// `host` is the name under which the host shares the drive with others.
    ///
    /// # Errors
    /// [`Status::CONTROLLER_BUSY`]: the limit of controllers is reached.
    pub fn open_function(
        &mut self,
        host: &str,
        reached_at: &Rc<Address>,
        now_ms: u64,
    ) -> Result<QueueId, Status> {
        let index = self.free_controller().map_err(|refused| refused.status)?;
        let admin = self.add_function_queue(index, 0, ADMIN_ENTRIES_MAX);
        self.served.controllers += 1;
        let mut controller = Controller::new(ControllerKind::Io, host, [0; 16], admin, reached_at.clone());
        controller.transport = Transport::Pcie;
        controller.io = vec![None; usize::from(self.options.io_queues_max)];
        controller.features.queues_z = self.options.io_queues_max - 1;
        controller.last_sign_ms = now_ms;
        self.controllers[index] = Some(controller);
        Ok(admin)
    }

    fn add_function_queue(&mut self, controller: usize, number: u16, entries: u32) -> QueueId {
        self.add_queue(Queue {
            controller,
            number,
            entries,
            from: None,
            sessions: Vec::new(),
            locked_since_ms: None,
            authentication: None,
        })
    }

    /// A register of the function with this admin queue; `None` if the function has no controller or no such
    /// register.
    pub fn register(&self, admin: QueueId, offset: u32, wide: bool) -> Option<u64> {
        let controller = self.controllers[self.queue(admin)?.controller].as_ref()?;
        controller.property(&self.options, offset, wide).ok()
    }

    /// CSTS of the function with this admin queue.
    pub fn status(&self, admin: QueueId) -> Option<ControllerStatus> {
        let bits = self.register(admin, property::CSTS, false)?;
        Some(ControllerStatus::from_bits(bits as u32))
    }

    /// Writes CC of a function. Returns its admin queue, which is a new one after a reset.
    pub fn configure(&mut self, admin: QueueId, wanted: Configuration) -> Option<QueueId> {
        let index = self.queue(admin)?.controller;
        let was_enabled = self.controllers[index].as_ref()?.configuration.enable();
        let is_reset = was_enabled && !wanted.enable();
        let admin = if is_reset { self.renew(admin, index) } else { admin };
        let controller = self.controllers[index].as_mut()?;
        controller.admin = admin;
        controller.configure(wanted);
        Some(admin)
    }

    /// Resets a function as a whole. Returns its new admin queue.
    pub fn reset_function(&mut self, admin: QueueId) -> Option<QueueId> {
        let index = self.queue(admin)?.controller;
        let admin = self.renew(admin, index);
        let controller = self.controllers[index].as_mut()?;
        controller.admin = admin;
        controller.configure(Configuration::new());
        // A shutdown is over, too.
        controller.status = ControllerStatus::new();
        Some(admin)
    }

    /// Ends all queues of a function and gives it a new admin queue.
    fn renew(&mut self, admin: QueueId, index: usize) -> QueueId {
        self.close_io_queues(index);
        self.remove_queue(admin);
        self.add_function_queue(index, 0, ADMIN_ENTRIES_MAX)
    }

    /// The controller of a function has failed: it takes nothing before it is reset.
    pub fn fail_function(&mut self, admin: QueueId) {
        self.fail_controller(admin, true);
    }

    /// Checks a command that creates or deletes a queue of a function; `there` says which queues exist. A refused
    /// command is noted, and changes nothing.
    ///
    /// # Errors
    /// Those of [`check`] and of [`QueueCommand::decode`]; [`Status::INVALID_QUEUE_SIZE`] for a ring larger than
    /// CAP.MQES says.
    pub fn check_queue_command(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        there: impl FnOnce(QueueCommand) -> There,
    ) -> Result<QueueCommand, Status> {
        self.served.admin_commands += 1;
        let checked = self.queue_command(tag.queue, sqe, there);
        if let Err(status) = checked {
            self.note_failure(0, sqe.cid.get(), &Completion::failed(tag, status, Buffer::empty()));
        }
        checked
    }

    fn queue_command(
        &mut self,
        admin: QueueId,
        sqe: &Sqe,
        there: impl FnOnce(QueueCommand) -> There,
    ) -> Result<QueueCommand, Status> {
        let entries_max = self.options.queue_entries_max;
        let controller = self.controller_of(admin).ok_or(Status::INTERNAL)?;
        let command = QueueCommand::decode(sqe)?;
        check(command, there(command), controller.io.len() as u16)?;
        match command {
            QueueCommand::CreateCompletion { entries, .. }
            | QueueCommand::CreateSubmission { entries, .. }
                if entries > entries_max =>
            {
                Err(Status::INVALID_QUEUE_SIZE)
            }
            _ => Ok(command),
        }
    }

    /// Notes that the transport has refused a command of queue `number`.
    pub fn note_refused(&mut self, number: u16, cid: u16, refused: &Completion) {
        self.note_failure(number, cid, refused);
    }

    /// Adds an I/O queue to a function, after [`Subsystem::check_queue_command`].
    pub fn open_queue(&mut self, admin: QueueId, number: u16, entries: u32) -> Option<QueueId> {
        let index = self.queue(admin)?.controller;
        let queue = self.add_function_queue(index, number, entries);
        self.controllers[index].as_mut()?.io[usize::from(number) - 1] = Some(queue);
        Some(queue)
    }

    /// A function's host wrote a value to a doorbell that it cannot have.
    pub fn note_wrong_doorbell(&mut self, admin: QueueId) {
        let Some(index) = self.queue(admin).map(|queue| queue.controller) else { return };
        if let Some(controller) = &mut self.controllers[index] {
            controller.events.note(Notice::Doorbell, controller.features.wanted_events);
            self.deliver_events(index);
        }
    }
}
