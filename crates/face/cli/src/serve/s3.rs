//! The S3 door of a served drive: its options, and what it reaches the drive by.

use std::net::SocketAddr;

use clap::Args;

/// Options of the door.
#[derive(Args)]
pub struct S3 {
    /// Address at which programs store objects by S3, as 127.0.0.1:9000, or port 0 for a free one; in a build with feature
    /// `s3`
    #[arg(long, value_name = "ADDRESS:PORT")]
    s3: Option<SocketAddr>,
    /// Name of the bucket that the drive is; may be repeated, for further namespaces [default: kvdrive, kvdrive-2, ...]
    #[arg(long, value_name = "NAME", requires = "s3")]
    #[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "only the door reads it"))]
    s3_bucket: Vec<String>,
    /// The access key with which programs sign, or a file that contains it; also the variable KVDRIVE_S3_KEY [default:
    /// any program, on addresses that only this machine reaches]
    #[arg(long, value_name = "ID:SECRET|@FILE", requires = "s3")]
    #[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "only the door reads it"))]
    s3_key: Option<String>,
}

#[cfg(feature = "s3")]
mod door {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use anyhow::Context;
    use kvdrive_host::reach::Remote;
    use kvdrive_s3::{Access, Bucket, Door, listen};

    use super::S3;

    /// The access key, as the option or this variable has it.
    const KEY: &str = "KVDRIVE_S3_KEY";

    impl S3 {
        /// Opens the door to `namespaces` drives of subsystem `nqn` at `drive`; returns its address, if it was asked for.
        ///
        /// # Errors
        /// An option is wrong, or the address cannot be listened at.
        pub fn listen(
            &self,
            drive: SocketAddr,
            nqn: &str,
            namespaces: usize,
        ) -> anyhow::Result<Option<SocketAddr>> {
            let Some(at) = self.s3 else { return Ok(None) };
            anyhow::ensure!(
                self.s3_bucket.len() <= namespaces,
                "--s3-bucket: {} names for {namespaces} namespaces",
                self.s3_bucket.len()
            );
            let address = if drive.ip().is_unspecified() {
                format!("127.0.0.1:{}", drive.port())
            } else {
                drive.to_string()
            };
            let bucket = |nsid: usize| {
                let usual = if nsid == 1 { "kvdrive".to_owned() } else { format!("kvdrive-{nsid}") };
                let name = self.s3_bucket.get(nsid - 1).cloned().unwrap_or(usual);
                let nqn = Some(nqn.to_owned());
                let remote =
                    Remote { address: address.clone(), nqn, nsid: Some(nsid as u32), ..Remote::default() };
                Arc::new(Bucket::remote(name, remote))
            };
            let buckets = (1..=namespaces).map(bucket).collect();
            listen(at, Door { buckets, access: self.access()? }).map(Some)
        }

        fn access(&self) -> anyhow::Result<Option<Access>> {
            let of_machine = || std::env::var_os(KEY).map(|key| key.to_string_lossy().into_owned());
            let (given, by) = match &self.s3_key {
                Some(key) => (Some(key.clone()), "--s3-key"),
                None => (of_machine(), KEY),
            };
            let Some(given) = given else { return Ok(None) };
            let text = match given.strip_prefix('@') {
                Some(path) => std::fs::read_to_string(path).with_context(|| format!("{by} {path}"))?,
                None => given,
            };
            text.parse().map(Some).map_err(|problem| anyhow::anyhow!("{by}: {problem}"))
        }
    }
}

impl S3 {
    /// Checks that the door can be opened beside what else is served.
    ///
    /// # Errors
    /// This build has no door, or hosts have to authenticate, which the door does not.
    pub fn check(&self, has_hosts: bool) -> anyhow::Result<()> {
        if self.s3.is_none() {
            return Ok(());
        }
        anyhow::ensure!(
            cfg!(feature = "s3"),
            "--s3: this kvdrive was built without it; cargo build --features s3"
        );
        anyhow::ensure!(!has_hosts, "--s3: the door is a host of the drive without a name that --host lists");
        Ok(())
    }

    /// As there is no door in this build.
    #[cfg(not(feature = "s3"))]
    pub fn listen(
        &self,
        _drive: SocketAddr,
        _nqn: &str,
        _namespaces: usize,
    ) -> anyhow::Result<Option<SocketAddr>> {
        Ok(None)
    }
}
