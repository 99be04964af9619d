//! The threads of an application by the machine's clock. Each has a pipeline to the drive and runs its tasks
//! ([`super::lanes`]); all of them share one [`Work`]. They do not know how a pipeline reaches the drive: on
//! another thread of this program, on the same one, or over a network.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;

use kvdrive_declare::Counts;
use kvdrive_host::Pipelined;
use kvdrive_sim::wall::{Stopwatch, lock};
use kvdrive_sim::{Ns, Sim};

use super::lanes::{self, LaneClient, Mailbox, Sent};
use crate::kinds::NEXT;
use crate::memory::Spending;
use crate::modelled::open_workload;
use crate::report;
use crate::seen::Seen;
use crate::snapshot::DriveSnapshot;
use crate::stream::PROGRESS_STEP;
use crate::stream::{Clock, Stream};
use crate::tally::Tally;
use crate::verify::Verifier;
use crate::watch::Watch;
use crate::work::Work;
use kvdrive_config::Config;

/// The pipeline of one thread to the drive, and how many tasks use it.
pub(super) struct ThreadDriver<'d> {
    pub(super) pipeline: Box<dyn Pipelined<Sent> + Send + 'd>,
    pub(super) tasks: u32,
}

/// Returns the drive's state at a time of the machine's clock, if it is visible.
pub(super) type SnapshotSource = Rc<dyn Fn() -> DriveSnapshot>;

/// The threads of a run work in phases: first they load, then they are measured.
pub(super) struct Threads<'d> {
    work: Arc<Work>,
    drivers: Vec<ThreadDriver<'d>>,
    clock: Arc<Stopwatch>,
    stores: u64,
    ops: u64,
}

/// The result of the measured phase.
pub(super) struct Measured {
    pub(super) seen: Seen,
    pub(super) wall_ns: Ns,
    pub(super) notes: Vec<String>,
    pub(super) workload: Counts,
    pub(super) series: Option<report::Series>,
    pub(super) verified: Option<(report::Verified, Option<String>)>,
    /// The reason if it ended before its last operation: the connection to the drive failed, or the workload
    /// cannot continue.
    pub(super) failure: Option<anyhow::Error>,
    /// The file of the workload is damaged behind the operations that were done.
    pub(super) bad_end: Option<anyhow::Error>,
}

impl<'d> Threads<'d> {
    /// Threads for the work of `config`, on a drive that may have pairs of an earlier life; the work ends when `memory`
    /// runs short.
    pub(super) fn new(
        config: &Config,
        drivers: Vec<ThreadDriver<'d>>,
        has_past: bool,
        memory: Spending,
        watch: &Watch<'_>,
    ) -> anyhow::Result<Threads<'d>> {
        let verifier = Arc::new(Mutex::new(Verifier::new(has_past)));
        let (source, ops) = open_workload(config, &config.workload, config.run.seed, &verifier)?;
        let stores = source.preload();
        let sees_all = !config.saker.enabled || drivers.len() == 1;
        let stop = watch.stop.clone();
        let work = Arc::new(Work::new(source, &config.workload, verifier, sees_all, memory, stop));
        Ok(Threads { work, drivers, clock: Arc::new(Stopwatch::start()), stores, ops })
    }

    /// Loads the pairs that the workload starts with; returns their number and bytes.
    ///
    /// # Errors
    /// A store was refused, the connection to the drive failed, or the run was stopped meanwhile.
    pub(super) fn load(&mut self, config: &Config, watch: &Watch<'_>) -> anyhow::Result<(u64, u64)> {
        self.work.begin_loading(self.stores);
        let seen = self.run(watch, &|_| (), &|_, _| ());
        self.work.check_loaded(&config.workload.name, self.stores, &seen)?;
        Ok((self.stores, seen.stored_bytes))
    }

    /// Number of the pairs to load, and bytes of their values as far as they are known in advance.
    pub(super) fn load_size(&self) -> (u64, u64) {
        self.work.load_size()
    }

    /// Carries out the operations; `look` reads the drive's state at the end of each interval. If the
    /// operations cannot continue, the result covers those that were done.
    ///
    /// # Errors
    /// The pairs that units stored cannot be read back.
    pub(super) fn measure(
        &mut self,
        config: &Config,
        look: SnapshotSource,
        watch: &Watch<'_>,
    ) -> anyhow::Result<Measured> {
        let (work, params) = (self.work.clone(), &config.workload);
        let (loaded, start) = (work.done(), self.clock.ns());
        work.begin(params, config.run.seed, self.ops, start, self.drivers.len() as u32);
        let interval_ns = config.run.interval_ns;
        let (slices, sampler) = (Cell::new(None), Cell::new(None));
        let began = DriveSnapshot { at: start, ..look() };
        let first = |stream: &Rc<Stream>| {
            let look = look.clone();
            let now = move |_: &Sim, at| DriveSnapshot { at, ..look() };
            slices.set(stream.cut_into_slices(watch, &began, now));
            sampler.set(stream.sample(interval_ns, start));
        };
        let lengths = [watch.intervals.as_ref().map_or(0, |(length_ns, _)| *length_ns), interval_ns];
        let others = |stream: &Rc<Stream>, thread: usize| {
            if lengths[0] > 0 {
                stream.seen.borrow_mut().recent = Some(Box::default());
            }
            for length_ns in lengths.into_iter().filter(|length_ns| *length_ns > 0) {
                stream.at_intervals(start.saturating_add(length_ns), move |stream, at| {
                    stream.tell(thread);
                    Some(at.saturating_add(length_ns))
                });
            }
        };
        *lock(&work.elsewhere) = self.drivers[1..].iter().map(|_| Tally::default()).collect();
        let mut seen = self.run(watch, &first, &others);
        let end = self.clock.ns();
        for other in lock(&work.elsewhere).drain(..) {
            seen.recent.get_or_insert_default().add(&other.recent);
        }
        if let Some(slices) = slices.take() {
            slices.borrow_mut().end(DriveSnapshot { at: end, ..look() }, seen.tally());
        }
        let series = sampler.take().map(|sampler| {
            let mut sampler = sampler.borrow_mut();
            sampler.end(end, &seen.sums());
            sampler.take()
        });
        let (done, wall_ns) = (work.done() - loaded, end - start);
        let mut notes = work.of_workload(|workload| workload.notes().to_vec());
        notes.extend(work.notes_at_end(params, self.ops, done, wall_ns, end));
        let (failure, bad_end) = match work.end(done) {
            Ok(bad_end) => (None, bad_end),
            Err(failure) => (Some(failure), None),
        };
        let nexts = seen.latency[NEXT].values();
        if !nexts.is_empty() && nexts.min() == 0 {
            notes.push("a next whose pair an earlier one had brought took no time: 0 ns".to_owned());
        }
        let verified = work.verified();
        if failure.is_none() {
            notes.extend(self.check_units(seen.errors)?);
        }
        let workload = work.of_workload(|workload| workload.counts());
        Ok(Measured { seen, wall_ns, notes, workload, series, verified, failure, bad_end })
    }

    /// Runs the tasks of every thread, those of the first on this one; returns the observations of all. `first` and
    /// `others` prepare them.
    fn run(
        &mut self,
        watch: &Watch<'_>,
        first: &dyn Fn(&Rc<Stream>),
        others: &(dyn Fn(&Rc<Stream>, usize) + Sync),
    ) -> Seen {
        let (work, clock, total) = (&self.work, &self.clock, self.stores + self.ops);
        let told = Cell::new(0);
        let tell = || {
            let done = work.done();
            if done >= told.get() + PROGRESS_STEP || (done == total && told.get() < total) {
                told.set(done);
                (watch.progress)(done, total);
            }
        };
        let (driver, rest) = self.drivers.split_first_mut().expect("a run has a thread");
        thread::scope(|scope| {
            let threads: Vec<_> = rest
                .iter_mut()
                .enumerate()
                .map(|(number, driver)| {
                    scope.spawn(move || {
                        run_tasks(work, driver, clock, &|stream| others(stream, number), &|| ())
                    })
                })
                .collect();
            let mut seen = run_tasks(work, driver, clock, first, &tell);
            for thread in threads {
                seen.add(&thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            seen
        })
    }

    /// Reads back the pairs that the units stored, through a task of its own; returns the findings as one line.
    fn check_units(&mut self, errors: u64) -> anyhow::Result<Option<String>> {
        if self.work.units.is_none() {
            return Ok(None);
        }
        let stream = stream_of(&self.work, &self.clock);
        let checked = Rc::new(Cell::new(None));
        let found = checked.clone();
        let task = move |stream: &Stream, lane: &mut LaneClient| {
            found.set(Some(stream.check_units_by(lane, errors)));
        };
        in_tasks(&stream, &mut self.drivers[0], 1, Rc::new(task), &|| ());
        checked.take().expect("the task has ended")
    }
}

/// A stream for tasks of this thread.
fn stream_of(work: &Arc<Work>, clock: &Arc<Stopwatch>) -> Rc<Stream> {
    Stream::new(work.clone(), &Sim::new(), Clock::Wall(clock.clone()), None)
}

/// Runs the tasks of one thread until no operation is left, and syncs their writes; returns their observations.
fn run_tasks(
    work: &Arc<Work>,
    driver: &mut ThreadDriver<'_>,
    clock: &Arc<Stopwatch>,
    prepare: &dyn Fn(&Rc<Stream>),
    tell: &dyn Fn(),
) -> Seen {
    let stream = stream_of(work, clock);
    prepare(&stream);
    let task = |stream: &Stream, lane: &mut LaneClient| {
        stream.application(lane, None, &|_| ());
        stream.sync(lane);
    };
    in_tasks(&stream, driver, driver.tasks, Rc::new(task), tell);
    stream.seen.take()
}

/// The body of a task.
type Body = Rc<dyn Fn(&Stream, &mut LaneClient)>;

/// Runs `tasks` tasks on this thread, until all have ended.
fn in_tasks(stream: &Rc<Stream>, driver: &mut ThreadDriver<'_>, tasks: u32, body: Body, tell: &dyn Fn()) {
    let mailbox = Rc::<Mailbox>::default();
    for _ in 0..tasks {
        let (mut lane, body) = (mailbox.lane(&stream.sim), body.clone());
        stream.spawn(move |stream| body(stream, &mut lane));
    }
    lanes::run(stream, &mailbox, &mut *driver.pipeline, tell);
    stream.sim.clear();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use kvdrive_config::Document;
    use kvdrive_content::Region;
    use kvdrive_host::{Call, Completion, Error};
    use kvdrive_link::shared::PowerOff;

    use super::*;

    /// A pipeline to a drive that is gone: no command is answered.
    struct Gone;

    impl Pipelined<Sent> for Gone {
        fn has_room(&self) -> bool {
            true
        }

        fn under_way(&self) -> u32 {
            1
        }

        fn begin(&mut self, _: Call<()>, _: Sent, _: Region) -> Result<(), Sent> {
            Ok(())
        }

        fn next_completion_within(&mut self, _: Option<Duration>) -> Result<Option<Completion<Sent>>, Error> {
            Err(PowerOff.into())
        }
    }

    /// One task loses the drive while another one waits for its operation: no interval ends after the run.
    #[test]
    fn no_interval_ends_after_the_drive_is_lost() {
        let mut document = Document::profile("cosmos-plus").unwrap();
        for set in
            ["workload.name=fillrandom", "workload.rate_per_s=10", "workload.ops=3", "run.interval_ns=1ms"]
        {
            document.set(set).unwrap();
        }
        let config = document.config().unwrap();
        let ends = Rc::new(RefCell::new(vec![0]));
        let seen = ends.clone();
        let on_interval: crate::OnInterval = Rc::new(move |interval| {
            assert_eq!(Some(&interval.began_ns), seen.borrow().last());
            seen.borrow_mut().push(interval.ended_ns);
            _ = interval.to_json();
        });
        let watch = Watch { intervals: Some((1_000_000, on_interval)), ..Watch::progress(&|_, _| ()) };
        let driver = ThreadDriver { pipeline: Box::new(Gone), tasks: 2 };
        let mut threads = Threads::new(&config, vec![driver], false, Spending::elsewhere(), &watch).unwrap();
        let measured = threads.measure(&config, Rc::new(DriveSnapshot::default), &watch).unwrap();
        assert!(measured.failure.is_some());
        let ends = ends.borrow();
        assert!(ends.is_sorted() && ends.last() == Some(&measured.wall_ns), "{ends:?}, {}", measured.wall_ns);
    }
}
