//! A drive behind a shared link, from the first event to the last, on the thread that calls it.

use std::rc::Rc;
use std::sync::Arc;

use kvdrive_sim::wall::{self, Pace, Park, Ran, Rest, Source};
use kvdrive_sim::{Histogram, Sim};

use super::SharedLink;
use super::control::{Control, Controlled, Desk};
use super::memory::DriveView;
use super::source::{Intake, Ports, WallSource};
use crate::memory::HostMemory;
use crate::pcie::Link;
use crate::recording::{End, Recorder, RecordingMemory};

/// Why a drive could not be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// How to serve.
pub struct ServerConfig {
    /// Wall time against model time.
    pub pace: Pace,
    /// Where to keep what arrives, for a replay.
    pub recorder: Option<Recorder>,
}

/// How a run ended.
pub struct Ended {
    /// How late events ran, wall minus model, ns; empty when unpaced or replayed.
    pub lateness: Histogram,
    /// How often the drive's thread slept.
    pub sleeps: u64,
    /// Was the power cut? Then no task runs any more.
    pub power_cut: bool,
    /// What went wrong while recording, if anything did; the drive was served all the same. Of a replay: is
    /// the recording whole?
    pub recording: Result<(), std::io::Error>,
    /// Of a replay: how many bytes behind the end of the recording were not looked at.
    pub ignored_bytes: u64,
}

/// A drive, as whoever builds it hands it over.
pub struct Built<D, F> {
    /// What it serves.
    pub link: Rc<Link>,
    /// What its control channel reaches.
    pub drive: D,
    /// What to do at the end, with the drive drained of commands: to collect counters.
    pub finish: F,
}

/// A drive that has been built and can serve.
pub struct Server<D, F> {
    sim: Sim,
    shared: Arc<SharedLink>,
    pace: Pace,
    recorder: Option<Rc<Recorder>>,
    link: Rc<Link>,
    drive: Rc<D>,
    finish: F,
    gone: Gone<D>,
}

/// Tells applications and whoever controls the drive, also when its thread panics.
struct Gone<D> {
    shared: Arc<SharedLink>,
    desk: Arc<Desk<D>>,
}

impl<D> Drop for Gone<D> {
    fn drop(&mut self) {
        self.shared.mark_gone();
        self.desk.close();
    }
}

impl<D: Controlled, F> Server<D, F> {
    /// Builds a drive on this thread, which `control` is to reach. `build` gets the executor and the memory
    /// that the drive's DMA reaches.
    pub fn new(
        shared: &Arc<SharedLink>,
        control: &Control<D>,
        config: ServerConfig,
        build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
    ) -> Result<Server<D, F>, BuildError> {
        let gone = Gone { shared: shared.clone(), desk: control.desk().clone() };
        let sim = Sim::new();
        let recorder = config.recorder.map(Rc::new);
        let view = DriveView::new(shared.memory.clone());
        let memory: Rc<dyn HostMemory> = match &recorder {
            None => Rc::new(view),
            Some(recorder) => Rc::new(RecordingMemory::new(view, recorder.clone())),
        };
        // Tasks of a drive that does not come up would keep what it has, as the lock of an image.
        let Built { link, drive, finish } = build(&sim, memory).inspect_err(|_| sim.clear())?;
        let (shared, drive) = (shared.clone(), Rc::new(drive));
        Ok(Server { sim, shared, pace: config.pace, recorder, link, drive, finish, gone })
    }

    /// Serves until the link is closed and nothing is due any more, or the power is cut.
    pub fn run<R>(self) -> R
    where
        F: FnOnce(Ended) -> R,
    {
        // The thread that runs is the one to wake.
        let thread = std::thread::current();
        self.run_beside(&mut [], &mut Park, move || thread.unpark())
    }

    /// The same, and looks at `others` between the drive's events; it ends when they are closed, too. The thread
    /// sleeps in `rest`, and `wake` wakes it there, from any thread.
    pub fn run_beside<R>(
        self,
        others: &mut [&mut dyn Source],
        rest: &mut dyn Rest,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> R
    where
        F: FnOnce(Ended) -> R,
    {
        let sim = self.sim;
        self.shared.bell.set_wake(wake);
        let (desk, answering) = (self.gone.desk.clone(), self.gone.desk.clone());
        let ports = Ports::new(self.link, self.drive.clone());
        let intake =
            Intake::start(&sim, ports, self.recorder.clone(), move |outcome| answering.answer(outcome));
        let mut source = WallSource::new(&sim, self.shared, self.drive, desk, intake.clone(), self.pace);
        let mut sources: Vec<&mut dyn Source> = vec![&mut source];
        sources.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Source));
        let Ran { lateness, sleeps } = wall::run(&sim, self.pace, &mut sources, rest);
        let power_cut = sim.halted();
        if !power_cut {
            intake.flush();
        }
        let completion_doorbells = intake.count_last_doorbells();
        let end = End { power_cut, events: sim.events(), now: sim.now(), completion_doorbells };
        let recording = self.recorder.map_or(Ok(()), |recorder| recorder.finish(&end));
        drop(self.gone);
        let result = (self.finish)(Ended { lateness, sleeps, power_cut, recording, ignored_bytes: 0 });
        sim.clear();
        result
    }
}
