//! `--connect`: drives on a network instead of one in this process.

use clap::Args;
use kvdrive_config::{Document, RunOptions};
use kvdrive_host::reach::{ReachError, Remote, address};
use kvdrive_host::tcp::Options;

use crate::as_host::AsHost;
use crate::nqn::name;

/// Sections and keys of the configuration that concern the host; all others concern the drive.
const OF_HOST: [&str; 7] =
    ["workload.", "saker.", "run.seed", "run.interval_ns", "host.depth", "host.queue", "host.threads"];
/// Sections that a store on the host reads, too.
const OF_STORES: [&str; 5] = ["host.store", "store.", "hashlog.", "lsmtree.", "btree."];
/// Options that describe a drive.
const OF_DRIVE: &[&str] =
    &["profile", "scale", "dram", "transfer", "packing", "engine", "media", "nand", "io-threads"];

/// Options of drives on a network.
#[derive(Args)]
#[command(next_help_heading = "Network")]
pub struct Connection {
    /// Runs against a drive that has a namespace of pairs, or with --store and --side host one of blocks: on a network, as tcp://127.0.0.1:4420 (`kvdrive serve` serves
    /// one), or behind a device of Linux, as /dev/ng0n1. Several drives, with commas, are used as one: each pair is on
    /// one of them
    #[arg(long, value_name = "tcp://HOST:PORT|/dev/ngXnY,...", value_parser = address, value_delimiter = ',', group = "remote")]
    connect: Vec<String>,
    /// Name of the subsystem of the drive [default: the only one that discovery reports]
    #[arg(long, hide_short_help = true, value_parser = name, requires = "connect")]
    nqn: Option<String>,
    /// Namespace of the drive [default: the first one that has what is needed]
    #[arg(long, hide_short_help = true, value_name = "N", requires = "connect")]
    nsid: Option<u32>,
    /// Digests of NVMe/TCP: of headers, of data, or of both
    #[arg(long, hide_short_help = true, value_name = "header|data|both", value_parser = ["header", "data", "both"], hide_possible_values = true, requires = "connect")]
    digests: Option<String>,
    #[command(flatten)]
    host: AsHost,
}

impl Connection {
    /// Is a drive on a network asked for?
    pub fn is_asked_for(&self) -> bool {
        !self.connect.is_empty()
    }

    /// Where the drives are; none without the option.
    ///
    /// # Errors
    /// A secret that is none, or one name for several subsystems.
    pub fn remotes(&self) -> anyhow::Result<Vec<Remote>> {
        let is_one = self.connect.len() < 2 || self.nqn.is_none();
        anyhow::ensure!(is_one, "--nqn: each drive of --connect has a name of its own; leave it out");
        let has =
            |digest: &str| self.digests.as_deref().is_some_and(|asked| asked == digest || asked == "both");
        let (header_digest, data_digest) = (has("header"), has("data"));
        let options = Options { header_digest, data_digest, ..self.host.options()? };
        let remote = |address: &String| Remote {
            address: address.clone(),
            nqn: self.nqn.clone(),
            nsid: self.nsid,
            options: options.clone(),
        };
        let remotes: Vec<_> = self.connect.iter().map(remote).collect();
        remotes.iter().try_for_each(|remote| self.host.check(remote))?;
        Ok(remotes)
    }

    /// An error of a run, with the option that helps.
    pub fn explained(error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<ReachError>() {
            Some(ReachError::Unnamed(_)) => anyhow::anyhow!("{error:#} (--nqn names it)"),
            _ => error,
        }
    }

    /// The configuration of a run against it, without options that describe a drive.
    ///
    /// # Errors
    /// Such an option is given.
    pub fn document(asked: &RunOptions) -> anyhow::Result<Document> {
        let is_on_host = asked.is_on_host();
        let in_drive: &[&str] = if is_on_host { &[] } else { &["side", "store"] };
        if let Some(option) = asked.first_given(OF_DRIVE).or(asked.first_given(in_drive)) {
            anyhow::bail!("{option}: the drive of --connect is configured by its server; leave it out");
        }
        let of_stores = OF_STORES.iter().filter(|_| is_on_host);
        let is_drives = |set: &&String| {
            !OF_HOST.iter().chain(of_stores.clone()).any(|key| set.trim_start().starts_with(key))
        };
        if let Some(set) = asked.sets().iter().find(is_drives) {
            anyhow::bail!(
                "--set {set}: with --connect, only workload, saker, run.seed, run.interval_ns, host.depth, host.threads, \
                 host.queues and host.queue_entries can be set"
            );
        }
        anyhow::ensure!(
            asked.get("clock").is_none_or(|clock| clock == "wall"),
            "--clock: a drive on a network runs in wall time; leave it out"
        );
        anyhow::ensure!(
            asked.get("verify-only").is_none() || asked.get("duration").is_none(),
            "--verify-only: needs the number of operations that were done; leave out --duration"
        );
        // The pairs are those of a drive, not of an image.
        Ok(asked.clone().without("verify-only").with("clock", "wall").document_of_run()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_drive_is_refused_by_its_name() {
        let of = |asked: RunOptions| Connection::document(&asked).map(drop).unwrap_err().to_string();
        let error = of(RunOptions::default().with("engine", "plus"));
        assert!(error.starts_with("--engine: "), "{error}");
        let mut asked = RunOptions::default();
        asked.set("flash.channels=8");
        let error = of(asked);
        assert!(error.starts_with("--set flash.channels=8: "), "{error}");
        let error = of(RunOptions::default().with("clock", "virtual"));
        assert!(error.starts_with("--clock: "), "{error}");
    }

    #[test]
    fn an_error_without_a_name_says_which_option_gives_one() {
        let unnamed = ReachError::Unnamed("there are nqn.a, nqn.b; one has to be named".into());
        let error = anyhow::Error::from(unnamed).context("tcp://a:4420");
        let line = Connection::explained(error).to_string();
        assert_eq!(line, "tcp://a:4420: there are nqn.a, nqn.b; one has to be named (--nqn names it)");
    }

    #[test]
    fn a_name_that_no_connect_can_carry_is_refused() {
        assert!(name("foo").unwrap_err().contains("begins with \"nqn.\""));
        assert_eq!(name("nqn.2014-08.org.example:host").unwrap(), "nqn.2014-08.org.example:host");
    }
}
