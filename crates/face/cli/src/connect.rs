//! `--connect`: drives on a network instead of one in this process.

use anyhow::Context;
use clap::Args;
use kvdrive_auth::psk::Version;
use kvdrive_auth::{Psk, Secret, tls};
use kvdrive_config::{Document, RunOptions};
use kvdrive_host::reach::{ReachError, Remote, address};
use kvdrive_host::tcp::{Authentication, Options, Tls};

use crate::nqn::name;
use crate::secret;

/// Sections and keys of the configuration that concern the host; all others concern the drive.
const OF_HOST: [&str; 7] =
    ["workload.", "saker.", "run.seed", "run.interval_ns", "host.depth", "host.queue", "host.threads"];
/// Options that describe a drive.
const OF_DRIVE: &[&str] = &[
    "profile",
    "scale",
    "dram",
    "transfer",
    "packing",
    "engine",
    "side",
    "store",
    "media",
    "nand",
    "io-threads",
];

/// Options of drives on a network.
#[derive(Args)]
#[command(next_help_heading = "Network")]
pub struct Connection {
    /// Runs against a drive that has a namespace of pairs: on a network, as tcp://127.0.0.1:4420 (`kvdrive serve` serves
    /// one), or behind a device of Linux, as /dev/ng0n1. Several drives, with commas, are used as one: each pair is on
    /// one of them
    #[arg(long, value_name = "tcp://HOST:PORT|/dev/ngXnY,...", value_parser = address, value_delimiter = ',')]
    connect: Vec<String>,
    /// Name of the subsystem of the drive [default: the only one that discovery reports]
    #[arg(long, hide_short_help = true, value_parser = name, requires = "connect")]
    nqn: Option<String>,
    /// Namespace of the drive [default: the first one that has pairs]
    #[arg(long, hide_short_help = true, value_name = "N", requires = "connect")]
    nsid: Option<u32>,
    /// Digests of NVMe/TCP: of headers, of data, or of both
    #[arg(long, hide_short_help = true, value_name = "header|data|both", value_parser = ["header", "data", "both"], hide_possible_values = true, requires = "connect")]
    digests: Option<String>,
    /// Name of this host [default: one that kvdrive makes]
    #[arg(long, hide_short_help = true, value_name = "NQN", value_parser = name, requires = "connect")]
    host_nqn: Option<String>,
    /// Secret with which this host authenticates (DH-HMAC-CHAP), or a file that contains it
    #[arg(long, hide_short_help = true, value_name = "SECRET|@FILE", requires = "connect")]
    dhchap_secret: Option<String>,
    /// Secret with which the subsystem has to authenticate to this host
    #[arg(long, hide_short_help = true, value_name = "SECRET|@FILE", requires = "dhchap_secret")]
    dhchap_ctrl_secret: Option<String>,
    /// Connects by TLS 1.3 with this PSK, or a file that contains it
    #[arg(long, hide_short_help = true, value_name = "PSK|@FILE", requires = "connect")]
    tls_psk: Option<String>,
    /// Version of the PSK's identity
    #[arg(long, hide_short_help = true, value_name = "0|1", default_value = "1", value_parser = secret::version, requires = "tls_psk")]
    psk_version: Version,
    /// How TLS keys are derived from the PSK: as specified, or as by older versions of libnvme
    #[arg(
        long,
        hide_short_help = true,
        value_name = "rfc8446|libnvme",
        default_value = "rfc8446",
        hide_possible_values = true,
        requires = "tls_psk"
    )]
    psk_derivation: secret::PskDerivation,
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
        let secret = |option, text: &String| secret::read::<Secret>(text).context(option);
        let own = self.dhchap_secret.as_ref().map(|text| secret("--dhchap-secret", text)).transpose()?;
        let controllers = self.dhchap_ctrl_secret.as_ref();
        let controller_secret = controllers.map(|text| secret("--dhchap-ctrl-secret", text)).transpose()?;
        let authentication = own.map(|own| Authentication { controller_secret, ..Authentication::from(own) });
        let psk =
            self.tls_psk.as_ref().map(|text| secret::read::<Psk>(text).context("--tls-psk")).transpose()?;
        if psk.is_some() {
            tls::is_built_in().context("--tls-psk")?;
        }
        let (version, derivation) = (self.psk_version, self.psk_derivation.into());
        let tls = psk.map(|psk| Tls { psk, version, derivation });
        let has =
            |digest: &str| self.digests.as_deref().is_some_and(|asked| asked == digest || asked == "both");
        let of_any = Options::default();
        let options = Options {
            header_digest: has("header"),
            data_digest: has("data"),
            host_nqn: self.host_nqn.clone().unwrap_or(of_any.host_nqn),
            authentication,
            tls,
            ..of_any
        };
        let remote = |address: &String| Remote {
            address: address.clone(),
            nqn: self.nqn.clone(),
            nsid: self.nsid,
            options: options.clone(),
        };
        Ok(self.connect.iter().map(remote).collect())
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
        if let Some(option) = asked.first_given(OF_DRIVE) {
            anyhow::bail!("{option}: the drive of --connect is configured by its server; leave it out");
        }
        let is_drives = |set: &&String| !OF_HOST.iter().any(|key| set.trim_start().starts_with(key));
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
