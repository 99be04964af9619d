//! Errors of commands, the same for every connection between host and drive.

use std::io;

use kvdrive_link::shared::{NoQueue, OtherThread, PowerOff};
use kvdrive_nvme::Status;
use kvdrive_nvme::auth::Reason;
use kvdrive_nvme::fabrics::{ConnectData, invalid_parameter};

/// Why a command failed. A modelled drive only ever answers [`Error::Status`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The status that the drive answered.
    #[error(transparent)]
    Status(#[from] Status),
    /// The drive is off: its thread has ended.
    #[error(transparent)]
    PowerOff(#[from] PowerOff),
    /// Only the thread that opened the drive may call it: its calls carry the drive out.
    #[error(transparent)]
    OtherThread(#[from] OtherThread),
    /// The drive has no free queue identifier.
    #[error(transparent)]
    NoQueue(NoQueue),
    /// A command that cannot be sent: it names too many of something, or none.
    #[error("a command has 1 to {most} {of}, not {found}")]
    Count {
        /// The thing that is counted.
        of: &'static str,
        /// How many the command names.
        found: u64,
        /// Most that one command may name.
        most: u32,
    },
    /// The socket to a drive on a network failed.
    #[error("{what}")]
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The message of the operating system.
        what: String,
    },
    /// A controller on a network refused a Connect with this status; dword 0 points at the wrong byte.
    #[error("connect: {}", refusal(*.0, *.1))]
    Refused(Status, u32),
    /// A controller on a network ended the connection.
    #[error("the controller ended the connection: reason {reason:02X}h, information {information:X}h")]
    Terminated {
        /// FES (fatal error status).
        reason: u16,
        /// FEI (fatal error information).
        information: u32,
    },
    /// Authentication between host and controller failed.
    #[error("{} ended it: {reason}", if *by_controller { "the controller" } else { "the host" })]
    Authentication {
        /// The reason that was sent.
        reason: Reason,
        /// The controller sent the reason, not the host.
        by_controller: bool,
    },
    /// A controller on a network violated the protocol in this way.
    #[error("the controller broke the protocol: {0}")]
    Protocol(&'static str),
}

/// Why a Connect was refused: its status, and the byte that dword 0 points at.
fn refusal(status: Status, dword_0: u32) -> String {
    let names = |at| status == Status::CONNECT_INVALID_PARAMETERS && dword_0 == invalid_parameter(at, true);
    if names(ConnectData::SUBSYSTEM_NQN_AT) {
        "no such subsystem at this address; give the name that the server printed, or none, so that discovery finds it".into()
    } else if names(ConnectData::HOST_NQN_AT) {
        "the host's name is refused: it begins with \"nqn.\" and has at most 223 bytes".into()
    } else if status == Status::CONNECT_INVALID_HOST {
        "the host may not connect: its name is not on the server's list".into()
    } else {
        format!("{status}, dword 0 is {dword_0:X}h")
    }
}

impl Error {
    /// The status that the drive answered; `Err`: the connection failed, and no answer will come.
    ///
    /// # Errors
    /// The connection failed.
    pub fn status(self) -> Result<Status, Error> {
        match self {
            Error::Status(status) => Ok(status),
            error => Err(error),
        }
    }
}

impl From<NoQueue> for Error {
    fn from(reason: NoQueue) -> Error {
        match reason {
            NoQueue::PowerOff(off) => Error::PowerOff(off),
            NoQueue::NoIdentifier => Error::NoQueue(reason),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io { kind: error.kind(), what: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connect_names_what_was_wrong() {
        let of = |at, in_data| {
            let dword_0 = invalid_parameter(at, in_data);
            Error::Refused(Status::CONNECT_INVALID_PARAMETERS, dword_0).to_string()
        };
        let subsystem = of(ConnectData::SUBSYSTEM_NQN_AT, true);
        assert!(subsystem.starts_with("connect: no such subsystem"), "{subsystem}");
        let host = of(ConnectData::HOST_NQN_AT, true);
        assert!(host.starts_with("connect: the host's name"), "{host}");
        let other = of(ConnectData::CONTROLLER_ID_AT, true);
        assert!(other.ends_with("dword 0 is 10010h"), "{other}");
        let in_entry = of(ConnectData::SUBSYSTEM_NQN_AT, false);
        assert!(in_entry.ends_with("dword 0 is 100h"), "a byte of the entry is no name: {in_entry}");
    }
}
