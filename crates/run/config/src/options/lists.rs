//! Options with lists: every combination is a run.

use std::collections::BTreeSet;

use kvdrive_declare::Rule;

use super::{RunOptions, option_rows};
use crate::assigned::key_of;
use crate::grid::{Axis, combine};
use crate::{ConfigError, Document, rules};

/// Options whose values change slowest, slowest first, so that runs of the workloads of a list follow each
/// other on one drive.
const SLOWEST: &[&str] = &["profile", "distribution", "workload", "dram", "engine", "side", "store", "saker"];
/// The option whose values change fastest: runs that differ in it alone are one row of a table.
const SEED: &str = "seed";

impl RunOptions {
    /// Every combination of the values in lists, in the order in which they are run.
    ///
    /// # Errors
    /// An option or key is wrong, contradicts another one, or changes none of the runs.
    pub fn documents(&self) -> Result<Vec<Document>, ConfigError> {
        self.check_lists()?;
        let (mut documents, mut configs, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
        for options in self.combinations()? {
            let document = options.document_of_one_run()?;
            // A workload with a distribution of its own gives the same configuration for each distribution in
            // a list; it is run once.
            if known.insert(document.identity()) {
                configs.push(document.config()?);
                documents.push(document);
            }
        }
        for options in combine(self.without_sets(), &self.set_axes(), RunOptions::take)? {
            options.check_looked_at(&configs)?;
        }
        Ok(documents)
    }

    /// Refuses a list that has a value twice: the same run twice is no comparison.
    fn check_lists(&self) -> Result<(), ConfigError> {
        let options = self.given.iter().filter(|(row, _)| row.means.is_empty());
        let options = options.map(|(row, value)| (self.naming.given(row.name, value), values_of(value)));
        let sets = self.sets.iter().filter(|set| RunOptions::is_list(set));
        let sets = sets
            .map(|set| (self.naming.set(set), values_of(set.split_once('=').map_or("", |(_, list)| list))));
        for (named, values) in options.chain(sets) {
            let twice = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value));
            if let Some((_, value)) = twice {
                return Err(ConfigError::new(named, format!("{value} twice")));
            }
        }
        Ok(())
    }

    /// Has `KEY=VALUE` several values? A list in brackets is one value, and so is the value of a key that
    /// takes any text.
    pub fn is_list(set: &str) -> bool {
        let Some((key, value)) = set.split_once('=') else { return false };
        let is_text = rules::rule(key.trim()).is_some_and(|rule| matches!(rule, Rule::Text));
        !is_text && value.contains(',') && !value.contains(['[', '"'])
    }

    /// The first option or `set` that has a list, as messages name it.
    pub fn first_list(&self) -> Option<String> {
        let is_list = |value: &str| values_of(value).len() > 1;
        let of_option = self.given.iter().find(|(row, value)| row.means.is_empty() && is_list(value));
        let of_option = of_option.map(|(row, value)| self.naming.given(row.name, value));
        of_option
            .or_else(|| self.sets.iter().find(|set| RunOptions::is_list(set)).map(|set| self.naming.set(set)))
    }

    /// The configuration of one of several runs; it may ignore a key that other runs read.
    fn document_of_one_run(&self) -> Result<Document, ConfigError> {
        let document = self.document()?;
        self.check_for_workload(&document.config()?)?;
        Ok(document)
    }

    fn combinations(&self) -> Result<Vec<RunOptions>, ConfigError> {
        let rest = option_rows().iter().map(|row| row.name);
        let rest = rest.filter(|name| !SLOWEST.contains(name) && *name != SEED);
        let options = SLOWEST.iter().copied().chain(rest).chain([SEED]);
        let lists = options.filter_map(|name| {
            let values = values_of(self.get(name)?);
            (values.len() > 1).then_some((Of::Option(name), values))
        });
        let axes: Vec<_> = self.set_axes().into_iter().chain(lists).collect();
        let mut all = combine(self.without_sets(), &axes, RunOptions::take)?;
        leave_out_saker(&mut all);
        leave_out_files(&mut all);
        Ok(all)
    }

    fn without_sets(&self) -> RunOptions {
        RunOptions { sets: Vec::new(), ..self.clone() }
    }

    /// An axis for each `KEY=VALUE`, most of them with one value.
    fn set_axes(&self) -> Vec<Axis<Of, String>> {
        let axis = |set: &String| {
            let key = key_of(set);
            let values = match set.split_once('=').filter(|_| RunOptions::is_list(set)) {
                Some((_, list)) => list.split(',').map(|value| format!("{key}={}", value.trim())).collect(),
                None => vec![set.clone()],
            };
            (Of::Sets, values)
        };
        self.sets.iter().map(axis).collect()
    }

    /// Takes one value of an axis.
    fn take(&mut self, of: &Of, value: &String) -> Result<(), ConfigError> {
        match of {
            Of::Option(name) => self.give(name, value),
            Of::Sets => {
                self.set(value);
                Ok(())
            }
        }
    }
}

/// What the values of an axis are of.
enum Of {
    /// An option of this name.
    Option(&'static str),
    /// `KEY=VALUE`.
    Sets,
}

/// The values of a list. The path of a trace that exists may have commas.
fn values_of(list: &str) -> Vec<String> {
    let (mut values, mut rest) = (Vec::new(), list);
    loop {
        let ends = rest.match_indices(',').map(|(at, _)| at).chain([rest.len()]).collect::<Vec<_>>();
        let path = |end: usize| rest[..end].trim().strip_prefix(super::TRACE);
        let is_file = |end: &&usize| path(**end).is_some_and(|path| std::path::Path::new(path).exists());
        let end = *ends[1..].iter().rev().find(is_file).unwrap_or(&ends[0]);
        values.push(rest[..end].trim().to_owned());
        match rest[end..].strip_prefix(',') {
            Some(more) => rest = more,
            None => return values,
        }
    }
}

/// Removes options of SAKER from those runs among several that have no SAKER, because their store is on the
/// host or SAKER is off. The option of the cache stays for a store on the host, which may have a cache, too.
fn leave_out_saker(all: &mut [RunOptions]) {
    let has_it = |options: &RunOptions| !options.is_on_host() && options.get("saker") == Some("on");
    if !all.iter().any(has_it) {
        return;
    }
    for options in all.iter_mut().filter(|options| !has_it(options)) {
        options.leave_out("saker");
        options.leave_out("batch");
        if options.read_cache_on_host().is_none() {
            options.leave_out("cache");
        }
    }
}

/// Removes keys of image files from those runs among several whose medium has no file.
fn leave_out_files(all: &mut [RunOptions]) {
    let has_file = |options: &RunOptions| options.get("media") == Some("file");
    if !all.iter().any(has_file) {
        return;
    }
    for options in all.iter_mut().filter(|options| !has_file(options)) {
        options.sets.retain(|set| !["media.path", "media.sync"].contains(&key_of(set)));
        options.sets.extend(["media.path=".to_owned(), "media.sync=false".to_owned()]);
    }
}
