//! The options of one or several runs, and the documents that follow from them. This module reads no command
//! line: the command and the Python package fill [`RunOptions`].
//!
//! An option is an abbreviation of a key: `transfer` `prp` is `host.transfer=prp`. The order is profile,
//! `dram` and `scale`, then files, then options and single keys, so values that are given explicitly are not
//! shrunk by a scale. If options and keys contradict each other, the run is refused; neither takes
//! precedence.

mod lists;
mod refused;
mod rows;

use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_store::{STORES, store_row};
use kvdrive_text::names::nearest;
use kvdrive_text::{Unit, quantity};

use super::{Assigned, Config, ConfigError, DEFAULT_PROFILE, Document, Scale, default_profile, rules};

use crate::assigned::key_of;
use crate::document::{CAPACITY, key_set_by};

pub use refused::describes_work;
use rows::{DISK, HOST};
pub use rows::{Group, OptionRow, option_rows};

/// Keys that select the store of a run, and whether it has SAKER.
const OF_STORES: &[&str] = &["engine.name", "host.store", "saker.enabled"];
/// Options with words for numbers of the configuration: option, word, number.
const WORDS: &[(&str, &str, &str)] = &[("batch", "adaptive", "0")];
/// Options whose value must be above 0, each with the replacement for the meaning that 0 could have.
const ABOVE_ZERO: &[(&str, &str)] = &[
    ("ops", "a run has at least one operation"),
    ("rate", "without it, each client begins its next operation when its last one has ended"),
    ("duration", "without it, the run ends after its operations"),
    ("batch", "or adaptive: as many requests as arrive while a batch is under way"),
];
/// Is 0 refused as a value of this option?
fn is_above_zero(option: &str) -> bool {
    ABOVE_ZERO.iter().any(|(name, _)| *name == option)
}

/// Default of unpaced drives that programs and hosts use: engine `lsm` keeps its count of live bytes near the truth, for
/// NUSE. In a paced drive, the merges for it would take model time from stores.
pub const COUNTS_LIVE_BYTES: &str = "lsm.count_growth_percent=100";

/// A workload that is read from a file.
const TRACE: &str = "trace:";

/// How messages name an option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// As an option of a command: `--value-size 32`.
    #[default]
    Dashes,
    /// As a keyword argument: `value_size='32'`.
    Keyword,
}

impl Naming {
    fn option(self, name: &str) -> String {
        match self {
            Naming::Dashes => format!("--{name}"),
            Naming::Keyword => name.replace('-', "_"),
        }
    }

    fn given(self, name: &str, value: &str) -> String {
        match self {
            Naming::Dashes => format!("--{name} {value}"),
            Naming::Keyword => format!("{}={value:?}", name.replace('-', "_")),
        }
    }

    /// The name of a `KEY=VALUE` in messages.
    fn set(self, assignment: &str) -> String {
        match (self, assignment.split_once('=')) {
            (Naming::Keyword, Some((key, value))) => format!("{}={value:?}", key.trim()),
            _ => self.given("set", assignment),
        }
    }
}

/// The options of a run or, with lists, of several runs.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How messages name an option.
    pub naming: Naming,
    /// Options that were given, each once.
    given: Vec<(&'static OptionRow, String)>,
    /// Name and text of each file of keys.
    files: Vec<(String, String)>,
    /// `KEY=VALUE`.
    sets: Vec<String>,
    /// `KEY=VALUE` of the caller that options, files and `sets` override.
    defaults: Vec<String>,
    /// A drive on a file needs no path ([`Document::name_image`]).
    makes_images: bool,
    /// The drive is for hosts that bring the work ([`Document::serve_hosts`]).
    serves_hosts: bool,
}

impl std::fmt::Debug for OptionRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A setting by an option or a single key.
struct Wanted {
    /// Name of the option, or empty.
    option: &'static str,
    key: String,
    /// `KEY=VALUE`.
    assignment: String,
    /// Its name in messages.
    name: String,
}

impl RunOptions {
    /// No options; `naming` says how messages name them.
    pub fn new(naming: Naming) -> RunOptions {
        RunOptions { naming, ..RunOptions::default() }
    }

    /// Gives an option, replacing an earlier value of it. A switch is given with any value.
    ///
    /// # Errors
    /// There is no such option.
    pub fn give(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(row) = rows::row(name).filter(|row| !row.repeats) else {
            let names: Vec<_> = option_rows().iter().map(|row| row.name).collect();
            let meant =
                nearest(name, &names).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            return Err(ConfigError::new(
                self.naming.option(name),
                format!("there is no such option{meant}"),
            ));
        };
        self.leave_out(name);
        let value = if row.means.is_empty() { value } else { row.means };
        self.given.push((row, value.to_owned()));
        Ok(())
    }

    /// These options with one more, or with another value of it.
    ///
    /// # Panics
    /// Panics if there is no such option.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> RunOptions {
        self.give(name, value).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// These options without one.
    #[must_use]
    pub fn without(mut self, name: &str) -> RunOptions {
        self.leave_out(name);
        self
    }

    fn leave_out(&mut self, name: &str) {
        self.given.retain(|(row, _)| row.name != name);
    }

    /// The value that an option was given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(row, _)| row.name == name).map(|(_, value)| value.as_str())
    }

    /// The first of these options that was given, as messages name it.
    pub fn first_given(&self, names: &[&str]) -> Option<String> {
        names.iter().find(|name| self.get(name).is_some()).map(|name| self.naming.option(name))
    }

    /// Sets a key: `KEY=VALUE`.
    pub fn set(&mut self, assignment: impl Into<String>) {
        self.sets.push(assignment.into());
    }

    /// Every `KEY=VALUE`.
    pub fn sets(&self) -> &[String] {
        &self.sets
    }

    /// Sets a default of the caller, as `KEY=VALUE`, which replaces the profile's; everything else overrides
    /// it.
    pub fn set_default(&mut self, assignment: impl Into<String>) {
        self.defaults.push(assignment.into());
    }

    /// Options with the defaults of the caller alone.
    #[must_use]
    pub fn only_defaults(&self) -> RunOptions {
        let (defaults, serves_hosts) = (self.defaults.clone(), self.serves_hosts);
        RunOptions { defaults, serves_hosts, ..RunOptions::new(self.naming) }
    }

    /// Says that hosts bring the work: a drive may have blocks ([`Document::serve_hosts`]).
    pub fn serve_hosts(&mut self) {
        self.serves_hosts = true;
    }

    /// Says that the command makes images of its own, so that a drive on a file needs no path ([`Document::name_image`]).
    pub fn make_images(&mut self) {
        self.makes_images = true;
    }

    /// The settings of options and keys, as `KEY=VALUE`, without profile, files, `dram` and `scale`.
    pub fn assignments(&self) -> Vec<String> {
        self.wanted().into_iter().map(|wanted| wanted.assignment).collect()
    }

    /// Overrides the profile by a file of keys.
    pub fn file(&mut self, name: String, text: String) {
        self.files.push((name, text));
    }

    /// As [`file`](RunOptions::file), for a file that describes a drive: its key `profile` is the profile that the others
    /// override.
    ///
    /// # Errors
    /// The name of the file: `profile` is no text.
    pub fn file_of_drive(&mut self, name: String, text: String) -> Result<(), ConfigError> {
        // What is wrong with a text that is no TOML is said when it is laid over the profile.
        let Some(mut toml) =
            text.parse::<toml_edit::DocumentMut>().ok().filter(|toml| toml.contains_key("profile"))
        else {
            self.file(name, text);
            return Ok(());
        };
        let profile = toml.remove("profile").and_then(|profile| profile.as_str().map(str::to_owned));
        let profile = profile.ok_or_else(|| {
            ConfigError::new("profile", format!("{name}: expected the name of a profile in quotes"))
        })?;
        self.give("profile", &profile)?;
        self.file(name, toml.to_string());
        Ok(())
    }

    /// Is a key not set by `set`, files or `scale`?
    pub fn leaves(&self, key: &str) -> bool {
        let is_set = self.sets.iter().any(|set| key_of(set) == key);
        !is_set && self.files.is_empty() && self.get("scale").is_none()
    }

    /// The configuration that these options describe.
    ///
    /// # Errors
    /// An option or key is wrong, or contradicts another one.
    pub fn document(&self) -> Result<Document, ConfigError> {
        self.whole_document().map_err(|error| match self.get("capacity") {
            Some(size) if error.key == CAPACITY => {
                ConfigError::new(self.naming.given("capacity", size), error.problem)
            }
            _ => error,
        })
    }

    fn whole_document(&self) -> Result<Document, ConfigError> {
        self.check_values()?;
        self.check_store()?;
        let profile = self.profile()?;
        let mut document = Document::profile(profile).map_err(|error| match profile.ends_with(".toml") {
            true => {
                let config = self.naming.given("config", profile);
                ConfigError::new(error.key, format!("{}; {config} lays a file over a profile", error.problem))
            }
            false => error,
        })?;
        if self.serves_hosts {
            document.serve_hosts();
        }
        self.defaults.iter().try_for_each(|assignment| document.set(assignment))?;
        document.forget_given_size();
        if let Some(dram) = self.get("dram") {
            let option = |error: ConfigError| ConfigError::new(self.naming.option("dram"), error.problem);
            document.set_dram(dram).map_err(option)?;
        }
        if let Some(scale) = self.get("scale") {
            self.shrink(&mut document, scale)?;
        }
        self.lay_over(&mut document)?;
        if self.makes_images {
            document.name_image()?;
        }
        // If a later setting replaces a part of the point, the drive has no named point any more.
        let over = self.sets.iter().find(|set| set.trim_start().starts_with("hash.dram_"));
        if let (Some(dram), None, Some(set)) = (self.get("dram"), document.dram_point(), over) {
            let dram = self.naming.given("dram", dram);
            let problem = format!("{dram} sets it too, to another value; leave one of them out");
            return Err(ConfigError::new(self.naming.set(set), problem));
        }
        let config = document.config()?;
        if let Some(scale) = self.get("scale") {
            self.scale(scale)?.check(&config).map_err(|error| self.of_scale(error.problem))?;
        }
        self.check_for_drive(&config)?;
        refused::check_for_medium(&config.media)?;
        Ok(document)
    }

    fn of_scale(&self, problem: String) -> ConfigError {
        ConfigError::new(self.naming.option("scale"), problem)
    }

    fn scale(&self, scale: &str) -> Result<Scale, ConfigError> {
        scale.parse().map_err(|problem| self.of_scale(problem))
    }

    /// Shrinks drive and work to a scale, before explicit values are applied.
    fn shrink(&self, document: &mut Document, scale: &str) -> Result<(), ConfigError> {
        let (option, scale) = (self.naming.option("scale"), self.scale(scale)?);
        document.set("workload.preset=plus")?;
        if self.get("num").is_none() && self.get("value-size").is_none() {
            refused::pairs_fit(document, &option)?;
        }
        // The buffers to shrink depend on the store and on SAKER.
        for Wanted { key, assignment, .. } in self.wanted().iter().filter(|wanted| !wanted.option.is_empty())
        {
            if OF_STORES.contains(&key.as_str()) {
                document.set(assignment)?;
            }
        }
        document.shrink(scale)?;
        let too_small = |error: ConfigError| {
            ConfigError::new(self.naming.given("scale", &scale.to_string()), error.to_string())
        };
        document.config().map(drop).map_err(too_small)
    }

    /// As [`document`](RunOptions::document), for a command whose commands go to the drive itself.
    ///
    /// # Errors
    /// As `document`; the options ask for SAKER or for a store on the host.
    pub fn document_of_drive(&self, command: &str) -> Result<Document, ConfigError> {
        let document = self.document_of_pairs(command)?;
        match document.config()?.saker.enabled {
            true => {
                let problem = format!("{command} sends commands to the drive itself; kvdrive run uses SAKER");
                Err(ConfigError::new("saker.enabled", problem))
            }
            false => Ok(document),
        }
    }

    /// As [`document`](RunOptions::document), for a command that uses pairs of the drive, with or without
    /// SAKER in front.
    ///
    /// # Errors
    /// As `document`; the options ask for a store on the host.
    pub fn document_of_pairs(&self, command: &str) -> Result<Document, ConfigError> {
        let document = self.document()?;
        match document.config()?.has_store_on_host() {
            true => {
                let problem =
                    format!("{command} uses the drive, not a store on the host; kvdrive run uses one");
                Err(ConfigError::new("host.store", problem))
            }
            false => Ok(document),
        }
    }

    /// The configuration of a run: as [`document`](RunOptions::document), without an option or key that the
    /// run ignores.
    ///
    /// # Errors
    /// As `document`; an option or key has no effect.
    pub fn document_of_run(&self) -> Result<Document, ConfigError> {
        let document = self.document()?;
        self.check_for_run(&document)?;
        Ok(document)
    }

    /// As [`document_of_drive`](RunOptions::document_of_drive), for a command whose work comes from `origin`:
    /// refuses options and keys that describe work, and those that the drive does not read.
    ///
    /// # Errors
    /// As `document_of_drive`; an option or key has no effect.
    pub fn document_without_work(&self, command: &str, origin: &str) -> Result<Document, ConfigError> {
        self.refuse_work(command, origin)?;
        let document = self.document_of_drive(command)?;
        self.check_looked_at([&document.config()?])?;
        Ok(document)
    }

    /// Refuses values that are allowed for keys and not for options.
    fn check_values(&self) -> Result<(), ConfigError> {
        for (name, instead) in ABOVE_ZERO {
            let value = self.get(name).unwrap_or_default();
            let digits = value.trim_end_matches(|c: char| c.is_alphabetic() || c == '/');
            if digits.parse() == Ok(0.0) {
                let problem = format!("allowed: above 0; {instead}");
                return Err(ConfigError::new(self.naming.given(name, value), problem));
            }
        }
        for (name, word, _) in WORDS {
            let is_number = |value: &str| quantity::parse(Unit::None, value).is_ok();
            if let Some(value) = self.get(name).filter(|value| value != word && !is_number(value)) {
                let problem = format!("allowed: a whole number, or {word}");
                return Err(ConfigError::new(self.naming.given(name, value), problem));
            }
        }
        let is_flag = |row: &OptionRow| rules::setting(row.key).is_some_and(|setting| setting.rule.is_flag());
        let is_on_or_off = |value: &str| ["true", "false"].contains(&switch(value));
        if let Some((row, value)) =
            self.given.iter().find(|(row, value)| is_flag(row) && !is_on_or_off(value))
        {
            return Err(ConfigError::new(self.naming.given(row.name, value), "allowed: on, off".to_owned()));
        }
        // In a key a bare number is ns, because the key's name ends so; an option needs the unit.
        let is_time =
            |row: &OptionRow| rules::setting(row.key).is_some_and(|setting| setting.unit == Unit::Ns);
        let is_bare = |value: &str| value.trim().ends_with(|last: char| last.is_ascii_digit());
        match self.given.iter().find(|(row, value)| is_time(row) && is_bare(value)) {
            Some((row, value)) => Err(ConfigError::new(
                self.naming.given(row.name, value),
                "allowed: a time with its unit, as 100ms or 10s",
            )),
            None => Ok(()),
        }
    }

    /// Refuses unknown sides and stores.
    fn check_store(&self) -> Result<(), ConfigError> {
        let wrong = |name: &str, problem: String| Err(ConfigError::new(self.naming.option(name), problem));
        let side = self.get("side").unwrap_or(DISK);
        if ![HOST, DISK].contains(&side) {
            return wrong("side", format!("no side {side:?}; there are {HOST}, {DISK}"));
        }
        let Some(store) = self.get("store") else {
            return match self.get("side") {
                Some(_) => wrong(
                    "side",
                    format!("says where a store runs; add {}", self.naming.given("store", "STORE")),
                ),
                None => Ok(()),
            };
        };
        if self.get("engine").is_some() {
            let engine = self.naming.option("engine");
            return wrong("store", format!("a store is an engine itself; leave out {engine}"));
        }
        let is_there = |name: &&str| side == HOST || ENGINES.iter().any(|row| row.name == *name);
        let names: Vec<_> = STORES.iter().map(|row| row.name).filter(is_there).collect();
        if !names.contains(&store) {
            let side = self.naming.given("side", side);
            return wrong("store", format!("no store {store:?} with {side}; there are {}", names.join(", ")));
        }
        if self.get("cache").is_some() && side == HOST && self.read_cache_on_host().is_none() {
            let caching = STORES.iter().filter(|row| row.read_cache.is_some()).map(|row| row.name);
            let caching = caching.collect::<Vec<_>>().join(", ");
            return wrong("cache", format!("store {store} has no cache of pairs; {caching} has one"));
        }
        Ok(())
    }

    /// Do the options ask for a store that runs on the host?
    pub fn is_on_host(&self) -> bool {
        self.get("side") == Some(HOST)
    }

    /// The key of the read cache of a store on the host, if it has one.
    fn read_cache_on_host(&self) -> Option<&'static str> {
        store_row(self.get("store").filter(|_| self.is_on_host())?)?.read_cache
    }

    /// The requested profile; otherwise the profile of the engine that an option, a file or a key names.
    fn profile(&self) -> Result<&str, ConfigError> {
        if let Some(profile) = self.get("profile") {
            return Ok(profile);
        }
        let mut document = Document::profile(DEFAULT_PROFILE)?;
        self.lay_over(&mut document)?;
        Ok(default_profile(document.engine()))
    }

    /// Overrides keys of a document by files, options and single keys.
    fn lay_over(&self, document: &mut Document) -> Result<(), ConfigError> {
        for (name, text) in &self.files {
            document.merge_text(name, text)?;
        }
        self.assign(document, |_| true).map(drop)
    }

    /// Refuses a `KEY=VALUE` that none of `runs`, which were made with it, reads.
    ///
    /// # Errors
    /// The `KEY=VALUE`, and why no run reads it.
    pub fn check_looked_at<'a>(
        &self,
        runs: impl IntoIterator<Item = &'a Config> + Clone,
    ) -> Result<(), ConfigError> {
        let mut document = Document::profile(DEFAULT_PROFILE)?;
        self.assign(&mut document, |wanted| wanted.option.is_empty())?.check_looked_at(runs)
    }

    fn assign(&self, document: &mut Document, of: fn(&Wanted) -> bool) -> Result<Assigned, ConfigError> {
        let wanted = self.wanted().into_iter().filter(of);
        Assigned::lay_over(document, wanted.map(|one| (one.name, one.assignment)))
    }

    /// Every setting of the options and of `set`.
    fn wanted(&self) -> Vec<Wanted> {
        let options = self.given.iter().flat_map(|(row, value)| {
            let name = match row.means.is_empty() {
                true => self.naming.given(row.name, value),
                false => self.naming.option(row.name),
            };
            self.settings_of(row, value).into_iter().map(move |(key, value)| Wanted {
                option: row.name,
                key: key_set_by(key).to_owned(),
                assignment: format!("{key}={value}"),
                name: name.clone(),
            })
        });
        let sets = self.sets.iter().map(|set| Wanted {
            option: "",
            key: key_set_by(key_of(set)).to_owned(),
            assignment: set.clone(),
            name: self.naming.set(set),
        });
        options.chain(sets).collect()
    }

    /// The keys that an option sets, with their values.
    fn settings_of(&self, row: &OptionRow, value: &str) -> Vec<(&'static str, String)> {
        let number = WORDS.iter().find(|(option, word, _)| (*option, *word) == (row.name, value));
        match (row.name, value) {
            ("side", HOST) => vec![("engine.name", BLOCK.name.to_owned())],
            ("store", _) if self.is_on_host() => vec![("host.store", value.to_owned())],
            ("store", _) => vec![("engine.name", value.to_owned())],
            ("capacity", _) => vec![(CAPACITY, value.to_owned())],
            ("cache", _) => vec![(self.read_cache_on_host().unwrap_or(row.key), value.to_owned())],
            ("workload", _) if value.starts_with(TRACE) => {
                vec![
                    ("workload.name", "trace".to_owned()),
                    ("workload.trace", value[TRACE.len()..].to_owned()),
                ]
            }
            _ if row.key.is_empty() => Vec::new(),
            _ if rules::setting(row.key).is_some_and(|setting| setting.rule.is_flag()) => {
                vec![(row.key, switch(value).to_owned())]
            }
            _ => vec![(row.key, number.map_or(value, |(_, _, number)| number).to_owned())],
        }
    }
}

/// The value of a switch in the configuration.
fn switch(value: &str) -> &str {
    match value {
        "on" => "true",
        "off" => "false",
        other => other,
    }
}
