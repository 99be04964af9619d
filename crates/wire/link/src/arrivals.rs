//! What arrives at a drive from outside, stamped with model time, and how it enters the queues of [`Link`]. A run in wall time
//! ([`crate::shared`]) and its replay ([`crate::recording`]) both use it.
//!
//! Not here: where arrivals come from, and where completions go.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_nvme::door::sent_opcode;
use kvdrive_nvme::{Command, DRIVE_NSID, Sqe};
use kvdrive_sim::{Ns, TaskCell};

use crate::pcie::Link;
use crate::queue::{Outlet, QueuePair};
use crate::served::{Controlled, Outcome};

/// An action of a host, as far as the drive can see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostAction {
    /// The next queue pair was created, without a command.
    Queue { entries: u32 },
    /// A queue's doorbell was rung after these entries.
    Commands { queue: u16, sqes: Vec<Sqe>, submission_doorbells: u32, completion_doorbells: u32 },
    /// The host gave up the unfinished value of a queue.
    Reset { queue: u16 },
    /// The control channel requested a change.
    Change { change: String },
}

/// An arrival and the model time at which it takes effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamped {
    pub(crate) at: Ns,
    pub(crate) arrived: HostAction,
}

/// The link's queues by number, fed with arrivals. Both a wall-time run and its replay use it.
pub(crate) struct Ports {
    pub(crate) link: Rc<Link>,
    pub(crate) drive: Rc<dyn Controlled>,
    /// Queues at which something has arrived.
    queues: TaskCell<Vec<Option<Rc<QueuePair>>>>,
    /// Number of queues created without a command, including the admin queue.
    created: Cell<usize>,
}

impl Ports {
    pub(crate) fn new(link: Rc<Link>, drive: Rc<dyn Controlled>) -> Ports {
        Ports { link, drive, queues: TaskCell::default(), created: Cell::new(0) }
    }

    /// Queue `number`, with `outlet` for its completions.
    fn queue(
        &self,
        number: u16,
        outlet: impl FnOnce(&QueuePair) -> Outlet,
    ) -> Result<Rc<QueuePair>, &'static str> {
        let known = self.queues.borrow().get(usize::from(number)).cloned().flatten();
        if let Some(queue) = known.filter(|queue| !queue.is_deleted()) {
            return Ok(queue);
        }
        let queue = self.link.first_function().queue(number).filter(|queue| !queue.is_deleted());
        let queue = queue.ok_or("something arrives at a queue that was never created")?;
        self.take(&queue, outlet);
        Ok(queue)
    }

    /// Directs the completions of `queue` to `outlet` from now on.
    fn take(&self, queue: &Rc<QueuePair>, outlet: impl FnOnce(&QueuePair) -> Outlet) {
        queue.set_outlet(outlet(queue));
        let (mut queues, number) = (self.queues.borrow_mut(), usize::from(queue.id()));
        if queues.len() <= number {
            queues.resize(number + 1, None);
        }
        queues[number] = Some(queue.clone());
    }

    /// Applies an arrival. `outlet` makes the outlet of a queue at which something arrives for the first
    /// time; `changed` receives the outcome of a change.
    ///
    /// Errors: why the arrival is invalid.
    pub(crate) fn apply(
        &self,
        arrived: &HostAction,
        outlet: impl FnOnce(&QueuePair) -> Outlet,
        changed: impl FnOnce(Outcome),
    ) -> Result<(), &'static str> {
        match arrived {
            HostAction::Queue { entries } => {
                let number = self.created.replace(self.created.get() + 1);
                let id = u16::try_from(number);
                let id = id.map_err(|_| "one queue more than there are queue identifiers")?;
                let is_there = number > 0 && self.link.first_function().queue(id).is_some();
                let queue = match number {
                    0 => self.link.admin_queue(),
                    _ if is_there => return Err("a queue is created that a command has created before"),
                    _ => self.link.create_queue(*entries),
                };
                self.take(&queue, outlet);
                Ok(())
            }
            HostAction::Commands { queue, sqes, submission_doorbells, completion_doorbells } => {
                let queue = &self.queue(*queue, outlet)?;
                self.link.count_doorbells(*submission_doorbells);
                self.link.count_doorbells(*completion_doorbells);
                let fits = sqes.iter().all(|sqe| queue.try_submit(*sqe));
                self.link.note_arrival(queue);
                if fits { Ok(()) } else { Err("commands for a queue that is full") }
            }
            HostAction::Reset { queue } => {
                let queue = &self.queue(*queue, outlet)?;
                let mut discard = Command::Discard { stream: 0 }.encode(0, DRIVE_NSID);
                discard.set_quiet();
                self.link.count_doorbells(1);
                let fits = queue.try_submit(discard);
                self.link.note_arrival(queue);
                if fits { Ok(()) } else { Err("a queue is full that gives up a value") }
            }
            HostAction::Change { change } => {
                changed(self.drive.change(change));
                Ok(())
            }
        }
    }
}

/// Start times and opcodes of the commands under way in one session of a queue, by identifier. The commands of an inline
/// value share one, and are completed in their order.
#[derive(Default)]
pub(crate) struct Began(TaskCell<Vec<VecDeque<(Ns, u8)>>>);

impl Began {
    /// Notes that these commands take effect now. Quiet ones are not completed.
    pub(crate) fn note(&self, sqes: &[Sqe], now: Ns) {
        let mut began = self.0.borrow_mut();
        for sqe in sqes.iter().filter(|sqe| !sqe.is_quiet()) {
            let cid = usize::from(sqe.cid.get());
            if began.len() <= cid {
                began.resize(cid + 1, VecDeque::new());
            }
            began[cid].push_back((now, sent_opcode(sqe).unwrap_or(sqe.opcode)));
        }
    }

    /// Tells `drive` the latency of a command that completes now.
    pub(crate) fn end(&self, cid: u16, drive: &dyn Controlled, now: Ns) {
        let began = self.0.borrow_mut().get_mut(usize::from(cid)).and_then(VecDeque::pop_front);
        if let Some((began, opcode)) = began {
            drive.note_latency(opcode, now - began);
        }
    }

    /// Forgets the commands of a session that has ended.
    pub(crate) fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}
