//! [`Error`]: why a call has failed.

use kvdrive_config::ConfigError;
use kvdrive_content::Region;
use kvdrive_host::Error as HostError;
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::Failure;
use kvdrive_saker::threaded::Error as SakerError;

/// Why a call has failed. It prints as one line that names the thing and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description of a drive or run is invalid: the line begins with the setting at fault.
    #[error("{}{problem}", .at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default())]
    Configuration {
        /// The key, option, file, profile or address at fault; `None`: none of them alone is.
        at: Option<String>,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The drive cannot be powered on: its image belongs to another drive, is damaged, is in use, or cannot
    /// be accessed.
    #[error("the drive does not start: {0}")]
    PowerOn(String),
    /// A key has 1 to 16 bytes (NVMe KV command set), or is a name of up to 65 535 bytes, stored under a digest of it. A
    /// prefix, the start of an iteration and a key of [SAKER](crate::saker) have at most 16 bytes.
    #[error("a key has 1 to 65535 bytes, a prefix at most 16; not {0}")]
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
    /// A value is longer than this drive or connection can return at once, because it was stored under a larger
    /// `controller.max_value_bytes`. [`Client::get_part`](crate::Client::get_part) returns parts of it.
    #[error("{call} of key {key}: only {came} of the value's {bytes} bytes arrived")]
    ValueCutShort {
        /// The call: `get`, `next`.
        call: &'static str,
        /// The key, in hexadecimal when printed.
        key: Key,
        /// Size of the value.
        bytes: u32,
        /// How many bytes of it came.
        came: u32,
    },
    /// The pair under the digest of a name is that of another name, or was stored under the digest itself: it is not
    /// returned, replaced or removed.
    #[error("{call} of key {key}: the pair there belongs to another name")]
    OtherName {
        /// The call: `store`, `get`, `delete`, ...
        call: &'static str,
        /// The digest, in hexadecimal when printed.
        key: Key,
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
    /// A time of a stepped drive that is over.
    #[error("{call}: {at_ns} ns is over; the drive stands at {now_ns} ns")]
    TimePassed {
        /// What was asked for.
        call: &'static str,
        /// The time that was given.
        at_ns: u64,
        /// The present time of the drive.
        now_ns: u64,
    },
    /// The drive is off: it was closed, its power was cut, or it will never answer.
    #[error("the drive is off")]
    Off,
    /// The drive was opened [in another thread](crate::Builder::in_this_thread), whose calls carry it out.
    #[error("{call}: the drive runs in the thread that opened it, and this is another one")]
    OtherThread {
        /// What was asked for.
        call: &'static str,
    },
    /// The drive was opened by the parent of this forked process, and its threads and sockets belong to the parent.
    #[error(
        "{call}: the drive was opened before this process was forked off, and stayed with its parent; open one here"
    )]
    ForkedChild {
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

    /// An error in a configuration: the setting at fault, and why.
    pub fn configuration(at: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Configuration { at: Some(at.into()), problem: problem.into() }
    }

    /// The key of the configuration at fault, or the option, file, profile or address.
    pub fn setting(&self) -> Option<&str> {
        // A keyword argument is named with its value.
        if let Error::Configuration { at: Some(at), .. } = self { at.split('=').next() } else { None }
    }

    /// What the setting at fault may be, in words; `None`: the error is of no key of the configuration.
    pub fn allowed(&self) -> Option<String> {
        let at = self.setting()?.trim_start_matches("--");
        let option = at.replace('_', "-");
        let declared = kvdrive_config::settings()
            .find(|setting| setting.key == at || setting.option == Some(option.as_str()));
        declared.map(|setting| setting.rule.allowed())
    }

    /// The key of the pair that a call was about.
    pub fn pair(&self) -> Option<Key> {
        match self {
            Error::Status { key, .. } => *key,
            Error::ValueSize { key, .. }
            | Error::ValueCutShort { key, .. }
            | Error::OtherName { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// The call that the drive refused, or that could not be made from here.
    pub fn call(&self) -> Option<&'static str> {
        match self {
            Error::Status { call, .. }
            | Error::ValueCutShort { call, .. }
            | Error::OtherName { call, .. }
            | Error::OtherThread { call }
            | Error::ForkedChild { call }
            | Error::TimePassed { call, .. } => Some(call),
            Error::ValueSize { .. } => Some("store"),
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
        Error::configuration(error.key, error.problem)
    }
}

/// The value of `bytes` bytes that a call has brought into `value`.
///
/// # Errors
/// [`Error::ValueCutShort`].
pub(crate) fn whole(call: &'static str, key: Key, bytes: u32, value: &Region) -> Result<Vec<u8>, Error> {
    match value.written_end() {
        came if came < bytes => Err(Error::ValueCutShort { call, key, bytes, came }),
        _ => Ok(value.to_bytes(bytes)),
    }
}

/// Makes a key of these bytes, at most 16: of a longer key the drive would keep no more than the size.
pub(crate) fn key(bytes: &[u8]) -> Result<Key, Error> {
    Key::new(bytes).filter(|key| !key.is_long()).ok_or(Error::KeySize(bytes.len()))
}

/// The bytes of a key.
pub(crate) fn bytes_of(key: &Key) -> Vec<u8> {
    key.to_vec()
}
