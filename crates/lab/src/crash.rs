//! Power cuts: a workload in model time, and at some of its events what a drive has left when the power goes.
//!
//! ```text
//!   the run  ──event──event──event──event──event──►           it goes on: nothing of it is cut
//!                       │             └─► survivors ─► a fresh drive recovers ─► every pair is checked
//!                       └─► survivors ─► ...
//! ```
//!
//! A recovered drive must hold what was acknowledged before the cut, each pair with its bytes, what was under
//! way wholly or not at all, and nothing else ([`Ledger`]). One time in seven recovery itself is cut at one of
//! its own events, and one time in five the recovered drive works on for a while and is checked again. What
//! is drawn at a cut depends on the run's seed and the number of the event alone, so one cut can be repeated
//! without the others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_flash::FlashPort;
use kvdrive_flash::faults::{Effect, Rule};
use kvdrive_flash::power::Survivors;
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Client, Error};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::{Ns, Resource, Rng, Sim};
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::run::{answered, content};
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload};

/// One recovery in so many is cut, too.
const RECOVERIES_A_CUT: u64 = 7;
/// One recovered drive in so many works on, for so many operations.
const DRIVES_GO_ON: u64 = 5;
const FURTHER_OPERATIONS: u64 = 40;
/// Room for one answer to a List.
const LIST_BYTES: u32 = 1 << 16;

/// Where power is cut. Events are counted from the first operation on, beginning with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// Behind every event.
    All,
    /// Behind each so-many-th event; where that begins is drawn.
    Every(u64),
    /// Behind so many events, drawn from all of them: the run is done twice, first to count them.
    Random(u64),
    /// Behind this event.
    At(u64),
    /// Wherever a `power-cut` rule fires.
    Rules,
}

/// What became of the pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Operations of the run that were answered.
    pub operations: u64,
    /// Events of the run.
    pub events: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Recoveries that were cut themselves.
    pub cut_recoveries: u64,
    /// Keys looked at in recovered drives.
    pub keys_checked: u64,
    /// Of those, keys that were answered 88h; only with fault rules that damage flash.
    pub unreadable: u64,
    /// The longest recovery, ns of model time, and all of them together.
    pub longest_recovery_ns: Ns,
    /// See `longest_recovery_ns`.
    pub recovery_ns: Ns,
    /// The first pair that was wrong; the run ended there.
    pub lost: Option<Lost>,
}

/// What was wrong with a recovered drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Power was cut behind this event.
    pub event: u64,
    /// What was found and what was expected.
    pub what: String,
}

/// Cuts the run that `document` describes, under `rules`.
///
/// # Errors
/// The run cannot be done. A pair that is lost is a verdict.
pub fn crash(document: &Document, rules: &[Rule], cuts: Cuts) -> anyhow::Result<Verdict> {
    let config = document.config()?;
    let build = |seed| workload::build(&config.workload, seed).map_err(anyhow::Error::msg);
    crash_workload(document, rules, cuts, &build)
}

/// Builds the workload of a seed.
pub type Build<'a> = &'a dyn Fn(u64) -> anyhow::Result<Box<dyn Workload>>;

/// As [`crash`], with operations of one's own; `workload.ops` of the configuration says how many.
pub fn crash_workload(
    document: &Document,
    rules: &[Rule],
    cuts: Cuts,
    build: Build<'_>,
) -> anyhow::Result<Verdict> {
    let config = document.config()?;
    anyhow::ensure!(
        !config.workload.has_units(),
        "workload.name: {}: whoever cuts the power follows single operations, and this one has transactions",
        config.workload.name
    );
    anyhow::ensure!(
        config.media.kind != "file",
        "media.kind: \"file\" cannot be cut and go on; take ram or tags"
    );
    anyhow::ensure!(config.flash.enabled, "nand.enabled: false leaves nothing to recover");
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
            let counted =
                Cutter { config: &config, rules, build, wanted: &|_| false, by_rules: false }.run()?;
            let mut events = BTreeSet::new();
            while (events.len() as u64) < count.min(counted.events) {
                events.insert(rng.below(counted.events) + 1);
            }
            Box::new(move |event| events.contains(&event))
        }
    };
    let by_rules = cuts == Cuts::Rules;
    Cutter { config: &config, rules, build, wanted: &*wanted, by_rules }.run()
}

/// What may lie under each key, whoever looked at this moment.
///
/// A write that was acknowledged ends every other one that was answered before it began. Writes of one key
/// that were under way at the same time may have happened in any order; one that was not acknowledged may
/// have happened or not.
#[derive(Clone, Default)]
pub struct Ledger {
    clock: u64,
    writes: BTreeMap<Key, Vec<Write>>,
}

#[derive(Clone, Copy)]
struct Write {
    /// What it leaves; `None`: nothing, it is a delete.
    value: Option<ValueSpec>,
    began: u64,
    /// When it was answered.
    ended: Option<u64>,
    acknowledged: bool,
}

/// Names a write that is under way.
#[derive(Clone, Copy)]
pub struct Ticket(u64);

impl Ledger {
    /// `key` is about to get `value`, or to lose what it has.
    pub fn begin(&mut self, key: Key, value: Option<ValueSpec>) -> Ticket {
        self.clock += 1;
        let write = Write { value, began: self.clock, ended: None, acknowledged: false };
        self.writes.entry(key).or_default().push(write);
        Ticket(self.clock)
    }

    /// The write was answered.
    pub fn end(&mut self, key: Key, Ticket(began): Ticket, result: Result<(), Status>) {
        self.clock += 1;
        let writes = self.writes.get_mut(&key).expect("the write has begun");
        if result == Err(Status::CAPACITY_EXCEEDED) {
            // A full drive says so before it changes anything.
            writes.retain(|write| write.began != began);
            return;
        }
        let write = writes.iter_mut().find(|write| write.began == began).expect("the write has begun");
        (write.ended, write.acknowledged) = (Some(self.clock), result.is_ok());
        if result.is_ok() {
            writes.retain(|write| write.ended.is_none_or(|ended| ended > began));
        }
    }

    /// Everything that `key` may have: a value, or `None`.
    fn possible(&self, key: &Key) -> Vec<Option<ValueSpec>> {
        let writes = self.writes.get(key).map_or(&[][..], Vec::as_slice);
        let mut possible: Vec<_> = writes.iter().map(|write| write.value).collect();
        if !writes.iter().any(|write| write.acknowledged) {
            possible.push(None);
        }
        possible
    }

    /// Nothing is under way any more, and `key` has `value`.
    fn settle(&mut self, key: Key, value: Option<ValueSpec>) {
        let write = Write { value, began: self.clock, ended: Some(self.clock), acknowledged: true };
        self.writes.insert(key, vec![write]);
    }

    /// Compares a drive that has just come up with it, key by key and in a list, and takes over what is found.
    /// Returns the keys looked at and how many of them were answered 88h, which is refused unless
    /// `may_be_unreadable`.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn check(&mut self, mut client: impl Client, may_be_unreadable: bool) -> Result<(u64, u64), String> {
        let keys: Vec<Key> = self.writes.keys().copied().collect();
        let (mut present, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
        let mut region = Region::new();
        for key in &keys {
            let found = of_drive(client.retrieve(*key, &mut region));
            if found == Err(Status::UNRECOVERED_ERROR) && may_be_unreadable {
                unreadable.insert(*key);
                continue;
            }
            let possible = self.possible(key);
            let fits = |value: &Option<ValueSpec>| match (found, value) {
                (Ok(bytes), Some(value)) => bytes == value.bytes && is_content(&region, key, value),
                (Err(Status::KEY_NOT_FOUND), None) => true,
                _ => false,
            };
            let Some(value) = possible.iter().copied().find(fits) else {
                let found = found.map_or_else(|status| status.to_string(), |bytes| format!("{bytes} bytes"));
                return Err(format!("{key}: {found}; it may have {possible:?}"));
            };
            self.settle(*key, value);
            if value.is_some() {
                present.insert(*key);
            }
        }
        let listed = match list(&mut client) {
            Err(Status::UNRECOVERED_ERROR) if may_be_unreadable => {
                return Ok((keys.len() as u64, unreadable.len() as u64));
            }
            Err(status) => return Err(format!("a list: {status}")),
            Ok(listed) => listed,
        };
        if let Some(key) = present.difference(&listed).next() {
            return Err(format!("{key}: is there and not listed"));
        }
        match listed.iter().find(|key| !present.contains(key) && !unreadable.contains(key)) {
            Some(key) => Err(format!("{key}: is listed and not there")),
            None => Ok((keys.len() as u64, unreadable.len() as u64)),
        }
    }
}

fn is_content(region: &Region, key: &Key, value: &ValueSpec) -> bool {
    let Piece::Pattern(pattern) = content(key, value) else { unreachable!("generated values are patterns") };
    let mut expected = vec![0; value.bytes as usize];
    pattern.expand(&mut expected);
    region.to_bytes(value.bytes) == expected
}

/// What the drive answered: there is always a way to a modelled one.
fn of_drive<T>(result: Result<T, Error>) -> Result<T, Status> {
    answered(result).expect("there is always a way to a modelled drive")
}

/// Every key, page by page; each page begins with the last key of the one before.
fn list(client: &mut impl Client) -> Result<BTreeSet<Key>, Status> {
    let mut listed = BTreeSet::new();
    let mut from = None;
    loop {
        let page = of_drive(client.list(from, LIST_BYTES))?;
        from = page.last().copied();
        let before = listed.len();
        listed.extend(page);
        if listed.len() == before {
            return Ok(listed);
        }
    }
}

/// A drive and its host on an executor of their own.
struct Life {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    cores: Vec<Rc<Resource>>,
}

impl Life {
    fn new(config: &Config) -> Life {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        let cores = setup::cores(config, &sim);
        Life { sim, link, memory, cores }
    }

    fn drivers(&self, config: &Config) -> anyhow::Result<Vec<Rc<Driver>>> {
        let drivers = setup::drivers(config, &self.link, &self.memory, &self.cores)?;
        Ok(drivers.into_iter().map(Rc::new).collect())
    }
}

/// Operations still to do, and what came of those done.
struct Stream {
    workload: RefCell<Box<dyn Workload>>,
    left: Cell<u64>,
    answered: Cell<u64>,
    ledger: RefCell<Ledger>,
}

impl Stream {
    fn new(workload: Box<dyn Workload>, left: u64, ledger: Ledger) -> Stream {
        Stream {
            workload: RefCell::new(workload),
            left: Cell::new(left),
            answered: Cell::new(0),
            ledger: RefCell::new(ledger),
        }
    }

    /// Does operations, one behind the other, until none is left.
    fn work(&self, driver: &Driver) {
        let mut region = Region::new();
        while let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            let op = self.workload.borrow_mut().next();
            for step in op.steps() {
                self.perform(driver, &step, &mut region);
            }
            self.answered.set(self.answered.get() + 1);
        }
    }

    fn perform(&self, mut client: impl Client, op: &Op, region: &mut Region) {
        match *op {
            Op::Store { key, value } => {
                let ticket = self.ledger.borrow_mut().begin(key, Some(value));
                let result = of_drive(client.store(key, content(&key, &value)));
                self.ledger.borrow_mut().end(key, ticket, result);
            }
            Op::Delete { key } => {
                let ticket = self.ledger.borrow_mut().begin(key, None);
                let result = of_drive(client.delete(key));
                self.ledger.borrow_mut().end(key, ticket, result);
            }
            // What reads answer is looked at behind a cut.
            Op::Retrieve { key } => _ = client.retrieve(key, region),
            Op::Exist { key } => _ = client.exist(key),
            Op::List { key, host_buffer_bytes } => _ = client.list(Some(key), host_buffer_bytes),
            Op::Seek { key, nexts } => {
                let Ok((iterator, _)) = client.seek(Some(key), region) else { return };
                for _ in 0..nexts {
                    _ = client.next(iterator, region);
                }
                _ = client.close(iterator);
            }
            Op::Modify { .. } => unreachable!("it has steps"),
            Op::Unit { .. } => unreachable!("workloads of units are refused"),
        }
    }
}

/// One run with its cuts.
struct Cutter<'a> {
    config: &'a Config,
    rules: &'a [Rule],
    build: Build<'a>,
    wanted: &'a dyn Fn(u64) -> bool,
    by_rules: bool,
}

impl Cutter<'_> {
    fn run(&self) -> anyhow::Result<Verdict> {
        let config = self.config;
        let life = Life::new(config);
        let workload = (self.build)(config.run.seed)?;
        let mut ledger = Ledger::default();
        let (drive, drivers) = life.sim.block_on(|| {
            let drive = Drive::power_on(&life.sim, &life.link, &config.drive(), None)?;
            let drivers = life.drivers(config)?;
            let mut pairs = (0..workload.preload()).map(|index| {
                let (key, value) = workload.preload_pair(index);
                ledger.settle(key, Some(value));
                (key, content(&key, &value))
            });
            let loaded = drive.load(&mut pairs);
            loaded.map_err(|(key, status)| anyhow::anyhow!("loading: store of {key}: {status}"))?;
            anyhow::Ok((drive, drivers))
        })?;
        drive.faults().set(self.rules, config.run.seed);
        life.sim.step_every_event();
        let stream = Rc::new(Stream::new(workload, config.workload.ops, ledger));
        for driver in setup::driver_of_each_task(config) {
            let (stream, driver) = (stream.clone(), drivers[driver].clone());
            life.sim.spawn(move || stream.work(&driver));
        }
        let mut verdict = Verdict::default();
        while verdict.lost.is_none() && life.sim.step() {
            verdict.events += 1;
            let cut = drive.faults().take_power_cut();
            let torn = cut.is_none_or(|torn| torn);
            if (self.by_rules && cut.is_some()) || (self.wanted)(verdict.events) {
                self.cut(&drive, &stream.ledger.borrow(), torn, &mut verdict)?;
            }
        }
        verdict.operations = stream.answered.get();
        life.sim.clear();
        Ok(verdict)
    }

    /// Takes what the drive would leave now, recovers it and checks it.
    fn cut(&self, drive: &Drive, ledger: &Ledger, torn: bool, verdict: &mut Verdict) -> anyhow::Result<()> {
        let event = verdict.events;
        let mut rng = Rng::stream(self.config.run.seed, &format!("cut behind event {event}"));
        let mut survivors = if torn { drive.survivors(&mut rng) } else { drive.survivors_untorn(&mut rng) };
        verdict.cuts += 1;
        if rng.one_in(RECOVERIES_A_CUT) {
            survivors = self.cut_recovery(survivors, &mut rng)?;
            verdict.cut_recoveries += 1;
        }
        let go_on = rng.one_in(DRIVES_GO_ON);
        if let Err(what) = self.recover(&survivors, ledger.clone(), go_on, verdict)? {
            verdict.lost = Some(Lost { event, what });
        }
        Ok(())
    }

    /// A fresh drive takes what survived and is compared with what was known.
    fn recover(
        &self,
        survivors: &Survivors,
        mut ledger: Ledger,
        go_on: bool,
        verdict: &mut Verdict,
    ) -> anyhow::Result<Result<(), String>> {
        let config = self.config;
        let life = Life::new(config);
        let is_lossy =
            |rule: &Rule| matches!(rule.effect, Effect::Flip | Effect::Unreadable | Effect::DieOffline);
        let may_be_unreadable = self.rules.iter().any(is_lossy);
        let mut further = Vec::new();
        if go_on {
            further.push((self.build)(config.run.seed ^ verdict.events)?);
        }
        let checked = life.sim.block_on(|| {
            let came_up = Drive::power_on(&life.sim, &life.link, &config.drive(), Some(survivors));
            let drive = came_up.map_err(|error| format!("the drive does not come up: {error}"))?;
            verdict.longest_recovery_ns = verdict.longest_recovery_ns.max(drive.recovery_ns());
            verdict.recovery_ns += drive.recovery_ns();
            let driver = life.drivers(config).map_err(|error| error.to_string())?.remove(0);
            let mut check = |ledger: &mut Ledger| {
                let (keys, unreadable) = ledger.check(&*driver, may_be_unreadable)?;
                verdict.keys_checked += keys;
                verdict.unreadable += unreadable;
                Ok::<(), String>(())
            };
            check(&mut ledger)?;
            for workload in further {
                let stream = Stream::new(workload, FURTHER_OPERATIONS, ledger);
                stream.work(&driver);
                ledger = stream.ledger.into_inner();
                check(&mut ledger).map_err(|what| format!("after going on: {what}"))?;
            }
            // What a recovered drive counts as live is what lives: only images of somebody else's say too little.
            let miscounted = drive.engine_details().into_iter().find(|(name, _)| *name == "miscounted_bytes");
            match miscounted {
                Some((_, bytes)) if bytes > 0 => Err(format!("{bytes} live bytes are miscounted")),
                _ => Ok(()),
            }
        });
        life.sim.clear();
        Ok(checked)
    }

    /// Begins recovery and cuts it at a random one of its events. Nothing that was protected has been
    /// acknowledged anew, so the protected image is the one recovery began with.
    fn cut_recovery(&self, survivors: Survivors, rng: &mut Rng) -> anyhow::Result<Survivors> {
        let life = Life::new(self.config);
        life.sim.step_every_event();
        let flash: Rc<RefCell<Option<FlashPort>>> = Rc::default();
        let done = Rc::new(Cell::new(false));
        let recovery = {
            let (sim, link, config) = (life.sim.clone(), life.link.clone(), self.config.drive());
            let (flash, done, survivors) = (flash.clone(), done.clone(), survivors.clone());
            move || {
                let watch = |port: &FlashPort| drop(flash.borrow_mut().replace(port.clone()));
                // Whether it comes up is looked at when it is not cut.
                let _drive = Drive::power_on_watched(&sim, &link, &config, Some(&survivors), &watch);
                done.set(true);
            }
        };
        life.sim.spawn(recovery);
        let mut media = survivors.media;
        // Reservoir of one: every event is as likely to be the cut.
        for event in 1.. {
            if !life.sim.step() || done.get() {
                break;
            }
            let port = flash.borrow().clone();
            if let Some(port) = port
                && rng.one_in(event)
            {
                media = port.media_image(rng);
            }
        }
        life.sim.clear();
        Ok(Survivors { media, protected: survivors.protected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Option<ValueSpec> = Some(ValueSpec { bytes: 5, version: 1 });
    const OTHER: Option<ValueSpec> = Some(ValueSpec { bytes: 7, version: 2 });

    #[test]
    fn writes_at_the_same_time_may_have_happened_in_any_order() {
        let key = Key::from_u32_be(1);
        let mut ledger = Ledger::default();
        assert_eq!(ledger.possible(&key), [None]);
        let first = ledger.begin(key, SOME);
        assert_eq!(ledger.possible(&key), [SOME, None], "it is under way");
        let second = ledger.begin(key, OTHER);
        ledger.end(key, first, Ok(()));
        assert_eq!(ledger.possible(&key), [SOME, OTHER], "something is there now");
        ledger.end(key, second, Ok(()));
        assert_eq!(ledger.possible(&key), [SOME, OTHER], "they overlapped");
        let delete = ledger.begin(key, None);
        ledger.end(key, delete, Ok(()));
        assert_eq!(ledger.possible(&key), [None], "both were over when it began");
    }

    #[test]
    fn a_write_that_failed_may_have_happened() {
        let key = Key::from_u32_be(1);
        let mut ledger = Ledger::default();
        ledger.settle(key, SOME);
        let failed = ledger.begin(key, OTHER);
        ledger.end(key, failed, Err(Status::UNRECOVERED_ERROR));
        assert_eq!(ledger.possible(&key), [SOME, OTHER]);
        let full = ledger.begin(key, None);
        ledger.end(key, full, Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(ledger.possible(&key), [SOME, OTHER]);
    }
}
