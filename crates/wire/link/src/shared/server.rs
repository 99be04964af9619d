//! A drive that serves a shared link, from the first event to the last, on the calling thread.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvdrive_sim::Sim;
use kvdrive_sim::wall::{self, Pace, Park, Sleeper, Source, WallRun};

use super::control::{Control, ControlQueue};
use super::link::SharedLink;
use super::memory::DriveView;
use super::source::{Intake, WallSource};
use crate::arrivals::Ports;
use crate::memory::HostMemory;
use crate::pcie::Link;
use crate::recording::{End, Recorder, RecordingMemory};
use crate::served::{BuildError, Built, Controlled, RunEnd};

/// How to serve.
pub struct ServerConfig {
    /// Relation of wall time to model time.
    pub pace: Pace,
    /// Recorder of arrivals, for a replay.
    pub recorder: Option<Recorder>,
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
    gone: EndNotice<D>,
}

/// Notifies applications and controlling threads of the end, also when the drive's thread panics.
struct EndNotice<D> {
    shared: Arc<SharedLink>,
    control_queue: Arc<ControlQueue<D>>,
}

impl<D> Drop for EndNotice<D> {
    fn drop(&mut self) {
        self.shared.mark_gone();
        self.control_queue.close();
    }
}

impl<D: Controlled, F> Server<D, F> {
    /// Builds a drive on this thread, controlled through `control`. `build` gets the executor and the memory
    /// for the drive's DMA.
    pub fn new(
        shared: &Arc<SharedLink>,
        control: &Control<D>,
        config: ServerConfig,
        build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
    ) -> Result<Server<D, F>, BuildError> {
        let gone = EndNotice { shared: shared.clone(), control_queue: control.control_queue().clone() };
        let sim = Sim::new();
        let recorder = config.recorder.map(Rc::new);
        let view = DriveView::new(shared.memory.clone());
        let memory: Rc<dyn HostMemory> = match &recorder {
            None => Rc::new(view),
            Some(recorder) => Rc::new(RecordingMemory::new(view, recorder.clone())),
        };
        // Tasks of a drive that fails to start would keep its resources, such as the lock of an image.
        let Built { link, drive, finish } = build(&sim, memory).inspect_err(|_| sim.clear())?;
        let (shared, drive) = (shared.clone(), Rc::new(drive));
        Ok(Server { sim, shared, pace: config.pace, recorder, link, drive, finish, gone })
    }

    /// Serves until the link is closed and no event is left, or the power is cut.
    pub fn run<R>(self) -> R
    where
        F: FnOnce(RunEnd) -> R,
    {
        // The running thread is the one to wake.
        let thread = std::thread::current();
        self.shared.unpaced.store(self.pace != Pace::Model, Ordering::Relaxed);
        self.run_beside(&mut [], &mut Park, move || thread.unpark())
    }

    /// As [`Server::run`], and polls `others` between the drive's events; it ends only when they are closed,
    /// too. The thread sleeps in `rest`, and `wake` wakes it there, from any thread.
    pub fn run_beside<R>(
        self,
        others: &mut [&mut dyn Source],
        rest: &mut dyn Sleeper,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> R
    where
        F: FnOnce(RunEnd) -> R,
    {
        let pace = self.pace;
        self.shared.bell.set_wake(wake);
        let mut serving = self.begin();
        let sim = serving.sim.clone();
        let mut sources: Vec<&mut dyn Source> = vec![&mut serving.source];
        sources.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Source));
        let ran = wall::run(&sim, pace, &mut sources, rest);
        serving.end(ran)
    }

    /// Opens the drive to requests of hosts.
    pub(super) fn begin(self) -> Begun<D, F> {
        let Server { sim, shared, pace, recorder, link, drive, finish, gone } = self;
        let (control_queue, answering) = (gone.control_queue.clone(), gone.control_queue.clone());
        let ports = Ports::new(link, drive.clone());
        let intake =
            Intake::start(&sim, ports, pace, recorder.clone(), move |outcome| answering.answer(outcome));
        let source = WallSource::new(&sim, shared, drive, control_queue, intake.clone(), pace);
        Begun { sim, source, intake, recorder, finish, gone }
    }
}

/// A drive that is open to requests of hosts.
pub(super) struct Begun<D, F> {
    pub(super) sim: Sim,
    pub(super) source: WallSource<D>,
    intake: Rc<Intake>,
    recorder: Option<Rc<Recorder>>,
    finish: F,
    gone: EndNotice<D>,
}

impl<D: Controlled, F> Begun<D, F> {
    /// Ends the drive after its last event.
    pub(super) fn end<R>(self, ran: WallRun) -> R
    where
        F: FnOnce(RunEnd) -> R,
    {
        let Begun { sim, intake, recorder, finish, gone, .. } = self;
        let WallRun { lateness, sleeps } = ran;
        let power_cut = sim.halted();
        if !power_cut {
            intake.flush();
            intake.let_time_pass();
        }
        let completion_doorbells = intake.count_last_doorbells();
        let end = End { power_cut, events: sim.events(), now: sim.now(), completion_doorbells };
        let recording = recorder.map_or(Ok(()), |recorder| recorder.finish(&end));
        drop(gone);
        let result = finish(RunEnd { lateness, sleeps, power_cut, recording, ignored_bytes: 0 });
        sim.clear();
        result
    }
}
