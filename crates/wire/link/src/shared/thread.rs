//! The drive's thread, dedicated or shared with other work. The whole drive is built on it and never leaves
//! it; only its last result does.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use kvdrive_sim::Sim;
use kvdrive_sim::wall::{Sleeper, Source};

use super::control::Control;
use super::link::SharedLink;
use super::server::{Server, ServerConfig};
use crate::memory::HostMemory;
use crate::served::{BuildError, Built, Controlled, RunEnd};

/// A drive that is being served.
pub struct Serving<D, R> {
    link: Arc<SharedLink>,
    control: Control<D>,
    ending: Ending<R>,
}

/// Source of a drive's last result.
enum Ending<R> {
    Own(JoinHandle<Option<R>>),
    /// On a thread that does something else, too. After a lock, so that its owner can be shared by threads.
    Elsewhere(Mutex<mpsc::Receiver<R>>),
}

/// Wakes a thread where it sleeps.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// A drive that was built on this thread and serves in its loop: it polls other sources between its events,
/// sleeps in the given place, and returns when it has ended. See [`Server::run_beside`].
pub type DriveLoop = Box<dyn FnOnce(&mut [&mut dyn Source], &mut dyn Sleeper, Wake)>;

impl<D: Controlled, R> Serving<D, R> {
    /// Waits until the link is closed and the drive has finished its work, or its power was cut; returns the
    /// result of its final function. Propagates a panic of the drive's thread.
    pub fn join(self) -> R {
        match self.ending {
            Ending::Own(thread) => match thread.join() {
                Ok(result) => result.expect("a drive that was built runs to its end"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Ending::Elsewhere(result) => {
                let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
                result.recv().expect("the loop of a drive runs to its end")
            }
        }
    }

    /// A drive whose last result comes from `ending`.
    pub(super) fn carried(
        link: &Arc<SharedLink>,
        control: Control<D>,
        ending: mpsc::Receiver<R>,
    ) -> Serving<D, R> {
        Serving { link: link.clone(), control, ending: Ending::Elsewhere(Mutex::new(ending)) }
    }

    /// The control channel of the running drive.
    pub fn control(&self) -> &Control<D> {
        &self.control
    }

    /// Cuts the drive's power: no outstanding command completes, and every waiting or later command fails.
    pub fn cut_power(&self) {
        self.link.cut_power();
    }
}

/// Builds a drive for `link` on a thread of its own and serves it there. `build` gets the executor and the
/// host memory.
///
/// Errors: what `build` returns; the thread has ended then.
pub fn serve_thread<D, R, F>(
    link: &Arc<SharedLink>,
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError> + Send + 'static,
) -> Result<Serving<D, R>, BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let (built, outcome) = mpsc::channel();
    let control = Control::new(link);
    let (shared, controlled) = (link.clone(), control.clone());
    let thread = thread::Builder::new().name("kvdrive".into()).spawn(move || {
        match Server::new(&shared, &controlled, config, build) {
            Ok(server) => {
                // If the receiver is gone, its thread panicked; the drive then ends with its link.
                let _ = built.send(Ok(()));
                Some(server.run())
            }
            Err(error) => {
                let _ = built.send(Err(error));
                None
            }
        }
    })?;
    let serving = Serving { link: link.clone(), control, ending: Ending::Own(thread) };
    match outcome.recv() {
        Ok(Ok(())) => Ok(serving),
        Ok(Err(error)) => Err(error),
        // The builder panicked: this thread panics with the same message.
        Err(_) => {
            serving.join();
            unreachable!("a thread that sent nothing has panicked")
        }
    }
}

/// Builds a drive for `link` on this thread, to be served in a loop of this thread.
///
/// Errors: what `build` returns.
pub fn serve_beside<D, R, F>(
    link: &Arc<SharedLink>,
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
) -> Result<(Serving<D, R>, DriveLoop), BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let control = Control::new(link);
    let server = Server::new(link, &control, config, build)?;
    let (ended, ending) = mpsc::channel();
    let run: DriveLoop = Box::new(move |others, rest, wake| {
        // The receiver may be gone.
        let _ = ended.send(server.run_beside(others, rest, wake));
    });
    Ok((Serving::carried(link, control, ending), run))
}
