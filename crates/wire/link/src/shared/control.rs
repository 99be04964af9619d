//! The control channel: other threads inspect a drive, and change it, between two of its events.
//!
//! ```text
//!   Control::look(closure) ──► control_queue ──► bell ═══► WallSource::poll   runs it at once; the drive's events do
//!                                                                    not notice, and nothing is recorded
//!   Control::change(text)  ──► control_queue ──► bell ═══► WallSource::poll   stamps it with a model time, as a doorbell
//!                                                    └► pump task    at that time: recorded, Controlled::change
//! ```
//!
//! A look may read anything. An operation that changes the drive, or would run its tasks, must be a change:
//! it is text, so that a recording contains it and a replay repeats it at the same event.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use kvdrive_sim::Sim;
use kvdrive_sim::wall::{Bell, lock};

use super::carrier::Carrier;
use super::link::{PowerOff, SharedLink};
use crate::served::Outcome;

type Look<D> = Box<dyn FnOnce(&Sim, &D) + Send>;

/// A request to the drive's thread.
pub(super) enum ControlRequest<D> {
    Look(Look<D>),
    /// The requester is in [`Waiting::requesters`].
    Change(String),
}

struct Waiting<D> {
    requests: Vec<ControlRequest<D>>,
    /// Requesters of changes that have not been executed, the oldest first.
    requesters: VecDeque<Sender<Outcome>>,
}

/// The queue of requests. `None`: the drive's thread has ended.
pub(super) struct ControlQueue<D>(Mutex<Option<Waiting<D>>>);

impl<D> ControlQueue<D> {
    /// Takes all requests since the last call.
    pub(super) fn take(&self) -> Vec<ControlRequest<D>> {
        lock(&self.0).as_mut().map_or_else(Vec::new, |waiting| std::mem::take(&mut waiting.requests))
    }

    /// Sends the outcome of the oldest change to its requester.
    pub(super) fn answer(&self, outcome: Outcome) {
        let requester = lock(&self.0).as_mut().and_then(|waiting| waiting.requesters.pop_front());
        // A requester that has gone does not wait.
        _ = requester.map(|requester| requester.send(outcome));
    }

    /// Releases all waiting requesters, present and future.
    pub(super) fn close(&self) {
        let waiting = lock(&self.0).take();
        drop(waiting);
    }

    fn put(&self, request: ControlRequest<D>, requester: Option<Sender<Outcome>>) -> Result<(), PowerOff> {
        let mut control_queue = lock(&self.0);
        let waiting = control_queue.as_mut().ok_or(PowerOff)?;
        waiting.requests.push(request);
        waiting.requesters.extend(requester);
        Ok(())
    }
}

/// Control of a running drive from other threads. Clones control the same drive.
pub struct Control<D> {
    bell: Arc<Bell>,
    carrier: Carrier,
    control_queue: Arc<ControlQueue<D>>,
}

impl<D> Clone for Control<D> {
    fn clone(&self) -> Self {
        Control {
            bell: self.bell.clone(),
            carrier: self.carrier.clone(),
            control_queue: self.control_queue.clone(),
        }
    }
}

impl<D> Control<D> {
    /// The control channel of the drive that will serve `link`.
    pub fn new(link: &SharedLink) -> Control<D> {
        let waiting = Waiting { requests: Vec::new(), requesters: VecDeque::new() };
        let (bell, carrier) = (link.bell.clone(), link.carrier.clone());
        Control { bell, carrier, control_queue: Arc::new(ControlQueue(Mutex::new(Some(waiting)))) }
    }

    pub(super) fn control_queue(&self) -> &Arc<ControlQueue<D>> {
        &self.control_queue
    }

    /// No other thread reaches a drive that the calls of one thread carry out.
    fn reach(&self) -> Result<(), PowerOff> {
        self.carrier.check().map_err(|_| PowerOff)
    }

    /// Runs `act` on the drive's thread, between two events, and waits for its result. It must not change
    /// anything that the drive's events depend on. Called in an event of the drive, it would wait for ever.
    ///
    /// # Errors
    /// The drive is off, or carried out by the calls of another thread ([`super::serve_here`]).
    pub fn look<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Sim, &D) -> T + Send + 'static,
    ) -> Result<T, PowerOff> {
        let (answer, answered) = mpsc::channel();
        // A requester that has gone does not wait.
        let look: Look<D> = Box::new(move |sim, drive| _ = answer.send(act(sim, drive)));
        self.reach()?;
        self.control_queue.put(ControlRequest::Look(look), None)?;
        self.bell.ring();
        answered.recv().map_err(|_| PowerOff)
    }

    /// Runs [`Controlled::change`](super::Controlled::change) with `change` at a model time of its own, and waits for
    /// its outcome. Changes are executed in order. Must not be called within an event of the drive, where it would wait
    /// for ever.
    ///
    /// # Errors
    /// As [`Control::look`]; the change may or may not have been executed before the drive was off.
    pub fn change(&self, change: impl Into<String>) -> Result<Outcome, PowerOff> {
        let (answer, answered) = mpsc::channel();
        self.reach()?;
        self.control_queue.put(ControlRequest::Change(change.into()), Some(answer))?;
        self.bell.ring();
        answered.recv().map_err(|_| PowerOff)
    }
}
