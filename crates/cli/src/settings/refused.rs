//! Options that are given and would not be looked at: each is refused by its name, with the reason.

use kvdrive_device::MediaConfig;
use kvdrive_device::engines::ENGINES;
use kvdrive_lab::config::{Config, Document};

use super::Settings;

/// Sections of the configuration that say what a drive is asked, and how.
const OF_WORK: &[&str] = &["workload.", "host.", "saker."];

impl Settings {
    /// Refuses options that the drive would not look at.
    pub(super) fn check_for_drive(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(
            config,
            &[
                ("--dram", "hash.dram_bytes", self.dram.is_some()),
                ("--packing", "packing.policy", self.packing.is_some()),
                ("--io-threads", "controller.io_threads", self.io_threads.is_some()),
                ("--threads", "host.threads", self.threads.is_some()),
                ("--batch", "saker.batch", self.batch.is_some()),
                ("--cache", self.cache_key(), self.cache.is_some()),
                ("--depth", "host.depth", self.depth.is_some()),
                ("--transfer", "host.transfer", self.transfer.is_some()),
                ("--queues", "host.queues", self.queues.is_some()),
            ],
        )
    }

    /// Refuses options that the workload would not look at.
    pub(super) fn check_for_workload(&self, config: &Config) -> anyhow::Result<()> {
        refuse_ignored(
            config,
            &[
                ("--value-size", "workload.value_size", self.value_size.is_some()),
                ("--num", "workload.num", self.num.is_some()),
                ("--arrivals", "workload.arrivals", self.arrivals.is_some()),
                ("--distribution", "workload.distribution", self.distribution.is_some()),
            ],
        )
    }

    /// Options that describe work, and whether they are given.
    fn work(&self) -> [(&'static str, bool); 13] {
        [
            ("--workload", self.workload.is_some()),
            ("--ops", self.ops.is_some()),
            ("--distribution", self.distribution.is_some()),
            ("--value-size", self.value_size.is_some()),
            ("--num", self.num.is_some()),
            ("--transfer", self.transfer.is_some()),
            ("--depth", self.depth.is_some()),
            ("--queues", self.queues.is_some()),
            ("--threads", self.threads.is_some()),
            ("--saker", self.saker.is_some()),
            ("--batch", self.batch.is_some()),
            ("--cache", self.cache.is_some()),
            ("--clock", self.clock.is_some()),
        ]
    }

    /// Options of load, and whether they are given.
    fn load(&self) -> [(&'static str, bool); 5] {
        [
            ("--rate", self.rate.is_some()),
            ("--arrivals", self.arrivals.is_some()),
            ("--duration", self.duration.is_some()),
            ("--verify", self.verify),
            ("--verify-only", self.verify_only),
        ]
    }

    /// Refuses what describes work, for a command whose work comes from elsewhere.
    pub(super) fn refuse_work(&self, command: &str, whence: &str) -> anyhow::Result<()> {
        let options = self.work().into_iter().chain(self.load());
        let option = options.filter(|(_, given)| *given).map(|(option, _)| option.to_owned()).next();
        let describes_work = |set: &&String| {
            let key = set.split_once('=').map_or(set.as_str(), |(key, _)| key).trim();
            key == "run.clock" || OF_WORK.iter().any(|section| key.starts_with(section))
        };
        let set = self.set.iter().find(describes_work).map(|set| format!("--set {set}"));
        match option.or(set) {
            Some(given) => anyhow::bail!("{given}: {command} does not look at it; {whence}"),
            None => Ok(()),
        }
    }

    /// Refuses options of load, for a command that does one operation behind the other.
    pub fn refuse_load(&self, command: &str) -> anyhow::Result<()> {
        match self.load().into_iter().find(|(_, given)| *given) {
            Some((option, _)) => anyhow::bail!("{option}: {command} does not look at it; kvdrive run does"),
            None => Ok(()),
        }
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
pub(super) fn check_for_medium(media: &MediaConfig) -> anyhow::Result<()> {
    let (has_file, MediaConfig { kind, path, sync }) = (media.has_file(), media);
    let path = path.as_deref().unwrap_or("".as_ref());
    anyhow::ensure!(
        has_file || path.as_os_str().is_empty(),
        "media.path: {path:?}; medium {kind} has no file: add --media file, or take the path away"
    );
    anyhow::ensure!(
        has_file || !sync,
        "media.sync: true; medium {kind} has no file: add --media file, or set it to false"
    );
    Ok(())
}

/// Refuses a drive that is too small for the pairs of the Plus paper, whatever part of both is taken.
pub(super) fn pairs_fit(document: &Document) -> anyhow::Result<()> {
    let config = document.config()?;
    let pairs_bytes = config.workload.num * u64::from(config.workload.value_size);
    let flash_bytes = config.flash.geometry().data_bytes();
    let engines: Vec<_> = ENGINES.iter().filter(|row| row.profile == "kvvirt").map(|row| row.name).collect();
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
