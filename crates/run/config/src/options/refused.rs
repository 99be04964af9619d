//! Options and keys that were given and would have no effect: each is refused by its name, with the reason.

use kvdrive_device::MediaConfig;
use kvdrive_device::engines::ENGINES;

use super::{OptionRow, RunOptions};
use crate::assigned::key_of;
use crate::{Config, ConfigError, Document, default_profile};

/// Sections of the configuration that describe the work of a run: operations, host, SAKER.
const OF_WORK: &[&str] = &["workload.", "host.", "saker."];
/// Keys that decide when operations begin and end, and whether values that they read are checked.
const OF_LOAD: &[&str] =
    &["workload.rate_per_s", "workload.arrivals", "workload.duration_ns", "workload.verify"];

/// Does this key describe the work of a run?
pub fn describes_work(key: &str) -> bool {
    key == "run.clock" || OF_WORK.iter().any(|section| key.starts_with(section))
}

impl OptionRow {
    /// Is it one of the options of load?
    pub fn is_of_load(&self) -> bool {
        OF_LOAD.contains(&self.key)
    }
}

impl RunOptions {
    /// Options that were given, as messages name them, each with a key that it sets.
    fn keys_given(&self) -> Vec<(String, String)> {
        let option = |name: &str| self.naming.option(name);
        let dram = self.get("dram").map(|_| (option("dram"), "hash.dram_bytes".to_owned()));
        let wanted = self.wanted().into_iter().filter(|wanted| !wanted.option.is_empty());
        dram.into_iter().chain(wanted.map(|wanted| (option(wanted.option), wanted.key))).collect()
    }

    /// Refuses options that the drive does not read.
    pub(super) fn check_for_drive(&self, config: &Config) -> Result<(), ConfigError> {
        self.refuse_ignored(config, |key| !key.starts_with("workload."))
    }

    /// Refuses options that the workload does not read.
    pub(super) fn check_for_workload(&self, config: &Config) -> Result<(), ConfigError> {
        self.refuse_ignored(config, |key| key.starts_with("workload."))
    }

    fn refuse_ignored(&self, config: &Config, of: fn(&str) -> bool) -> Result<(), ConfigError> {
        let refused = self.keys_given().into_iter().filter(|(_, key)| of(key));
        let refused =
            refused.filter_map(|(option, key)| config.ignores(&key).map(|why| (option, key, why))).next();
        refused.map_or(Ok(()), |(option, key, why)| {
            let why = match key.as_str() {
                "workload.arrivals" => {
                    let rate = self.naming.given("rate", "N/s");
                    format!("says when operations of a rate begin; add {rate}, or set it to trace")
                }
                _ => why,
            };
            Err(ConfigError::new(option, why))
        })
    }

    /// Refuses an option or `set` that the run of `document`, which was made of them, does not read.
    ///
    /// # Errors
    /// Its name and the reason.
    pub fn check_for_run(&self, document: &Document) -> Result<(), ConfigError> {
        let config = document.config()?;
        if config.media.read_only && config.media.has_file() && config.workload.verify != "only" {
            let problem = "true; a run stores pairs; check and dump read an image without changing it";
            return Err(ConfigError::new("media.read_only", problem));
        }
        self.check_for_workload(&config)?;
        self.check_looked_at([&config])
    }

    /// Refuses settings that describe work, for a command whose work comes from elsewhere.
    pub(super) fn refuse_work(&self, command: &str, origin: &str) -> Result<(), ConfigError> {
        self.refuse(describes_work, &format!("{command} does not look at it; {origin}"))
    }

    /// Refuses options of load, for a command that does one operation after another.
    ///
    /// # Errors
    /// The first such option that was given.
    pub fn refuse_load(&self, command: &str) -> Result<(), ConfigError> {
        let given = self.keys_given().into_iter().find(|(_, key)| OF_LOAD.contains(&key.as_str()));
        given.map_or(Ok(()), |(option, _)| {
            Err(ConfigError::new(option, format!("{command} does not look at it; kvdrive run does")))
        })
    }

    /// Refuses the first option or `set` whose key `is_refused`.
    ///
    /// # Errors
    /// The option and `problem`.
    pub fn refuse(&self, is_refused: impl Fn(&str) -> bool, problem: &str) -> Result<(), ConfigError> {
        let set = |set: &String| (self.naming.set(set), key_of(set).to_owned());
        let mut given = self.keys_given().into_iter().chain(self.sets().iter().map(set));
        given
            .find(|(_, key)| is_refused(key))
            .map_or(Ok(()), |(name, _)| Err(ConfigError::new(name, problem)))
    }
}

/// Refuses settings of an image file for a medium without files: if a file is named, the drive is expected to be in it.
pub(super) fn check_for_medium(media: &MediaConfig) -> Result<(), ConfigError> {
    let MediaConfig { kind, path, sync, read_only, cache_bytes: _ } = media;
    if media.has_file() {
        return Ok(());
    }
    let path = path.as_deref().unwrap_or("".as_ref());
    let wrong = |key: &str, value: String, instead: &str| {
        let problem = format!("{value}; medium {kind} has no file: set media.kind to file, or {instead}");
        Err(ConfigError::new(key, problem))
    };
    match (path.as_os_str().is_empty(), sync, read_only) {
        (false, ..) => wrong("media.path", format!("{path:?}"), "leave the path out"),
        (_, true, _) => wrong("media.sync", "true".into(), "set it to false"),
        (.., true) => wrong("media.read_only", "true".into(), "set it to false"),
        _ => Ok(()),
    }
}

/// Refuses a drive that is too small for the pairs of the Plus paper, whichever scale both have.
pub(super) fn pairs_fit(document: &Document, option: &str) -> Result<(), ConfigError> {
    let config = document.config()?;
    let pairs_bytes = config.workload.num * u64::from(config.workload.value_size);
    let flash_bytes = config.flash.geometry().data_bytes();
    if pairs_bytes <= flash_bytes {
        return Ok(());
    }
    let engines: Vec<_> =
        ENGINES.iter().filter(|row| default_profile(row.name) == "kvvirt").map(|row| row.name).collect();
    let problem = format!(
        "the pairs of the Plus paper, {} GB, do not fit on {}, {} GB; the drive of the paper is profile kvvirt, the default \
         of engines {}",
        pairs_bytes / 1_000_000_000,
        document.profile_name(),
        flash_bytes / 1_000_000_000,
        engines.join(", ")
    );
    Err(ConfigError::new(option, problem))
}
