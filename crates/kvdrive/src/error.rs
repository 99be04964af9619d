//! [`Error`]: why a call has failed, in one line.

use kvdrive_host::Error as HostError;
use kvdrive_lab::config::ConfigError;
use kvdrive_saker::Failure;
use kvdrive_saker::threaded::Error as SakerError;
use kvdrive_spec::{Key, Status};

/// Why a call has failed. What it prints is one line that names the thing and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such drive can be built: the line begins with the key, file or profile to blame.
    #[error("{0}")]
    Configuration(String),
    /// The drive does not come up: its image is another drive's, is damaged, is in use, or the machine refused.
    #[error("the drive does not come up: {0}")]
    PowerOn(String),
    /// A key has 1 to 16 bytes (NVMe KV command set).
    #[error("a key has 1 to 16 bytes, not {0}")]
    KeySize(usize),
    /// A value that no command can bring. `controller.max_value_bytes` is the limit.
    #[error("store of key {key}: a value has at most {most} bytes here, not {bytes}")]
    ValueSize {
        /// The key, in hexadecimal when printed.
        key: Key,
        /// Size of the value.
        bytes: usize,
        /// Largest size the drive takes.
        most: u32,
    },
    /// The drive answered with a status that is no success.
    #[error("{call}{}: {status}", .key.map(|key| format!(" of key {key}")).unwrap_or_default())]
    Status {
        /// What was asked for: `store`, `get`, `delete`, ...
        call: &'static str,
        /// The key, in hexadecimal when printed; a call on all pairs has none.
        key: Option<Key>,
        /// What the drive answered.
        status: Status,
    },
    /// Writes that [SAKER](crate::saker) had taken have failed since the last sync.
    #[error("{} writes failed, the first for key {}: {}", .0.len(), .0[0].key, .0[0].status)]
    Unsynced(Vec<Failure>),
    /// A [run](crate::Builder::run) in model time has come to nothing.
    #[error("{0}")]
    Run(String),
    /// A fault rule or a change that the drive did not take.
    #[error("{0}")]
    Refused(String),
    /// The drive is off: it was closed, its power was cut, or it has never answered and never will.
    #[error("the drive is off")]
    Off,
    /// The drive has as many queue pairs as there are identifiers.
    #[error("{0}")]
    NoQueue(String),
}

impl Error {
    /// What the drive answered, if it did.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Of a call that a driver has failed to make.
    pub(crate) fn of(call: &'static str, key: Option<Key>, error: HostError) -> Error {
        match error {
            HostError::Status(status) => Error::Status { call, key, status },
            HostError::PowerOff(_) => Error::Off,
            HostError::NoQueue(reason) => Error::NoQueue(reason.to_string()),
            other => unreachable!("{other}: there is no network between a program and its own drive"),
        }
    }
}

impl Error {
    /// Of a call that SAKER has failed to make.
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

/// The key of these bytes.
pub(crate) fn key(bytes: &[u8]) -> Result<Key, Error> {
    Key::new(bytes).ok_or(Error::KeySize(bytes.len()))
}
