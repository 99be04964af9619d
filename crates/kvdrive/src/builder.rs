//! [`Builder`]: what drive it is to be.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use kvdrive_device::engines::BLOCK;
use kvdrive_engines::packing::PackingRow;
use kvdrive_lab::config::{Assigned, Config, ConfigError, DEFAULT_PROFILE, Document, default_profile};
use kvdrive_lab::report::Report;
use kvdrive_lab::run::run;
use kvdrive_lab::workload::Row;
use kvdrive_sim::wall::Pace;
use kvdrive_store::STORES;

use crate::block_drive::BlockDrive;
use crate::drive::{Description, Drive};
use crate::error::Error;

/// Commands of one [`Client`](crate::Client) under way at once, unless `host.depth` says otherwise; the profiles
/// have the depth of a published study, which is mostly 1.
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
/// Profiles, methods and policies are those of `kvdrive list`, keys those of `kvdrive config`. A key or a value
/// that cannot be is refused by [`Builder::open`], in one line that says what is allowed; so is one that this
/// drive would not look at.
#[derive(Clone, Default)]
pub struct Builder {
    profile: Option<String>,
    texts: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    pace: Option<Pace>,
    own_packing: Option<&'static PackingRow>,
    own_workload: Option<&'static Row>,
}

impl Builder {
    /// Begins with this profile. Without one it is the engine's own, `cosmos-plus` for `lsm`.
    pub fn profile(mut self, name: impl Into<String>) -> Builder {
        self.profile = Some(name.into());
        self
    }

    /// Lays a TOML text over the profile, as the command's `--config` does; `name` stands in messages.
    pub fn config(mut self, name: impl Into<String>, toml: impl Into<String>) -> Builder {
        self.texts.push((name.into(), toml.into()));
        self
    }

    /// Sets one key. A number, or a text with a unit: `"16KiB"`, `"300us"`.
    pub fn set(mut self, key: &str, value: impl Display) -> Builder {
        self.settings.push((key.to_owned(), format!("{key}={value}")));
        self
    }

    /// Key `engine.name`: index and value placement.
    pub fn engine(self, name: &str) -> Builder {
        self.set("engine.name", name)
    }

    /// Key `host.transfer`: how values reach the drive. Methods that need a CXL window send what they would put
    /// there by `prp`: application threads have none.
    pub fn transfer(self, method: &str) -> Builder {
        self.set("host.transfer", method)
    }

    /// Keeps pages in an image file, and beside it what is protected by capacitors: the drive is there again when
    /// the same description is opened, also behind `kill -9`. Without a file it lives in memory and ends with
    /// the program.
    pub fn file(self, path: impl AsRef<Path>) -> Builder {
        self.set("media.kind", "file").set("media.path", path.as_ref().display())
    }

    /// With a file: an acknowledged store survives the death of the whole machine, too, and costs its storage's
    /// synchronisation.
    pub fn sync(self) -> Builder {
        self.set("media.sync", true)
    }

    /// As fast as the machine can ([`Pace::Off`], unless said otherwise), or at the speed of the modelled drive
    /// ([`Pace::Model`]): then a call takes as long as it would there, if this machine keeps up.
    pub fn pace(mut self, pace: Pace) -> Builder {
        self.pace = Some(pace);
        self
    }

    /// Packs values by a policy of the caller's instead of one of [`PACKINGS`](crate::packing::PACKINGS). An
    /// image that was packed by it has its name, and is opened with it again.
    pub fn packing(mut self, own: &'static PackingRow) -> Builder {
        self.own_packing = Some(own);
        self
    }

    /// Runs a workload of the caller's against this drive in model time, as `kvdrive run` does one of its own:
    /// what is described once gives the same report every time, to the last digit. Keys of `workload`, `host` and
    /// `run` mean what they mean there: `workload.ops`, `host.depth`, `run.seed`.
    ///
    /// # Errors
    /// [`Error::Configuration`], or [`Error::Run`].
    pub fn run(&self, own: &'static Row) -> Result<Report, Error> {
        if self.pace.is_some() {
            return Err(Error::Configuration("pace: a run in model time has none".into()));
        }
        let mut described = self.clone();
        described.own_workload = Some(own);
        let (document, _) = described.describe()?;
        run(&document, &|_, _| ()).map_err(|error| Error::Run(format!("{error:#}")))
    }

    /// Powers the drive on, on a thread of its own.
    ///
    /// # Errors
    /// [`Error::Configuration`], [`Error::PowerOn`].
    pub fn open(&self) -> Result<Drive, Error> {
        let (document, config) = self.describe()?;
        let pace = self.pace.unwrap_or(Pace::Off);
        Drive::power_on(Arc::new(Description { document, config, pace }), None)
    }

    /// Powers a drive of blocks on instead, in memory, on a thread of its own: its pairs are a store's that runs in
    /// the program.
    ///
    /// # Errors
    /// As [`Builder::open`]; engine and medium are not to be set.
    pub fn open_blocks(&self) -> Result<BlockDrive, Error> {
        let mut document = Document::profile(self.profile.as_deref().unwrap_or(default_profile(BLOCK.name)))?;
        // A configuration of blocks alone has a store that runs on them; nobody makes this one.
        for set in [&format!("engine.name={}", BLOCK.name), &format!("host.store={}", STORES[0].name)] {
            document.set(set)?;
        }
        let (document, assigned) = self.lay_over(document)?;
        let config = document.config()?;
        assigned.check_looked_at([&config])?;
        let pace = self.pace.unwrap_or(Pace::Off);
        BlockDrive::power_on(Arc::new(Description { document, config, pace }), None)
    }

    fn describe(&self) -> Result<(Document, Config), Error> {
        let profile = match &self.profile {
            Some(profile) => profile,
            // The engine is known when all is laid over any profile.
            None => default_profile(self.lay_over(Document::profile(DEFAULT_PROFILE)?)?.0.engine()),
        };
        let (document, assigned) = self.lay_over(Document::profile(profile)?)?;
        if document.engine() == BLOCK.name {
            let problem =
                "block keeps blocks, and the calls here are of pairs; kvdrive list engines has others";
            return Err(ConfigError { key: "engine.name".into(), problem: problem.into() }.into());
        }
        let config = document.config()?;
        assigned.check_looked_at([&config])?;
        Ok((document, config))
    }

    fn lay_over(&self, mut document: Document) -> Result<(Document, Assigned), Error> {
        self.own_packing.into_iter().for_each(|row| document.bring_packing(row));
        match self.own_workload {
            Some(row) => document.bring_workload(row),
            None => document.set(DEPTH)?,
        }
        for (name, text) in &self.texts {
            document.merge_text(name, text)?;
        }
        let is_strange = |key: &str| match self.own_workload {
            Some(_) => ["run.clock", "workload.name"].contains(&key),
            None => is_of_runs(key),
        };
        if let Some((key, _)) = self.settings.iter().find(|(key, _)| is_strange(key)) {
            let problem = match self.own_workload {
                Some(_) => "the program brings the workload, and runs it in model time",
                None => "the program is host and work itself; runs of workloads look at it",
            };
            return Err(ConfigError { key: key.clone(), problem: problem.into() }.into());
        }
        let assigned = Assigned::lay_over(&mut document, self.settings.iter().cloned())?;
        Ok((document, assigned))
    }
}

/// Keys of `[host]` that a driver on application threads looks at; the others are of a modelled host.
const HOST_KEYS: &[&str] =
    &["transfer", "threshold1_bytes", "threshold2_bytes", "alpha", "beta", "depth", "queue_entries"];

/// Keys that only runs of workloads look at.
fn is_of_runs(key: &str) -> bool {
    match key.split_once('.') {
        Some(("workload", _)) => true,
        Some(("host", name)) => !HOST_KEYS.contains(&name),
        _ => key == "run.clock",
    }
}
