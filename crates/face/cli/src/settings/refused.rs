//! Options that are given and would not be looked at: each is refused by its name, with the reason.

use kvdrive_config::{Config, Document, default_profile};
use kvdrive_device::MediaConfig;
use kvdrive_device::engines::ENGINES;

use super::Settings;

/// Sections of the configuration that say what a drive is asked, and how.
const OF_WORK: &[&str] = &["workload.", "host.", "saker."];
/// Keys that say when operations begin and end, and what becomes of what they read.
const OF_LOAD: &[&str] =
    &["workload.rate_per_s", "workload.arrivals", "workload.duration_ns", "workload.verify"];

/// Does the setting of this key describe what a drive is asked?
pub fn describes_work(key: &str) -> bool {
    key == "run.clock" || OF_WORK.iter().any(|section| key.starts_with(section))
}

impl Settings {
    /// Options that were given, each with the key that it stands for.
    fn given(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let dram = self.dram.is_some().then_some(("--dram", "hash.dram_bytes"));
        let short = self.short_options().into_iter().filter(|(_, _, value)| value.is_some());
        dram.into_iter().chain(short.map(|(option, key, _)| (option, key)))
    }

    /// Refuses options that the drive would not look at.
    pub(super) fn check_for_drive(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(config, self.given().filter(|(_, key)| !key.starts_with("workload.")))
    }

    /// Refuses options that the workload would not look at.
    pub(super) fn check_for_workload(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(config, self.given().filter(|(_, key)| key.starts_with("workload.")))
    }

    /// Refuses what describes work, for a command whose work comes from elsewhere.
    pub(super) fn refuse_work(&self, command: &str, whence: &str) -> anyhow::Result<()> {
        let option = self.given().find(|(_, key)| describes_work(key)).map(|(option, _)| option.to_owned());
        let is_of_work =
            |set: &&String| describes_work(set.split_once('=').map_or(set.as_str(), |(key, _)| key).trim());
        let set = self.set.iter().find(is_of_work).map(|set| format!("--set {set}"));
        match option.or(set) {
            Some(given) => anyhow::bail!("{given}: {command} does not look at it; {whence}"),
            None => Ok(()),
        }
    }

    /// Refuses options of load, for a command that does one operation after the other.
    pub fn refuse_load(&self, command: &str) -> anyhow::Result<()> {
        match self.given().find(|(_, key)| OF_LOAD.contains(key)) {
            Some((option, _)) => anyhow::bail!("{option}: {command} does not look at it; kvdrive run does"),
            None => Ok(()),
        }
    }
}

/// Refuses the first of some options that a run would not look at.
fn refuse_ignored(
    config: &Config,
    mut options: impl Iterator<Item = (&'static str, &'static str)>,
) -> anyhow::Result<()> {
    let refused = options.find_map(|(option, key)| config.ignores(key).map(|why| (option, why)));
    refused.map_or(Ok(()), |(option, why)| Err(anyhow::anyhow!("{option}: {why}")))
}

/// Refuses settings of an image file for a medium that has none: a user who names a file expects to find the
/// drive in it.
pub(super) fn check_for_medium(media: &MediaConfig) -> anyhow::Result<()> {
    let (has_file, MediaConfig { kind, path, sync, read_only }) = (media.has_file(), media);
    let path = path.as_deref().unwrap_or("".as_ref());
    anyhow::ensure!(
        has_file || path.as_os_str().is_empty(),
        "media.path: {path:?}; medium {kind} has no file: add --media file, or take the path away"
    );
    anyhow::ensure!(
        has_file || !sync,
        "media.sync: true; medium {kind} has no file: add --media file, or set it to false"
    );
    anyhow::ensure!(
        has_file || !read_only,
        "media.read_only: true; medium {kind} has no file: add --media file, or set it to false"
    );
    Ok(())
}

/// Refuses a drive that is too small for the pairs of the Plus paper, whatever part of both is taken.
pub(super) fn pairs_fit(document: &Document) -> anyhow::Result<()> {
    let config = document.config()?;
    let pairs_bytes = config.workload.num * u64::from(config.workload.value_size);
    let flash_bytes = config.flash.geometry().data_bytes();
    let engines: Vec<_> =
        ENGINES.iter().filter(|row| default_profile(row.name) == "kvvirt").map(|row| row.name).collect();
    anyhow::ensure!(
        pairs_bytes <= flash_bytes,
        "--scale: the pairs of the Plus paper, {} GB, do not fit on {}, {} GB; its drive is --profile kvvirt, which \
         is that of --engine {}",
        pairs_bytes / 1_000_000_000,
        document.profile_name(),
        flash_bytes / 1_000_000_000,
        engines.join(", ")
    );
    Ok(())
}
