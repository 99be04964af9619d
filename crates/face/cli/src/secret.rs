//! Secrets on the command line: as text, or in a file, where other users of this machine do not see them; and `kvdrive
//! secret`, which makes them.

use std::str::FromStr;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::{Psk, Secret};
use kvdrive_nvme::auth::{Group, Hash};
use kvdrive_subsystem::subsystem::Host;

use crate::nqn::name;
use crate::output;

/// The secret or PSK in `text`, or, if `text` is `@FILE`, in that file.
///
/// # Errors
/// A file cannot be read, or is no secret; the message repeats only the name of the file.
pub fn read<S: FromStr>(text: &str) -> anyhow::Result<S>
where
    S::Err: std::error::Error + Send + Sync + 'static,
{
    let Some(path) = text.strip_prefix('@') else { return Ok(text.parse()?) };
    let content = content(path)?;
    content.trim().parse::<S>().with_context(|| path.to_owned())
}

fn content(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

/// Is it meant as a PSK, valid or not? Otherwise it is a secret.
fn is_psk(text: &str) -> anyhow::Result<bool> {
    let named = |text: &str| text.trim_start().starts_with("NVMeTLSkey");
    text.strip_prefix('@').map_or_else(|| Ok(named(text)), |path| Ok(named(&content(path)?)))
}

/// The host in `NQN[=SECRET[,CONTROLLER-SECRET]]`, with a PSK anywhere among them.
///
/// # Errors
/// As [`read`], with the name of the host.
pub fn host(text: &str) -> anyhow::Result<Host> {
    let Some((nqn, secrets)) = text.split_once('=') else { return Ok(Host::from(text)) };
    let mut host = Host::from(nqn);
    for text in secrets.split(',') {
        let what = |what: &str| format!("--host {nqn}: {what}");
        if is_psk(text).with_context(|| what("its secret"))? {
            anyhow::ensure!(host.psk.is_none(), "{}", what("a second PSK"));
            host.psk = Some(read(text).with_context(|| what("its PSK"))?);
        } else if host.secret.is_none() {
            host.secret = Some(read(text).with_context(|| what("its secret"))?);
        } else {
            anyhow::ensure!(host.controller_secret.is_none(), "{}", what("a third secret"));
            host.controller_secret = Some(read(text).with_context(|| what("the subsystem's secret"))?);
        }
    }
    Ok(host)
}

/// A hash of DH-HMAC-CHAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HashName {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl From<HashName> for Hash {
    fn from(name: HashName) -> Hash {
        match name {
            HashName::Sha256 => Hash::Sha256,
            HashName::Sha384 => Hash::Sha384,
            HashName::Sha512 => Hash::Sha512,
        }
    }
}

/// A group of DH-HMAC-CHAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum GroupName {
    /// No key agreement.
    None,
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

impl From<GroupName> for Group {
    fn from(name: GroupName) -> Group {
        match name {
            GroupName::None => Group::Null,
            GroupName::Ffdhe2048 => Group::Ffdhe2048,
            GroupName::Ffdhe3072 => Group::Ffdhe3072,
            GroupName::Ffdhe4096 => Group::Ffdhe4096,
            GroupName::Ffdhe6144 => Group::Ffdhe6144,
            GroupName::Ffdhe8192 => Group::Ffdhe8192,
        }
    }
}

/// The parts of a PSK that TLS uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PskDerivation {
    /// As in the specification.
    Rfc8446,
    /// As in older versions of libnvme.
    Libnvme,
}

impl From<PskDerivation> for Derivation {
    fn from(derivation: PskDerivation) -> Derivation {
        match derivation {
            PskDerivation::Rfc8446 => Derivation::Rfc8446,
            PskDerivation::Libnvme => Derivation::Libnvme,
        }
    }
}

/// The version of a PSK's identity.
///
/// # Errors
/// Another number than 0 and 1.
pub fn version(text: &str) -> Result<Version, String> {
    match text {
        "0" => Ok(Version::Zero),
        "1" => Ok(Version::One),
        _ => Err("allowed: 0, 1".to_owned()),
    }
}

/// Options of `secret`.
#[derive(Args)]
pub struct MakeSecret {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    /// Makes a secret for DH-HMAC-CHAP, of a host or of a subsystem.
    Dhchap {
        /// Hash by which the owner's name goes into the key: 0 none, 1 SHA-256, 2 SHA-384, 3 SHA-512
        #[arg(long, value_name = "0-3", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=3))]
        hash: u8,
    },
    /// Makes a PSK for TLS, which host and subsystem share.
    Psk {
        /// Hash by which the host's name goes into the PSK: 1 SHA-256, for TLS_AES_128_GCM_SHA256; 2 SHA-384, for
        /// TLS_AES_256_GCM_SHA384
        #[arg(long, value_name = "1|2", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
        hash: u8,
    },
    /// Prints the parts of a PSK that TLS uses: its identity, and the key in hexadecimal, in the form of `openssl
    /// s_client`.
    TlsKey {
        /// The PSK
        #[arg(long, value_name = "PSK|@FILE")]
        psk: String,
        /// NQN of the host
        #[arg(long, value_name = "NQN", value_parser = name)]
        host_nqn: String,
        /// NQN of the subsystem
        #[arg(long, value_name = "NQN", value_parser = name)]
        nqn: String,
        /// Version of the identity
        #[arg(long, value_name = "0|1", default_value = "1", value_parser = version)]
        psk_version: Version,
        /// How the key is derived
        #[arg(long, value_name = "rfc8446|libnvme", default_value = "rfc8446", hide_possible_values = true)]
        psk_derivation: PskDerivation,
    },
}

impl MakeSecret {
    /// Prints a secret, or the requested parts of a PSK.
    ///
    /// # Errors
    /// The text is not a PSK.
    pub fn run(&self) -> anyhow::Result<()> {
        let random = |hash: Option<Hash>| kvdrive_auth::random(hash.map_or(32, Hash::bytes));
        let text = match &self.kind {
            Kind::Dhchap { hash } => {
                let hash = Hash::of(*hash);
                Secret::new(hash, &random(hash))?.to_interchange()
            }
            Kind::Psk { hash } => {
                let hash = Hash::of(*hash);
                Psk::new(hash, &random(hash))?.to_interchange()
            }
            Kind::TlsKey { psk, host_nqn, nqn, psk_version, psk_derivation } => {
                let psk: Psk = read(psk).context("--psk")?;
                let key = psk.for_tls(host_nqn, nqn, *psk_version, (*psk_derivation).into())?;
                let digits: String = key.secret.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("identity  {}\nkey       {digits}", key.identity)
            }
        };
        output::print(&text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    #[test]
    fn a_host_has_a_name_and_perhaps_secrets_and_a_wrong_one_is_not_shown() {
        let plain = host("nqn.a").unwrap();
        assert_eq!((plain.nqn.as_str(), plain.secret), ("nqn.a", None));
        let both = host(&format!("nqn.a={SECRET},{SECRET}")).unwrap();
        assert_eq!((both.nqn.as_str(), both.secret == both.controller_secret), ("nqn.a", true));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{SECRET}\n")).unwrap();
        let by_file = host(&format!("nqn.a=@{}", file.path().display())).unwrap();
        assert_eq!((by_file.secret, by_file.controller_secret), (both.secret, None));
        let error = format!("{:#}", host(&format!("nqn.a={}", SECRET.replace("ia6", "ja6"))).unwrap_err());
        assert!(error.starts_with("--host nqn.a: its secret: ") && !error.contains("6zGod"), "{error}");
        assert!(format!("{:#}", host("nqn.a=@/nowhere").unwrap_err()).contains("/nowhere"));
    }

    #[test]
    fn a_psk_stands_among_the_secrets_of_a_host() {
        let psk = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
        let alone = host(&format!("nqn.a={psk}")).unwrap();
        assert_eq!((alone.psk.clone(), alone.secret), (psk.parse().ok(), None));
        let all = host(&format!("nqn.a={SECRET},{psk},{SECRET}")).unwrap();
        assert!(all.secret.is_some() && all.secret == all.controller_secret && all.psk == alone.psk);
        for (text, error) in [
            (format!("nqn.a={psk},{psk}"), "--host nqn.a: a second PSK"),
            (format!("nqn.a={SECRET},{SECRET},{SECRET}"), "--host nqn.a: a third secret"),
            (format!("nqn.a={}", psk.replace("VRL", "WRL")), "--host nqn.a: its PSK: "),
        ] {
            let told = format!("{:#}", host(&text).unwrap_err());
            assert!(told.starts_with(error) && !told.contains("nN9AQ") && !told.contains("6zGod"), "{told}");
        }
    }
}
