//! Power cuts: a workload in model time, and at some of its events the survivors of a power cut.
//!
//! ```text
//!   the run  ──event──event──event──event──event──►           the run itself continues without a cut
//!                       │             └─► survivors ─► a fresh drive recovers ─► every pair is checked
//!                       └─► survivors ─► ...
//! ```
//!
//! A recovered drive must hold every pair that was acknowledged before the cut, with its bytes; each
//! operation that was under way as a whole or not at all; and nothing else ([`Ledger`]). With SAKER in front
//! of the drive, a write is acknowledged when a sync has returned; a thread syncs every `workload.sync_every`
//! operations.
//!
//! One recovery in seven is itself cut at one of its events. One recovered drive in five continues to work
//! for a while and is checked again; in a [`Trial`] of several lives its power is then cut again. A trial
//! with a [`Mutant`] must fail: the mutant is a mistake of recovery that the checks have to notice. Random
//! choices at a cut depend only on the seed of the run and the number of the event, so one cut can be
//! repeated without the others.

mod beside;
mod ledger;
mod loading;
pub mod mutants;
mod remains;
mod verdict;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_device::Drive;
use kvdrive_flash::FlashPort;
use kvdrive_flash::faults::{Effect, Rule};
use kvdrive_flash::power::Survivors;
use kvdrive_host::modelled::Driver;
use kvdrive_host::modelled::saker::{Handle, ModelledSaker};
use kvdrive_host::{Calls, Client};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::Failure;
use kvdrive_sim::{Resource, Rng, Sim};

use kvdrive_config::setup;
use kvdrive_config::{Config, Document};
use kvdrive_run::{Watch, Writing, content};
use kvdrive_workload::{self as workload, Op, Workload};

use beside::{AtomicBatches, Versions};
pub use ledger::Ledger;
use ledger::of_drive;
pub use loading::LoadRefused;
use mutants::Mutant;
use remains::Remains;
pub use verdict::{Lost, Verdict};

/// One recovery in this many is cut, too.
const RECOVERIES_A_CUT: u64 = 7;
/// One recovered drive in this many continues to work, for [`FURTHER_OPERATIONS`].
const DRIVES_GO_ON: u64 = 5;
const FURTHER_OPERATIONS: u64 = 40;
/// Most events of a further life before its power is cut.
const FURTHER_EVENTS: u64 = 1500;
/// Operations of a thread between two syncs of SAKER, unless `workload.sync_every` says otherwise.
const SYNC_EVERY: u64 = 16;

/// The events at which power is cut, counted from the first operation on, beginning with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// After every event.
    All,
    /// After every n-th event; the first one is drawn at random.
    Every(u64),
    /// After this many events, drawn from all of them: the run is done twice, first to count them.
    Random(u64),
    /// After this event.
    At(u64),
    /// At every event at which a `power-cut` rule fires.
    Rules,
}

/// Runs `document` under `rules`, and cuts the power at `cuts`.
///
/// # Errors
/// The run cannot be carried out. A lost pair is a verdict, not an error.
pub fn crash(document: &Document, rules: &[Rule], cuts: Cuts) -> anyhow::Result<Verdict> {
    Trial::new(rules, cuts).run(document)
}

/// The treatment of a drive.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// Rules by which it fails.
    pub rules: &'a [Rule],
    /// The events at which its power is cut.
    pub cuts: Cuts,
    /// Are atomic batches sent and iterators opened beside the workload?
    pub beside: bool,
    /// Lives of a drive: after a cut it may continue, and each life except the last ends with a cut.
    pub lives: u32,
    /// The mistake that recovery makes.
    pub mutant: Option<&'static Mutant>,
}

impl<'a> Trial<'a> {
    /// A trial of one life, with nothing beside the workload.
    pub fn new(rules: &'a [Rule], cuts: Cuts) -> Trial<'a> {
        Trial { rules, cuts, beside: false, lives: 1, mutant: None }
    }

    /// Carries the trial out on the run that `document` describes.
    ///
    /// # Errors
    /// As [`crash`].
    pub fn run(&self, document: &Document) -> anyhow::Result<Verdict> {
        self.run_watched(document, &Watch::progress(&|_, _| {}))
    }

    /// As [`Trial::run`]; reports the progress of the run that is cut, in its operations. When the watch is stopped,
    /// the run ends at its next event, and the verdict covers the cuts until then.
    ///
    /// # Errors
    /// As [`crash`].
    pub fn run_watched(&self, document: &Document, watch: &Watch<'_>) -> anyhow::Result<Verdict> {
        let config = document.config()?;
        let build = |seed| workload::build(&config.workload, seed).map_err(anyhow::Error::msg);
        crash_trial(document, *self, watch, &build)
    }
}

/// Builds the workload of a seed.
pub type Build<'a> = &'a dyn Fn(u64) -> anyhow::Result<Box<dyn Workload>>;

/// As [`crash`], with a workload of the caller, which does `workload.ops` operations.
///
/// # Errors
/// As [`crash`].
pub fn crash_workload(
    document: &Document,
    rules: &[Rule],
    cuts: Cuts,
    build: Build<'_>,
) -> anyhow::Result<Verdict> {
    crash_trial(document, Trial::new(rules, cuts), &Watch::progress(&|_, _| {}), build)
}

fn crash_trial(
    document: &Document,
    trial: Trial<'_>,
    watch: &Watch<'_>,
    build: Build<'_>,
) -> anyhow::Result<Verdict> {
    let (config, cuts) = (document.config()?, trial.cuts);
    anyhow::ensure!(
        !config.workload.has_units(),
        "workload.name: {}: crash follows single operations, and this one has transactions",
        config.workload.name
    );
    anyhow::ensure!(
        config.media.kind != "file" || trial.mutant.is_none(),
        "media.kind: \"file\": mutants change survivors in memory; use ram or tags"
    );
    anyhow::ensure!(config.flash.enabled, "nand.enabled: false leaves nothing to recover");
    let run = |watch: &Watch<'_>, wanted: &dyn Fn(u64) -> bool| {
        Cutter { config: &config, trial, watch, build, wanted, earlier: RefCell::default() }.run()
    };
    let mut rng = Rng::stream(config.run.seed, "power cuts");
    let wanted: Box<dyn Fn(u64) -> bool> = match cuts {
        Cuts::All => Box::new(|_| true),
        Cuts::At(at) => Box::new(move |event| event == at),
        Cuts::Rules => Box::new(|_| false),
        Cuts::Every(every) => {
            let first = rng.below(every);
            Box::new(move |event| event % every == first)
        }
        Cuts::Random(count) => {
            let counting = Watch { stop: watch.stop.clone(), ..Watch::progress(&|_, _| {}) };
            let counted = run(&counting, &|_| false)?;
            let mut events = BTreeSet::new();
            while (events.len() as u64) < count.min(counted.events) {
                events.insert(rng.below(counted.events) + 1);
            }
            Box::new(move |event| events.contains(&event))
        }
    };
    let verdict = run(watch, &*wanted)?;
    if let (Cuts::At(event), false) = (cuts, watch.is_stopped()) {
        let events = verdict.events;
        anyhow::ensure!((1..=events).contains(&event), "event {event}: the run has {events} events");
    }
    Ok(verdict)
}

/// A drive and its host on an executor of their own.
struct PoweredDrive {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    cores: Vec<Rc<Resource>>,
}

impl PoweredDrive {
    fn new(config: &Config) -> PoweredDrive {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        let cores = setup::cores(config, &sim);
        PoweredDrive { sim, link, memory, cores }
    }

    /// The client of each task of the run: a driver, or SAKER in front of one.
    fn hosts(&self, config: &Config) -> anyhow::Result<Vec<Host>> {
        let drivers = setup::drivers(config, &self.link, &self.memory, &self.cores)?;
        let drivers: Vec<_> = drivers.into_iter().map(Rc::new).collect();
        Ok(match setup::saker(config, &self.sim)? {
            Some(saker) => drivers.into_iter().map(|driver| Host::Saker(saker.clone(), driver)).collect(),
            None => setup::driver_of_each_task(config).map(|at| Host::Drive(drivers[at].clone())).collect(),
        })
    }
}

/// The client of a task.
#[derive(Clone)]
enum Host {
    Drive(Rc<Driver>),
    Saker(Rc<ModelledSaker>, Rc<Driver>),
}

impl Host {
    fn driver(&self) -> &Driver {
        match self {
            Host::Drive(driver) | Host::Saker(_, driver) => driver,
        }
    }
}

/// Writes of one task that SAKER has accepted and that are not known to be durable.
type Unsynced = Vec<(Key, Writing)>;

/// Operations left to do, and the results of those done.
struct Stream {
    workload: RefCell<Box<dyn Workload>>,
    left: Cell<u64>,
    sync_every: u64,
    answered: Cell<u64>,
    ledger: RefCell<Ledger>,
    /// Why the workload's file cannot be read further.
    damage: RefCell<Option<String>>,
}

impl Stream {
    fn new(config: &Config, workload: Box<dyn Workload>, left: u64, ledger: Ledger) -> Stream {
        let given = Some(config.workload.sync_every).filter(|operations| *operations > 0);
        let sync_every = given.unwrap_or(SYNC_EVERY);
        Stream {
            workload: RefCell::new(workload),
            left: Cell::new(left),
            sync_every,
            answered: Cell::new(0),
            ledger: RefCell::new(ledger),
            damage: RefCell::default(),
        }
    }

    /// Carries out one operation after another until none is left.
    fn work(&self, host: &Host) {
        match host {
            Host::Drive(driver) => self.operations(&mut &**driver, |_, key, writing, result| {
                self.ledger.borrow_mut().history.end_write(&key, writing, result);
            }),
            Host::Saker(saker, driver) => self.work_with_saker(saker.connect(driver)),
        }
    }

    fn work_with_saker(&self, mut handle: Handle<'_>) {
        let mut unsynced = Unsynced::new();
        let mut writes = 0;
        self.operations(&mut handle, |handle, key, writing, result| {
            match result {
                Ok(()) => {
                    self.ledger.borrow_mut().history.accept(&key, writing);
                    unsynced.push((key, writing));
                }
                Err(status) => self.ledger.borrow_mut().history.end_write(&key, writing, Err(status)),
            }
            writes += 1;
            if writes % self.sync_every == 0 || handle.unsynced() == 0 {
                let failures = handle.sync();
                self.end_synced(&mut unsynced, &failures);
            }
        });
        let failures = handle.close();
        self.end_synced(&mut unsynced, &failures);
    }

    /// A sync has returned: failed writes may have happened or not, and the others are durable.
    fn end_synced(&self, unsynced: &mut Unsynced, failures: &[Failure]) {
        for (key, writing) in unsynced.drain(..) {
            // A failure names no version: it may concern any write of its key since the last sync.
            let failure = failures.iter().find(|failure| failure.key == key);
            let result = failure.map_or(Ok(()), |_| Err(Status::INTERNAL));
            self.ledger.borrow_mut().history.end_write(&key, writing, result);
        }
    }

    /// Carries out operations; calls `written` with the answer to each write.
    fn operations<C: Client>(
        &self,
        client: &mut C,
        mut written: impl FnMut(&mut C, Key, Writing, Result<(), Status>),
    ) {
        let mut region = Region::new();
        while let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            let drawn = self.workload.borrow_mut().draw().unwrap_or_else(|damage| {
                *self.damage.borrow_mut() = Some(damage);
                None
            });
            let Some((op, _)) = drawn else { return self.left.set(0) };
            for step in op.steps() {
                if let Some((key, writing, result)) = self.perform(client, &step, &mut region) {
                    written(client, key, writing, result);
                }
            }
            self.answered.set(self.answered.get() + 1);
        }
    }

    /// Carries out one operation; for a write, returns its answer.
    fn perform(
        &self,
        client: &mut impl Client,
        op: &Op,
        region: &mut Region,
    ) -> Option<(Key, Writing, Result<(), Status>)> {
        match *op {
            Op::Store { key, value } => {
                let writing = self.ledger.borrow_mut().history.begin_write(key, Some(value));
                return Some((key, writing, of_drive(client.store(key, content(&key, &value)))));
            }
            Op::Delete { key } => {
                let writing = self.ledger.borrow_mut().history.begin_write(key, None);
                return Some((key, writing, of_drive(client.delete(key))));
            }
            // Answers of reads are not compared here, but after a cut.
            Op::Retrieve { key } => _ = client.retrieve(key, region),
            Op::Exist { key } => _ = client.exist(key),
            Op::List { key, host_buffer_bytes } => _ = client.list(Some(key), host_buffer_bytes),
            Op::Seek { key, nexts } => {
                let Ok((iterator, _)) = client.seek(Some(key), region) else { return None };
                for _ in 0..nexts {
                    _ = client.next(iterator, region);
                }
                _ = client.close(iterator);
            }
            Op::Modify { .. } => unreachable!("it has steps"),
            Op::Unit { .. } => unreachable!("workloads of units are refused"),
        }
        None
    }
}

/// One run with its cuts.
struct Cutter<'a> {
    config: &'a Config,
    trial: Trial<'a>,
    watch: &'a Watch<'a>,
    build: Build<'a>,
    wanted: &'a dyn Fn(u64) -> bool,
    /// The survivors of the cut before, for mutants.
    earlier: RefCell<Option<Survivors>>,
}

/// The state of a drive at a power cut, as far as its host knows it.
struct KnownAtCut {
    ledger: Ledger,
    /// Versions of the atomic batches beside the workload.
    versions: Versions,
}

impl Cutter<'_> {
    fn run(&self) -> anyhow::Result<Verdict> {
        let folder = remains::folder(self.config)?;
        let config = &remains::config_in(folder.as_ref(), self.config);
        let life = PoweredDrive::new(config);
        let workload = (self.build)(config.run.seed)?;
        let mut ledger = Ledger::default();
        let (drive, hosts) = life.sim.block_on(|| {
            let drive = Drive::power_on(&life.sim, &life.link, &config.drive(), None)?;
            let hosts = life.hosts(config)?;
            let mut pairs = (0..workload.preload()).map(|index| {
                let (key, value) = workload.preload_pair(index);
                ledger.history.settle(key, Some(value));
                (key, content(&key, &value))
            });
            drive.load(&mut pairs).map_err(|(key, status)| LoadRefused { key, status })?;
            anyhow::Ok((drive, hosts))
        })?;
        drive.faults().set(self.trial.rules, config.run.seed);
        let stream = Stream::new(config, workload, config.workload.ops, ledger);
        let (stream, beside) = self.set_to_work(&life, &hosts, stream, Versions::default());
        let mut verdict = Verdict::default();
        while verdict.lost.is_none() && !self.watch.is_stopped() && life.sim.step() {
            verdict.events += 1;
            let cut = drive.faults().take_power_cut();
            let torn = cut.is_none_or(|torn| torn);
            if (self.trial.cuts == Cuts::Rules && cut.is_some()) || (self.wanted)(verdict.events) {
                let known =
                    KnownAtCut { ledger: stream.ledger.borrow().clone(), versions: beside.versions() };
                self.cut(&drive, config, known, torn, &mut verdict)?;
                (self.watch.progress)(stream.answered.get(), config.workload.ops);
            }
        }
        verdict.operations = stream.answered.get();
        life.sim.clear();
        stream.damage.take().map_or(Ok(verdict), |damage| Err(anyhow::Error::msg(damage)))
    }

    /// Starts every task of the run and the work beside it. Then the run can be stepped event by event.
    fn set_to_work(
        &self,
        life: &PoweredDrive,
        hosts: &[Host],
        stream: Stream,
        versions: Versions,
    ) -> (Rc<Stream>, Rc<AtomicBatches>) {
        life.sim.step_every_event();
        let (stream, beside) = (Rc::new(stream), Rc::new(self.beside(versions)));
        stream.ledger.borrow_mut().leave_out(beside.keys());
        for host in hosts {
            let (stream, host) = (stream.clone(), host.clone());
            life.sim.spawn(move || stream.work(&host));
        }
        if self.trial.beside {
            let (sim, stream, beside, host) =
                (life.sim.clone(), stream.clone(), beside.clone(), hosts[0].clone());
            life.sim.spawn(move || beside.work(&sim, host.driver(), || stream.left.get() > 0));
        }
        (stream, beside)
    }

    /// The pairs that are written beside the workload, which does not write them.
    fn beside(&self, versions: Versions) -> AtomicBatches {
        let key_bytes = self.config.workload.key_size as usize;
        AtomicBatches::new(key_bytes.clamp(2, Key::MAX_LEN), versions)
    }

    /// Takes the survivors that the drive of `config` would leave now, recovers a drive from them and checks
    /// that drive.
    fn cut(
        &self,
        drive: &Drive,
        config: &Config,
        known: KnownAtCut,
        torn: bool,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let event = verdict.events;
        let mut rng = Rng::stream(self.config.run.seed, &format!("cut behind event {event}"));
        let mut remains = Remains::take(drive, config, torn, &mut rng)?;
        verdict.cuts += 1;
        if rng.one_in(RECOVERIES_A_CUT) {
            remains = self.cut_recovery(remains, &mut rng)?;
            verdict.cut_recoveries += 1;
        }
        if let (Some(mutant), Remains::Memory(survivors)) = (self.trial.mutant, &mut remains) {
            let earlier = self.earlier.replace(Some((**survivors).clone()));
            let drive = self.config.drive();
            let kind = (&*drive.media.kind, &drive.flash.geometry());
            verdict.spoilt += u64::from(mutant.spoil(kind, survivors, earlier.as_ref(), &mut rng));
        }
        if let Err(what) = self.recover(&remains, known, self.trial.lives, &mut rng, verdict)? {
            verdict.lost = Some(Lost { event, what });
        }
        Ok(())
    }

    /// Powers a new drive on with the survivors and compares it with the known state. Then it may continue,
    /// for `lives` lives in all; each except the last ends with a cut.
    fn recover(
        &self,
        remains: &Remains,
        known: KnownAtCut,
        lives: u32,
        rng: &mut Rng,
        verdict: &mut Verdict,
    ) -> anyhow::Result<Result<(), String>> {
        let config = &remains.config(self.config);
        let life = PoweredDrive::new(config);
        let KnownAtCut { mut ledger, versions } = known;
        let beside = self.beside(versions);
        let came_up = life.sim.block_on(|| {
            let came_up = Drive::power_on(&life.sim, &life.link, &config.drive(), remains.survivors());
            let drive = came_up.map_err(|error| format!("the drive does not start: {error}"))?;
            let recovery_ns = drive.counts().of("drive.recovery_ns");
            verdict.recoveries += 1;
            verdict.longest_recovery_ns = verdict.longest_recovery_ns.max(recovery_ns);
            verdict.recovery_ns += recovery_ns;
            let hosts = life.hosts(config).map_err(|error| error.to_string())?;
            self.check(hosts[0].driver(), &mut ledger, &beside, verdict)?;
            Ok::<_, String>((drive, hosts))
        });
        let (drive, hosts) = match came_up {
            Ok(came_up) => came_up,
            Err(what) => {
                life.sim.clear();
                return Ok(Err(what));
            }
        };
        let mut cut_again = None;
        if rng.one_in(DRIVES_GO_ON) {
            let workload = (self.build)(config.run.seed ^ verdict.events)?;
            let stream = Stream::new(config, workload, FURTHER_OPERATIONS, ledger);
            let (stream, beside) = self.set_to_work(&life, &hosts, stream, beside.versions());
            let cut_at = if lives > 1 { rng.below(FURTHER_EVENTS) } else { u64::MAX };
            let mut event = 0;
            while event < cut_at && life.sim.step() {
                event += 1;
            }
            let known = KnownAtCut { ledger: stream.ledger.borrow().clone(), versions: beside.versions() };
            if event == cut_at {
                cut_again = Some((Remains::take(&drive, config, true, rng)?, known));
            } else {
                let (mut ledger, beside) = (known.ledger, self.beside(known.versions));
                let checked =
                    life.sim.block_on(|| self.check(hosts[0].driver(), &mut ledger, &beside, verdict));
                if let Err(what) = checked {
                    life.sim.clear();
                    return Ok(Err(format!("after further operations: {what}")));
                }
            }
        }
        // A recovered drive counts exactly the live bytes; only an image of another drive may count fewer.
        let miscounted = drive.counts().get("engine.miscounted_bytes");
        life.sim.clear();
        drop((drive, hosts));
        match (miscounted, cut_again) {
            (Some(bytes), _) if bytes > 0 => Ok(Err(format!("{bytes} live bytes are miscounted"))),
            (_, Some((remains, known))) => {
                verdict.further_cuts += 1;
                let recovered = self.recover(&remains, known, lives - 1, rng, verdict)?;
                Ok(recovered.map_err(|what| format!("after another cut: {what}")))
            }
            _ => Ok(Ok(())),
        }
    }

    /// Compares a recovered drive with the ledger.
    fn check(
        &self,
        driver: &Driver,
        ledger: &mut Ledger,
        beside: &AtomicBatches,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let is_lossy =
            |rule: &Rule| matches!(rule.effect, Effect::Flip | Effect::Unreadable | Effect::DieOffline);
        let may_be_unreadable = self.trial.rules.iter().any(is_lossy);
        let (keys, unreadable) = ledger.check(driver, may_be_unreadable)?;
        verdict.keys_checked += keys;
        verdict.unreadable += unreadable;
        if self.trial.beside { beside.check(driver, may_be_unreadable) } else { Ok(()) }
    }

    /// Begins recovery and cuts it at a random one of its events. No write is acknowledged before recovery
    /// has ended, so the protected image that it began with is still valid.
    fn cut_recovery(&self, mut remains: Remains, rng: &mut Rng) -> anyhow::Result<Remains> {
        let config = remains.config(self.config);
        let life = PoweredDrive::new(&config);
        life.sim.step_every_event();
        let flash: Rc<RefCell<Option<FlashPort>>> = Rc::default();
        let done = Rc::new(Cell::new(false));
        let recovery = {
            let (sim, link, drive) = (life.sim.clone(), life.link.clone(), config.drive());
            let (flash, done, survivors) = (flash.clone(), done.clone(), remains.survivors().cloned());
            move || {
                let watch = |port: &FlashPort| drop(flash.borrow_mut().replace(port.clone()));
                // Success of a recovery is checked in recoveries that are not cut.
                let _drive = Drive::power_on_watched(&sim, &link, &drive, survivors.as_ref(), &watch);
                done.set(true);
            }
        };
        life.sim.spawn(recovery);
        let mut left = None;
        // Reservoir of one: every event has the same probability of being the cut.
        for event in 1.. {
            if !life.sim.step() || done.get() {
                break;
            }
            let port = flash.borrow().clone();
            let Some(port) = port.filter(|_| rng.one_in(event)) else { continue };
            match &mut remains {
                Remains::Memory(survivors) => survivors.media = port.media_image(rng),
                Remains::Files(_) => left = Some(remains::copy_of(&config)?),
            }
        }
        life.sim.clear();
        Ok(left.map_or(remains, Remains::Files))
    }
}
