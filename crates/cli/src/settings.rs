//! The options of every command that runs a drive, and the configuration they make.
//!
//! An option is short for a key of the configuration: `--transfer prp` is `--set host.transfer=prp`. The
//! order is profile, `--dram` and `--scale`, then `--config` files, then options, then `--set`: what is given
//! beside a scale is not shrunk by it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kvdrive_device::faults::{Effect, Rule};
use kvdrive_lab::config::{Config, ConfigError, DEFAULT_PROFILE, Document, Media, Scale, default_profile};
use kvdrive_lab::faults;
use kvdrive_lab::input::read_text;
use kvdrive_lab::output::shown;
use kvdrive_lab::setup;

/// Reads a count. The message of the standard library says nothing of what would be right.
pub fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "allowed: a whole number from 0 on, in digits, as 1000000".to_owned())
}

/// Reads a count that must not be nothing.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    count(text)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "allowed: a whole number from 1 on, in digits".to_owned())
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

/// As [`fault_rules`], and whether one of them cuts the power.
pub fn crash_rules(file: Option<&PathBuf>, document: &Document) -> anyhow::Result<(Vec<Rule>, bool)> {
    let Some(path) = file else { return Ok((Vec::new(), false)) };
    let geometry = setup::drive(&document.config()?).flash.geometry();
    let rules = faults::rules(&shown(path), &read_text(path)?, &geometry)?;
    let cuts_power = rules.iter().any(|rule| matches!(rule.effect, Effect::CutPower { .. }));
    Ok((rules, cuts_power))
}

/// What drive, what work.
#[derive(Args, Clone, Default)]
pub struct Settings {
    /// Profile to start from (`kvdrive list profiles`) [default: cosmos-plus; kvvirt for hash engines]
    #[arg(long)]
    pub profile: Option<String>,
    /// TOML file with keys that override the profile; may be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Workload (`kvdrive list workloads`)
    #[arg(long)]
    pub workload: Option<String>,
    /// Operations to run
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub ops: Option<u64>,
    /// Which keys `ycsb-` and `plus-` choose: uniform, zipfian or latest
    #[arg(long)]
    pub distribution: Option<String>,
    /// The runs of the Plus paper at a part of their size, 1 or 1/64: drive, pairs, overwrites, operations
    /// and DRAM
    #[arg(long, value_name = "1/N")]
    pub scale: Option<Scale>,
    /// DRAM of hash engines at full size: published, total-128 or total-256 (`kvdrive list dram`)
    #[arg(long)]
    pub dram: Option<String>,
    /// Size of every value, for workloads with one size: 32, or 4KiB
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub value_size: Option<String>,
    /// Keys preloaded and drawn from, for workloads that read or draw
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub num: Option<u64>,
    /// How values reach the drive (`kvdrive list transfers`)
    #[arg(long)]
    pub transfer: Option<String>,
    /// Where they land in NAND pages (`kvdrive list packings`)
    #[arg(long)]
    pub packing: Option<String>,
    /// Index and value placement (`kvdrive list engines`)
    #[arg(long)]
    pub engine: Option<String>,
    /// What keeps the pages: ram, tags or file
    #[arg(long)]
    pub media: Option<String>,
    /// Flash on or off; off: values land in the buffer, no flash operation happens and none costs time
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], hide_possible_values = true)]
    pub nand: Option<String>,
    /// Operations under way at once
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub depth: Option<u64>,
    /// Queue pairs
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub queues: Option<u64>,
    /// Seed of every random stream
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Clock: virtual or wall
    #[arg(long)]
    pub clock: Option<String>,
    /// Any key of the configuration (`kvdrive config` shows them): --set flash.channels=8; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Settings {
    /// The configuration these options describe.
    pub fn document(&self) -> anyhow::Result<Document> {
        let read = |path: &PathBuf| Ok((shown(path), read_text(path)?));
        let files = self.config.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let mut document = Document::profile(self.profile(&files)?)?;
        if let Some(dram) = &self.dram {
            document.set_dram(dram)?;
        }
        if let Some(scale) = self.scale {
            document.set("workload.preset=plus")?;
            if self.num.is_none() && self.value_size.is_none() {
                pairs_fit(&document)?;
            }
            document.shrink(scale)?;
            document.config().with_context(|| format!("--scale {scale}"))?;
        }
        self.lay_over(&mut document, &files)?;
        let config = document.config()?;
        self.check_for_engine(&config)?;
        check_for_medium(&config.media)?;
        Ok(document)
    }

    /// What was asked for beside profile, DRAM and scale.
    fn lay_over(&self, document: &mut Document, files: &[(String, String)]) -> Result<(), ConfigError> {
        for (name, text) in files {
            document.merge_text(name, text)?;
        }
        for (key, value) in self.short_options() {
            if let Some(value) = value {
                document.set(&format!("{key}={value}"))?;
            }
        }
        self.set.iter().try_for_each(|assignment| document.set(assignment))
    }

    /// Refuses options that the engine would not look at.
    fn check_for_engine(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(
            config,
            &[
                ("--dram", "hash.dram_bytes", self.dram.is_some()),
                ("--packing", "packing.policy", self.packing.is_some()),
            ],
        )
    }

    /// The configuration of a run: as [`document`](Settings::document), and no option that its workload would
    /// not look at.
    pub fn document_of_run(&self) -> anyhow::Result<Document> {
        let document = self.document()?;
        self.check_for_workload(&document.config()?)?;
        Ok(document)
    }

    /// Refuses options that the workload would not look at.
    fn check_for_workload(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(
            config,
            &[
                ("--value-size", "workload.value_size", self.value_size.is_some()),
                ("--num", "workload.num", self.num.is_some()),
                ("--distribution", "workload.distribution", self.distribution.is_some()),
            ],
        )
    }

    /// The profile asked for, or that of the engine, which an option, a file or `--set` names.
    fn profile(&self, files: &[(String, String)]) -> Result<&str, ConfigError> {
        if let Some(profile) = &self.profile {
            return Ok(profile);
        }
        let mut document = Document::profile(DEFAULT_PROFILE)?;
        self.lay_over(&mut document, files)?;
        Ok(default_profile(document.engine()))
    }

    fn short_options(&self) -> [(&'static str, Option<String>); 14] {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let nand = self.nand.as_deref().map(|value| match value {
            "on" => "true".to_owned(),
            "off" => "false".to_owned(),
            other => other.to_owned(),
        });
        [
            ("workload.name", self.workload.clone()),
            ("workload.distribution", self.distribution.clone()),
            ("workload.ops", number(self.ops)),
            ("workload.value_size", self.value_size.clone()),
            ("workload.num", number(self.num)),
            ("host.transfer", self.transfer.clone()),
            ("packing.policy", self.packing.clone()),
            ("engine.name", self.engine.clone()),
            ("media.kind", self.media.clone()),
            ("nand.enabled", nand),
            ("host.depth", number(self.depth)),
            ("host.queues", number(self.queues)),
            ("run.seed", number(self.seed)),
            ("run.clock", self.clock.clone()),
        ]
    }
}

/// Refuses those of some options, each with its key, that are given and that a run would not look at.
fn refuse_ignored(config: &Config, options: &[(&str, &str, bool)]) -> anyhow::Result<()> {
    for (option, key, is_given) in options {
        if let Some(why) = config.ignores(key).filter(|_| *is_given) {
            anyhow::bail!("{option}: {why}");
        }
    }
    Ok(())
}

/// Refuses settings of an image file for a medium that has none: whoever names a file expects to find the
/// drive in it.
fn check_for_medium(media: &Media) -> anyhow::Result<()> {
    let (has_file, Media { kind, path, sync }) = (media.has_file(), media);
    anyhow::ensure!(
        has_file || path.is_empty(),
        "media.path: {path:?}; medium {kind} has no file: add --media file, or take the path away"
    );
    anyhow::ensure!(
        has_file || !sync,
        "media.sync: true; medium {kind} has no file: add --media file, or set it to false"
    );
    Ok(())
}

/// Refuses a drive that is too small for the pairs of the Plus paper, whatever part of both is taken.
fn pairs_fit(document: &Document) -> anyhow::Result<()> {
    let config = document.config()?;
    let pairs_bytes = config.workload.num * u64::from(config.workload.value_size);
    let flash_bytes = config.flash.pages() * u64::from(config.flash.page_bytes);
    anyhow::ensure!(
        pairs_bytes <= flash_bytes,
        "--scale: the pairs of the Plus paper, {} GB, do not fit on {}, {} GB; --engine original, plus or plus2 \
         runs on its drive, --profile kvvirt",
        pairs_bytes / 1_000_000_000,
        document.profile_name(),
        flash_bytes / 1_000_000_000
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(settings: &Settings) -> String {
        settings.document_of_run().map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn an_option_that_the_workload_or_the_engine_does_not_look_at_is_refused_by_its_name() {
        let on = |workload: &str, engine: Option<&str>| Settings {
            workload: Some(workload.into()),
            engine: engine.map(str::to_owned),
            ..Settings::default()
        };
        let refused = [
            ("--value-size: workload w-m ", Settings { value_size: Some("33".into()), ..on("w-m", None) }),
            ("--num: workload fillseq ", Settings { num: Some(33), ..on("fillseq", None) }),
            (
                "--distribution: workload fillrandom ",
                Settings { distribution: Some("zipfian".into()), ..on("fillrandom", None) },
            ),
            ("--dram: engine lsm ", Settings { dram: Some("total-128".into()), ..on("w-a", None) }),
            (
                "--packing: engine plus ",
                Settings { packing: Some("block".into()), ..on("plus-a", Some("plus")) },
            ),
        ];
        for (begin, settings) in &refused {
            let error = error(settings);
            assert!(error.starts_with(begin), "{begin}: {error}");
        }
    }

    /// Of README and of help.
    #[test]
    fn every_example_of_a_setting_is_a_drive_that_can_be_had() {
        let readme = include_str!("../../../README.md");
        let examples: Vec<&str> = readme
            .split("--set ")
            .skip(1)
            .filter_map(|rest| rest.split(['`', ' ', ')', '\n']).next())
            .filter(|example| example.contains('='))
            .collect();
        assert!(examples.contains(&"flash.channels=8"), "{examples:?}");
        for example in examples {
            let settings = Settings { set: vec![example.to_owned()], ..Settings::default() };
            settings.document_of_run().unwrap_or_else(|error| panic!("--set {example}: {error}"));
        }
    }

    #[test]
    fn a_drive_without_the_power_protected_memory_it_needs_is_refused_with_what_that_is() {
        let refused = |set: &[&str]| {
            let set = set.iter().map(|set| (*set).to_owned()).collect();
            error(&Settings { set, ..Settings::default() })
        };
        let lsm = refused(&["buffer.entries=1024"]);
        let needed = lsm.split("set power.protected_bytes to at least ").nth(1).expect(&lsm);
        let set = vec!["buffer.entries=1024".to_owned(), format!("power.protected_bytes={needed}")];
        Settings { set, ..Settings::default() }.document().unwrap();
        for engine in ["original", "plus", "plus2"] {
            let hash = refused(&[&format!("engine.name={engine}"), "power.protected_bytes=1MiB"]);
            assert!(hash.contains("set power.protected_bytes to at least "), "{hash}");
        }
    }

    #[test]
    fn an_image_file_is_for_the_medium_that_has_one() {
        for (set, line) in
            [("media.path=a.img", "media.path: \"a.img\""), ("media.sync=true", "media.sync: true")]
        {
            let settings =
                Settings { media: Some("ram".into()), set: vec![set.into()], ..Settings::default() };
            let error = error(&settings);
            assert!(error.starts_with(line) && error.contains("add --media file"), "{error}");
        }
    }

    #[test]
    fn an_engine_brings_its_drive_wherever_it_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "engine.name = \"plus2\"\n").unwrap();
        let by_set = Settings { set: vec!["engine.name=plus".into()], ..Settings::default() };
        let by_file = Settings { config: vec![file.path().to_owned()], ..Settings::default() };
        let by_option = Settings { engine: Some("original".into()), ..Settings::default() };
        for settings in [by_set, by_file, by_option] {
            assert_eq!(settings.document_of_run().unwrap().profile_name(), "kvvirt");
        }
        assert_eq!(Settings::default().document().unwrap().profile_name(), "cosmos-plus");
    }

    #[test]
    fn a_drive_that_is_too_small_for_the_scale_names_the_engines_that_are_not() {
        let scaled = |scale: &str| Settings { scale: Some(scale.parse().unwrap()), ..Settings::default() };
        for scale in ["1", "1/64", "1/256"] {
            assert_eq!(
                error(&scaled(scale)),
                "--scale: the pairs of the Plus paper, 100 GB, do not fit on cosmos-plus, 68 GB; \
                 --engine original, plus or plus2 runs on its drive, --profile kvvirt"
            );
            Settings { engine: Some("plus".into()), ..scaled(scale) }.document_of_run().unwrap();
            let lsm = Settings { profile: Some("kvvirt".into()), ..scaled(scale) };
            Settings { engine: Some("lsm".into()), ..lsm }.document_of_run().unwrap();
        }
        Settings { num: Some(1000), ..scaled("1/64") }.document_of_run().unwrap();
    }
}
