//! Keyword arguments of Python as settings of the configuration.
//!
//! A name with a dot is a key (`flash.channels`). Any other name is an option of the command that is short for a key
//! (`value_size` for `--value-size`), or the last part of a key if only one key ends in it (`path` for `media.path`).

use kvdrive::Error;
use kvdrive_config::{Assigned, Config, ConfigError, Document, settings};
use kvdrive_config::{DEFAULT_PROFILE, default_profile};

/// A keyword argument: the name, and the value as a text.
pub type Argument = (String, String);

/// A keyword argument as a setting.
pub struct Setting {
    /// As messages name it: `transfer='prp'`.
    pub name: String,
    /// Its key in the configuration.
    pub key: &'static str,
    /// Its value, as the configuration has it.
    pub value: String,
}

/// The settings that `arguments` stand for; a trace stands for two.
///
/// # Errors
/// There is no such name, or several keys end in it.
pub fn of(arguments: &[Argument]) -> Result<Vec<Setting>, Error> {
    let mut all = Vec::with_capacity(arguments.len());
    for (argument, value) in arguments {
        let (key, name) = (key(argument)?, format!("{argument}={value:?}"));
        let mut set =
            |key, value: &str| all.push(Setting { name: name.clone(), key, value: value.to_owned() });
        match (key, value.as_str(), value.strip_prefix("trace:")) {
            ("workload.name", _, Some(file)) => {
                set(key, "trace");
                set("workload.trace", file);
            }
            ("saker.enabled" | "nand.enabled", "on", _) => set(key, "true"),
            ("saker.enabled" | "nand.enabled", "off", _) => set(key, "false"),
            ("saker.batch", "adaptive", _) => set(key, "0"),
            ("workload.verify", "true", _) => set(key, "values"),
            ("workload.verify", "false", _) => set(key, "off"),
            _ => set(key, value),
        }
    }
    check_medium(&all)?;
    Ok(all)
}

/// Refuses an image file for a medium that has none: a program that names a file expects the drive to be in it.
fn check_medium(all: &[Setting]) -> Result<(), Error> {
    let has_file = all.iter().any(|setting| setting.key == "media.kind" && setting.value == "file");
    let of_file = all.iter().find(|setting| ["media.path", "media.sync"].contains(&setting.key));
    match of_file.filter(|_| !has_file) {
        Some(Setting { name, .. }) => {
            Err(Error::Configuration(format!("{name}: only medium file has an image; add media=\"file\"")))
        }
        None => Ok(()),
    }
}

fn key(argument: &str) -> Result<&'static str, Error> {
    let refused = |problem: &str| Error::Configuration(format!("{argument}: {problem}"));
    let option = argument.replace('_', "-");
    let is_named = |setting: &&kvdrive_declare::Setting| {
        setting.key == argument || setting.option == Some(option.as_str())
    };
    if let Some(setting) = settings().find(is_named) {
        return Ok(setting.key);
    }
    let ends: Vec<_> = settings()
        .map(|setting| setting.key)
        .filter(|key| key.rsplit('.').next() == Some(argument))
        .collect();
    match ends[..] {
        [key] => Ok(key),
        [] => Err(refused("no such option and no such key; kvdrive config shows the keys")),
        _ => Err(refused(&format!("several keys end in it: {}; write the whole key", ends.join(", ")))),
    }
}

/// The configuration of one run; without a profile it has the engine's own.
///
/// # Errors
/// A setting is wrong, or contradicts another one.
pub fn document(profile: Option<&str>, settings: &[Setting]) -> Result<(Document, Assigned), Error> {
    let lay_over = |mut document: Document| -> Result<_, ConfigError> {
        let pairs = settings.iter().map(|one| (one.name.clone(), format!("{}={}", one.key, one.value)));
        let assigned = Assigned::lay_over(&mut document, pairs)?;
        Ok((document, assigned))
    };
    let profile = match profile {
        Some(profile) => profile,
        // The engine is known when everything is laid over any profile.
        None => default_profile(lay_over(Document::profile(DEFAULT_PROFILE)?)?.0.engine()),
    };
    Ok(lay_over(Document::profile(profile)?)?)
}

/// Refuses a setting that none of `runs` would look at.
///
/// # Errors
/// It is named, with the reason.
pub fn check_looked_at(assigned: &Assigned, runs: &[Config]) -> Result<(), Error> {
    Ok(assigned.check_looked_at(runs)?)
}
