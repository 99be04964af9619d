//! The options of every command that runs a drive, and the configuration they make.
//!
//! An option is short for a key of the configuration: `--transfer prp` is `--set host.transfer=prp`. The order is
//! profile, `--dram` and `--scale`, then `--config` files, then options, then `--set`: what is given beside a scale is not
//! shrunk by it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kvdrive_device::engines::hash;
use kvdrive_lab::config::{Document, Scale, default_profile};
use kvdrive_lab::workload::{has_distribution, has_own_sizes};

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
    #[arg(long)]
    pub ops: Option<u64>,
    /// Which keys `ycsb-` and `plus-` choose: uniform, zipfian or latest
    #[arg(long)]
    pub distribution: Option<String>,
    /// The runs of the Plus paper at a part of their size, 1 or 1/64: drive, pairs, overwrites, operations and DRAM
    #[arg(long, value_name = "1/N")]
    pub scale: Option<Scale>,
    /// DRAM of hash engines at full size: published, total-128 or total-256 (`kvdrive list dram`)
    #[arg(long)]
    pub dram: Option<String>,
    /// Size of every value, for workloads with one size: 32, or 4KiB
    #[arg(long, value_name = "BYTES")]
    pub value_size: Option<String>,
    /// Keys preloaded and drawn from, for workloads that read or draw
    #[arg(long)]
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
    #[arg(long, value_name = "on|off")]
    pub nand: Option<String>,
    /// Operations under way at once
    #[arg(long)]
    pub depth: Option<u32>,
    /// Queue pairs
    #[arg(long)]
    pub queues: Option<u32>,
    /// Seed of every random stream
    #[arg(long)]
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
        let mut document = Document::profile(self.profile())?;
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
        for path in &self.config {
            document.merge_file(path)?;
        }
        for (key, value) in self.short_options() {
            if let Some(value) = value {
                document.set(&format!("{key}={value}"))?;
            }
        }
        for assignment in &self.set {
            document.set(assignment)?;
        }
        self.check_for(&document.config()?.engine.name)?;
        Ok(document)
    }

    /// Refuses options that the engine would not look at.
    fn check_for(&self, engine: &str) -> anyhow::Result<()> {
        let is_hash_engine = hash::scheme(engine).is_some();
        anyhow::ensure!(
            is_hash_engine || self.dram.is_none(),
            "--dram: engine {engine} has no such budget; --engine original, plus or plus2 has"
        );
        anyhow::ensure!(
            !is_hash_engine || self.packing.is_none(),
            "--packing: engine {engine} places values by itself; --engine lsm does by a policy"
        );
        Ok(())
    }

    /// The configuration of a run: as [`document`](Settings::document), and no option that its workload would not look at.
    pub fn document_of_run(&self) -> anyhow::Result<Document> {
        let document = self.document()?;
        self.check_for_workload(&document.config()?.workload.name)?;
        Ok(document)
    }

    /// Refuses options that the workload would not look at.
    fn check_for_workload(&self, workload: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.value_size.is_none() || !has_own_sizes(workload),
            "--value-size: workload {workload} has sizes of its own; --workload w-a stores values of one size"
        );
        anyhow::ensure!(
            self.distribution.is_none() || has_distribution(workload),
            "--distribution: workload {workload} chooses keys by itself; those of ycsb- and plus- do as asked"
        );
        Ok(())
    }

    fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or_else(|| default_profile(self.engine.as_deref()))
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
            ("host.depth", number(self.depth.map(u64::from))),
            ("host.queues", number(self.queues.map(u64::from))),
            ("run.seed", number(self.seed)),
            ("run.clock", self.clock.clone()),
        ]
    }
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
    use kvdrive_lab::workload::{self, Op, WORKLOADS, WorkloadParams};

    use super::*;

    fn error(settings: &Settings) -> String {
        settings.document_of_run().map(|_| ()).unwrap_err().to_string()
    }

    /// The first operations of a workload, those that load before them.
    fn begin(params: &WorkloadParams) -> Vec<Op> {
        let mut workload = workload::build(params, 1).unwrap();
        let load = (0..workload.preload()).map(|index| {
            let (key, value) = workload.preload_pair(index);
            Op::Store { key, value }
        });
        let mut operations: Vec<Op> = load.collect();
        operations.extend((0..200).map(|_| workload.next()));
        operations
    }

    #[test]
    fn options_that_a_workload_does_not_look_at_are_those_it_refuses() {
        let params = Document::profile("cosmos-plus").unwrap().config().unwrap().workload;
        for row in WORKLOADS {
            let usual = WorkloadParams { name: row.name.into(), num: 1000, ops: 1000, ..params.clone() };
            let resized = WorkloadParams { value_size: usual.value_size + 1, ..usual.clone() };
            let value_size = Settings { value_size: Some("33".into()), ..Settings::default() };
            let is_taken = value_size.check_for_workload(row.name).is_ok();
            assert_eq!(begin(&usual) != begin(&resized), is_taken, "--value-size for {}", row.name);
            // One with a distribution of its own says so in its report, and is compared under it.
            if workload::own_distribution(row.name).is_some() {
                continue;
            }
            let uniform = WorkloadParams { distribution: "uniform".into(), ..usual.clone() };
            let zipfian = WorkloadParams { distribution: "zipfian".into(), ..usual };
            let distribution = Settings { distribution: Some("zipfian".into()), ..Settings::default() };
            let is_taken = distribution.check_for_workload(row.name).is_ok();
            assert_eq!(begin(&uniform) != begin(&zipfian), is_taken, "--distribution for {}", row.name);
        }
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
