//! [`Error`]: why a call has failed.

use kvdrive_config::ConfigError;
use kvdrive_host::Error as HostError;
use kvdrive_saker::Failure;
use kvdrive_saker::threaded::Error as SakerError;
use kvdrive_spec::{Key, Status};

/// Why a call has failed. It prints as one line that names the thing and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The described drive cannot be built: the line begins with the key, file or profile at fault.
    #[error("{0}")]
    Configuration(String),
    /// The drive cannot be powered on: its image belongs to another drive, is damaged, is in use, or cannot
    /// be accessed.
    #[error("the drive does not come up: {0}")]
    PowerOn(String),
    /// A key has 1 to 16 bytes (NVMe KV command set).
    #[error("a key has 1 to 16 bytes, not {0}")]
    KeySize(usize),
    /// A value that no command can carry. `controller.max_value_bytes` is the limit.
    #[error("store of key {key}: a value has at most {most} bytes here, not {bytes}")]
    ValueSize {
        /// The key, in hexadecimal when printed.
        key: Key,
        /// Size of the value.
        bytes: usize,
        /// Largest size that the drive accepts.
        most: u32,
    },
    /// The drive answered with an error status.
    #[error("{call}{}: {status}", .key.map(|key| format!(" of key {key}")).unwrap_or_default())]
    Status {
        /// The call: `store`, `get`, `delete`, ...
        call: &'static str,
        /// The key, in hexadecimal when printed; empty for a call on all pairs.
        key: Option<Key>,
        /// The drive's status.
        status: Status,
    },
    /// Writes that [SAKER](crate::saker) had accepted have failed since the last sync.
    #[error("{} writes failed, the first for key {}: {}", .0.len(), .0[0].key, .0[0].status)]
    Unsynced(Vec<Failure>),
    /// A [run](crate::Builder::run) in model time has failed.
    #[error("{0}")]
    Run(String),
    /// A fault rule or a change that the drive refused.
    #[error("{0}")]
    Refused(String),
    /// The drive is off: it was closed, its power was cut, or it will never answer.
    #[error("the drive is off")]
    Off,
    /// The drive was opened [in another thread](crate::Builder::in_this_thread), whose calls carry it out.
    #[error("{call}: the drive runs in the thread that opened it, and this is another one")]
    OtherThread {
        /// What was asked for.
        call: &'static str,
    },
    /// The drive has as many queue pairs as there are identifiers.
    #[error("{0}")]
    NoQueue(String),
    /// The way to a drive on a network: its socket, its host's or controller's refusal, or the protocol.
    #[error("{0}")]
    Network(String),
}

impl Error {
    /// The drive's status, if it answered.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error of a driver's call.
    pub(crate) fn of(call: &'static str, key: Option<Key>, error: HostError) -> Error {
        match error {
            HostError::Status(status) => Error::Status { call, key, status },
            HostError::PowerOff(_) => Error::Off,
            HostError::OtherThread(_) => Error::OtherThread { call },
            HostError::NoQueue(reason) => Error::NoQueue(reason.to_string()),
            other => Error::Network(format!("{call}: {other}")),
        }
    }
}

impl Error {
    /// The error of a SAKER call.
    pub(crate) fn of_saker(call: &'static str, key: Option<Key>, error: SakerError) -> Error {
        match error {
            SakerError::Status(status) => Error::Status { call, key, status },
            SakerError::Failed(failures) => Error::Unsynced(failures),
            SakerError::Off(_) => Error::Off,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Error {
        Error::Configuration(error.to_string())
    }
}

/// Makes a key of these bytes.
pub(crate) fn key(bytes: &[u8]) -> Result<Key, Error> {
    Key::new(bytes).ok_or(Error::KeySize(bytes.len()))
}
