//! Name, hosts and limits of a subsystem, and the errors for values that are not allowed.

use kvdrive_auth::TlsPsk;
use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_nvme::auth::{Group, Hash};
use kvdrive_nvme::fabrics::{DISCOVERY_NQN, nqn, nqn_field};

use super::authentication::Host;
use super::transfer::WHOLE_MAX_BYTES;

/// Name, hosts and limits of a subsystem.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name.
    pub nqn: String,
    /// MDTS of networks: most data that one command moves, bytes; 4096 times a power of two.
    pub transfer_max_bytes: u32,
    /// Most data in the capsule of an I/O command, bytes; a multiple of 16, at most 8192.
    pub in_capsule_bytes: u32,
    /// Entries of an I/O queue, at most 32768.
    pub queue_entries_max: u32,
    /// I/O queues of one controller, at most 64.
    pub io_queues_max: u16,
    /// Controllers at one time.
    pub controllers_max: u16,
    /// Hosts that may connect; `None`: all.
    pub hosts: Option<Vec<Host>>,
    /// May hosts format namespaces, which erases them?
    pub allow_format: bool,
    /// The weakest hash that is accepted for authentication.
    pub hash_min: Hash,
    /// The weakest Diffie-Hellman group that is accepted for authentication.
    pub group_min: Group,
}

impl Options {
    /// Most data that one command moves with memory for all of them, bytes: MDTS of a PCI function.
    pub fn whole_max_bytes(&self) -> u32 {
        self.transfer_max_bytes.min(WHOLE_MAX_BYTES)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nqn: "nqn.2014-08.org.nvmexpress:uuid:6b766472-6976-8500-8000-000000000001".into(),
            transfer_max_bytes: 1 << 20,
            in_capsule_bytes: 8192,
            queue_entries_max: 1024,
            io_queues_max: 64,
            controllers_max: 4096,
            hosts: None,
            allow_format: false,
            hash_min: Hash::Sha256,
            group_min: Group::Null,
        }
    }
}

/// Whether a subsystem or a host can have this name.
#[must_use]
pub fn is_nqn(name: &str) -> bool {
    nqn_field(name).is_some_and(|field| nqn(&field) == Some(name))
}

/// An option that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// The name.
    #[error("nqn: {0:?}; a name begins with \"nqn.\" and has at most 223 bytes")]
    Nqn(String),
    /// The name of a host that may connect.
    #[error("host: {0:?}; a name begins with \"nqn.\" and has at most 223 bytes")]
    Host(String),
    /// MDTS.
    #[error("transfer_max_bytes: {0}; allowed: 4096 times a power of two, to 2 GiB")]
    TransferMax(u32),
    /// In-capsule data.
    #[error("in_capsule_bytes: {0}; allowed: a multiple of 16, to 8192")]
    InCapsule(u32),
    /// Queue size.
    #[error("queue_entries_max: {0}; allowed: 2 to 32768")]
    QueueEntries(u32),
    /// Number of queues.
    #[error("io_queues_max: {0}; allowed: 1 to 64")]
    IoQueues(u16),
    /// Number of controllers.
    #[error("controllers_max: {0}; allowed: 1 to 65519")]
    Controllers(u16),
}

impl Options {
    /// The PSKs with which hosts can connect to this subsystem and to discovery, for both versions of the PSK
    /// identity. (Names that are too long for version 0 have version 1 only.)
    pub fn psks(&self, derivation: Derivation) -> Vec<TlsPsk> {
        let mut psks: Vec<TlsPsk> = Vec::new();
        for host in self.hosts.iter().flatten() {
            let Some(psk) = &host.psk else { continue };
            for (nqn, version) in [&self.nqn[..], DISCOVERY_NQN]
                .into_iter()
                .flat_map(|nqn| [Version::One, Version::Zero].map(|version| (nqn, version)))
            {
                let made = psk.for_tls(&host.nqn, nqn, version, derivation);
                psks.extend(made.ok().filter(|made| psks.iter().all(|psk| psk.identity != made.identity)));
            }
        }
        psks
    }

    /// # Errors
    /// The first option that is not allowed, with the allowed values.
    pub fn check(&self) -> Result<(), OptionError> {
        if !is_nqn(&self.nqn) {
            return Err(OptionError::Nqn(self.nqn.clone()));
        }
        // A Connect cannot carry another name.
        if let Some(host) = self.hosts.iter().flatten().find(|host| !is_nqn(&host.nqn)) {
            return Err(OptionError::Host(host.nqn.clone()));
        }
        if self.transfer_max_bytes < 4096 || !self.transfer_max_bytes.is_power_of_two() {
            return Err(OptionError::TransferMax(self.transfer_max_bytes));
        }
        if !self.in_capsule_bytes.is_multiple_of(16) || self.in_capsule_bytes > 8192 {
            return Err(OptionError::InCapsule(self.in_capsule_bytes));
        }
        if !(2..=1 << 15).contains(&self.queue_entries_max) {
            return Err(OptionError::QueueEntries(self.queue_entries_max));
        }
        if !(1..=64).contains(&self.io_queues_max) {
            return Err(OptionError::IoQueues(self.io_queues_max));
        }
        // FFF0h to FFFFh are reserved (Fabrics: CNTLID).
        if !(1..=0xFFEF).contains(&self.controllers_max) {
            return Err(OptionError::Controllers(self.controllers_max));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_that_a_connect_can_carry() {
        let long = format!("nqn.{}", "a".repeat(220));
        for name in ["foo", "", "nqn.2014\0", &long] {
            let hosts = Some(vec![Host::from("nqn.2014-08.org.example:host"), Host::from(name)]);
            let error = Options { hosts, ..Options::default() }.check().unwrap_err();
            assert_eq!(error, OptionError::Host(name.to_owned()));
            assert!(!is_nqn(name), "{name:?}");
        }
        assert!(is_nqn(&long[..223]));
    }
}
