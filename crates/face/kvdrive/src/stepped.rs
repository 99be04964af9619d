//! [`Stepped`]: a drive inside a simulator. The caller says when commands arrive and how far the model's time goes; no
//! thread and no clock of the machine is involved. It is the drive, the driver and the executor of `kvdrive run`, with
//! the caller in the place of the workload.
//!
//! ```text
//!   submit ─► due, by time ─► a task, while fewer than host.depth commands are under way: waits until the command's
//!                             time, has the driver carry it out ─► ended ─► advance returns it
//! ```
//!
//! An arrival precedes all other events of its time, so results do not depend on how a span is divided into calls of
//! [`Stepped::advance`], unless a command is submitted for the very time at which the drive stands.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_config::faults::rules_beside;
use kvdrive_config::{Config, setup};
use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_declare::Counters;
use kvdrive_device::DriveConfig;
use kvdrive_device::config::Dispatch;
use kvdrive_flash::faults::check_without_door;
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Call, Calls, Content};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Ns, Rng, Sim, TaskCell};
use kvdrive_store::STORES;

use crate::drive::Description;
use crate::error::Error;
use crate::image::Image;
use crate::names;
use crate::namespace::Namespace;
use crate::numbers::Numbers;

/// A value to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// So many bytes, which the drive makes up from the key and the command's number: a few bytes of memory, whatever
    /// the size is.
    Size(u32),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Stores a value.
    Store(Value),
    /// Retrieves a value. All of it crosses the link in either case.
    Retrieve {
        /// Does [`Completion::value`] have its bytes?
        keep: bool,
    },
    /// Removes a pair; removing an absent pair succeeds.
    Delete,
    /// Asks whether there is a pair: [`Status::KEY_NOT_FOUND`] if not.
    Exist,
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command, as [`Stepped::submit`] has numbered it.
    pub id: u64,
    /// When the application had the answer, ns. The latency is from the time for which it was submitted, a wait for one
    /// of `host.depth` places included.
    pub ended_at_ns: u64,
    /// The drive's answer.
    pub status: Status,
    /// Size of the value of a retrieve that succeeded, bytes; otherwise 0.
    pub value_bytes: u32,
    /// The bytes of a retrieve that keeps them.
    pub value: Option<Vec<u8>>,
}

/// A command that has not begun.
struct Arrival {
    at: Ns,
    id: u64,
    key: Key,
    op: Arriving,
}

enum Arriving {
    Pattern(Pattern),
    Bytes(Vec<u8>),
    Retrieve { keep: bool },
    Delete,
    Exist,
}

/// A place for a command under way.
struct Place {
    driver: usize,
    buffer: Region,
}

/// What the handle and the tasks of commands share.
struct Shared {
    sim: Sim,
    drivers: Vec<Driver>,
    /// By time, and for one time in the order of submission.
    due: TaskCell<VecDeque<Arrival>>,
    /// Commands of later times do not begin.
    until: Cell<Ns>,
    free: TaskCell<VecDeque<Place>>,
    ended: TaskCell<Vec<Completion>>,
}

impl Shared {
    fn next(&self) -> Option<Arrival> {
        let mut due = self.due.borrow_mut();
        if due.front()?.at <= self.until.get() { due.pop_front() } else { None }
    }

    /// Carries out one command after another until none is due.
    fn serve(&self, mut place: Place, first: Arrival) {
        let mut next = Some(first);
        while let Some(arrival) = next {
            self.sim.sleep_until_external(arrival.at);
            let ended = self.carry_out(arrival, &mut place);
            self.ended.borrow_mut().push(ended);
            next = self.next();
        }
        self.free.borrow_mut().push_back(place);
    }

    fn carry_out(&self, arrival: Arrival, place: &mut Place) -> Completion {
        let Arrival { id, key, op, .. } = arrival;
        let (driver, buffer) = (&self.drivers[place.driver], &mut place.buffer);
        let (mut value, mut value_bytes) = (None, 0);
        let answered = match op {
            Arriving::Pattern(pattern) => driver.store(key, Piece::Pattern(pattern)),
            Arriving::Bytes(bytes) => store(driver, key, bytes, buffer),
            Arriving::Retrieve { keep } => driver.retrieve(key, buffer).map(|bytes| {
                value_bytes = bytes;
                value = keep.then(|| buffer.to_bytes(bytes));
            }),
            Arriving::Delete => driver.delete(key),
            Arriving::Exist => driver.exist(key).and_then(|is_there| match is_there {
                true => Ok(()),
                false => Err(Status::KEY_NOT_FOUND),
            }),
        };
        let status = answered.err().unwrap_or(Status::SUCCESS);
        Completion { id, ended_at_ns: self.sim.now(), status, value_bytes, value }
    }
}

fn store<V: Content>(driver: &Driver, key: Key, value: V, buffer: &mut Region) -> Result<(), Status> {
    driver.ask(Call::Store { key, value, options: StoreOptions::default() }, buffer).map(|_| ())
}

/// A drive whose model time stands still between calls; [`Builder::stepped`](crate::Builder::stepped) makes one.
///
/// ```
/// use kvdrive::stepped::{Op, Value};
///
/// let mut drive = kvdrive::build().profile("pm983").capacity("1GiB").stepped()?;
/// let store = drive.submit(1_000, Op::Store(Value::Size(4096)), b"user17")?;
/// let retrieve = drive.submit(200_000, Op::Retrieve { keep: false }, b"user17")?;
/// let ended = drive.advance(1_000_000)?;
/// assert_eq!((ended[0].id, ended[1].id), (store, retrieve));
/// assert!(ended[1].ended_at_ns > 200_000 && drive.now_ns() == 1_000_000);
/// # Ok::<(), kvdrive::Error>(())
/// ```
///
/// Times are ns since the drive was ready. The host is the modelled one of `kvdrive run`: its driver takes time on
/// `host.cores`, and `host.depth` commands are under way at once; further ones wait, first come, first served. The same
/// calls give the same results, to the last nanosecond. It belongs to one thread, and a program may have thousands.
pub struct Stepped {
    described: Rc<Description>,
    shared: Rc<Shared>,
    link: Rc<Link>,
    drive: Rc<kvdrive_device::Drive>,
    namespace: Namespace,
    /// The executor's time at the caller's time 0.
    base: Ns,
    submitted: u64,
    /// A fault rule has cut the power, and this says whether pages may be torn.
    cut: Cell<Option<bool>>,
    clock: Stopwatch,
}

impl Stepped {
    pub(crate) fn power_on(described: Description, image: Option<&Image>) -> Result<Stepped, Error> {
        let (sim, memory, config) = (Sim::new(), Rc::new(LocalMemory::new()), &described.config);
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        let powered = sim.block_on(|| {
            let survivors = image.map(Image::survivors);
            let drive = kvdrive_device::Drive::power_on(&sim, &link, &of_use(config), survivors)
                .map_err(|error| Error::PowerOn(error.to_string()))?;
            let drivers = setup::drivers(config, &link, &memory, &setup::cores(config, &sim))
                .map_err(|error| Error::PowerOn(format!("{error:#}")))?;
            let identified = drivers[0].host().identify();
            let identified =
                identified.map_err(|status| Error::Status { call: "identify", key: None, status })?;
            Ok((drive, drivers, Namespace::of(&identified)))
        });
        let (drive, drivers, namespace) = powered.inspect_err(|_: &Error| sim.clear())?;
        drive.faults().halt_at_power_cut();
        let places = setup::driver_of_each_task(config).map(|driver| Place { driver, buffer: Region::new() });
        let shared = Shared {
            sim: sim.clone(),
            drivers,
            due: TaskCell::default(),
            until: Cell::new(0),
            free: TaskCell::new(places.collect()),
            ended: TaskCell::default(),
        };
        Ok(Stepped {
            described: Rc::new(described),
            shared: Rc::new(shared),
            link,
            drive: Rc::new(drive),
            namespace,
            base: sim.now(),
            submitted: 0,
            cut: Cell::new(None),
            clock: Stopwatch::start(),
        })
    }

    /// The present time, ns.
    pub fn now_ns(&self) -> u64 {
        self.shared.sim.now() - self.base
    }

    /// A command arrives at `at_ns`, which is not before the present; returns its number: 0, 1, 2, ... Commands may be
    /// submitted in any order of their times. A key is as in other calls of this library, except that the pair of a name
    /// ([`key_of`](crate::key_of)) is stored without the name.
    ///
    /// # Errors
    /// [`Error::TimePassed`], [`Error::KeySize`], [`Error::ValueSize`]; [`Error::Off`] after a power cut. Nothing has
    /// changed.
    pub fn submit(&mut self, at_ns: u64, op: Op, key: &[u8]) -> Result<u64, Error> {
        self.check_time("submit", at_ns)?;
        let (key, id) = (names::Named::of(key)?.key, self.submitted);
        let op = match op {
            Op::Store(Value::Size(bytes)) => {
                self.check_size(key, bytes as usize)?;
                Arriving::Pattern(Pattern::of_value(&key, id, bytes))
            }
            Op::Store(Value::Bytes(bytes)) => {
                self.check_size(key, bytes.len())?;
                Arriving::Bytes(bytes)
            }
            Op::Retrieve { keep } => Arriving::Retrieve { keep },
            Op::Delete => Arriving::Delete,
            Op::Exist => Arriving::Exist,
        };
        self.submitted += 1;
        let at = self.base.saturating_add(at_ns);
        let mut due = self.shared.due.borrow_mut();
        let place = match due.back() {
            Some(last) if last.at > at => due.partition_point(|other| other.at <= at),
            _ => due.len(),
        };
        due.insert(place, Arrival { at, id, key, op });
        Ok(id)
    }

    /// Commands submitted so far: the number of the next one.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// A line that says that the drive has a part of the machine's memory instead of its profile's capacity, if it has.
    pub fn capacity_note(&self) -> Option<&str> {
        self.described.note.as_deref()
    }

    /// Moves the time to `until_ns`, that time included, and returns the commands that have ended, in the order of their
    /// ends.
    ///
    /// # Errors
    /// [`Error::TimePassed`]: nothing has changed; [`Error::Off`]: the power was cut before. If a fault rule cuts it in
    /// this call, the commands that ended before are returned, the others never end.
    pub fn advance(&mut self, until_ns: u64) -> Result<Vec<Completion>, Error> {
        self.check_time("advance", until_ns)?;
        Ok(self.run(until_ns, || false))
    }

    /// As [`Stepped::advance`], but the time stops at the first one at which a command ends: what a simulator needs that
    /// reacts to each answer.
    ///
    /// # Errors
    /// As [`Stepped::advance`].
    pub fn advance_to_next(&mut self, until_ns: u64) -> Result<Vec<Completion>, Error> {
        self.check_time("advance", until_ns)?;
        let shared = self.shared.clone();
        Ok(self.run(until_ns, || !shared.ended.borrow().is_empty()))
    }

    fn run(&mut self, until_ns: u64, is_enough: impl Fn() -> bool) -> Vec<Completion> {
        let shared = &self.shared;
        let until = self.base.saturating_add(until_ns);
        // A command that begins later would occupy a place that one of an earlier time may want.
        shared.until.set(until);
        loop {
            let next = if shared.free.borrow().is_empty() { None } else { shared.next() };
            let Some(arrival) = next else { break };
            let place = shared.free.borrow_mut().pop_front().expect("one is free");
            let shared = shared.clone();
            self.shared.sim.spawn(move || shared.serve(place, arrival));
        }
        shared.sim.run_until(until, is_enough);
        let mut ended = shared.ended.take();
        ended.iter_mut().for_each(|ended| ended.ended_at_ns -= self.base);
        ended
    }

    /// When something happens next in the drive, ns: an arrival, or a step of a command or of work in the background.
    /// `None`: nothing will happen before a further command arrives.
    pub fn next_event_ns(&self) -> Option<u64> {
        let arrival = self.shared.due.borrow().front().map(|arrival| arrival.at);
        if self.shared.sim.halted() {
            return None;
        }
        let step = self.shared.sim.next_due();
        arrival.into_iter().chain(step).min().map(|at| at - self.base)
    }

    /// Commands that were submitted and have not ended.
    pub fn under_way(&self) -> u64 {
        let places = setup::driver_of_each_task(&self.described.config).count();
        let due = self.shared.due.borrow().len();
        (due + places - self.shared.free.borrow().len()) as u64
    }

    /// Stores a pair of `value_bytes` bytes under each key, in no time, as if it had been there before: the engine and
    /// flash do all their work, and count it. Pages that are left in buffers are written.
    ///
    /// # Errors
    /// [`Error::Refused`]: commands are under way; [`Error::KeySize`], [`Error::ValueSize`]; [`Error::Status`]: the drive
    /// refused a pair, [`Status::CAPACITY_EXCEEDED`] if it is full. Earlier pairs are stored.
    pub fn load<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        value_bytes: u32,
    ) -> Result<(), Error> {
        self.check_idle("load")?;
        let mut wrong = Ok(());
        let (mut keys, first) = (keys.into_iter(), self.submitted);
        let mut pairs = std::iter::from_fn(|| {
            let found = names::Named::of(keys.next()?.as_ref()).and_then(|named| {
                self.check_size(named.key, value_bytes as usize)?;
                Ok(named.key)
            });
            let key = found.map_err(|error| wrong = Err(error)).ok()?;
            Some((key, Piece::Pattern(Pattern::of_value(&key, first, value_bytes))))
        });
        let began = self.shared.sim.now();
        let loaded = self.shared.sim.block_on(|| {
            let loaded = self.drive.load(&mut pairs);
            self.drive.drain();
            loaded
        });
        self.base += self.shared.sim.now() - began;
        loaded.map_err(|(key, status)| Error::Status { call: "load", key: Some(key), status })?;
        wrong
    }

    /// Loads pairs of `value_bytes` bytes until `share` (0 to 1) of the drive's capacity is in use, under 8-byte keys: 0,
    /// 1, 2, ... big-endian. Returns their number.
    ///
    /// # Errors
    /// As [`Stepped::load`]; [`Error::Refused`]: no such share, or values of no bytes.
    pub fn fill(&mut self, share: f64, value_bytes: u32) -> Result<u64, Error> {
        if !(0.0..=1.0).contains(&share) || value_bytes == 0 {
            let line = format!(
                "fill: a share of 0 to 1 and values of 1 byte or more, not {share} and {value_bytes}"
            );
            return Err(Error::Refused(line));
        }
        let pairs = (self.namespace.capacity_bytes as f64 * share / f64::from(value_bytes)) as u64;
        self.load((0..pairs).map(u64::to_be_bytes), value_bytes)?;
        Ok(pairs)
    }

    /// Capacity and limits; `used_bytes` as of now. Takes no time.
    pub fn namespace(&self) -> Namespace {
        Namespace { used_bytes: self.drive.utilization().live_bytes, ..self.namespace.clone() }
    }

    /// The counters and times of the drive so far, by kind of number.
    pub fn numbers(&self) -> Numbers {
        let counts = self.drive.counts().with("traffic", self.link.meter().counts());
        let sources = self.described.document.time_sources();
        Numbers { counts, passes: true, sources, seconds: self.clock.seconds() }
    }

    /// Adds fault rules, as a TOML text (`kvdrive list faults`); returns their names. A rule that cuts the power ends the
    /// drive: [`Stepped::image`] has what survives.
    ///
    /// # Errors
    /// [`Error::Refused`]: nothing has changed.
    pub fn inject(&mut self, rules: &str) -> Result<Vec<String>, Error> {
        let faults = self.drive.faults();
        let taken: Vec<String> = faults.counts().into_iter().map(|count| count.name).collect();
        let geometry = self.described.config.drive().flash.geometry();
        let rules = rules_beside("rules", rules, &geometry, &taken);
        let rules = rules.map_err(|error| Error::Refused(error.to_string()))?;
        check_without_door(&rules).map_err(Error::Refused)?;
        faults.add(&rules, self.described.config.run.seed);
        Ok(rules.into_iter().map(|rule| rule.name).collect())
    }

    /// Removes the fault rule of this name, or all rules.
    ///
    /// # Errors
    /// [`Error::Refused`]: there is no such rule.
    pub fn clear_faults(&mut self, name: Option<&str>) -> Result<(), Error> {
        match (self.drive.faults().clear(name), name) {
            (0, Some(name)) => Err(Error::Refused(format!("{name:?}: no such rule"))),
            _ => Ok(()),
        }
    }

    /// The drive as it would be found if its power were cut now, or as it was when a fault rule cut it. Any number of
    /// drives of the same description can be opened from it: [`Builder::stepped_from`](crate::Builder::stepped_from).
    ///
    /// # Errors
    /// [`Error::Refused`]: commands are under way, and the power is on.
    pub fn image(&self) -> Result<Image, Error> {
        let mut rng = Rng::stream(self.described.config.run.seed, "power cut");
        if !self.shared.sim.halted() {
            self.check_idle("image")?;
        } else if self.cut.get().is_none() {
            self.cut.set(self.drive.faults().take_power_cut());
        }
        Ok(Image::new(match self.cut.get() {
            Some(true) => self.drive.survivors(&mut rng),
            _ => self.drive.survivors_untorn(&mut rng),
        }))
    }

    fn check_time(&self, call: &'static str, at_ns: u64) -> Result<(), Error> {
        if self.shared.sim.halted() {
            return Err(Error::Off);
        }
        let now_ns = self.now_ns();
        if at_ns < now_ns { Err(Error::TimePassed { call, at_ns, now_ns }) } else { Ok(()) }
    }

    fn check_idle(&self, call: &str) -> Result<(), Error> {
        if self.shared.sim.halted() {
            return Err(Error::Off);
        }
        match self.under_way() {
            0 => Ok(()),
            more => Err(Error::Refused(format!("{call}: {more} commands have not ended"))),
        }
    }

    fn check_size(&self, key: Key, bytes: usize) -> Result<(), Error> {
        let most = self.namespace.value_max_bytes;
        if bytes <= most as usize { Ok(()) } else { Err(Error::ValueSize { key, bytes, most }) }
    }
}

/// The drive of `config`. Contexts beyond the commands that can be under way at once would never run, and each has a
/// stack: they are left out, so that a program has room for thousands of drives.
fn of_use(config: &Config) -> DriveConfig {
    let mut drive = config.drive();
    let is_one_each = config.host.transfer.row().is_some_and(|row| !row.overlaps);
    // A store over pages has a part of its state for each context.
    let is_store = STORES.iter().any(|row| row.name == config.engine.name);
    if let (true, Dispatch::Context { contexts, .. }) =
        (is_one_each && !is_store, &mut drive.controller.dispatch)
    {
        // One more takes admin commands.
        *contexts = (*contexts).min(config.host.depth + 1);
    }
    drive
}

/// The tasks of a drive keep it alive.
impl Drop for Stepped {
    fn drop(&mut self) {
        self.shared.sim.clear();
    }
}
