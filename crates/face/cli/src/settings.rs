//! The options of every command that runs a drive, as the command line has them: rows of `kvdrive_config`, which say what
//! each is and what document they make.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, StyledStr, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use kvdrive_config::{Document, OptionRow, RunOptions, faults, option_rows};
use kvdrive_flash::faults::{Effect, Rule, check_without_door};
use kvdrive_text::Unit;
use kvdrive_text::input::read_text;
use kvdrive_text::output::shown;
use kvdrive_text::quantity::{parse, parse_count, parse_span};

use crate::output;

/// The option that names files of keys.
const CONFIG: &str = "config";
/// The option that sets a key.
const SET: &str = "set";

/// Reads a count; unlike the standard library's, the message says what is allowed.
pub fn count(text: &str) -> Result<u64, String> {
    parse_count(text).map_err(|_| "allowed: a whole number from 0 on, as 1000000 or 1M".to_owned())
}

/// Reads a span of time.
pub fn span(text: &str) -> Result<u64, String> {
    parse_span(text).map_err(|_| "allowed: a time with its unit, as 100ms or 10s".to_owned())
}

/// Reads a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let size = parse(Unit::Bytes, text).ok().and_then(|bytes| u64::try_from(bytes).ok());
    size.ok_or_else(|| "allowed: a number of bytes, as 8192 or 8KiB".to_owned())
}

/// Reads a seed.
pub fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("allowed: a whole number from 0 to {}", u64::MAX))
}

/// Reads a count that must not be nothing.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    count(text)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "allowed: a whole number from 1 on, as 1000000 or 1M".to_owned())
}

/// The rules of a file, for the drive of `document`.
pub fn fault_rules(file: Option<&PathBuf>, document: &Document) -> anyhow::Result<Vec<Rule>> {
    let (rules, cuts_power) = crash_rules(file, document)?;
    anyhow::ensure!(
        !cuts_power,
        "--faults: power-cut rules are for kvdrive crash, which checks what is left"
    );
    Ok(rules)
}

/// As [`fault_rules`], and whether one of the rules cuts the power. Rules about answers on a network are refused,
/// because these drives have no network.
pub fn crash_rules(file: Option<&PathBuf>, document: &Document) -> anyhow::Result<(Vec<Rule>, bool)> {
    let Some(path) = file else { return Ok((Vec::new(), false)) };
    let geometry = document.config()?.drive().flash.geometry();
    let rules = faults::rules(&shown(path), &read_text(path)?, &geometry)?;
    check_without_door(&rules).map_err(|problem| anyhow::anyhow!("--faults: {problem}"))?;
    let cuts_power = rules.iter().any(|rule| matches!(rule.effect, Effect::CutPower { .. }));
    Ok((rules, cuts_power))
}

/// Says which size drives have whose capacity had to be rounded.
pub fn tell_capacity<'a>(documents: impl IntoIterator<Item = &'a Document>) {
    let mut told: Vec<String> = documents.into_iter().filter_map(Document::rounded_capacity).collect();
    told.dedup();
    told.iter().for_each(|line| output::tell(&format!("kvdrive: {line}")));
}

/// The options of the drive and the workload, from the command line.
#[derive(Clone, Default)]
pub struct Settings {
    options: RunOptions,
    /// Files of keys, which [`options`](Settings::options) reads.
    pub config: Vec<PathBuf>,
}

impl Settings {
    /// The options, with the text of every file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn options(&self) -> anyhow::Result<RunOptions> {
        let mut options = self.options.clone();
        for path in &self.config {
            options.file(shown(path), read_text(path)?);
        }
        Ok(options)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Settings, clap::Error> {
        let mut settings = Settings::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for row in option_rows() {
            match row.name {
                CONFIG => self.config = matches.get_many(CONFIG).into_iter().flatten().cloned().collect(),
                SET => {
                    let sets = matches.get_many::<String>(SET).into_iter().flatten();
                    sets.for_each(|set| self.options.set(set.clone()));
                }
                name if row.value.is_empty() => {
                    if matches.get_flag(name) {
                        self.options = std::mem::take(&mut self.options).with(name, "");
                    }
                }
                name => {
                    if let Some(value) = matches.get_one::<String>(name) {
                        self.options = std::mem::take(&mut self.options).with(name, value);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        command.args(option_rows().iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Settings::augment_args(command)
    }
}

fn argument(row: &'static OptionRow) -> Arg {
    let argument = Arg::new(row.name).long(row.name).help(StyledStr::from(row.help.as_str()));
    let argument = argument.help_heading(row.group.heading()).hide_short_help(!row.is_common);
    let argument = match row.value.as_str() {
        "" => return argument.action(ArgAction::SetTrue),
        value => argument.value_name(value).allow_negative_numbers(true),
    };
    let argument = if row.repeats { argument.action(ArgAction::Append) } else { argument };
    match row.name {
        CONFIG => argument.value_parser(clap::value_parser!(PathBuf)),
        _ => argument.value_parser(Known(|| row.known_values())).hide_possible_values(true),
    }
}

/// Takes any text, and tells shells which values are known. A value may be a list; one that does not exist is refused
/// with the others of the configuration, by a message that says what may have been meant.
#[derive(Clone)]
pub struct Known<F>(pub F);

impl<F: Fn() -> Vec<&'static str> + Clone + Send + Sync + 'static> TypedValueParser for Known<F> {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let known = (self.0)();
        (!known.is_empty()).then(|| Box::new(known.into_iter().map(PossibleValue::new)) as Box<_>)
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_flash::faults::FAULTS;

    use super::*;

    fn parse(arguments: &[&str]) -> Settings {
        let command = Settings::augment_args(Command::new("kvdrive").no_binary_name(true));
        Settings::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    /// Examples are those of the page of commands, each with the profile, workload and medium in its line.
    #[test]
    fn every_example_of_a_setting_is_a_drive_that_can_be_had() {
        const BESIDE: [&str; 3] = ["--profile ", "--workload ", "--media "];
        let commands = include_str!("../../../../docs/commands.md");
        let after = |line: &str, option: &str| {
            let rest = line.split(option).nth(1)?;
            rest.split(['`', ' ', ')', ',']).next().map(str::to_owned)
        };
        let mut examples = Vec::new();
        for line in commands.lines() {
            let beside = BESIDE.map(|option| after(line, option));
            let set = line.split("--set ").skip(1).filter_map(|rest| rest.split(['`', ' ', ')']).next());
            examples.extend(set.filter(|set| set.contains('=')).map(|set| (beside.clone(), set)));
        }
        assert!(examples.contains(&([const { None }; 3], "flash.channels=8")), "{examples:?}");
        for (beside, example) in examples {
            let beside = BESIDE.into_iter().zip(beside);
            let given: Vec<String> = beside
                .chain([("--set", Some(example.to_owned()))])
                .filter_map(|(option, value)| Some([option.trim_end().to_owned(), value?]))
                .flatten()
                .collect();
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            let documents = parse(&given).options().unwrap().documents();
            documents.unwrap_or_else(|error| panic!("--set {example}: {error}"));
        }
    }

    #[test]
    fn a_rule_for_answers_on_a_network_is_refused_where_there_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let document = parse(&[]).options().unwrap().document_of_run().unwrap();
        for row in FAULTS {
            let rule = format!("[[rule]]\nname = \"a\"\nfault = \"{}\"\n{}\n", row.name, row.example);
            std::fs::write(&file, rule).unwrap();
            let read =
                crash_rules(Some(&file.path().to_owned()), &document).map_err(|error| error.to_string());
            let error = read.as_ref().err();
            assert!(error.is_none_or(|error| error.contains("never strikes")), "{}: {error:?}", row.name);
            let is_refused = error.is_some();
            let is_of_network =
                ["bad-digest", "drop-connection", "fatal", "late", "not-ready", "stall"].contains(&row.name);
            assert_eq!(is_refused, is_of_network, "{}", row.name);
        }
    }

    #[test]
    fn a_file_of_keys_is_read_and_a_switch_takes_no_value() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "engine.name = \"plus2\"\n").unwrap();
        let path = file.path().to_str().unwrap();
        let settings = parse(&["--config", path, "--verify", "--set", "run.seed=3", "--ops", "7"]);
        let config = settings.options().unwrap().document_of_run().unwrap().config().unwrap();
        assert_eq!((config.engine.name.as_str(), config.run.seed, config.workload.ops), ("plus2", 3, 7));
        assert_eq!(config.workload.verify, "values");
    }
}
