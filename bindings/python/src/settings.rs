//! Keyword arguments of Python as options of a run.
//!
//! A name with a dot is a key of the configuration (`flash.channels`). Any other name is an option of the
//! command (`value_size` for `--value-size`), or the last part of a key if only one key ends in it (`path`
//! for `media.path`). Crate `config` decides what an option means, and what is refused.

use std::path::Path;

use kvdrive::Error;
use kvdrive_config::{Naming, RunOptions, option_rows, settings};
use kvdrive_text::names::meant;

/// A keyword argument: the name, and its value as a text; several if it is a list.
pub type Argument = (String, Vec<String>);

/// The options for `arguments`, which override a profile.
///
/// # Errors
/// There is no such name, several keys end in it, or the values are not valid for the option.
pub fn options(profile: &[String], arguments: &[Argument]) -> Result<RunOptions, Error> {
    let mut options = RunOptions::new(Naming::Keyword);
    if !profile.is_empty() {
        options.give("profile", &joined("profile", profile)?)?;
    }
    for (argument, values) in arguments {
        give(&mut options, argument, values)?;
    }
    Ok(options)
}

fn give(options: &mut RunOptions, argument: &str, values: &[String]) -> Result<(), Error> {
    if argument == "config" {
        return values.iter().try_for_each(|path| lay_file_over(options, path));
    }
    let option = argument.replace('_', "-");
    let row = option_rows().iter().find(|row| row.name == option && !row.repeats);
    match (row, values) {
        (Some(row), [value]) if row.value.is_empty() => match value.as_str() {
            "true" => Ok(options.give(row.name, "")?),
            "false" => Ok(()),
            _ => Err(refused(argument, "it is True or False")),
        },
        (Some(row), _) if row.value.is_empty() => Err(refused(argument, "it is True or False")),
        (Some(row), values) => Ok(options.give(row.name, &joined(argument, values)?)?),
        (None, values) => {
            options.set(format!("{}={}", key(argument)?, joined(argument, values)?));
            let is_list =
                values.len() > 1 && options.sets().last().is_some_and(|set| !RunOptions::is_list(set));
            if is_list { Err(refused(argument, "it takes one value, and no list")) } else { Ok(()) }
        }
    }
}

fn lay_file_over(options: &mut RunOptions, path: &str) -> Result<(), Error> {
    let text = kvdrive_text::input::read_text(Path::new(path));
    options.file(path.to_owned(), text.map_err(|reason| crate::failure::refused(&reason))?);
    Ok(())
}

/// The values in the form of an option.
fn joined(argument: &str, values: &[String]) -> Result<String, Error> {
    match values {
        [] => Err(refused(argument, "the list is empty")),
        [value] => Ok(value.clone()),
        _ => match values.iter().find(|value| value.contains(',')) {
            Some(value) => Err(refused(argument, &format!("{value:?} has a comma, and is in a list"))),
            None => Ok(values.join(",")),
        },
    }
}

/// The key that an argument sets.
///
/// # Errors
/// There is no such key, or there are several.
pub fn key(argument: &str) -> Result<&'static str, Error> {
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
        [] => {
            let keys: Vec<&str> = settings().map(|setting| setting.key).collect();
            let last = |key: &&'static str| key.rsplit('.').next().unwrap_or(key);
            let options = option_rows().iter().map(|row| row.name.replace('-', "_"));
            let names: Vec<String> = options.chain(keys.iter().map(last).map(str::to_owned)).collect();
            let names: Vec<&str> = keys.iter().copied().chain(names.iter().map(String::as_str)).collect();
            let meant = meant(argument, &names);
            let problem = format!("no such option and no such key{meant}; kvdrive config shows the keys");
            Err(refused(argument, &problem))
        }
        _ => {
            let problem = format!("several keys end in it: {}; write the whole key", ends.join(", "));
            Err(refused(argument, &problem))
        }
    }
}

/// The `KEY=VALUE` of every run of a sweep.
///
/// # Errors
/// As [`options`]; or an argument is not only for keys (`config`, `dram`, `scale`), or is a list.
pub fn of_all_runs(arguments: &[Argument]) -> Result<Vec<String>, Error> {
    if let Some((name, _)) =
        arguments.iter().find(|(name, _)| ["config", "dram", "scale"].contains(&name.as_str()))
    {
        return Err(refused(name, "a sweep has profile and keys"));
    }
    let options = options(&[], arguments)?;
    match options.first_list() {
        Some(list) => Err(Error::configuration(list, "lists are for the grid")),
        None => Ok(options.assignments()),
    }
}

/// SAKER's settings: keys of its section, with or without the section's name.
///
/// # Errors
/// As [`options`].
pub fn of_saker(arguments: &[Argument]) -> Result<kvdrive::saker::SakerConfig, Error> {
    let mut options = RunOptions::new(Naming::Keyword);
    options.set("saker.enabled=true".to_owned());
    for (argument, values) in arguments {
        let name = argument.strip_prefix("saker.").unwrap_or(argument);
        options.set(format!("{}={}", key(&format!("saker.{name}"))?, joined(argument, values)?));
    }
    Ok(options.document()?.config()?.saker.settings())
}

fn refused(argument: &str, problem: &str) -> Error {
    Error::configuration(argument, problem)
}
