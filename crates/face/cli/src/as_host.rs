//! As whom a drive on a network is asked: the host's name, what it proves that with, TLS. Not where the drive is.

use anyhow::Context;
use clap::Args;
use kvdrive_auth::psk::Version;
use kvdrive_auth::{Psk, Secret, tls};
use kvdrive_host::reach::Remote;
use kvdrive_host::tcp::{Authentication, Options, Tls};

use crate::nqn::name;
use crate::secret;

/// Options of the host, for every command that is one. They need an option or argument of the group `remote`.
#[derive(Args)]
pub struct AsHost {
    /// Name of this host [default: one that kvdrive makes]
    #[arg(long, hide_short_help = true, value_name = "NQN", value_parser = name, requires = "remote")]
    host_nqn: Option<String>,
    /// Secret with which this host authenticates (DH-HMAC-CHAP), or a file that contains it
    #[arg(long, hide_short_help = true, value_name = "SECRET|@FILE", requires = "remote")]
    dhchap_secret: Option<String>,
    /// Secret with which the subsystem has to authenticate to this host
    #[arg(long, hide_short_help = true, value_name = "SECRET|@FILE", requires = "dhchap_secret")]
    dhchap_ctrl_secret: Option<String>,
    /// Connects by TLS 1.3 with this PSK, or a file that contains it
    #[arg(long, hide_short_help = true, value_name = "PSK|@FILE", requires = "remote")]
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

impl AsHost {
    /// # Errors
    /// An option is given, and `remote` is a device, to which its kernel has the connection.
    pub fn check(&self, remote: &Remote) -> anyhow::Result<()> {
        let given = [
            ("--host-nqn", self.host_nqn.is_some()),
            ("--dhchap-secret", self.dhchap_secret.is_some()),
            ("--tls-psk", self.tls_psk.is_some()),
        ];
        let first = given.iter().find(|(_, is_given)| remote.is_node() && *is_given);
        first.map_or(Ok(()), |(option, _)| {
            anyhow::bail!("{option}: the kernel has the connection to {}; leave it out", remote.address)
        })
    }

    /// How connections are made.
    ///
    /// # Errors
    /// A secret or PSK that is none, or a PSK where TLS is not built in.
    pub fn options(&self) -> anyhow::Result<Options> {
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
        let of_any = Options::default();
        let host_nqn = self.host_nqn.clone().unwrap_or(of_any.host_nqn);
        Ok(Options { host_nqn, authentication, tls, ..of_any })
    }
}
