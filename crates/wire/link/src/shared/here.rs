//! A drive without a thread of its own: calls of the thread that opened it run the drive.
//!
//! ```text
//!   submit ──► inbox ──► bell ══► run_due: everything that is due  returns when the drive waits for its hosts again
//! ```
//!
//! Between two threads each command costs cache misses and wake-ups; here a doorbell is a call, and the command is
//! answered when the call returns. It is for unpaced drives: a paced drive would make its host wait for the clock.
//!
//! A drive consists of objects that threads cannot share, and never leaves the thread it was built on. Its handles can
//! be moved to other threads, where calls are refused ([`OtherThread`](super::OtherThread)) before anything is
//! submitted. If another thread drops a handle, its clean-up (an iterator to be closed) runs with the next call of the
//! drive's thread. When the drive's thread ends, the drive is off.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use kvdrive_sim::wall::{Pace, WallRun, run_until_idle};
use kvdrive_sim::{ForkCount, Sim};

use super::control::Control;
use super::link::SharedLink;
use super::server::{Begun, Server, ServerConfig};
use super::thread::Serving;
use crate::memory::HostMemory;
use crate::served::{BuildError, Built, Controlled, RunEnd};

/// A drive between two calls.
trait CarriedDrive {
    /// Carries out everything that is due. `true`: the drive has ended.
    fn run_due(&mut self) -> bool;
}

/// State of [`Carried`] until the drive ends.
struct Carried<D, F: FnOnce(RunEnd) -> R, R> {
    forks: ForkCount,
    begun: Option<Begun<D, F>>,
    ended: mpsc::Sender<R>,
}

impl<D: Controlled, F: FnOnce(RunEnd) -> R, R> CarriedDrive for Carried<D, F, R> {
    fn run_due(&mut self) -> bool {
        let begun = self.begun.as_mut().expect("a drive that has ended does not run");
        let has_ended = run_until_idle(&begun.sim, &mut begun.source);
        if has_ended {
            let begun = self.begun.take().expect("it was there");
            // A host that has left does not wait for the result.
            _ = self.ended.send(begun.end(WallRun::default()));
        }
        has_ended
    }
}

impl<D, F: FnOnce(RunEnd) -> R, R> Drop for Carried<D, F, R> {
    fn drop(&mut self) {
        if self.forks.is_forked() {
            // The file of its medium is the parent's: nothing is written or unlocked here.
            return std::mem::forget(self.begun.take());
        }
        // Suspended tasks would keep resources of the drive, such as the lock of its image.
        if let Some(begun) = self.begun.as_ref().filter(|_| !std::thread::panicking()) {
            begun.sim.clear();
        }
    }
}

thread_local! {
    /// The drives that this thread carries out, by their numbers. `None`: it has ended, or runs now.
    static DRIVES: RefCell<Vec<Option<Box<dyn CarriedDrive>>>> = const { RefCell::new(Vec::new()) };
}

/// Runs the events that are due on a drive of this thread. Does nothing if the drive itself rings its bell, since its
/// events are being run already.
fn run_due(drive: usize) {
    let taken = DRIVES.try_with(|drives| drives.borrow_mut()[drive].take());
    let Ok(Some(mut carried)) = taken else { return };
    if !carried.run_due() {
        DRIVES.with_borrow_mut(|drives| drives[drive] = Some(carried));
    }
}

/// Builds a drive at the device end of `link` on this thread, whose calls run the drive from now on. `build` gets the
/// executor and the host memory.
///
/// # Errors
/// What `build` returns.
///
/// Panics when the drive is paced.
pub fn serve_here<D, R, F>(
    link: &Arc<SharedLink>,
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
) -> Result<Serving<D, R>, BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    assert!(config.pace != Pace::Model, "a paced drive waits for the clock, on a thread of its own");
    let control = Control::new(link);
    let server = Server::new(link, &control, config, build)?;
    let drive = DRIVES.with_borrow_mut(|drives| {
        drives.push(None);
        drives.len() - 1
    });
    let (carrier, forks) = (link.carrier.clone(), ForkCount::now());
    link.bell.set_call(move || {
        // Other threads ring as well, when they drop handles or before a call is refused.
        if carrier.may_run(forks) {
            run_due(drive);
        }
    });
    let begun = server.begin();
    link.carrier.set_here();
    let (ended, ending) = mpsc::channel();
    let carried: Box<dyn CarriedDrive> = Box::new(Carried { forks, begun: Some(begun), ended });
    DRIVES.with_borrow_mut(|drives| drives[drive] = Some(carried));
    run_due(drive);
    Ok(Serving::carried(link, control, ending))
}
