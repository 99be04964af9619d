//! [`Drive`]: one drive on its thread, from power-on to its end.

use std::fmt;
use std::sync::Arc;

use kvdrive_config::{Config, Document, faults};
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::faults::check_without_door;
use kvdrive_flash::power::Survivors;
use kvdrive_host::threaded::{Connector, Serving, block_on, serve_here, serve_thread};
use kvdrive_link::shared::{Control, ServerConfig};
use kvdrive_nvme::StoreOptions;
use kvdrive_run::report::Report;
use kvdrive_run::wall::{Change, Running, ServedDrive, served};
use kvdrive_sim::wall::{Pace, Stopwatch};

use crate::client::{AsyncClient, Client, Part};
use crate::context::ClientContext;
use crate::error::Error;
use crate::keys::Keys;
use crate::namespace::Namespace;
use crate::network::Network;
use crate::numbers::Numbers;
use crate::pairs::Pairs;
use crate::saker;

/// The description with which a drive was opened.
pub(crate) struct Description {
    pub document: Document,
    pub config: Config,
    pub pace: Pace,
    /// Do the calls of the thread that opens it carry it out?
    pub is_here: bool,
    /// A line that says that the drive is smaller than its profile, if it is.
    pub note: Option<String>,
}

/// A powered drive, of this program or [on a network](crate::connect).
///
/// Threads may share it; each call blocks its thread. A thread that makes many calls should take a [`Client`] of its
/// own. Dropping it closes it. A drive that was opened with [`Builder::in_this_thread`](crate::Builder::in_this_thread)
/// belongs to one thread, and refuses the calls of others.
///
/// The inside of a drive on a network belongs to the program that serves it (`kvdrive ctl`): calls that look at it or
/// change it fail with [`Error::Refused`].
pub struct Drive {
    client: Client,
    place: Place,
    context: ClientContext,
    clock: Stopwatch,
}

/// Where the drive is.
enum Place {
    Own(Own),
    Network(Box<Network>),
}

/// A drive of this program.
struct Own {
    described: Arc<Description>,
    connector: Connector,
    /// `None` after the drive has ended.
    serving: Option<Serving<Running, ServedDrive>>,
    control: Control<Running>,
}

impl Drive {
    pub(crate) fn power_on(
        described: Arc<Description>,
        survivors: Option<Survivors>,
    ) -> Result<Drive, Error> {
        let server = ServerConfig { pace: described.pace, recorder: None };
        let build = served(described.config.clone(), survivors);
        let opened = if described.is_here { serve_here(server, build) } else { serve_thread(server, build) };
        let (connector, serving) = opened.map_err(|error| Error::PowerOn(error.to_string()))?;
        let control = serving.control().clone();
        let engine = &described.config.engine.name;
        let is_ordered = ENGINES.iter().any(|row| row.name == engine && row.ordered);
        let own = Own { described, connector, serving: Some(serving), control };
        Drive::at(Place::Own(own), ClientContext::new(is_ordered, true))
    }

    pub(crate) fn on_network(network: Network) -> Result<Drive, Error> {
        let context = network.context();
        Drive::at(Place::Network(Box::new(network)), context)
    }

    fn at(place: Place, context: ClientContext) -> Result<Drive, Error> {
        let client = Client(place.connect(&context)?);
        Ok(Drive { client, place, context, clock: Stopwatch::start() })
    }

    /// The drive, if it is in this program.
    fn own(&self, call: &'static str) -> Result<&Own, Error> {
        self.context.check_process(call)?;
        match &self.place {
            Place::Own(own) => Ok(own),
            Place::Network(network) => Err(network.refused(call)),
        }
    }

    /// A queue pair for a thread.
    ///
    /// # Errors
    /// The drive is off, or all queue identifiers are used.
    pub fn client(&self) -> Result<Client, Error> {
        self.place.connect(&self.context).map(Client)
    }

    /// A queue pair for futures.
    ///
    /// # Errors
    /// As [`Drive::client`].
    pub fn async_client(&self) -> Result<AsyncClient, Error> {
        self.place.connect(&self.context)
    }

    /// SAKER in front of this drive: small writes are sent in batches, small reads may be answered from memory. There
    /// is one at a time; [`saker`](mod@saker) describes the pairs that other calls, which do not use it, return.
    ///
    /// # Errors
    /// [`Error::Configuration`]: a setting that is not allowed, a container larger than the drive's largest value, or a
    /// drive of one thread; [`Error::Refused`]: the drive has one already.
    pub fn saker(&self, config: saker::SakerConfig) -> Result<saker::Saker, Error> {
        self.context.check_process("saker")?;
        let own = match &self.place {
            Place::Network(network) => {
                return saker::Saker::on_network(network, config, self.async_client()?);
            }
            Place::Own(own) => own,
        };
        if own.described.is_here {
            let problem = "SAKER is shared by threads, and so is its drive";
            return Err(Error::configuration("in_this_thread", problem));
        }
        let (drive, below) = (&own.described.config, self.async_client()?);
        saker::Saker::new(&own.connector, drive, config, below)
    }

    /// [`AsyncClient::store`].
    ///
    /// # Errors
    /// Those of that call; this also holds for the calls below.
    pub fn store(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.client.store(key, value)
    }

    /// [`AsyncClient::store_with`].
    pub fn store_with(&self, key: &[u8], value: &[u8], options: StoreOptions) -> Result<(), Error> {
        self.client.store_with(key, value, options)
    }

    /// [`AsyncClient::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.client.get(key)
    }

    /// [`AsyncClient::delete`].
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        self.client.delete(key)
    }

    /// [`AsyncClient::get_part`].
    pub fn get_part(&self, key: &[u8], at: u32, bytes: u32) -> Result<Option<Part>, Error> {
        self.client.get_part(key, at, bytes)
    }

    /// [`AsyncClient::remove`].
    pub fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.client.remove(key)
    }

    /// [`AsyncClient::exist`].
    pub fn exist(&self, key: &[u8]) -> Result<bool, Error> {
        self.client.exist(key)
    }

    /// [`AsyncClient::pairs`].
    pub fn pairs(&self) -> Result<Pairs<'_>, Error> {
        self.client.pairs()
    }

    /// [`AsyncClient::pairs_from`].
    pub fn pairs_from(&self, start: &[u8]) -> Result<Pairs<'_>, Error> {
        self.client.pairs_from(start)
    }

    /// [`AsyncClient::pairs_with_prefix`].
    pub fn pairs_with_prefix(&self, prefix: &[u8]) -> Result<Pairs<'_>, Error> {
        self.client.pairs_with_prefix(prefix)
    }

    /// [`AsyncClient::keys`].
    pub fn keys(&self) -> Keys<'_> {
        self.client.keys()
    }

    /// [`AsyncClient::keys_with_prefix`].
    pub fn keys_with_prefix(&self, prefix: &[u8]) -> Result<Keys<'_>, Error> {
        self.client.keys_with_prefix(prefix)
    }

    /// [`AsyncClient::count`].
    pub fn count(&self, prefix: &[u8]) -> Result<u64, Error> {
        self.client.count(prefix)
    }

    /// Do pairs come in the order of their keys? Otherwise they come in an order of the engine's own. A drive on a network
    /// that is no kvdrive does not report it; this is `false` then.
    pub fn is_ordered(&self) -> bool {
        self.context.is_ordered
    }

    /// Capacity of the drive and limits of pairs, as the drive reports them.
    ///
    /// # Errors
    /// [`Error::Off`], [`Error::Network`].
    pub fn namespace(&self) -> Result<Namespace, Error> {
        self.context.check_process("identify")?;
        match &self.place {
            Place::Network(network) => network.namespace(),
            Place::Own(own) => {
                let identified = block_on(own.connector.identify());
                let identified = identified.map_err(|error| Error::of("identify", None, error))?;
                Ok(Namespace::of(&identified))
            }
        }
    }

    /// Does the drive itself say of a removed key whether there was a pair ([`Client::remove`])? A drive on a network that
    /// is no kvdrive does not.
    pub fn delete_says(&self) -> bool {
        self.context.delete_says
    }

    /// A line that says that the drive has a part of the machine's memory instead of its profile's capacity, if it has:
    /// neither its size nor its medium was set.
    pub fn capacity_note(&self) -> Option<&str> {
        match &self.place {
            Place::Own(own) => own.described.note.as_deref(),
            Place::Network(_) => None,
        }
    }

    /// Is it [on a network](crate::connect)?
    pub fn is_on_network(&self) -> bool {
        matches!(self.place, Place::Network(_))
    }

    /// The counters and times of the drive so far, by kind of number.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn numbers(&self) -> Result<Numbers, Error> {
        let own = self.own("numbers")?;
        own.check_thread("numbers")?;
        let snapshot = own.control.look(|_, running| running.snapshot()).map_err(|_| Error::Off)?;
        let times = own.described.document.time_sources();
        let passes = own.described.pace != Pace::Off;
        Ok(Numbers { counts: snapshot.counts, passes, sources: times, seconds: self.clock.seconds() })
    }

    /// Why the drive is read-only, if it is: flash without a spare block, or a file of the machine's that cannot
    /// be written.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn write_failure(&self) -> Result<Option<String>, Error> {
        let own = self.own("write_failure")?;
        block_on(own.connector.write_failure()).map_err(|error| Error::of("log page", None, error))
    }

    /// Adds fault rules, as a TOML text (`kvdrive list faults`); returns their names.
    ///
    /// # Errors
    /// [`Error::Refused`]: nothing has changed; a rule is none, or is of answers on a network and would never strike.
    pub fn inject(&self, rules: &str) -> Result<Vec<String>, Error> {
        let own = self.own("inject")?;
        // What is wrong with rules is said by the drive, which also knows those that it has.
        let geometry = own.described.config.drive().flash.geometry();
        let parsed = faults::rules("rules", rules, &geometry).unwrap_or_default();
        check_without_door(&parsed).map_err(Error::Refused)?;
        let names = own.change(Change::AddFaults(rules.to_owned()))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Removes the fault rule of this name, or all rules.
    ///
    /// # Errors
    /// [`Error::Refused`]: there is no such rule.
    pub fn clear_faults(&self, name: Option<&str>) -> Result<(), Error> {
        self.own("clear_faults")?.change(Change::ClearFaults(name.map(str::to_owned))).map(drop)
    }

    /// Cuts the power between two events of the drive. Acknowledged data survives; calls in progress, of all
    /// clients, fail with [`Error::Off`], and their effects are there wholly or not at all. With `torn`,
    /// pages that were being programmed may be left as a mixture that fails its checksum.
    ///
    /// # Errors
    /// [`Error::Off`]. A connection to a drive on a network is closed; the drive continues.
    pub fn cut_power(mut self, torn: bool) -> Result<PoweredOff, Error> {
        self.context.check_process("cut power")?;
        let own = match &mut self.place {
            Place::Own(own) => own,
            Place::Network(network) => return Err(network.refused("cut_power")),
        };
        own.check_thread("cut power")?;
        // The drive may be gone before it has answered.
        if let Ok(Err(what)) = own.control.change(Change::CutPower { torn }) {
            return Err(Error::Refused(what));
        }
        let mut ended = own.serving.take().ok_or(Error::Off)?.join();
        Ok(PoweredOff { described: own.described.clone(), survivors: ended.take_survivors() })
    }

    /// Ends the drive after it has executed all submitted commands; remaining clients find it off. A drive on a network
    /// continues, and this host disconnects.
    ///
    /// # Errors
    /// A number of the report cannot be obtained; a network that cannot be left.
    pub fn close(mut self) -> Result<Closed, Error> {
        self.context.check_process("close")?;
        let (seconds, unanswered) = (self.clock.seconds(), self.context.unanswered.count());
        let own = match &mut self.place {
            Place::Own(own) => own,
            Place::Network(network) => {
                network.leave()?;
                return Ok(Closed {
                    lasting: Lasting::Elsewhere,
                    unanswered,
                    write_failure: None,
                    report: None,
                });
            }
        };
        own.check_thread("close")?;
        let ended = own.end().ok_or(Error::Off)?;
        let write_failure = ended.write_failure().map(ToString::to_string);
        let Description { document, config, .. } = &*own.described;
        let report =
            ended.into_report(document, seconds).map_err(|error| Error::Refused(error.to_string()))?;
        let lasting = match (config.media.has_file(), config.media.sync) {
            (false, _) => Lasting::Nothing,
            (true, false) => Lasting::Program,
            (true, true) => Lasting::Machine,
        };
        Ok(Closed { lasting, unanswered, write_failure, report: Some(report) })
    }
}

impl Place {
    /// A queue pair.
    fn connect(&self, context: &ClientContext) -> Result<AsyncClient, Error> {
        context.check_process("connect")?;
        match self {
            Place::Own(Own { described, connector, .. }) => {
                AsyncClient::connect(connector, &described.config, context)
            }
            Place::Network(network) => network.connect(context),
        }
    }
}

impl Own {
    fn check_thread(&self, call: &'static str) -> Result<(), Error> {
        self.connector.check_thread().map_err(|error| Error::of(call, None, error))
    }

    fn change(&self, change: Change) -> Result<String, Error> {
        self.check_thread("change")?;
        self.control.change(change).map_err(|_| Error::Off)?.map_err(Error::Refused)
    }

    fn end(&mut self) -> Option<ServedDrive> {
        let serving = self.serving.take()?;
        self.connector.close();
        // A drive that runs in calls of another thread cannot be waited for here.
        self.connector.check_thread().is_ok().then(|| serving.join())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // The threads of a drive are those of the process that opened it.
        let is_left = std::thread::panicking() || self.context.forks.is_forked();
        if let (false, Place::Own(own)) = (is_left, &mut self.place) {
            own.end();
        }
    }
}

/// A drive without power, from which a new one can be powered on. Clones are of the same moment.
#[derive(Clone)]
pub struct PoweredOff {
    described: Arc<Description>,
    /// For a drive in memory; the survivors of a drive on a file are in the file.
    survivors: Option<Survivors>,
}

impl PoweredOff {
    /// Powers it on again: it recovers from its medium and from the state saved by capacitors, in model time
    /// (`drive.recovery_ns` of its [`Numbers`]).
    ///
    /// # Errors
    /// [`Error::PowerOn`].
    pub fn power_on(self) -> Result<Drive, Error> {
        Drive::power_on(self.described, self.survivors)
    }
}

/// The events that acknowledged stores survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Only power cuts of the drive: it is in memory, and gone with the program.
    Nothing,
    /// The end of the program, for any reason: the drive is on a file.
    Program,
    /// The end of the machine, too: its file is synchronised before each acknowledgement.
    Machine,
    /// As the program that serves the drive on a network guarantees.
    Elsewhere,
}

/// How a drive ended.
#[derive(Clone, Debug)]
pub struct Closed {
    /// The events that all acknowledged stores survive.
    pub lasting: Lasting,
    /// Calls whose answers were not received. Their stores may or may not have been executed; each is there
    /// wholly or not at all.
    pub unanswered: u64,
    /// Why the drive was read-only, if it was: acknowledged data is there, and nothing else was stored.
    pub write_failure: Option<String>,
    /// The report; `None` for a drive on a network.
    report: Option<Report>,
}

impl Closed {
    /// All counted and modelled numbers, as `kvdrive serve` reports them, in JSON; null of a drive on a network.
    pub fn report(&self) -> serde_json::Value {
        serde_json::to_value(&self.report).expect("a report is JSON")
    }
}

/// A line about durability, and the tables of the report.
impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lasting {
            Lasting::Nothing => "the drive was in memory: nothing of it is left",
            Lasting::Program => "acknowledged stores are in the file, and outlast the program",
            Lasting::Machine => "acknowledged stores are in the file, and outlast the machine",
            Lasting::Elsewhere => "the drive is on a network, and continues there",
        })?;
        if self.unanswered > 0 {
            write!(
                f,
                "; {} calls were never answered, and may have been carried out or not",
                self.unanswered
            )?;
        }
        if let Some(reason) = &self.write_failure {
            write!(f, "; the drive was read-only: {reason}")?;
        }
        self.report.iter().try_for_each(|report| write!(f, "\n{report}"))
    }
}
