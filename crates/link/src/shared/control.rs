//! The control channel: other threads look at a drive, and change it, between two of its events.
//!
//! ```text
//!   Control::look(closure) ──► desk ──► bell ═══► WallSource::poll   runs it at once; the drive's events do
//!                                                                    not notice, and nothing is recorded
//!   Control::change(text)  ──► desk ──► bell ═══► WallSource::poll   stamps it with a model time, as a doorbell
//!                                                    └► pump task    at that time: recorded, Controlled::change
//! ```
//!
//! A look may read whatever it likes. What alters the drive, or would run its tasks, has to be a change: it is
//! text, so that a recording keeps it and a replay does the same at the same event.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use kvdrive_sim::wall::Bell;
use kvdrive_sim::{Ns, Sim};
use kvdrive_spec::Cqe;
use kvdrive_spec::transport_fault::TransportFault;

use super::{PowerOff, SharedLink, lock};

/// What came of a change: an answer for whoever asked, or why nothing has changed.
pub type Outcome = Result<String, String>;

/// What the thread that serves a drive needs of it besides its link, and what a control channel reaches.
pub trait Controlled: 'static {
    /// Carries out `change`, which may not wait, and answers. The same text at the same event must have the
    /// same effect: a replay calls this, too.
    ///
    /// # Errors
    /// What is wrong with it, in a line; nothing has changed.
    fn change(&self, change: &str) -> Outcome;

    /// Do completions wait for each other, so that what they acknowledge is made to last for all at once?
    fn shares_settling(&self) -> bool {
        false
    }

    /// Makes everything last that completions acknowledge which are about to be handed to hosts. `false`: not
    /// all of it does.
    fn settle(&self) -> bool {
        true
    }

    /// What the answer to a command of a queue, known by the number of its session, is to suffer on its way
    /// to a host on a network, which is asked once, when it completes.
    fn at_door(&self, session: u32, cid: u16) -> Option<TransportFault> {
        _ = (session, cid);
        None
    }

    /// A command of an I/O queue has completed, so much model time behind the moment it took effect.
    fn note_latency(&self, opcode: u8, span: Ns) {
        _ = (opcode, span);
    }

    /// An event of it was carried out so much later than the model has it: measured, and only where the drive is
    /// paced.
    fn note_lateness(&self, late_ns: Ns) {
        _ = late_ns;
    }

    /// Behind a settling that failed: makes a completion say so if what it acknowledges is lost.
    fn revoke(&self, session: u32, cqe: &mut Cqe) {
        _ = (session, cqe);
    }
}

/// A drive that can only be looked at, and has nothing to show.
impl Controlled for () {
    fn change(&self, _: &str) -> Outcome {
        Err("this drive takes no changes".to_owned())
    }
}

type Look<D> = Box<dyn FnOnce(&Sim, &D) + Send>;

/// What somebody wants of the drive's thread.
pub(super) enum Request<D> {
    Look(Look<D>),
    /// Who asked stands in [`Waiting::askers`].
    Change(String),
}

struct Waiting<D> {
    requests: Vec<Request<D>>,
    /// Who waits for changes that have been asked for and not been carried out, the oldest first.
    askers: VecDeque<Sender<Outcome>>,
}

/// Where requests lie. `None`: the drive's thread has ended.
pub(super) struct Desk<D>(Mutex<Option<Waiting<D>>>);

impl<D> Desk<D> {
    /// Everything that was asked for since the last time.
    pub(super) fn take(&self) -> Vec<Request<D>> {
        lock(&self.0).as_mut().map_or_else(Vec::new, |waiting| std::mem::take(&mut waiting.requests))
    }

    /// Tells who asked for the oldest change what came of it.
    pub(super) fn answer(&self, outcome: Outcome) {
        let asker = lock(&self.0).as_mut().and_then(|waiting| waiting.askers.pop_front());
        // One who went away does not wait.
        _ = asker.map(|asker| asker.send(outcome));
    }

    /// Lets go of everybody who waits, now and later.
    pub(super) fn close(&self) {
        let waiting = lock(&self.0).take();
        drop(waiting);
    }

    fn put(&self, request: Request<D>, asker: Option<Sender<Outcome>>) -> Result<(), PowerOff> {
        let mut desk = lock(&self.0);
        let waiting = desk.as_mut().ok_or(PowerOff)?;
        waiting.requests.push(request);
        waiting.askers.extend(asker);
        Ok(())
    }
}

/// A drive that is served, for other threads than its own. Clones reach the same drive.
pub struct Control<D> {
    bell: Arc<Bell>,
    desk: Arc<Desk<D>>,
}

impl<D> Clone for Control<D> {
    fn clone(&self) -> Self {
        Control { bell: self.bell.clone(), desk: self.desk.clone() }
    }
}

impl<D> Control<D> {
    /// The control channel of the drive that will be behind `link`.
    pub fn new(link: &SharedLink) -> Control<D> {
        let waiting = Waiting { requests: Vec::new(), askers: VecDeque::new() };
        Control { bell: link.bell.clone(), desk: Arc::new(Desk(Mutex::new(Some(waiting)))) }
    }

    pub(super) fn desk(&self) -> &Arc<Desk<D>> {
        &self.desk
    }

    /// Runs `act` on the drive's thread, between two events, and waits for what it returns. It must not alter
    /// anything the drive's events depend on. On the drive's own thread this would wait for ever.
    ///
    /// # Errors
    /// The drive is off.
    pub fn look<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Sim, &D) -> T + Send + 'static,
    ) -> Result<T, PowerOff> {
        let (answer, answered) = mpsc::channel();
        // One who went away does not wait.
        let look: Look<D> = Box::new(move |sim, drive| _ = answer.send(act(sim, drive)));
        self.desk.put(Request::Look(look), None)?;
        self.bell.ring();
        answered.recv().map_err(|_| PowerOff)
    }

    /// Has [`Controlled::change`] carry out `change` at a model time of its own, and waits for what comes of
    /// it. Changes are carried out in their order. On the drive's own thread this would wait for ever.
    ///
    /// # Errors
    /// The drive is off; whether it was carried out before that, nobody knows.
    pub fn change(&self, change: impl Into<String>) -> Result<Outcome, PowerOff> {
        let (answer, answered) = mpsc::channel();
        self.desk.put(Request::Change(change.into()), Some(answer))?;
        self.bell.ring();
        answered.recv().map_err(|_| PowerOff)
    }
}
