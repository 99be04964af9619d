//! The document: a profile's text with files and settings applied to it; comments are kept.

mod capacity;
mod own;

use std::collections::BTreeSet;
use std::fmt;

use kvdrive_declare::Problem as ConfigError;
use kvdrive_flash::media;
use kvdrive_store::store_row;
use kvdrive_text::names::meant;
use kvdrive_text::{Unit, quantity};
use kvdrive_workload::{self as workload, OwnWorkload, PRESETS, Row};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::dram::{DRAM_ACCOUNTING, DRAM_BYTES, DRAM_KEYS, DRAM_POINTS, DramPoint, INDEX_DRAM_BYTES};
use crate::plain;
use crate::profiles::{ENGINES, PROFILES, Profile, SAKER, WORKLOAD};
use crate::rules::{self, rules};
use crate::sections::Config;
pub use capacity::binary;
pub(super) use capacity::{CAPACITY, key_set_by};
use own::OwnRows;

/// Where a value comes from, as its comment says in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A published paper states it.
    Paper,
    /// Published code or a data sheet states it.
    Code,
    /// Fitted to several published results.
    Fit,
    /// Solved from one published result.
    Set,
    /// Time that the real code took on a machine that the comment names (`kvdrive calibrate`).
    Measured,
    /// No source.
    Guess,
    /// A switch, not a property.
    Choice,
    /// The user set it.
    User,
}

const ORIGINS: &[(&str, Origin)] = &[
    ("paper", Origin::Paper),
    ("code", Origin::Code),
    ("fit", Origin::Fit),
    ("set", Origin::Set),
    ("measured", Origin::Measured),
    ("guess", Origin::Guess),
    ("choice", Origin::Choice),
    ("user", Origin::User),
];

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ORIGINS.iter().find(|(_, origin)| origin == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// A whole configuration as text with comments. `Display` prints it in a form that can be read again.
#[derive(Clone, Debug)]
pub struct Document {
    toml: DocumentMut,
    profile: &'static str,
    pub(super) dram_point: Option<&'static DramPoint>,
    /// The size that the drive was given in bytes of flash, unless a later setting gives it in blocks.
    capacity: Option<capacity::Asked>,
    /// Was the size of the drive or its medium set explicitly?
    says_size: bool,
    /// Is the number of operations set explicitly?
    says_ops: bool,
    /// Hosts bring the work that this document does not have.
    serves_hosts: bool,
    /// Rows of the calling program, which no text can name.
    own: OwnRows,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.toml.fmt(f)
    }
}

/// Number of operations that means a whole trace: more than any trace has.
pub const WHOLE_TRACE: u64 = 1 << 48;

/// `workload.preset` is not a setting itself: it sets the keys of a published model or run.
pub(super) const PRESET: &str = "workload.preset";

impl Document {
    /// The embedded profile of that name.
    ///
    /// # Errors
    /// There is no such profile; the message lists all names.
    pub fn profile(name: &str) -> Result<Document, ConfigError> {
        let Some(profile) = PROFILES.iter().find(|profile| profile.name == name) else {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            let problem = format!("no such profile; there are {}{}", names.join(", "), meant(name, &names));
            return Err(ConfigError::new(name, problem));
        };
        Ok(Document::of(profile))
    }

    fn of(profile: &'static Profile) -> Document {
        let text = |text: &str| -> DocumentMut { text.parse().expect("embedded profiles are TOML (tested)") };
        let mut toml = text(profile.text);
        if let Some((base, head)) = take_base(&mut toml) {
            let base = Document::profile(&base).expect("a profile stands on another (tested)");
            let mut whole = base.toml;
            if let (false, Some((_, first))) = (head.is_empty(), whole.iter_mut().next()) {
                first.as_table_mut().expect("profiles begin with a section").decor_mut().set_prefix(head);
            }
            lay_over(&mut whole, toml.as_table());
            toml = whole;
        } else {
            #[cfg(not(test))]
            let of_tests = "";
            #[cfg(test)]
            let of_tests = super::probe::PROFILE;
            toml = text(&[profile.text, &ENGINES.concat(), SAKER, WORKLOAD, of_tests].concat());
        }
        Document {
            toml,
            profile: profile.name,
            dram_point: None,
            capacity: None,
            says_size: false,
            says_ops: false,
            serves_hosts: false,
            own: OwnRows::default(),
        }
    }

    /// Name of the profile this began as.
    pub fn profile_name(&self) -> &'static str {
        self.profile
    }

    /// The DRAM point it was [set to](Document::set_dram), unless a later setting replaced it.
    pub fn dram_point(&self) -> Option<&'static str> {
        self.dram_point.map(|point| point.name)
    }

    /// Sets the DRAM of engines to a point of [`DRAM_POINTS`], at full size.
    ///
    /// # Errors
    /// There is no such point.
    pub fn set_dram(&mut self, name: &str) -> Result<(), ConfigError> {
        let Some(point) = DRAM_POINTS.iter().find(|point| point.name == name) else {
            let names: Vec<_> = DRAM_POINTS.iter().map(|point| point.name).collect();
            return Err(ConfigError::new("DRAM point", format!("{name:?}; there are {}", names.join(", "))));
        };
        self.set(&format!("{DRAM_ACCOUNTING}={}", point.accounting))?;
        self.set(&format!("{DRAM_BYTES}={}", point.bytes))?;
        for (key, bytes) in INDEX_DRAM_BYTES.iter().filter_map(|key| Some((key, point.index_bytes?))) {
            self.set(&format!("{key}={bytes}"))?;
        }
        self.dram_point = Some(point);
        Ok(())
    }

    /// Overrides keys of the document by those in a TOML text, which may have any of them. Messages begin
    /// with `name` and the line.
    ///
    /// # Errors
    /// The text is not TOML, or has a wrong key, type, unit or value. The document is then unchanged.
    pub fn merge_text(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let given = toml_edit::Document::parse(text).map_err(|error| {
            let problem = error.message().replace('\n', "; ");
            ConfigError::new(format!("{name}:{}", error.span().map_or(1, |span| line(span.start))), problem)
        })?;
        let mut leaves = Vec::new();
        collect(given.as_table(), "", &mut leaves);
        // A preset is applied first, wherever it stands in the file.
        leaves.sort_by_key(|leaf| leaf.key != PRESET);
        let mut merged = self.clone();
        for Leaf { key, value, at } in &leaves {
            let place = |error: ConfigError| {
                ConfigError::new(format!("{name}:{}: {}", line(*at), error.key), error.problem)
            };
            merged.assign(key, value).map_err(place)?;
        }
        *self = merged;
        Ok(())
    }

    /// Sets one key: `flash.channels=8`, `flash.erase_ns=5ms`, `host.transfer=prp`,
    /// `workload.preset=all_dist`.
    ///
    /// # Errors
    /// A wrong key, type, unit or value. The document is then unchanged.
    pub fn set(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let Some((key, text)) = assignment.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            return Err(ConfigError::new(assignment, "expected KEY=VALUE"));
        };
        let (key, text) = (key.trim(), text.trim());
        let word = || Value::from(text);
        let value = match self.current(key) {
            // Text needs no quotes here, even if it looks like another type.
            Some(Value::String(_)) if !text.starts_with('"') => word(),
            _ => text.parse().unwrap_or_else(|_| word()),
        };
        self.assign(key, &value)
    }

    /// Names an image in the folder for temporary files, if the medium is a file and none is named: for a command that
    /// makes images of its own beside the named one, and removes them.
    ///
    /// # Errors
    /// As [`Document::set`].
    pub fn name_image(&mut self) -> Result<(), ConfigError> {
        let has_file = media::kind(self.plain_text("media.kind")).is_some_and(|kind| kind.has_file);
        if !has_file || !self.plain_text("media.path").is_empty() {
            return Ok(());
        }
        self.set(&format!("media.path={}", std::env::temp_dir().join("drive.img").display()))
    }

    /// Checks the document and yields the typed configuration.
    ///
    /// # Errors
    /// A condition between keys does not hold.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut values = self.values();
        let mut config = self.own.typed(&mut values, |key| self.plain_text(key), Config::of_values)?;
        config.serves_hosts = self.serves_hosts;
        let flash_bytes = config.flash.geometry().data_bytes() as f64;
        config.workload.precondition_bytes = (config.workload.precondition * flash_bytes) as u64;
        let checked = rules::check_conditions(&config);
        match &self.capacity {
            Some(asked) => capacity::check(asked, &config, checked)?,
            None => checked?,
        }
        Ok(config)
    }

    /// The value of every key, as reports show it: sections and keys in the order of the document. The
    /// distribution is the one that the workload uses: its own, or its usual one if none is set. For a trace,
    /// the number of operations is that of the whole trace unless it is set.
    pub fn values(&self) -> serde_json::Value {
        let mut values = serde_json::Value::from(plain::of_table(self.toml.as_table()));
        let name = values["workload"]["name"].as_str().unwrap_or_default();
        let is_usual = values["workload"]["distribution"] == "usual";
        let row = self.own.workload.map(OwnWorkload::row).or_else(|| workload::row(name));
        let usual = is_usual.then(|| row.map_or("zipfian", Row::usual_distribution));
        if let Some(distribution) = row.and_then(Row::own_distribution).or(usual) {
            values["workload"]["distribution"] = distribution.into();
        }
        if row.is_some_and(|row| row.ends) && !self.says_ops {
            values["workload"]["ops"] = WHOLE_TRACE.into();
        }
        self.own.name(&mut values);
        values
    }

    /// Profile and [values](Document::values) as text: runs of one program are the same if theirs are.
    pub fn identity(&self) -> String {
        format!("{} {}", self.profile, self.values())
    }

    /// Every key with the origin its comment states.
    pub fn origins(&self) -> Vec<(String, Origin)> {
        let mut origins = Vec::new();
        for (name, item) in self.toml.iter() {
            if let Some(table) = item.as_table() {
                collect_origins(table, name, &mut origins);
            }
        }
        origins
    }

    /// The weaker sources of the model's times: those of `fit`, `set`, `measured`, `guess` and `user` that
    /// occur among the keys in nanoseconds, and for a store in picoseconds. Times of SAKER count if it is on.
    pub fn time_sources(&self) -> String {
        let is_row = |key: &str| {
            self.current(key).and_then(Value::as_str).is_some_and(|name| store_row(name).is_some())
        };
        let is_store = is_row("engine.name") || is_row("host.store");
        let has_saker = self.current("saker.enabled").and_then(Value::as_bool) == Some(true);
        let mut found: Vec<Origin> = self
            .origins()
            .into_iter()
            .filter(|(key, _)| {
                key.ends_with("_ns") || key.ends_with("_ns_per_kib") || is_store && key.ends_with("_ps")
            })
            .filter(|(key, _)| has_saker || !key.starts_with("saker."))
            .map(|(_, origin)| origin)
            .filter(|origin| !matches!(origin, Origin::Paper | Origin::Code | Origin::Choice))
            .collect();
        found.sort();
        found.dedup();
        found.iter().map(Origin::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The name of the engine; the document need not be a valid configuration.
    pub fn engine(&self) -> &str {
        self.plain_text("engine.name")
    }

    fn plain_text(&self, key: &str) -> &str {
        self.current(key).and_then(Value::as_str).expect("the section has the key, and it is a text")
    }

    /// Every key whose value differs from the profile, with its value, in the order of the document.
    pub fn user_settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        for (key, _) in rules() {
            let Some(value) = self.current(key) else { continue };
            let marked = value.decor().suffix().and_then(|text| text.as_str());
            if marked.is_some_and(|text| origin_of(text) == Some(Origin::User)) {
                let plain =
                    value.as_str().map_or_else(|| value.clone().decorated("", "").to_string(), str::to_owned);
                settings.push((key.to_owned(), plain));
            }
        }
        settings
    }

    /// The value of a key that is a count.
    ///
    /// # Panics
    /// Panics if the key is missing or not an integer.
    pub(super) fn integer(&self, key: &str) -> u64 {
        let value = self.current(key).and_then(Value::as_integer);
        value.and_then(|value| value.try_into().ok()).expect("a key that is known to be a count")
    }

    /// The value of a key, without its comments.
    pub fn plain(&self, key: &str) -> Option<String> {
        self.current(key).map(|value| value.clone().decorated("", "").to_string())
    }

    fn current(&self, key: &str) -> Option<&Value> {
        let (section, name) = key.rsplit_once('.')?;
        let table =
            section.split('.').try_fold(self.toml.as_table(), |table, name| table.get(name)?.as_table());
        table?.get(name)?.as_value()
    }

    fn assign(&mut self, key: &str, given: &Value) -> Result<(), ConfigError> {
        match key {
            PRESET => return self.assign_preset(given),
            CAPACITY => return self.assign_capacity(given),
            _ => {}
        }
        let Some(current) = self.current(key) else {
            return Err(unknown(key));
        };
        let mut value = convert(key, current, given).map_err(|problem| ConfigError::new(key, problem))?;
        rules::check(key, &value)?;
        let before = current.clone().decorated("", "").to_string();
        let is_same_number = value.as_float().is_some() && value.as_float() == current.as_float();
        if value.to_string() != before && !is_same_number {
            *value.decor_mut() = current.decor().clone();
            // A key that is set twice keeps the comment with the profile's value: the value of the first
            // setting means nothing to a reader.
            let marked = current.decor().suffix().and_then(|s| s.as_str());
            if marked.is_none_or(|text| origin_of(text) != Some(Origin::User)) {
                value.decor_mut().set_suffix(format!(" # [user] instead of {before}"));
            }
            let place = self.place(key);
            *place = value;
            if DRAM_KEYS.contains(&key) {
                self.dram_point = None;
            }
        }
        self.says_ops |= key == "workload.ops";
        self.resized_by(key)
    }

    fn assign_preset(&mut self, given: &Value) -> Result<(), ConfigError> {
        let preset = given.as_str().and_then(|name| PRESETS.iter().find(|p| p.name == name));
        let Some(preset) = preset else {
            let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            let problem = format!("{}; allowed: {}", rules::shown(given), names.join(", "));
            return Err(ConfigError::new(PRESET, problem));
        };
        for (key, value) in preset.sets {
            self.set(&format!("workload.{key}={value}"))?;
        }
        Ok(())
    }

    fn place(&mut self, key: &str) -> &mut Value {
        let (section, name) = key.rsplit_once('.').expect("a known key has a section");
        let table = section.split('.').try_fold(self.toml.as_table_mut(), |table, name| {
            table.get_mut(name).and_then(Item::as_table_mut)
        });
        table
            .and_then(|table| table.get_mut(name))
            .and_then(Item::as_value_mut)
            .expect("a known key has a value")
    }
}

/// Removes `base` from a profile's text; returns the name of the base profile, and the comment before it,
/// which describes this profile.
fn take_base(toml: &mut DocumentMut) -> Option<(String, String)> {
    let (key, name) = toml.remove_entry("base")?;
    let comment = key.leaf_decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or("");
    let head = if comment.trim().is_empty() { String::new() } else { format!("{comment}\n") };
    Some((name.as_str().expect("a profile's base is a name").to_owned(), head))
}

/// Replaces keys of `table` by those of `over`, with their comments. A section keeps its comment unless
/// `over` has one.
fn lay_over(table: &mut Table, over: &Table) {
    for (name, item) in over.iter() {
        let key = over.key(name).expect("it is in the table");
        match (item.as_table(), table.get_mut(name).and_then(Item::as_table_mut)) {
            (Some(over), Some(section)) => {
                if over.decor().prefix().and_then(|text| text.as_str()).is_some_and(|text| text.contains('#'))
                {
                    *section.decor_mut() = over.decor().clone();
                }
                lay_over(section, over);
            }
            _ => _ = table.insert_formatted(key, item.clone()),
        }
    }
}

/// The keys of a table, and of those in it, with the origins their comments state.
fn collect_origins(table: &Table, path: &str, origins: &mut Vec<(String, Origin)>) {
    for (key, item) in table.iter() {
        let path = format!("{path}.{key}");
        if let Some(table) = item.as_table() {
            collect_origins(table, &path, origins);
        }
        let Some(value) = item.as_value() else {
            continue;
        };
        let above = table.key(key).and_then(|key| key.leaf_decor().prefix());
        let after = value.decor().suffix();
        let texts = [after, above].map(|text| text.and_then(|t| t.as_str()));
        let origin = texts.into_iter().flatten().find_map(origin_of);
        origins.extend(origin.map(|origin| (path, origin)));
    }
}

/// The origin in the last bracket of a comment that names one.
fn origin_of(comment: &str) -> Option<Origin> {
    comment.lines().rev().find_map(|line| {
        let text = line.trim().strip_prefix("# [")?;
        let name = text.split_once(']')?.0;
        ORIGINS.iter().find(|(known, _)| *known == name).map(|(_, origin)| *origin)
    })
}

/// A value of a file.
struct Leaf {
    /// Its key, sections included: `flash.channels`.
    key: String,
    value: Value,
    /// Bytes of the file that precede the value.
    at: usize,
}

/// All values below a table.
fn collect(table: &dyn TableLike, path: &str, leaves: &mut Vec<Leaf>) {
    for (name, item) in table.iter() {
        let key = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        let at = item.span().map_or(0, |span| span.start);
        match (item.as_table_like(), item.as_value()) {
            (Some(table), _) => collect(table, &key, leaves),
            (None, Some(value)) => leaves.push(Leaf { key, value: value.clone().decorated("", ""), at }),
            // An array of tables: no key has this type, so its name is reported as unknown.
            (None, None) => leaves.push(Leaf { key, value: Value::from(""), at }),
        }
    }
}

/// The given value in the type the key has: units to integers, integers to floating point.
fn convert(key: &str, current: &Value, given: &Value) -> Result<Value, String> {
    let wrong = |expected: &str| {
        let given = given.clone().decorated("", "");
        Err(format!("expected {expected}, got {given}"))
    };
    match (current, given) {
        (Value::Integer(_), Value::String(text)) => {
            let unit = rules::setting(key).map_or(Unit::None, |setting| setting.unit);
            let number = quantity::parse(unit, text.value()).map(Value::from);
            number.map_err(|problem| format!("{problem}; allowed: {}", rules::allowed(key)))
        }
        (Value::Float(_), Value::Integer(n)) => Ok(Value::from(*n.value() as f64)),
        (Value::Integer(_), Value::Integer(_))
        | (Value::Float(_), Value::Float(_))
        | (Value::Boolean(_), Value::Boolean(_))
        | (Value::String(_), Value::String(_))
        | (Value::Array(_), Value::Array(_)) => Ok(given.clone().decorated("", "")),
        (Value::Integer(_), _) => wrong("an integer"),
        (Value::Float(_), _) => wrong("a number"),
        (Value::Boolean(_), _) => wrong("true or false"),
        (Value::Array(_), _) => wrong(&rules::allowed(key)),
        _ => wrong("text in quotes"),
    }
}

/// The error for an unknown key, with the most similar known one.
fn unknown(key: &str) -> ConfigError {
    let known = rules().map(|(name, _)| name);
    let leaf = key.rsplit('.').next().unwrap_or(key);
    let likeness = |name: &str| {
        let name_leaf = name.rsplit('.').next().unwrap_or(name);
        // The whole key counts most; a right name in a wrong section counts nearly as much.
        strsim::jaro_winkler(key, name).max(0.99 * strsim::jaro_winkler(leaf, name_leaf))
    };
    let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest {
        Some(name) if likeness(name) > 0.85 => {
            ConfigError::new(key, format!("unknown key; did you mean {name}?"))
        }
        _ => {
            let section = key.split('.').next().unwrap_or(key);
            let prefix = format!("{section}.");
            let keys: Vec<_> = rules().filter_map(|(name, _)| name.strip_prefix(prefix.as_str())).collect();
            if keys.is_empty() {
                let mut sections: Vec<_> = rules().filter_map(|(name, _)| name.split('.').next()).collect();
                let mut seen = BTreeSet::new();
                sections.retain(|section| seen.insert(*section));
                let problem = format!("unknown key; the sections are {}", sections.join(", "));
                ConfigError::new(key, problem)
            } else {
                let problem = format!("unknown key; [{section}] has {}", keys.join(", "));
                ConfigError::new(key, problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, DocumentMut, PROFILES, Table, take_base};

    /// The keys of `over`, including those in its sections, with the same value and comment as in `table`.
    fn said_twice(table: &Table, over: &Table, path: &str, found: &mut Vec<String>) {
        for (name, item) in over.iter() {
            let path = format!("{path}.{name}");
            match (table[name].as_table(), item.as_table()) {
                (Some(table), Some(over)) => said_twice(table, over, &path, found),
                _ => {
                    let text = |table: &Table| {
                        let comment = table.key(name).and_then(|key| key.leaf_decor().prefix()?.as_str());
                        format!("{}{}", comment.unwrap_or_default(), table[name])
                    };
                    found.extend((text(table) == text(over)).then_some(path));
                }
            }
        }
    }

    #[test]
    fn a_profile_says_only_what_its_base_does_not() {
        let mut found = Vec::new();
        for profile in PROFILES {
            let mut toml: DocumentMut = profile.text.parse().unwrap();
            if let Some((base, _)) = take_base(&mut toml) {
                let base = Document::profile(&base).unwrap();
                said_twice(base.toml.as_table(), toml.as_table(), profile.name, &mut found);
            }
        }
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_profile_is_its_base_but_for_what_it_says() {
        let [base, line] = ["gen5-cxl", "gen5-cxl-line"].map(|name| Document::profile(name).unwrap());
        let (base, line) = (base.to_string(), line.to_string());
        let lines = |text: &'static str| [&base, &line].map(|whole| whole.contains(text));
        assert_eq!(lines("\ndma_page_ns = 1100\n# [set] Setting up the DMA"), [true, false]);
        assert_eq!(lines("time.\ndma_page_ns = 866\n# [set] Setting up the DMA"), [false, true]);
        assert_eq!(lines("\n# [paper] PCIe generation: 5"), [true, true]);
        assert_eq!([&base, &line].map(|whole| whole.starts_with("# gen5-cxl: ")), [true, false]);
        assert!(line.starts_with("# gen5-cxl-line: ") && line.contains("\"16KiB\".\n\n[link]\n"));
        assert!(!line.contains("\nbase ="));
    }
}
