//! The options of every command that runs a drive, and the configuration they make.
//!
//! An option is short for a key of the configuration: `--transfer prp` is `--set host.transfer=prp`. The
//! order is profile, `--dram` and `--scale`, then `--config` files, then options and `--set`: what is given
//! beside a scale is not shrunk by it. Options and `--set` contradict each other or do not; none of them wins.

mod refused;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kvdrive_config::faults;
use kvdrive_config::{Assigned, Config, ConfigError, DEFAULT_PROFILE, Document, Scale, default_profile};
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_flash::faults::{Effect, Rule};
use kvdrive_store::{STORES, store_row};
use kvdrive_text::input::read_text;
use kvdrive_text::output::shown;
use kvdrive_text::quantity::{parse_count, parse_span};

pub use refused::describes_work;
use refused::{check_for_medium, pairs_fit};

/// Sides of the wire that a store may run on.
pub const HOST: &str = "host";
const DISK: &str = "disk";
/// The batches that go when the last one has come back.
const ADAPTIVE: &str = "adaptive";
/// Keys that say which store a run has, and whether it has SAKER.
const OF_STORES: &[&str] = &["engine.name", "host.store", "saker.enabled"];

/// Reads a count. The message of the standard library says nothing of what would be right.
pub fn count(text: &str) -> Result<u64, String> {
    parse_count(text).map_err(|_| "allowed: a whole number from 0 on, as 1000000 or 1M".to_owned())
}

/// Reads counts separated by commas.
fn seeds(text: &str) -> Result<String, String> {
    let seeds = text.split(',').map(|seed| count(seed.trim()).map(|seed| seed.to_string()));
    Ok(seeds.collect::<Result<Vec<_>, _>>()?.join(","))
}

/// Reads limits of batches separated by commas.
fn batches(text: &str) -> Result<String, String> {
    let is_limit = |part: &str| part == ADAPTIVE || parse_count(part).is_ok();
    let are_limits = text.split(',').map(str::trim).all(is_limit);
    are_limits.then(|| text.to_owned()).ok_or_else(|| format!("allowed: a number of requests, or {ADAPTIVE}"))
}

/// Reads a span of time.
pub fn span(text: &str) -> Result<u64, String> {
    parse_span(text).map_err(|_| "allowed: a time with its unit, as 100ms or 10s".to_owned())
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

/// As [`fault_rules`], and whether one of them cuts the power.
pub fn crash_rules(file: Option<&PathBuf>, document: &Document) -> anyhow::Result<(Vec<Rule>, bool)> {
    let Some(path) = file else { return Ok((Vec::new(), false)) };
    let geometry = document.config()?.drive().flash.geometry();
    let rules = faults::rules(&shown(path), &read_text(path)?, &geometry)?;
    let cuts_power = rules.iter().any(|rule| matches!(rule.effect, Effect::CutPower { .. }));
    Ok((rules, cuts_power))
}

/// What drive, what work.
#[derive(Args, Clone, Default)]
pub struct Settings {
    /// Profile to start from (`kvdrive list profiles`)
    /// [default: cosmos-plus; kvvirt for hash engines, saker-mid for stores]
    #[arg(long)]
    pub profile: Option<String>,
    /// TOML file with keys that override the profile; may be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Workload (`kvdrive list workloads`), or trace:FILE, operations that were recorded (`kvdrive list
    /// traces`)
    #[arg(long)]
    pub workload: Option<String>,
    /// Operations to run
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub ops: Option<u64>,
    /// Operations that begin in a second whatever the drive does, as 100k/s; latency counts from when one was to
    /// begin. As many as --depth are under way at once [default: a client begins its next operation when its
    /// last one has ended]
    #[arg(long, value_name = "N/s", allow_negative_numbers = true)]
    pub rate: Option<String>,
    /// With --rate: equally spaced (fixed), or at random (poisson) [default: fixed]. trace: operations of a trace
    /// begin when they did
    #[arg(long, value_name = "fixed|poisson|trace")]
    pub arrivals: Option<String>,
    /// Ends the run when so much of its clock has passed, as 10s or 100ms, or after --ops
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub duration: Option<u64>,
    /// Holds every value that is read back against what was stored; exit status 1 if one differs
    #[arg(long)]
    pub verify: bool,
    /// Stores nothing: reads and checks what an earlier run with the same options left in an image
    #[arg(long, conflicts_with = "verify")]
    pub verify_only: bool,
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
    /// Where a key-value store runs: host, in the application's threads over a drive of blocks; disk, as the
    /// drive's engine
    #[arg(long, requires = "store", value_name = "host|disk")]
    pub side: Option<String>,
    /// The store (`kvdrive list stores`)
    #[arg(long, conflicts_with = "engine")]
    pub store: Option<String>,
    /// Threads of the host, with a core and a queue pair each, among which --depth is divided; 0: operations
    /// share host.cores and --queues
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub threads: Option<u64>,
    /// SAKER, a layer on the host in front of the driver: on or off. It batches small writes, caches small reads, and
    /// has a client for each of --threads, which does one operation at a time
    #[arg(long, value_name = "on|off")]
    pub saker: Option<String>,
    /// Most requests of a batch of SAKER; adaptive: as many as come while one is under way
    #[arg(long, value_name = "N|adaptive", value_parser = batches)]
    pub batch: Option<String>,
    /// Read cache on the host, as 64MiB: SAKER's with --saker on, lsmtree's row cache with --side host
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub cache: Option<String>,
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
    /// Threads of the drive that run commands, behind a dispatcher that deals them out in turn
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub io_threads: Option<u64>,
    /// Seed of every random stream; of run and compare several, as 1,2,3: tables have mean and spread
    #[arg(long, value_name = "N", value_parser = seeds, allow_negative_numbers = true)]
    pub seed: Option<String>,
    /// Clock: virtual or wall
    #[arg(long)]
    pub clock: Option<String>,
    /// Any key of the configuration (`kvdrive config` shows them): --set flash.channels=8; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Settings {
    /// Refuses a side or a store that there is none of.
    fn check_store(&self) -> anyhow::Result<()> {
        let side = self.side.as_deref().unwrap_or(DISK);
        anyhow::ensure!([HOST, DISK].contains(&side), "--side: no side {side:?}; there are {HOST}, {DISK}");
        let saker = self.saker.as_deref().unwrap_or("off");
        anyhow::ensure!(["on", "off"].contains(&saker), "--saker: {saker:?}; there are on, off");
        let Some(store) = self.store.as_deref() else { return Ok(()) };
        let lacks_cache = self.cache.is_some() && side == HOST && self.read_cache_on_host().is_none();
        let is_there = |name: &&str| side == HOST || ENGINES.iter().any(|row| row.name == *name);
        let names: Vec<_> = STORES.iter().map(|row| row.name).filter(is_there).collect();
        let names_there = names.join(", ");
        anyhow::ensure!(
            names.contains(&store),
            "--store: no store {store:?} with --side {side}; there are {names_there}"
        );
        let caching: Vec<_> =
            STORES.iter().filter(|row| row.read_cache.is_some()).map(|row| row.name).collect();
        let caching = caching.join(", ");
        anyhow::ensure!(!lacks_cache, "--cache: store {store} keeps no pairs for reads; {caching} does");
        Ok(())
    }

    /// The key of the read cache of a store on the host, if it has one.
    pub fn read_cache_on_host(&self) -> Option<&'static str> {
        let store = self.store.as_deref().filter(|_| self.side.as_deref() == Some(HOST))?;
        store_row(store)?.read_cache
    }

    /// The key that `--cache` is short for.
    fn cache_key(&self) -> &'static str {
        self.read_cache_on_host().unwrap_or("saker.cache_bytes")
    }

    /// The configuration these options describe.
    pub fn document(&self) -> anyhow::Result<Document> {
        self.check_store()?;
        let read = |path: &PathBuf| Ok((shown(path), read_text(path)?));
        let files = self.config.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let profile = self.profile(&files)?;
        let mut document = Document::profile(profile).map_err(|error| match profile.ends_with(".toml") {
            true => anyhow::anyhow!("{error}; --config {profile} lays a file over a profile"),
            false => error.into(),
        })?;
        if let Some(dram) = &self.dram {
            document.set_dram(dram)?;
        }
        if let Some(scale) = self.scale {
            document.set("workload.preset=plus")?;
            if self.num.is_none() && self.value_size.is_none() {
                pairs_fit(&document)?;
            }
            // Whose buffers are shrunk.
            for (_, key, value) in self.short_options() {
                if let (true, Some(value)) = (OF_STORES.contains(&key), value) {
                    document.set(&format!("{key}={value}"))?;
                }
            }
            document.shrink(scale)?;
            document.config().with_context(|| format!("--scale {scale}"))?;
        }
        self.lay_over(&mut document, &files)?;
        // A point that something else was laid over is none any more.
        let over = self.set.iter().find(|set| set.trim_start().starts_with("hash.dram_"));
        if let (Some(dram), None, Some(set)) = (&self.dram, document.dram_point(), over) {
            anyhow::bail!("--set {set}: --dram {dram} sets it too, to another value; leave one of them out");
        }
        let config = document.config()?;
        self.check_for_drive(&config)?;
        check_for_medium(&config.media)?;
        Ok(document)
    }

    /// As [`document`](Settings::document), for a command that asks the drive itself.
    pub fn document_of_drive(&self, command: &str) -> anyhow::Result<Document> {
        let document = self.document_of_pairs(command)?;
        anyhow::ensure!(
            !document.config()?.saker.enabled,
            "saker.enabled: {command} asks the drive itself; kvdrive run asks SAKER"
        );
        Ok(document)
    }

    /// As [`document`](Settings::document), for a command that asks a drive of pairs, with SAKER in front or not.
    pub fn document_of_pairs(&self, command: &str) -> anyhow::Result<Document> {
        let document = self.document()?;
        anyhow::ensure!(
            !document.config()?.has_store_on_host(),
            "host.store: {command} asks the drive, not a store on the host; kvdrive run does"
        );
        Ok(document)
    }

    /// What was asked for beside profile, DRAM and scale.
    fn lay_over(&self, document: &mut Document, files: &[(String, String)]) -> Result<(), ConfigError> {
        for (name, text) in files {
            document.merge_text(name, text).map_err(|error| match error.key.starts_with(name.as_str()) {
                true => error,
                // Of a key, and not of the syntax.
                false => ConfigError { key: format!("{name}: {}", error.key), ..error },
            })?;
        }
        let options = self.short_options().into_iter().filter_map(|(option, key, value)| {
            let value = value?;
            Some((format!("{option} {value}"), format!("{key}={value}")))
        });
        Assigned::lay_over(document, options.chain(self.settings())).map(drop)
    }

    /// Every `--set`, with its name in messages.
    fn settings(&self) -> impl Iterator<Item = (String, String)> {
        self.set.iter().map(|assignment| (format!("--set {assignment}"), assignment.clone()))
    }

    /// Refuses a `--set` that none of these runs, which were made of it, would look at.
    pub fn check_looked_at<'a>(
        &self,
        runs: impl IntoIterator<Item = &'a Config> + Clone,
    ) -> Result<(), ConfigError> {
        Assigned::lay_over(&mut Document::profile(DEFAULT_PROFILE)?, self.settings())?.check_looked_at(runs)
    }

    /// The configuration of a run: as [`document`](Settings::document), and no option or `--set` that it would
    /// not look at.
    pub fn document_of_run(&self) -> anyhow::Result<Document> {
        let document = self.document()?;
        self.check_for_run(&document)?;
        Ok(document)
    }

    /// Refuses an option or `--set` that the run of `document`, which was made of them, would not look at.
    pub fn check_for_run(&self, document: &Document) -> anyhow::Result<()> {
        let config = document.config()?;
        self.check_for_workload(&config)?;
        Ok(self.check_looked_at([&config])?)
    }

    /// As [`document_of_drive`](Settings::document_of_drive), for a command whose work comes from elsewhere, as
    /// `whence` says: no option or `--set` that describes work, and none that the drive would not look at.
    pub fn document_without_work(&self, command: &str, whence: &str) -> anyhow::Result<Document> {
        self.refuse_work(command, whence)?;
        let document = self.document_of_drive(command)?;
        self.check_looked_at([&document.config()?])?;
        Ok(document)
    }

    /// The configuration of one of several runs: a `--set` may be for the others.
    pub fn document_of_one_run(&self) -> anyhow::Result<Document> {
        let document = self.document()?;
        self.check_for_workload(&document.config()?)?;
        Ok(document)
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

    /// The options that stand for a key each, as they were given.
    fn short_options(&self) -> [(&'static str, &'static str, Option<String>); 26] {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let trace = self.workload.as_deref().and_then(|workload| workload.strip_prefix("trace:"));
        let verify = match (self.verify, self.verify_only) {
            (true, _) => Some("values"),
            (_, true) => Some("only"),
            _ => None,
        };
        let is_on_host = self.side.as_deref() == Some(HOST);
        let saker = self.saker.as_deref().map(switch);
        let batch = self.batch.as_deref().map(|batch| if batch == ADAPTIVE { "0" } else { batch });
        let nand = self.nand.as_deref().map(switch);
        [
            ("--workload", "workload.name", trace.map(|_| "trace".to_owned()).or(self.workload.clone())),
            ("--workload", "workload.trace", trace.map(str::to_owned)),
            ("--distribution", "workload.distribution", self.distribution.clone()),
            ("--ops", "workload.ops", number(self.ops)),
            ("--rate", "workload.rate_per_s", self.rate.clone()),
            ("--arrivals", "workload.arrivals", self.arrivals.clone()),
            ("--duration", "workload.duration_ns", number(self.duration)),
            (
                if self.verify { "--verify" } else { "--verify-only" },
                "workload.verify",
                verify.map(str::to_owned),
            ),
            ("--value-size", "workload.value_size", self.value_size.clone()),
            ("--num", "workload.num", number(self.num)),
            ("--transfer", "host.transfer", self.transfer.clone()),
            ("--packing", "packing.policy", self.packing.clone()),
            ("--engine", "engine.name", self.engine.clone()),
            ("--side", "engine.name", is_on_host.then(|| BLOCK.name.to_owned())),
            ("--store", if is_on_host { "host.store" } else { "engine.name" }, self.store.clone()),
            ("--threads", "host.threads", number(self.threads)),
            ("--saker", "saker.enabled", saker),
            ("--batch", "saker.batch", batch.map(str::to_owned)),
            ("--cache", self.cache_key(), self.cache.clone()),
            ("--media", "media.kind", self.media.clone()),
            ("--nand", "nand.enabled", nand),
            ("--depth", "host.depth", number(self.depth)),
            ("--queues", "host.queues", number(self.queues)),
            ("--io-threads", "controller.io_threads", number(self.io_threads)),
            ("--seed", "run.seed", self.seed.clone()),
            ("--clock", "run.clock", self.clock.clone()),
        ]
    }
}

/// A switch of an option as the configuration has it.
fn switch(value: &str) -> String {
    match value {
        "on" => "true".to_owned(),
        "off" => "false".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_engines::hash::SCHEMES;

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
            (
                "--value-size: workload.name=w-m does not ",
                Settings { value_size: Some("33".into()), ..on("w-m", None) },
            ),
            ("--num: workload.name=fillseq does not ", Settings { num: Some(33), ..on("fillseq", None) }),
            (
                "--distribution: workload.name=fillseq does not ",
                Settings { distribution: Some("zipfian".into()), ..on("fillseq", None) },
            ),
            (
                "--io-threads: controller.dispatch=context does not ",
                Settings { io_threads: Some(2), ..on("w-a", None) },
            ),
            (
                "--dram: engine.name=lsm does not ",
                Settings { dram: Some("total-128".into()), ..on("w-a", None) },
            ),
            (
                "--packing: engine.name=plus does not ",
                Settings { packing: Some("block".into()), ..on("plus-a", Some("plus")) },
            ),
        ];
        for (begin, settings) in &refused {
            let error = error(settings);
            assert!(error.starts_with(begin), "{begin}: {error}");
        }
    }

    /// What it is the size of: SAKER's cache, or that of a store on the host.
    #[test]
    fn a_cache_is_that_of_who_answers_reads_on_the_host() {
        let of = |side: &str, store: &str, saker: &str| Settings {
            side: Some(side.into()),
            store: Some(store.into()),
            saker: Some(saker.into()),
            cache: Some("64MiB".into()),
            ..Settings::default()
        };
        let sizes = |settings: Settings| {
            let config = settings.document_of_run().unwrap().config().unwrap();
            (config.lsmtree.row_cache_bytes, config.saker.cache_bytes)
        };
        assert_eq!(sizes(of("host", "lsmtree", "off")), (64 << 20, 0));
        assert_eq!(sizes(of("disk", "lsmtree", "on")), (0, 64 << 20));
        for (settings, line) in [
            (of("host", "hashlog", "off"), "--cache: store hashlog keeps no pairs for reads; lsmtree does"),
            (of("host", "btree", "off"), "--cache: store btree keeps no pairs for reads; lsmtree does"),
            (
                of("disk", "lsmtree", "off"),
                "--cache: saker.enabled=false does not look at it; saker.enabled=true does",
            ),
            (Settings { side: None, store: None, ..of("", "", "off") }, "--cache: saker.enabled=false "),
        ] {
            let error = error(&settings);
            assert!(error.starts_with(line) && error.lines().count() == 1, "{error}");
        }
        // By keys alone the option still means the cache of SAKER.
        let keys = with_sets(&["engine.name=block", "host.store=lsmtree"]);
        let keys = error(&Settings { cache: Some("64MiB".into()), ..keys });
        assert!(keys.starts_with("--cache: saker.enabled=false "), "{keys}");
    }

    fn with_sets(sets: &[&str]) -> Settings {
        Settings { set: sets.iter().map(|set| (*set).to_owned()).collect(), ..Settings::default() }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_with_both_named() {
        let seed = Settings { seed: Some("2".into()), ..with_sets(&["run.seed=3"]) };
        let size = Settings { value_size: Some("4KiB".into()), ..with_sets(&["workload.value_size=4095"]) };
        let size = Settings { workload: Some("w-a".into()), ..size };
        let dram = Settings { dram: Some("total-128".into()), ..with_sets(&["hash.dram_bytes=1MiB"]) };
        let dram = Settings { engine: Some("plus".into()), ..dram };
        let presets = ["workload.preset=all_random", "workload.preset=all_dist"];
        for (settings, first, second) in [
            (seed, "--seed 2", "--set run.seed=3"),
            (size, "--value-size 4KiB", "--set workload.value_size=4095"),
            (dram, "--dram total-128", "--set hash.dram_bytes=1MiB"),
            (with_sets(&["run.seed=2", "run.seed=3"]), "--set run.seed=2", "--set run.seed=3"),
            (with_sets(&presets), "--set workload.preset=all_random", "--set workload.preset=all_dist"),
        ] {
            let error = error(&settings);
            assert!(error.starts_with(&format!("{second}: {first} sets ")), "{error}");
        }
        // One value, however it is written.
        let size = Settings { value_size: Some("4KiB".into()), ..with_sets(&["workload.value_size=4096"]) };
        Settings { workload: Some("w-a".into()), ..size }.document_of_run().unwrap();
    }

    /// Each option that a declaration names is one of the command, and stands for that key.
    #[test]
    fn a_declared_option_is_short_for_its_key() {
        let command = Settings::augment_args(clap::Command::new("kvdrive"));
        let options: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        let short = Settings::default().short_options();
        for setting in kvdrive_config::settings() {
            let Some(option) = setting.option else { continue };
            assert!(options.contains(&option), "{}: --{option}", setting.key);
            let long = format!("--{option}");
            assert!(short.iter().any(|(name, key, _)| *name == long && *key == setting.key), "{long}");
        }
    }

    #[test]
    fn a_preset_is_where_settings_begin_wherever_it_stands() {
        let theta = |sets: &[&str]| with_sets(sets).document_of_run().unwrap().config().unwrap().workload;
        let (before, after) = ("workload.key_dist_a=0.5", "workload.preset=all_dist");
        assert_eq!(theta(&[before, after]), theta(&[after, before]));
        assert_eq!(theta(&[before, after]).key_dist_a, 0.5);
    }

    #[test]
    fn a_setting_that_the_run_does_not_look_at_is_refused_by_its_name() {
        for (sets, line) in [
            (
                &["host.transfer=piggyback", "host.alpha=2"][..],
                "--set host.alpha=2: host.transfer=piggyback ",
            ),
            (
                &["packing.policy=all", "packing.dlt_entries=4"],
                "--set packing.dlt_entries=4: packing.policy=all ",
            ),
            (&["workload.scan_length_max=4"], "--set workload.scan_length_max=4: workload.name=w-m "),
        ] {
            let error = error(&with_sets(sets));
            assert!(error.starts_with(line), "{error}");
        }
    }

    #[test]
    fn a_setting_of_work_is_refused_where_work_comes_from_elsewhere() {
        let refused = |sets: &[&str]| {
            let document = with_sets(sets).document_without_work("serve", "hosts bring the work");
            document.map(|_| ()).unwrap_err().to_string()
        };
        for set in ["workload.ops=3", " host.transfer=prp", "saker.batch=4", "run.clock=wall"] {
            let line = format!("--set {set}: serve does not look at it; hosts bring the work");
            assert_eq!(refused(&[set]), line);
        }
        let error = refused(&["packing.policy=all", "packing.dlt_entries=4"]);
        assert!(error.starts_with("--set packing.dlt_entries=4: packing.policy=all "), "{error}");
        with_sets(&["packing.policy=all", "run.seed=3"]).document_without_work("serve", "").unwrap();
    }

    /// Of the page of commands, each with the workload and the medium that stand in its line.
    #[test]
    fn every_example_of_a_setting_is_a_drive_that_can_be_had() {
        let commands = include_str!("../../../../docs/commands.md");
        let after = |line: &str, option: &str| {
            let rest = line.split(option).nth(1)?;
            rest.split(['`', ' ', ')', ',']).next().map(str::to_owned)
        };
        let mut examples = Vec::new();
        for line in commands.lines() {
            let (workload, media) = (after(line, "--workload "), after(line, "--media "));
            let set = line.split("--set ").skip(1).filter_map(|rest| rest.split(['`', ' ', ')']).next());
            examples.extend(
                set.filter(|set| set.contains('=')).map(|set| (workload.clone(), media.clone(), set)),
            );
        }
        assert!(examples.contains(&(None, None, "flash.channels=8")), "{examples:?}");
        for (workload, media, example) in examples {
            let settings = Settings { workload, media, set: vec![example.to_owned()], ..Settings::default() };
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
        for scheme in SCHEMES {
            let hash = refused(&[&format!("engine.name={}", scheme.name), "power.protected_bytes=1MiB"]);
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
            let refused = error(&scaled(scale));
            let begin = "--scale: the pairs of the Plus paper, 100 GB, do not fit on cosmos-plus, 68 GB; \
                         its drive is --profile kvvirt, which is that of --engine original, plus, ";
            assert!(refused.starts_with(begin), "{refused}");
            Settings { engine: Some("plus".into()), ..scaled(scale) }.document_of_run().unwrap();
            let lsm = Settings { profile: Some("kvvirt".into()), ..scaled(scale) };
            Settings { engine: Some("lsm".into()), ..lsm }.document_of_run().unwrap();
        }
        Settings { num: Some(1000), ..scaled("1/64") }.document_of_run().unwrap();
    }
}
