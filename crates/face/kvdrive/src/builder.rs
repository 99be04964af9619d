//! [`Builder`]: the description of a drive.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use kvdrive_config::{
    Assigned, COUNTS_LIVE_BYTES, Config, ConfigError, DEFAULT_PROFILE, Document, Naming, RunOptions,
    default_profile,
};
use kvdrive_device::engines::BLOCK;
use kvdrive_engines::packing::PackingRow;
use kvdrive_link::transfer::MethodRow;
use kvdrive_run::report::Report;
use kvdrive_run::{memory, run};
use kvdrive_sim::wall::Pace;
use kvdrive_store::STORES;
use kvdrive_workload::Row;

use crate::block_drive::BlockDrive;
use crate::drive::{Description, Drive};
use crate::error::Error;
use crate::image::Image;
use crate::stepped::Stepped;

/// Concurrent commands of one [`Client`](crate::Client), unless `host.depth` is set; the profiles have the
/// depth of a published study, which is mostly 1.
const DEPTH: &str = "host.depth=32";

/// Describes a drive and powers it on.
///
/// ```
/// let drive = kvdrive::build()
///     .profile("cosmos-plus")
///     .transfer("adaptive")
///     .set("packing.policy", "backfill")
///     .set("flash.program_ns", "300us")
///     .open()?;
/// # drop(drive);
/// # Ok::<(), kvdrive::Error>(())
/// ```
///
/// Profiles, methods and policies are those of `kvdrive list`, keys those of `kvdrive config`.
/// [`Builder::open`] refuses an invalid key or value, in one line that says what is allowed, and also a key
/// that this drive would not use.
#[derive(Clone, Default)]
pub struct Builder {
    profile: Option<String>,
    options: Option<RunOptions>,
    texts: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    pace: Option<Pace>,
    is_here: bool,
    own_packing: Option<&'static PackingRow>,
    own_transfer: Option<&'static MethodRow>,
    own_workload: Option<&'static Row>,
    is_stepped: bool,
}

impl Builder {
    /// Starts from this profile. The default is the engine's own profile, `cosmos-plus` for `lsm`.
    pub fn profile(mut self, name: impl Into<String>) -> Builder {
        self.profile = Some(name.into());
        self
    }

    /// Begins with options as the command has them, instead of a profile; for front ends that take such options.
    /// Options of a workload are refused.
    pub fn options(mut self, options: RunOptions) -> Builder {
        self.options = Some(options);
        self
    }

    /// Lays a TOML text over the profile, as the command's `--config` does; messages refer to it as `name`.
    pub fn config(mut self, name: impl Into<String>, toml: impl Into<String>) -> Builder {
        self.texts.push((name.into(), toml.into()));
        self
    }

    /// Sets one key, to a number or to a text with a unit: `"16KiB"`, `"300us"`.
    pub fn set(mut self, key: &str, value: impl Display) -> Builder {
        self.settings.push((key.to_owned(), format!("{key}={value}")));
        self
    }

    /// Key `engine.name`: index and value placement.
    pub fn engine(self, name: &str) -> Builder {
        self.set("engine.name", name)
    }

    /// Key `host.transfer`: how values reach the drive. Methods that use a CXL window send these values by
    /// `prp`, since application threads have no window.
    pub fn transfer(self, method: &str) -> Builder {
        self.set("host.transfer", method)
    }

    /// Bytes of flash, to a number or to a text with a unit: `"8GiB"`; rounded to whole blocks of each die. A drive in
    /// memory whose size and medium are not set has at most a quarter of the machine's memory
    /// ([`Drive::capacity_note`]).
    pub fn capacity(self, size: impl Display) -> Builder {
        self.set("flash.capacity", size)
    }

    /// Keeps pages in an image file, with the protected image beside it: opening the same description again
    /// finds the drive, also after `kill -9`. Without a file, the drive lives in memory and ends with the
    /// program.
    pub fn file(self, path: impl AsRef<Path>) -> Builder {
        self.set("media.kind", "file").set("media.path", path.as_ref().display())
    }

    /// With a file: an acknowledged store also survives a crash of the whole machine, at the cost of
    /// synchronising its storage.
    pub fn sync(self) -> Builder {
        self.set("media.sync", true)
    }

    /// The speed of the drive. [`Pace::Off`], the default: as fast as this machine can, with model time standing still.
    /// [`Pace::Jump`]: the same with model time passing from event to event, which is slower. [`Pace::Model`]: at the
    /// speed of the modelled drive, so that a call takes as long as it would there, if this machine keeps up.
    ///
    /// With [`Pace::Off`] no time is modelled, and no command overtakes another one. While a fault rule is set
    /// ([`Drive::inject`]), it is the same as [`Pace::Jump`], since rules strike at times and delay commands.
    pub fn pace(mut self, pace: Pace) -> Builder {
        self.pace = Some(pace);
        self
    }

    /// The drive gets no thread of its own: it runs in the calls of the thread that opens it, so that a call costs a
    /// third to a half of its usual time. For an unpaced drive that one thread uses.
    ///
    /// Calls of any handle on another thread fail with [`Error::OtherThread`] and change nothing; handles may be moved
    /// to other threads and dropped there. The drive must be closed on its own thread, too: if it is dropped or closed
    /// on another thread, it ends only when its own thread ends.
    pub fn in_this_thread(mut self) -> Builder {
        self.is_here = true;
        self
    }

    /// Packs values by a policy of the caller's instead of one of [`PACKINGS`](crate::packing::PACKINGS). An
    /// image that was packed by it has its name, and is opened with it again.
    pub fn packing(mut self, own: &'static PackingRow) -> Builder {
        self.own_packing = Some(own);
        self
    }

    /// Chooses the transfer method of each value by a rule of the caller's, instead of one of
    /// [`METHODS`](crate::transfer::METHODS). The drive needs nothing for it: the rule picks among methods that it knows.
    pub fn transfer_choice(mut self, own: &'static MethodRow) -> Builder {
        self.own_transfer = Some(own);
        self
    }

    /// Runs the caller's workload against this drive in model time, as `kvdrive run` does: the same
    /// description gives the same report every time, to the last digit. Keys of `workload`, `host` and `run`
    /// have the same meaning as there: `workload.ops`, `host.depth`, `run.seed`.
    ///
    /// # Errors
    /// [`Error::Configuration`], or [`Error::Run`].
    pub fn run(&self, own: &'static Row) -> Result<Report, Error> {
        if self.pace.is_some() {
            return Err(Error::configuration("pace", "a run in model time has none"));
        }
        let mut described = self.clone();
        described.own_workload = Some(own);
        let (document, _) = described.describe()?;
        run(&document, &|_, _| ()).map_err(|error| Error::Run(format!("{error:#}")))
    }

    /// Powers on a drive whose model time the caller moves: for simulators. Its host is modelled, so that keys of `host`
    /// are its own, too, and its medium is `tags` unless one is set, where a value that has only a size takes a few bytes.
    ///
    /// # Errors
    /// [`Error::Configuration`], also for a drive in a file; [`Error::PowerOn`].
    pub fn stepped(&self) -> Result<Stepped, Error> {
        Stepped::power_on(self.describe_stepped()?, None)
    }

    /// As [`Builder::stepped`], with the content of an earlier drive of the same description. Its time begins when it has
    /// recovered.
    ///
    /// # Errors
    /// As [`Builder::stepped`]; [`Error::PowerOn`]: the image is that of another drive, or is damaged.
    pub fn stepped_from(&self, image: &Image) -> Result<Stepped, Error> {
        Stepped::power_on(self.describe_stepped()?, Some(image))
    }

    fn describe_stepped(&self) -> Result<Description, Error> {
        if self.pace.is_some() {
            return Err(Error::configuration("pace", "the caller moves the time of a stepped drive"));
        }
        let (mut document, _) = Builder { is_stepped: true, ..self.clone() }.describe()?;
        let note = self.fit_to_memory(&mut document)?;
        let config = document.config()?;
        if config.media.has_file() {
            let problem = "a stepped drive is in memory: tags or ram; Image::save keeps it";
            return Err(ConfigError { key: "media.kind".into(), problem: problem.into() }.into());
        }
        Ok(Description { document, config, pace: Pace::Jump, is_here: true, note })
    }

    /// Powers the drive on, on a thread of its own unless [`Builder::in_this_thread`] says otherwise.
    ///
    /// # Errors
    /// [`Error::Configuration`], [`Error::PowerOn`].
    pub fn open(&self) -> Result<Drive, Error> {
        let (mut document, _) = self.describe()?;
        let note = self.fit_to_memory(&mut document)?;
        let config = document.config()?;
        let (pace, is_here) = (self.pace.unwrap_or(Pace::Off), self.is_here);
        if is_here && pace == Pace::Model {
            let problem = "a drive at the speed of its model waits for the clock, on a thread of its own";
            return Err(Error::configuration("pace", problem));
        }
        Drive::power_on(Arc::new(Description { document, config, pace, is_here, note }), None)
    }

    /// Powers on a drive of blocks instead, in memory, on a thread of its own: its pairs are kept by a store
    /// in the program.
    ///
    /// # Errors
    /// As [`Builder::open`]; engine and medium must not be set.
    pub fn open_blocks(&self) -> Result<BlockDrive, Error> {
        let mut document = Document::profile(self.profile.as_deref().unwrap_or(default_profile(BLOCK.name)))?;
        // A configuration of blocks requires a store that runs on them; this one is never created.
        for set in [&format!("engine.name={}", BLOCK.name), &format!("host.store={}", STORES[0].name)] {
            document.set(set)?;
        }
        let (mut document, assigned) = self.lay_over(self.with_defaults(document)?)?;
        assigned.check_looked_at([&document.config()?])?;
        let note = self.fit_to_memory(&mut document)?;
        let config = document.config()?;
        if self.is_here {
            let problem = "stores over blocks work on threads of their own";
            return Err(Error::configuration("in_this_thread", problem));
        }
        let pace = self.pace.unwrap_or(Pace::Off);
        BlockDrive::power_on(Arc::new(Description { document, config, pace, is_here: false, note }), None)
    }

    /// Makes a drive in memory fit there, unless its size or medium was set; returns a line if it became smaller.
    fn fit_to_memory(&self, document: &mut Document) -> Result<Option<String>, Error> {
        let instead = match self.options.as_ref().map(|options| options.naming) {
            Some(Naming::Keyword) => "capacity=\"SIZE\", or media=\"file\"",
            _ => "Builder::capacity, or Builder::file",
        };
        Ok(memory::fit([document].into_iter(), instead)?.pop())
    }

    fn describe(&self) -> Result<(Document, Config), Error> {
        let base = match (&self.options, &self.profile) {
            (Some(options), _) => self.document_of(options)?,
            (None, Some(profile)) => self.with_defaults(Document::profile(profile)?)?,
            (None, None) => {
                // The engine is known once everything is laid over any profile.
                let any = self.lay_over(Document::profile(DEFAULT_PROFILE)?)?.0;
                self.with_defaults(Document::profile(default_profile(any.engine()))?)?
            }
        };
        let (document, assigned) = self.lay_over(base)?;
        if document.engine() == BLOCK.name {
            let problem =
                "block keeps blocks, and the calls here need pairs; kvdrive list engines prints others";
            return Err(ConfigError { key: "engine.name".into(), problem: problem.into() }.into());
        }
        let config = document.config()?;
        assigned.check_looked_at([&config])?;
        Ok((document, config))
    }

    /// The document of options that describe no work.
    fn document_of(&self, options: &RunOptions) -> Result<Document, Error> {
        options.refuse(|key| self.is_of_runs(key), OF_RUNS)?;
        let mut options = options.clone();
        self.defaults().iter().for_each(|default| options.set_default(*default));
        let document = options.document()?;
        options.check_looked_at([&document.config()?])?;
        Ok(document)
    }

    fn with_defaults(&self, mut document: Document) -> Result<Document, Error> {
        if self.own_workload.is_none() {
            self.defaults().iter().try_for_each(|default| document.set(default))?;
        }
        Ok(document)
    }

    /// What a drive of the library has, unless it is set.
    fn defaults(&self) -> &'static [&'static str] {
        match (self.is_stepped, self.pace) {
            (true, _) => &[DEPTH, "media.kind=tags"],
            (false, Some(Pace::Model)) => &[DEPTH],
            (false, _) => &[DEPTH, COUNTS_LIVE_BYTES],
        }
    }

    /// Is it a key that this drive does not use, because the program is its work, and its host unless that is modelled?
    fn is_of_runs(&self, key: &str) -> bool {
        match key.split_once('.') {
            Some(("workload" | "saker", _)) => true,
            Some(("host", name)) if self.is_stepped => ["store", "think_ns"].contains(&name),
            Some(("host", name)) => !HOST_KEYS.contains(&name),
            _ => key == "run.clock",
        }
    }

    fn lay_over(&self, mut document: Document) -> Result<(Document, Assigned), Error> {
        kvdrive_run::revision::set(kvdrive_revision::REVISION);
        self.own_packing.into_iter().for_each(|row| document.bring_packing(row));
        self.own_transfer.into_iter().for_each(|row| document.bring_transfer(row));
        self.own_workload.into_iter().for_each(|row| document.bring_workload(row));
        for (name, text) in &self.texts {
            document.merge_text(name, text)?;
        }
        let is_strange = |key: &str| match self.own_workload {
            Some(_) => ["run.clock", "workload.name"].contains(&key),
            None => self.is_of_runs(key),
        };
        if let Some((key, _)) = self.settings.iter().find(|(key, _)| is_strange(key)) {
            let problem = match self.own_workload {
                Some(_) => "the program brings the workload, and runs it in model time",
                None => OF_RUNS,
            };
            return Err(ConfigError { key: key.clone(), problem: problem.into() }.into());
        }
        let assigned = Assigned::lay_over(&mut document, self.settings.iter().cloned())?;
        Ok((document, assigned))
    }
}

/// Keys of `[host]` that a driver on application threads uses; the others belong to a modelled host.
const HOST_KEYS: &[&str] =
    &["transfer", "threshold1_bytes", "threshold2_bytes", "alpha", "beta", "depth", "queue_entries"];

/// The reason why keys of runs are refused.
const OF_RUNS: &str = "the program itself is host and work; only runs of workloads look at it";
